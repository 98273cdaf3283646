"""`kafkawire log-dirs strays` on a directory that a broker left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
import trio.testing
from click.testing import CliRunner, Result

from engine.files.filesystem import PosixFileSystem, replace_small
from engine.log_dirs.stray_files import encode_metadata, find_strays, stray_name
from engine.log_dirs.strays import Fate
from engine.logs.recovery.checkpoints import key_of, read_checkpoint
from engine.offline.inspection import held
from kafkawire.cli import main
from testkit.logs import NOW_MS, ORDERS, append, fates, open_orders, options, read_all, running

NAME = stray_name(key_of(ORDERS), NOW_MS)
UNNAMED = fates(lambda *_: False, Fate.UNNAMED)
NAMED = fates(lambda *_: True)


def do(data: Path, fate_of: object = None) -> dict[int, bytes | None]:
    """Run a broker once; its first run produces a record."""
    found: dict[int, bytes | None] = {}

    async def live() -> None:
        async with running(PosixFileSystem(), options(str(data))) as store:
            if fate_of is None:
                await append(await open_orders(store), b"x" * 60)
            else:
                await store.strays.apply_fates(fate_of)  # type: ignore[arg-type]
            if fate_of is NAMED:
                found.update(await read_all(await open_orders(store, leader_epoch=1)))
            await store.close()

    trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir whose only log is a stray."""
    directory = tmp_path / "data"
    do(directory)
    do(directory, UNNAMED)
    return directory


def run(data: Path, command: str, *arguments: str) -> Result:
    call = ["log-dirs", "strays", command, *arguments, "--data-dir", str(data)]
    return CliRunner().invoke(main, call, catch_exceptions=False)


def test_list_shows_strays_also_while_a_broker_runs(data: Path) -> None:
    (data / "no-stray").write_text("a file")
    older = data / f"a.b-3.{bytes(16).hex()}-stray"
    older.mkdir()
    damaged = data / stray_name((bytes(16), 7), NOW_MS)
    damaged.mkdir()
    with held(PosixFileSystem(), str(data)):
        lines = [line.split() for line in run(data, "list").stdout.splitlines()]
    assert lines[0] == ["STRAY", "TOPIC", "PARTITION", "BYTES", "SINCE", "RUNNING-TIME", "STATE"]
    rows = {line[0]: line[1:] for line in lines[1:]}
    assert set(rows) == {NAME, older.name, damaged.name}
    assert rows[NAME][:2] == ["orders", "0"]
    assert int(rows[NAME][2]) > 60
    assert rows[NAME][3:] == ["2023-11-14T22:13:20.000+00:00", "0.0h", "kept"]
    assert rows[older.name] == ["a.b", "-", "0", "-", "-", "older"]
    assert rows[damaged.name] == ["UNKNOWN", "7", "0", "2023-11-14T22:13:20.000+00:00", "-", "damaged"]
    found = {one["stray"]: one for one in json.loads(run(data, "list", "-o", "json").stdout)}
    assert (found[NAME]["topic_id"], found[NAME]["running_time_ms"]) == (ORDERS.topic_id.hex(), 0)


def test_restore_gives_the_plain_name_back_and_the_next_start_decides(data: Path) -> None:
    result = run(data, "restore", NAME)
    assert result.stdout == f"{NAME} is orders-0 again\n"
    assert "the next start of the broker decides" in result.stderr
    do(data, UNNAMED)
    assert not (data / "orders-0").exists()
    assert run(data, "restore", NAME).exit_code == 0
    assert do(data, NAMED) == {0: b"x" * 60}


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_repair_after_a_restore_takes_the_checkpoint_entry_over(data: Path, *, is_clean: bool) -> None:
    metadata = find_strays(PosixFileSystem(), str(data))[0].metadata
    assert metadata is not None
    content = encode_metadata(metadata._replace(needs_scan=not is_clean))
    replace_small(PosixFileSystem(), str(data / NAME), "stray.metadata", content)
    assert run(data, "restore", NAME).exit_code == 0
    call = ["segments", "repair", "--data-dir", str(data)]
    assert CliRunner().invoke(main, call, catch_exceptions=False).exit_code == 0
    assert not (data / "orders-0" / "stray.metadata").exists()
    assert read_checkpoint(PosixFileSystem(), str(data)).partitions[key_of(ORDERS)].recovery_point == 1
    assert (data / "clean-shutdown").exists() == is_clean
    assert do(data, NAMED) == {0: b"x" * 60}


def test_restore_touches_nothing_that_is_there(data: Path) -> None:
    (data / "orders-0").mkdir()
    result = run(data, "restore", NAME, "unknown-stray")
    assert result.exit_code == 1
    assert f"Error: {NAME}: there is a directory orders-0" in result.stderr
    assert "Error: unknown-stray: there is no such stray" in result.stderr
    assert (data / NAME).exists()
    damaged = data / stray_name((bytes(16), 7), NOW_MS)
    damaged.mkdir()
    assert "stray.metadata is missing or damaged" in run(data, "restore", damaged.name).stderr


def test_delete_of_a_stray_requires_yes_because_it_discards_records(data: Path) -> None:
    result = run(data, "delete", NAME)
    assert result.exit_code == 1
    assert "this discards the records" in result.stderr
    assert (data / NAME).exists()
    result = run(data, "delete", NAME, "--yes")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{NAME} is deleted: ")
    assert not [one for one in data.iterdir() if "stray" in one.name and one.is_dir()]


@pytest.mark.parametrize("command", [("restore", NAME), ("delete", NAME, "--yes")])
def test_a_broker_that_runs_is_not_disturbed(data: Path, command: tuple[str, ...]) -> None:
    with held(PosixFileSystem(), str(data)):
        result = run(data, *command)
    assert result.exit_code == 1
    assert "is in use by a broker: stop it first" in result.stderr
    assert (data / NAME).exists()
