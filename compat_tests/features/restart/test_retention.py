"""Retention deletes old records, unless younger ones precede them; every client gets the same log start."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from compat_tests.clients.confluent.clients import Admin, Delivery, create_topic, flush, producer, read, wait_until
from compat_tests.harness.requirements import need_kafka_jars
from compat_tests.harness.target import target_broker
from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

TOPIC = "short"
HOUR_MS = 3_600_000
CHECKS = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500", "file.delete.delay.ms": "1000"}


def earliest_of(broker: Broker, topic: str = TOPIC) -> int:
    return Admin(broker).offset(TopicPartition(topic, 0), OffsetSpec.earliest())


def fill(broker: Broker, timestamp_ms: int, count: int, topic: str = TOPIC) -> list[int]:
    """Write so many records of that time. Returns their offsets."""
    delivery = Delivery()
    client = producer(broker, batch_num_messages=1)
    for _ in range(count):
        client.produce(topic, bytes(300_000), timestamp=timestamp_ms, on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    return [message.offset() for message in delivery.messages]


def test_old_records_behind_young_ones_stay(tmp_path: Path) -> None:
    """Old records behind young ones stay. Another topic, old as a whole, shows when retention has run."""
    config = {"retention.ms": str(2 * HOUR_MS), "segment.bytes": str(1 << 20)}
    with target_broker(tmp_path, CHECKS) as broker:
        create_topic(broker, TOPIC, config=config)
        create_topic(broker, "old", config=config)
        now_ms = round(time.time() * 1000)
        fill(broker, now_ms - HOUR_MS, 3)
        young = fill(broker, now_ms, 3)
        fill(broker, now_ms - 3 * HOUR_MS, 6)  # too old, but behind younger records
        old = fill(broker, now_ms - 3 * HOUR_MS, 6, "old")
        wait_until(lambda: earliest_of(broker, "old") == len(old), "what is too old stays")
        assert earliest_of(broker) == 0
        assert len(read(broker, TOPIC, 0, 12)) == 12
        assert young == [3, 4, 5]


def test_all_of_a_topic_may_go(tmp_path: Path) -> None:
    need_kafka_jars()
    with target_broker(tmp_path, CHECKS) as broker:
        create_topic(broker, TOPIC, config={"retention.ms": str(HOUR_MS), "segment.bytes": str(1 << 20)})
        old = fill(broker, round(time.time() * 1000) - 2 * HOUR_MS, 7)
        wait_until(lambda: earliest_of(broker) == len(old), "the old segments are still there")
        for spec, expected in (("earliest", 7), ("latest", 7)):
            arguments = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--time", spec]
            shown = java_tool("org.apache.kafka.tools.GetOffsetShell", *arguments)
            assert shown.strip() == f"{TOPIC}:0:{expected}"
        broker.kill()
        broker.start()
        assert earliest_of(broker) == 7
        assert fill(broker, round(time.time() * 1000), 1) == [7]
        assert [message.offset() for message in read(broker, TOPIC, 7, 1)] == [7]
