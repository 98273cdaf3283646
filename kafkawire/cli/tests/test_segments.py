"""`kafkawire segments` on the log dir of a stopped broker: output, changes and exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from click.testing import CliRunner, Result

from engine.api import AbortedTransaction, Marker, Outcome
from engine.batches.batch import CONTROL_BIT, TRANSACTIONAL_BIT, Record, build_batch, stamp
from engine.batches.markers import build_marker
from engine.files.filesystem import PosixFileSystem
from engine.log_config import LogConfig
from engine.logs.recovery.checkpoints import read_checkpoint, write_checkpoint
from engine.logs.transactions.aborted import aborted_index_name, encode_aborted
from engine.offline.inspection import held
from kafkawire.cli import main
from testkit.logs import NOW_MS, append, open_orders, options, running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three segments of a partition `orders-0`, two of them sealed."""
    directory = tmp_path / "data"

    async def fill() -> None:
        async with running(PosixFileSystem(), options(str(directory))) as store:
            log = await open_orders(store, LogConfig(segment_size_bytes=200))
            for _ in range(3):
                await append(log, b"x" * 60, b"y" * 30)
            await trio.sleep(1)  # of the mock clock: it jumps when all work is done
            await store.close()

    trio.run(fill, clock=trio.testing.MockClock(autojump_threshold=0))
    return directory


def run(data: Path, command: str, *arguments: str) -> Result:
    call = ["segments", command, "--data-dir", str(data), *arguments]
    return CliRunner().invoke(main, call, catch_exceptions=False)


def document(data: Path, command: str, *arguments: str) -> Any:
    result = run(data, command, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list_shows_sealed_and_active_segments(data: Path) -> None:
    lines = [line.split() for line in run(data, "list").stdout.splitlines()]
    assert [(line[0], line[1], line[-1]) for line in lines[1:]] == [
        ("orders-0", "0", "sealed"), ("orders-0", "2", "sealed"), ("orders-0", "4", "active"),
    ]  # fmt: skip
    first = document(data, "list", "orders-0")[0]
    assert (first["batches"], first["records"], first["last_offset"], first["generation"]) == (1, 2, 1, 0)
    assert len(first["digest"]) == 64


def test_verify_finds_a_flipped_bit(data: Path) -> None:
    assert [one["records"] for one in document(data, "verify")] == [2, 2, 2]
    segment = data / "orders-0" / f"{2:020d}.log"
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    result = run(data, "verify")
    assert result.exit_code == 1
    assert f"Error: {segment}: the batch at position 0 is damaged" in result.stderr
    assert run(data, "list").exit_code == 0
    dump = run(data, "dump", "orders-0", "2")
    assert dump.exit_code == 1
    assert "does not match its CRC" in dump.stderr


def test_seal_writes_a_missing_footer(data: Path) -> None:
    footer = data / "orders-0" / f"{0:020d}.footer"
    before = footer.read_bytes()
    footer.unlink()
    assert [one["state"] for one in document(data, "list")] == ["finished", "sealed", "active"]
    assert [one["state"] for one in document(data, "seal")] == ["sealed", "sealed", "active"]
    assert footer.read_bytes() == before


def test_dump_shows_batches(data: Path) -> None:
    [batch] = document(data, "dump", "orders-0", "4")
    assert (batch["base_offset"], batch["last_offset"], batch["records"], batch["crc"]) == (4, 5, 2, "right")
    assert run(data, "dump", "orders-0", "1").exit_code == 1


def lay_transaction(data: Path, name: str = "orders-0") -> Path:
    """Append transactions as Apache Kafka writes them: two transactional batches, each followed by its marker."""
    directory = data / name
    aborted = build_batch([Record(None, b"a", NOW_MS)], attributes=TRANSACTIONAL_BIT, producer=(4711, 0, 0))
    markers = [build_marker(Marker(4711, 0, 3, outcome), NOW_MS) for outcome in (Outcome.ABORT, Outcome.COMMIT)]
    segment = directory / f"{4:020d}.log"
    content = bytearray(segment.read_bytes())
    for offset, batch in zip((6, 7, 8, 9), [aborted, markers[0], aborted[:], markers[1]], strict=True):
        stamp(memoryview(batch), offset, 0)
        content += batch
    segment.write_bytes(content)
    index = directory / aborted_index_name(4)
    index.write_bytes(encode_aborted([AbortedTransaction(4711, 6, 7, 8)]))
    return index


def test_transactions_are_told(data: Path) -> None:
    lay_transaction(data)
    kinds = [(one["base_offset"], one["kind"]) for one in document(data, "dump", "orders-0", "4")]
    assert kinds == [(4, "plain"), (6, "transactional"), (7, "abort"), (8, "transactional"), (9, "commit")]
    assert document(data, "verify", "orders-0")[-1]["batches"] == 5


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (AbortedTransaction(4711, 8, 9, 10), "nothing aborts producer 4711 at offset 9"),
        (AbortedTransaction(4712, 6, 7, 8), "nothing aborts producer 4712 at offset 7"),
        (AbortedTransaction(4711, 6, 11, 12), "a marker at 11 is not behind 3 and below 10"),
    ],
)
def test_verify_finds_a_wrong_index_of_aborted_transactions(
    data: Path, entry: AbortedTransaction, problem: str
) -> None:
    lay_transaction(data).write_bytes(encode_aborted([entry]))
    result = run(data, "verify")
    assert result.exit_code == 1
    assert f"00000000000000000004.txnindex: {problem}" in result.stderr


def test_other_control_batches_are_told(data: Path) -> None:
    segment = data / "orders-0" / f"{4:020d}.log"
    batch = build_batch([Record(b"\0\0\0\2", bytes(6), NOW_MS)], attributes=CONTROL_BIT, producer=(-1, -1, -1))
    stamp(memoryview(batch), 6, 0)
    segment.write_bytes(segment.read_bytes() + batch)
    assert document(data, "dump", "orders-0", "4")[-1]["kind"] == "control"


def test_repair(data: Path) -> None:
    assert document(data, "repair") == {"done": [], "left": []}
    (data / "orders-0" / f"{2:020d}.log").unlink()
    result = run(data, "repair")
    assert result.exit_code == 1
    assert "--accept-loss" in result.stderr
    assert run(data, "repair", "--accept-loss").exit_code == 0
    assert run(data, "repair", "--drop-index").exit_code == 0
    assert [one["state"] for one in document(data, "list")] == ["active"]


def test_list_shows_copied_segments_and_segments_that_only_the_tier_has(data: Path) -> None:
    before = read_checkpoint(PosixFileSystem(), str(data))
    [(key, point)] = before.partitions.items()
    after = before._replace(partitions={key: point._replace(tiered_to=2)})
    write_checkpoint(PosixFileSystem(), str(data), after)
    assert [one["state"] for one in document(data, "list")] == ["copied", "sealed", "active"]
    after = before._replace(partitions={key: point._replace(tiered_to=4, local_start_offset=2)})
    write_checkpoint(PosixFileSystem(), str(data), after)
    (data / "orders-0" / f"{0:020d}.log").unlink()
    first, second, _ = document(data, "list")
    assert (first["state"], first["base_offset"], first["last_offset"], first["bytes"]) == ("tier", 0, 1, None)
    assert second["state"] == "copied"


def test_list_of_a_missing_partition_or_log_dir_is_an_error(data: Path, tmp_path: Path) -> None:
    for result in (run(data, "list", "other-0"), run(tmp_path, "list")):
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")


def test_commands_are_refused_while_the_log_dir_is_in_use(data: Path) -> None:
    with held(PosixFileSystem(), str(data)):
        for command in ("list", "verify", "seal", "repair"):
            result = run(data, command)
            assert result.exit_code == 1
            assert "is in use by" in result.stderr
