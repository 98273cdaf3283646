"""Watermarks and offsets by time, as confluent-kafka asks for them: exact, not by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import OffsetSpec

from compat_tests.clients.confluent.clients import TIMEOUT_S, Admin, create_topic, flush, producer, with_consumer

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from compat_tests.harness.broker import Broker

FIRST_MS = 1_700_000_000_000


def fill(broker: Broker, topic: str, codec: str) -> None:
    """Three batches of ten records, one record every 10 ms."""
    create_topic(broker, topic)
    client = producer(broker, compression_type=codec, linger_ms=500)
    for batch in range(3):
        for number in range(batch * 10, batch * 10 + 10):
            client.produce(topic, b"value", timestamp=FIRST_MS + 10 * number)
        flush(client)


def test_watermarks(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)

    def watermarks(consumer: Consumer) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        return low, high

    assert with_consumer(broker, watermarks) == (0, 0)
    client = producer(broker)
    for _ in range(17):
        client.produce(topic, b"value")
    flush(client)
    assert with_consumer(broker, watermarks) == (0, 17)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_offsets_for_times_are_exact(broker: Broker, topic: str, codec: str) -> None:
    """The first record with that timestamp or a later one, also inside a compressed batch."""
    fill(broker, topic, codec)

    def offset_at(timestamp_ms: int) -> int:
        def ask(consumer: Consumer) -> list[TopicPartition]:
            found: list[TopicPartition] = consumer.offsets_for_times(
                [TopicPartition(topic, 0, timestamp_ms)], timeout=TIMEOUT_S
            )
            return found

        (found,) = with_consumer(broker, ask)
        assert found.error is None
        offset: int = found.offset
        return offset

    assert offset_at(1) == 0
    assert offset_at(FIRST_MS) == 0
    assert offset_at(FIRST_MS + 1) == 1
    assert offset_at(FIRST_MS + 99) == 10
    assert offset_at(FIRST_MS + 145) == 15
    assert offset_at(FIRST_MS + 290) == 29
    assert offset_at(FIRST_MS + 291) == OFFSET_END


def test_admin_lists_offsets(broker: Broker, topic: str) -> None:
    fill(broker, topic, "none")
    partition = TopicPartition(topic, 0)
    for specification, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 30),
        (OffsetSpec.max_timestamp(), 29),
        (OffsetSpec.for_timestamp(FIRST_MS + 95), 10),
    ):
        assert Admin(broker).offset(partition, specification) == expected
