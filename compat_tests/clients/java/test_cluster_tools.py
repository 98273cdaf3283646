"""Apache Kafka's tools on a cluster, its log dirs, its offsets and its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import Admin, commit, create_topic, flush, new_consumer, producer
from compat_tests.clients.java.commands import TOOLS, tool
from compat_tests.harness.target import target_broker
from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

FIRST_MS = 1_700_000_000_000
MIB = 1 << 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITION_DIRECTORY = "*-[0-9]*"
# Files of a partition that kafka-dump-log does not know: `partition.metadata` has the topic id, with Kafka too, and
# a `.footer` is kafkawire's alone (docs/formats/footer.md). Both are text. All other files of a log dir belong to no
# partition and have no counterpart in Kafka (docs/formats/log-dir.md).
NOT_FOR_DUMP_LOG = {".footer", ".metadata"}


def three_records(broker: Broker, topic: str) -> None:
    """Write three records, the newest in the middle."""
    create_topic(broker, topic)
    client = producer(broker)
    for after_ms in (0, 2000, 1000):
        client.produce(topic, b"value", timestamp=FIRST_MS + after_ms)
        flush(client)


@pytest.fixture(scope="module")
def topic_of_two(broker: Broker) -> str:
    """A topic with three records, the first of them deleted."""
    topic = "two-are-left"
    three_records(broker, topic)
    Admin(broker).delete_records(topic, 1)
    return topic


@pytest.mark.parametrize(
    ("time", "offset"),
    [
        ("earliest", 1),
        ("latest", 3),
        ("max-timestamp", 1),
        ("earliest-local", 1),
        ("latest-tiered", None),  # nothing is tiered
        ("earliest-pending-upload", None),
        (str(FIRST_MS + 1500), 1),
        (str(FIRST_MS + 3000), None),
    ],
)
def test_get_offsets_at_all_times(broker: Broker, topic_of_two: str, time: str, offset: int | None) -> None:
    shown = tool(broker, "GetOffsetShell", "--topic", topic_of_two, "--time", time)
    assert shown.split() == ([] if offset is None else [f"{topic_of_two}:0:{offset}"])


def test_log_dirs(broker: Broker, topic: str) -> None:
    three_records(broker, topic)
    *_, shown = tool(broker, "LogDirsCommand", "--describe", "--topic-list", topic).splitlines()
    found = {one["broker"]: one["logDirs"] for one in json.loads(shown)["brokers"]}
    assert found.keys() == broker.brokers.keys()
    assert [number for number, [one] in found.items() if one["partitions"]] == [broker.leader_id(topic)]
    [log_dir] = found[broker.leader_id(topic)]
    assert (log_dir["error"], log_dir["logDir"]) == (None, str(broker.leader_of(topic).data_dir))
    [partition] = log_dir["partitions"]
    assert partition.pop("size") > 3 * len("value")
    assert partition == {"partition": f"{topic}-0", "offsetLag": 0, "isFuture": False}


@pytest.mark.parametrize("arguments", [(), ("--include-fenced-brokers",)])
def test_endpoints(broker: Broker, arguments: tuple[str, ...]) -> None:
    names, *rows = [line.split() for line in tool(broker, "ClusterTool", "list-endpoints", *arguments).splitlines()]
    assert names[:3] == ["ID", "HOST", "PORT"]
    assert sorted(row[:3] for row in rows) == [
        [str(number), "127.0.0.1", str(one.port)] for number, one in broker.brokers.items()
    ]
    assert {row[-1] for row in rows} == {"broker"}


def fill(broker: Broker, topic: str) -> None:
    """Write some segments with a record of each codec, and a group's offset."""
    create_topic(broker, topic, config={"segment.bytes": str(MIB)})
    for codec in CODECS:
        client = producer(broker, compression_type=codec, enable_idempotence=True)
        for number in range(4):
            client.produce(topic, bytes([number]) * (MIB // 3), key=codec, headers={"of": codec})
            flush(client)
    consumer = new_consumer(broker, group_id="reader")
    commit(consumer, TopicPartition(topic, 0, 7))
    consumer.close()


def test_dump_log_reads_every_file_of_every_partition(tmp_path: Path) -> None:
    """kafka-dump-log reads all files after an orderly stop; in one call, because a call costs as much as a hundred
    files."""
    with target_broker(tmp_path) as broker:
        fill(broker, "filled")
        broker.stop()
        found = [path for path in broker.data_dir.rglob(f"{PARTITION_DIRECTORY}/*") if path.suffix]
        files = ",".join(map(str, found))
        shown = java_tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--files", files, check=False)
        broker.start()
    lines = shown.splitlines()
    assert {line for line in lines if line.startswith("Dumping ")} == {f"Dumping {path}" for path in found}
    unknown = {line.removeprefix("Ignoring unknown file ") for line in lines if line.startswith("Ignoring ")}
    assert unknown == {str(path) for path in found if path.suffix in NOT_FOR_DUMP_LOG}
    assert {".log", ".snapshot"} <= {path.suffix for path in found} - NOT_FOR_DUMP_LOG
    assert [line for line in lines if "isvalid: false" in line or "invalid bytes" in line] == []
    for codec in CODECS:
        assert f"compresscodec: {codec}" in shown
        assert "headerKeys: [of]" in shown
    assert "lastSequence: 3" in shown  # of a snapshot
    complaints = ("Exception", "ismatch", "not found", "Error", "orrupt", "out of order")
    assert [line for line in lines if any(word in line for word in complaints)] == []
