"""Apache Kafka's own command-line tools against the running broker; each call is a JVM of about two seconds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from compat_tests.clients.java.commands import TOOLS, tool, topics
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.target import TARGET
from compat_tests.harness.tools import java_tool
from kafkawire.handlers import API_TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

API = re.compile(r"\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]")


def produce(broker: Broker, topic: str, lines: str, *arguments: str) -> None:
    """Lines of `key:value`, from a producer with its defaults: idempotent."""
    reader = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    target = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    java_tool(f"{TOOLS}.ConsoleProducer", *target, *reader, *arguments, stdin=lines)


def consume(broker: Broker, topic: str, offset: str, count: int, *arguments: str) -> str:
    """`count` records of partition 0 without a group, with everything the console consumer can print."""
    target = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", offset]
    printed = ("key", "headers", "offset", "partition")
    shown = [part for name in printed for part in ("--formatter-property", f"print.{name}=true")]
    limits = ["--max-messages", str(count), "--timeout-ms", "20000"]
    return java_tool(f"{TOOLS}.consumer.ConsoleConsumer", *target, *shown, *limits, *arguments)


def test_topics_create_list_delete(broker: Broker, topic: str) -> None:
    created = topics(broker, "--create", "--topic", topic, "--partitions", "2", "--config", "max.message.bytes=2000000")
    assert f"Created topic {topic}." in created
    assert topic in topics(broker, "--list").split()
    refused = topics(broker, "--create", "--topic", topic, check=False)
    assert f"Topic '{topic}' already exists" in refused
    topics(broker, "--delete", "--topic", topic)
    assert topic not in topics(broker, "--list").split()


def test_console_producer_and_consumer(broker: Broker, topic: str) -> None:
    topics(broker, "--create", "--topic", topic)
    lines = "".join(f"k{number}:v{number}\n" for number in range(10))
    produce(broker, topic, lines, "--compression-codec", "zstd")
    seen = consume(broker, topic, "earliest", 10)
    assert seen.splitlines() == [f"Partition:0\tOffset:{n}\tNO_HEADERS\tk{n}\tv{n}" for n in range(10)]
    assert consume(broker, topic, "6", 4) == "".join(seen.splitlines(keepends=True)[6:])


def test_console_producer_sends_headers(broker: Broker, topic: str) -> None:
    topics(broker, "--create", "--topic", topic)
    produce(broker, topic, "h1:one,h2:two\tkey:value\n", "--reader-property", "parse.headers=true", "--sync")
    seen = consume(broker, topic, "0", 1, "--command-property", "isolation.level=read_committed")
    assert seen == "Partition:0\tOffset:0\th1:one,h2:two\tkey\tvalue\n"


def test_delete_records(broker: Broker, topic: str, tmp_path: Path) -> None:
    topics(broker, "--create", "--topic", topic)
    produce(broker, topic, "k:1\nk:2\nk:3\n")
    asked = tmp_path / "offsets.json"
    rows = [{"topic": topic, "partition": 0, "offset": 2}]
    asked.write_text(json.dumps({"version": 1, "partitions": rows}))
    shown = tool(broker, "DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert f"partition: {topic}-0\tlow_watermark: 2" in shown
    assert consume(broker, topic, "earliest", 1).split("\t")[1] == "Offset:2"


def test_api_versions(broker: Broker) -> None:
    """Every API that is served is usable in its highest version."""
    shown = tool(broker, "BrokerApiVersionsCommand")
    assert all(one.bootstrap in shown for one in broker.brokers.values())
    rows = {int(key): (int(low), int(high or low), int(usable)) for key, low, high, usable in API.findall(shown)}
    assert all(usable == high for _, high, usable in rows.values()), rows
    if TARGET == "kafkawire":
        assert {key: row[:2] for key, row in rows.items()} == {
            api.key: (api.min_version, api.max_version) for api in API_TABLE
        }


def test_cluster_id(broker: Broker) -> None:
    first, second = (tool(broker, "ClusterTool", "cluster-id") for _ in range(2))
    assert first.startswith("Cluster ID: ")
    assert first == second


def test_dump_log_reads_the_segment(broker: Broker, topic: str) -> None:
    """The segment files are Kafka's own format, down to the CRC."""
    topics(broker, "--create", "--topic", topic)
    produce(broker, topic, "k1:v1\nk2:v2\n", "--compression-codec", "lz4")
    segments = [path for path in broker.data_dir.rglob("*.log") if topic in str(path)]
    (segment,) = segments
    shown = java_tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", str(segment))
    assert "compresscodec: lz4" in shown
    assert "isvalid: true" in shown
    assert "isvalid: false" not in shown
    assert "key: k2 payload: v2" in shown
    assert "Found bytes that are not valid" not in shown


def test_dump_log_reads_the_producer_snapshot(tmp_path: Path) -> None:
    """The producer snapshot of an orderly stop is in Kafka's format too, here for a producer that sent three
    batches."""
    with Kafkawire(tmp_path) as broker:
        topics(broker, "--create", "--topic", "kept")
        produce(broker, "kept", "k:1\nk:2\nk:3\n", "--batch-size", "1")
        broker.stop()
        [snapshot] = broker.data_dir.rglob("*.snapshot")
        shown = java_tool(f"{TOOLS}.DumpLogSegments", "--files", str(snapshot))
    assert "producerId: 0 producerEpoch: 0 coordinatorEpoch: -1 " in shown
    assert " firstSequence: 2 lastSequence: 2 lastOffset: 2 offsetDelta: 0 " in shown
