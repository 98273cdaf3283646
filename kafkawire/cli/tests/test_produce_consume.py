"""`kafkawire produce` and `kafkawire consume` against a cluster in memory: stored records and output."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from engine.batches.batch import Codec, Record, build_batch, parse_header
from kafkawire.cli import main
from kafkawire.cli.common.streaming import Input, Output, Progress
from kafkawire.cli.produce.producing import Production
from kafkawire.cli.produce.record_input import Parser, Reading
from kafkawire.client import consumer
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import ClientError
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.client.tests.fake_records import FakeRecords
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.requests.errors import ErrorCode

NOON_MS = 1_700_000_000_000


@pytest.fixture
def fake() -> FakeRecords:
    """`orders` has two partitions on two brokers."""
    cluster = FakeRecords(2)
    cluster.topics["orders"] = [FakeLog(leader=1), FakeLog(leader=2)]
    return cluster


def run(fake: FakeRecords, name: str, *arguments: str, typed: str | bytes = "") -> Result:
    command = [name, *arguments, "-b", "kafka-1:9092"]
    return CliRunner().invoke(main, command, input=typed, obj=fake.connect, catch_exceptions=False)


def produced(fake: FakeRecords, typed: str | bytes, *arguments: str) -> Any:
    result = run(fake, "produce", "orders", *arguments, "-o", "json", typed=typed)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def consumed(fake: FakeRecords, *arguments: str) -> list[str]:
    result = run(fake, "consume", "orders", "-e", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def refused(result: Result, code: int = 1) -> str:
    assert result.exit_code == code
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def test_lines_are_records(fake: FakeRecords) -> None:
    result = run(fake, "produce", "orders", "-p", "1", typed="one\ntwo\n")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["PARTITION", "RECORDS", "FIRST", "LAST"],
        ["1", "2", "0", "1"],
    ]
    assert produced(fake, "three", "-p", "1") == {
        "topic": "orders",
        "records": 1,
        "partitions": [{"partition": 1, "records": 1, "first_offset": 2, "last_offset": 2}],
    }
    assert consumed(fake, "--from-beginning") == ["one", "two", "three"]
    assert consumed(fake) == []
    assert produced(fake, "") == {"topic": "orders", "records": 0, "partitions": []}


def test_records_with_the_same_key_go_to_the_same_partition(fake: FakeRecords) -> None:
    produced(fake, "".join(f"k{number}:{number}\n" for number in range(20)), "-K:")
    produced(fake, "again\n", "-k", "k3", "-H", "a=b")
    (mine,) = [number for number in (0, 1) if "k3=3" in consumed(fake, "-p", str(number), "--from-beginning", "-K=")]
    assert consumed(fake, "--offset=-1", "-p", str(mine), "-K=") == ["k3=again"]
    assert all(fake.batches["orders", number] for number in (0, 1))


def test_keys_and_separators_are_the_bytes_that_were_typed(fake: FakeRecords) -> None:
    """The bytes need not be UTF-8: Python shows others as lone surrogates."""
    separator, key = os.fsdecode(b"\xff"), os.fsdecode(b"k\xfe")
    produced(fake, b"k\xff1\n", "-K", separator, "-p", "0")
    produced(fake, "2\n", "-k", key, "-p", "0")
    stored = [json.loads(line) for line in consumed(fake, "--from-beginning", "--key-format", "hex", "-o", "json")]
    assert [(one["key"], one["value"]) for one in stored] == [("6b", "1"), ("6bfe", "2")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(fake: FakeRecords, codec: str) -> None:
    produced(fake, "a\nb\n", "-z", codec, "-p", "0")
    assert parse_header(fake.batches["orders", 0][0]).codec_id == Codec[codec.upper()]
    assert consumed(fake, "--offset", "start") == ["a", "b"]


def test_json_there_and_back(fake: FakeRecords) -> None:
    produced(fake, b"k\xff:\n", "-K:", "-Z", "-H", "a=b", "-H", "none")
    (line,) = consumed(fake, "--from-beginning", "-o", "json")
    document = json.loads(line)
    assert document["key"] == {"base64": "a/8="}
    assert document["value"] is None
    assert document["headers"] == [{"key": "a", "value": "b"}, {"key": "none", "value": None}]
    assert (document["topic"], document["offset"], document["timestamp_type"]) == ("orders", 0, "CreateTime")
    produced(fake, line, "--input", "json", "-p", str(document["partition"]))
    again = [json.loads(line) for line in consumed(fake, "--from-beginning", "-o", "json")]
    assert again == [document, document | {"offset": 1}]


def test_formats(fake: FakeRecords) -> None:
    produced(fake, '6b:{"a": 1}\n', "-K:", "--key-format", "hex", "--value-format", "json")
    assert consumed(fake, "--from-beginning", "-K=", "--value-format", "base64") == ["k=eyJhIjogMX0="]
    assert consumed(fake, "--from-beginning", "--value-format", "json") == ['{"a":1}']
    (line,) = consumed(fake, "--from-beginning", "--value-format", "json", "--key-format", "hex", "-o", "json")
    assert (json.loads(line)["key"], json.loads(line)["value"]) == ("6b", {"a": 1})
    result = run(fake, "consume", "orders", "--from-beginning", "-e", "-K=", "--key-format", "json")
    assert refused(result).endswith("at offset 0: not json: k")


def test_json_that_is_no_text(fake: FakeRecords) -> None:
    """A lone surrogate, which JSON can name and UTF-8 cannot."""
    produced(fake, '{"a": "\\ud800"}\n', "-p", "0", "--value-format", "json")
    assert consumed(fake, "--from-beginning", "--value-format", "json") == ['{"a":"\\ud800"}']
    (line,) = consumed(fake, "--from-beginning", "--value-format", "json", "-o", "json")
    assert json.loads(line)["value"] == {"a": "\ud800"}


def test_a_json_null_and_a_tombstone_look_alike_in_json_only(fake: FakeRecords) -> None:
    """A tombstone looks the same in JSON, and only there."""
    produced(fake, "null\n\n", "-p", "0", "-Z")
    as_json = consumed(fake, "--from-beginning", "--value-format", "json", "-o", "json")
    assert [json.loads(line)["value"] for line in as_json] == [None, None]
    as_text = consumed(fake, "--from-beginning", "-o", "json")
    assert [json.loads(line)["value"] for line in as_text] == ["null", None]
    assert consumed(fake, "--from-beginning", "--value-format", "json") == ["null", ""]


def test_where_to_begin(fake: FakeRecords) -> None:
    for number in range(5):
        fake.store("orders", 0, build_batch([Record(value=b"%d" % number, timestamp_ms=NOON_MS + 1000 * number)]))
    assert consumed(fake, "--offset", "3", "-p", "0") == ["3", "4"]
    assert consumed(fake, "--offset=-2", "-p", "0") == ["3", "4"]
    assert consumed(fake, "--offset=-9", "-n", "2") == ["0", "1"]
    assert consumed(fake, "--offset", f"@{NOON_MS + 1500}") == ["2", "3", "4"]
    assert consumed(fake, "--offset", "@2023-11-14T22:13:24") == ["4"]
    assert consumed(fake, "--offset", "@2030-01-01") == []
    result = run(fake, "consume", "orders", "-e", "-p", "0", "--offset", "7")
    assert result.stderr == "orders-0 has offsets from 0 to 5: 5 is taken\n"


def test_consume_stops_at_the_end_offset_within_a_batch(fake: FakeRecords) -> None:
    """A batch that goes beyond the end offset is written up to that offset."""
    fake.store("orders", 0, build_batch([Record(value=b"%d" % number) for number in range(4)]))
    fake.topics["orders"][0].end = 2
    assert consumed(fake, "--from-beginning") == ["0", "1"]


def test_as_many_as_wanted_over_several_polls(fake: FakeRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "PARTITION_MAX_BYTES", 1)
    for number in range(4):
        fake.store("orders", 0, build_batch([Record(value=b"%d" % number)]))
    result = run(fake, "consume", "orders", "--from-beginning", "-n", "3")
    assert result.stdout.splitlines() == ["0", "1", "2"]
    assert len(fake.requests_of(FetchRequest)) >= 3


def test_a_reader_that_has_enough(fake: FakeRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Output, data: bytes) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    produced(fake, "one\n")
    monkeypatch.setattr(Output, "_write", closed)
    result = run(fake, "consume", "orders", "--from-beginning")
    assert (result.exit_code, result.output) == (0, "")


def test_a_topic_that_takes_small_batches_only(fake: FakeRecords) -> None:
    fake.batch_max_bytes = 2_000
    numbers = [str(number) for number in range(1_000)]
    assert produced(fake, "\n".join(numbers), "-p", "1") == {
        "topic": "orders",
        "records": 1_000,
        "partitions": [{"partition": 1, "records": 1_000, "first_offset": 0, "last_offset": 999}],
    }
    assert consumed(fake, "--from-beginning") == numbers


def test_the_first_refusal_ends_produce_and_the_stored_records_are_listed(fake: FakeRecords) -> None:
    fake.refuse(ProduceRequest, 0, ErrorCode.MESSAGE_TOO_LARGE)
    large = "x" * 300_000
    result = run(fake, "produce", "orders", "-p", "0", typed=f"{large}\n{large}\n{large}\n")
    assert refused(result) == "orders-0: MESSAGE_TOO_LARGE"
    assert result.stdout.splitlines()[1].split() == ["0", "1", "0", "0"]


class Typed(Input):
    """Standard input of one piece."""

    def __init__(self, text: bytes) -> None:
        self._pieces = [text, b""]

    async def read(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._pieces.pop(0)


async def test_stored_records_are_listed_when_another_partition_lacks_replicas(fake: FakeRecords) -> None:
    fake.short_of_replicas.add(("orders", 1))
    production = Production("orders", Parser(Reading(key_separator=b":"), lambda: NOON_MS), Codec.NONE, None, 3)
    text = "".join(f"k{number}:{number}\n" for number in range(30))
    progress = Progress(wanted=False)
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(ClientError, match="not done after 3 s, waiting for orders-1: NOT_ENOUGH_REPLICAS"):
            await production.run(cluster, Typed(text.encode()), progress, create=False)
    stored = fake.topics["orders"][0].end
    assert 0 < stored < 30
    assert progress.records == stored
    assert production.report().document == {
        "topic": "orders",
        "records": stored,
        "partitions": [{"partition": 0, "records": stored, "first_offset": 0, "last_offset": stored - 1}],
    }


def test_a_bad_line_ends_it(fake: FakeRecords) -> None:
    result = run(fake, "produce", "orders", "-K:", typed="a:1\nb\nc:3\n")
    assert refused(result) == "line 2: there is no ':' after a key"
    assert consumed(fake, "--from-beginning", "-K=") == ["a=1"]


def test_topics_that_are_not_there(fake: FakeRecords) -> None:
    gone = "topic gone: there is no such topic or partition"
    assert refused(run(fake, "produce", "gone", typed="1\n")) == gone
    assert refused(run(fake, "consume", "gone")) == gone
    assert refused(run(fake, "produce", "orders", "-p", "2")) == "topic orders has no partition 2"
    assert refused(run(fake, "consume", "orders", "-p", "2")) == "topic orders has no partition 2"
    assert run(fake, "produce", "new", "--create", typed="1\n").exit_code == 0
    assert fake.topics["new"][0].end == 1


def test_produce_and_consume_fail_when_the_bootstrap_server_refuses_connections(fake: FakeRecords) -> None:
    fake.unreachable.update(fake.bootstrap)
    for name in ("produce", "consume"):
        assert refused(run(fake, name, "orders")) == "cannot connect to kafka-1:9092: Connection refused"


def test_progress(fake: FakeRecords) -> None:
    result = run(fake, "produce", "orders", "--progress", typed="1\n")
    assert result.exit_code == 0
    assert result.stderr.strip() == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce"],
        ["produce", "orders", "-K", ""],
        ["produce", "orders", "-k", "a", "-K:"],
        ["produce", "orders", "--input", "json", "-K:"],
        ["produce", "orders", "-k", "g", "--key-format", "hex"],
        ["produce", "orders", "-z", "brotli"],
        ["consume"],
        ["consume", "orders", "--offset", "soon"],
        ["consume", "orders", "--offset", "@soon"],
        ["consume", "orders", "--offset", "1", "--from-beginning"],
        ["consume", "orders", "-K:", "-o", "json"],
        ["consume", "orders", "-n", "0"],
    ],
)
def test_a_command_that_is_not_clear(fake: FakeRecords, arguments: list[str]) -> None:
    refused(run(fake, *arguments), code=2)
    assert fake.requests == []
