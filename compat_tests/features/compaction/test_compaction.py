"""Compacted topics as stock clients see them: the newest records are there, and gaps between offsets are no problem."""

from __future__ import annotations

import re
import time
import warnings
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, TopicPartition

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Delivery,
    create_topic,
    flush,
    new_consumer,
    producer,
    wait_until,
)
from compat_tests.harness.log_files import size_on_disk
from compat_tests.harness.target import target_broker
from compat_tests.harness.tools import java_tool

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPythonPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

KEYS = 100
ROUNDS = 40
VALUE_SIZE_BYTES = 1000
SEGMENT_SIZE_BYTES = 1 << 20
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_SIZE_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "500",
}
LAST_SIZE_BYTES = SEGMENT_SIZE_BYTES * 9 // 10  # so large that no other record fits into its segment
# Two of those stay, as the newer one is in the segment that is not compacted; of the rest less than two of each key.
COMPACTED_SIZE_BYTES = 2 * (LAST_SIZE_BYTES + KEYS * VALUE_SIZE_BYTES)
COMPACTED_WITHIN_S = 60.0
READ_WITHIN_S = 60.0

Newest = dict[bytes, tuple[int, bytes | None]]  # by key: offset and value


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with target_broker(tmp_path_factory.mktemp("compaction"), {"log.cleaner.backoff.ms": "200"}) as running:
        yield running


def segments(broker: Broker, topic: str) -> list[Path]:
    return sorted((broker.leader_of(topic).data_dir / f"{topic}-0").glob("*.log"))


def fill(broker: Broker, topic: str, codec: str) -> Newest:
    """Write some MiB; the newest record of every tenth key is a tombstone."""
    delivery, rng = Delivery(), Random(0)
    client = producer(broker, enable_idempotence=True, compression_type=codec, batch_num_messages=50)
    for number in range(ROUNDS * KEYS):
        key = number % KEYS
        is_last = number >= (ROUNDS - 1) * KEYS
        value = None if is_last and key % 10 == 0 else rng.randbytes(VALUE_SIZE_BYTES)
        client.produce(topic, value, key=b"key %d" % key, on_delivery=delivery)
        client.poll(0)
    flush(client)
    for _ in range(2):  # the last segment is not compacted: let it have none of the others
        client.produce(topic, rng.randbytes(LAST_SIZE_BYTES), key=b"last", on_delivery=delivery)
        flush(client)
    assert not delivery.errors
    return {one.key(): (one.offset(), one.value()) for one in sorted(delivery.messages, key=lambda one: one.offset())}


def until_compacted(broker: Broker, topic: str) -> None:
    wait_until(
        lambda: size_on_disk(broker, topic) < COMPACTED_SIZE_BYTES,
        f"{topic} is not compacted",
        COMPACTED_WITHIN_S,
    )


def read_with_librdkafka(broker: Broker, topic: str) -> Newest:
    consumer = new_consumer(broker, enable_partition_eof=True)
    seen: Newest = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(TIMEOUT_S)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return seen
            seen[message.key()] = message.offset(), message.value()
    finally:
        consumer.close()
    raise AssertionError("no end is told of")


def read_with_kafka_python(broker: Broker, topic: str) -> Newest:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False, auto_offset_reset="none")
    seen: Newest = {}
    try:
        partition = KafkaPythonPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = consumer.end_offsets([partition])[partition]
        deadline = time.monotonic() + READ_WITHIN_S
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline, f"at {consumer.position(partition)} of {end}"
            for message in consumer.poll(timeout_ms=5000).get(partition, []):
                seen[message.key] = message.offset, message.value
    finally:
        consumer.close()
    return seen


def read_with_java(broker: Broker, topic: str, count: int) -> list[tuple[int, bytes]]:
    """Read offsets and keys with Java's console consumer."""
    shown = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
        *("--formatter-property", "print.offset=true", "--formatter-property", "print.key=true"),
        *("--formatter-property", "print.value=false"),
    )
    return [(int(offset), key.encode()) for offset, key in re.findall(r"Offset:(\d+)\t(key \d+|last)", shown)]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_clients_read_the_newest_record_of_every_key(own_broker: Broker, codec: str) -> None:
    topic = f"latest-{codec}"
    create_topic(own_broker, topic, config=CONFIG)
    newest = fill(own_broker, topic, codec)
    until_compacted(own_broker, topic)
    assert read_with_librdkafka(own_broker, topic) == newest
    if codec != "snappy":  # for which kafka-python needs one more library
        assert read_with_kafka_python(own_broker, topic) == newest


def test_kafkas_tools_read_and_verify_compacted_segments(own_broker: Broker) -> None:
    create_topic(own_broker, "dumped", config=CONFIG)
    newest = fill(own_broker, "dumped", "lz4")
    until_compacted(own_broker, "dumped")
    assert {key: offset for offset, key in read_with_java(own_broker, "dumped", len(newest) + 1)} == {
        key: offset for key, (offset, _) in newest.items()
    }
    files = ",".join(map(str, segments(own_broker, "dumped")[:-1]))
    shown = java_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files
    )
    assert "isvalid: false" not in shown
    assert "Found bytes that are not valid" not in shown
    assert "deleteHorizonMs: OptionalLong[" in shown, "tombstones have got their time"
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", shown, re.MULTILINE)]
    assert len(offsets) < KEYS * 2 < max(offsets)


def test_records_without_a_key_are_refused(own_broker: Broker) -> None:
    create_topic(own_broker, "keyed", config={"cleanup.policy": "compact"})
    delivery = Delivery()
    client = producer(own_broker)
    for key in (b"key", None, b"other"):
        client.produce("keyed", b"value", key=key, on_delivery=delivery)
        flush(client)
    assert [error.code() for error in delivery.errors] == [KafkaError.INVALID_RECORD]
    assert [one.key() for one in delivery.messages] == [b"key", b"other"]
