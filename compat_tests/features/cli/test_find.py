"""`kafkawire find` as a user types it, on records of a real producer."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients.confluent.clients import create_topic, flush, producer
from compat_tests.features.cli.commands import kafkawire
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkawire]:
    """10,000 records over three partitions, a second apart; one in a thousand is of one customer."""
    directory: Path = tmp_path_factory.mktemp("find")
    with Kafkawire(directory) as broker:
        create_topic(broker, "orders", 3, config={"index.keys": "true", "segment.bytes": "1048576"})
        client = producer(broker, compression_type="lz4")
        for number in range(10_000):
            key = b"customer-7" if number % 1000 == 7 else b"customer-%d" % (1000 + number)
            client.produce("orders", b"order %d" % number, key, timestamp=FIRST_MS + 1000 * number)
        flush(client)
        yield broker


def find(broker: Kafkawire, *arguments: str) -> subprocess.CompletedProcess[str]:
    return kafkawire("find", *arguments, "--http", broker.http_url)


def found(broker: Kafkawire, *arguments: str) -> list[dict[str, Any]]:
    done = find(broker, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_by_key(filled: Kafkawire) -> None:
    values = [one["value"] for one in found(filled, "orders", "--key", "customer-7")]
    assert sorted(values) == sorted(f"order {number}" for number in range(7, 10_000, 1000))


def test_by_time_over_several_pages(filled: Kafkawire) -> None:
    window = ["--from", str(FIRST_MS + 2_000_000), "--to", "2023-11-15T00:00:00"]
    messages = found(filled, "orders", *window, "--limit", "5000")
    last = (1_700_006_400_000 - FIRST_MS) // 1000
    assert sorted(one["timestamp"] for one in messages) == [FIRST_MS + 1000 * number for number in range(2000, last)]


def test_by_offset_as_a_table(filled: Kafkawire) -> None:
    done = find(filled, "orders", "--partition", "1", "--offset", "5", "--limit", "2")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE"]
    assert [row.split()[:2] for row in rows] == [["1", "5"], ["1", "6"]]


def test_a_refusal_is_one_line(filled: Kafkawire) -> None:
    for arguments, reason in (
        (["nothing", "--key", "1"], "there is no topic nothing"),
        (["orders"], "ask by key or key_base64, by from and to, or by offset"),
    ):
        done = find(filled, *arguments)
        assert (done.returncode, done.stderr) == (1, f"Error: {reason}\n")


def test_find_fails_with_a_message_if_the_broker_does_not_answer() -> None:
    done = kafkawire("find", "orders", "--key", "1", "--http", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    assert "Traceback" not in done.stderr
