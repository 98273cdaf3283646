"""confluent-kafka (librdkafka 2.16): records come back as they were sent, in every codec and from every offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from compat_tests.clients.confluent.clients import Delivery, create_topic, flush, new_consumer, producer, read
from compat_tests.harness.wire import CODECS, codec_of, stored_records

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

TIMEOUT_S = 20.0
DEFAULT_MESSAGE_MAX_BYTES = 1_048_588


@pytest.mark.parametrize("codec", CODECS)
def test_codec(broker: Broker, topic: str, codec: str) -> None:
    """Records of each codec come back, and the broker stores that codec: a client that finds it unsupported sends plain
    batches."""
    create_topic(broker, topic)
    delivery = Delivery()
    client = producer(broker, compression_type=codec, linger_ms=200)
    values = [f"value {number} ".encode() * 20 for number in range(200)]
    for number, value in enumerate(values):
        client.produce(topic, value, key=str(number).encode(), on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    assert [message.offset() for message in delivery.messages] == list(range(200))
    messages = read(broker, topic, 0, 200)
    assert [message.value() for message in messages] == values
    assert [message.key() for message in messages] == [str(number).encode() for number in range(200)]
    assert codec_of(stored_records(broker, topic)) == codec


def test_headers_keys_nulls_and_timestamps(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    client = producer(broker)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None), ("ünï", b"\xff\x00")]
    client.produce(topic, b"value", key=b"key", headers=headers, timestamp=1_700_000_000_123)
    client.produce(topic, None, key=None, timestamp=1_700_000_000_124)
    client.produce(topic, b"", key=b"", timestamp=1_700_000_000_125)
    flush(client)
    full, null, empty = read(broker, topic, 0, 3)
    assert full.headers() == headers
    assert (full.key(), full.value(), full.timestamp()) == (b"key", b"value", (1, 1_700_000_000_123))
    assert (null.key(), null.value(), null.headers()) == (None, None, None)
    assert (empty.key(), empty.value(), empty.timestamp()) == (b"", b"", (1, 1_700_000_000_125))


def test_log_append_time(broker: Broker, topic: str) -> None:
    """The broker's clock replaces the producer's timestamp."""
    create_topic(broker, topic, config={"message.timestamp.type": "LogAppendTime"})
    client = producer(broker)
    client.produce(topic, b"value", timestamp=1_000)
    flush(client)
    (message,) = read(broker, topic, 0, 1, check_crcs=True)
    kind, timestamp_ms = message.timestamp()
    assert kind == 2
    assert timestamp_ms > 1_700_000_000_000


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_start_in_the_middle_of_a_batch(broker: Broker, topic: str, codec: str) -> None:
    create_topic(broker, topic)
    client = producer(broker, compression_type=codec, linger_ms=500)
    for number in range(50):
        client.produce(topic, str(number).encode())
    flush(client)
    for offset in (0, 1, 25, 49):
        messages = read(broker, topic, offset, 50 - offset)
        assert [message.offset() for message in messages] == list(range(offset, 50))
        assert messages[0].value() == str(offset).encode()


def test_two_partitions_keep_their_order(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, partitions=2)
    client = producer(broker)
    for number in range(1_000):
        client.produce(topic, str(number).encode(), partition=number % 2)
        client.poll(0)
    flush(client)
    for partition in (0, 1):
        messages = read(broker, topic, 0, 500, partition)
        assert [message.value() for message in messages] == [str(n).encode() for n in range(partition, 1_000, 2)]


def test_large_message(broker: Broker, topic: str) -> None:
    """A record close to the default size limit, fetched with smaller limits."""
    create_topic(broker, topic)
    value = bytes(range(256)) * 4_000  # 1,024,000 bytes
    client = producer(broker, message_max_bytes=2_000_000)
    client.produce(topic, value)
    flush(client)
    small = {"max_partition_fetch_bytes": 10_000, "fetch_max_bytes": 20_000, "message_max_bytes": 20_000}
    (message,) = read(broker, topic, 0, 1, **small)
    assert message.value() == value


def test_message_too_large(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    delivery = Delivery()
    client = producer(broker, message_max_bytes=10_000_000)
    client.produce(topic, bytes(DEFAULT_MESSAGE_MAX_BYTES), on_delivery=delivery)
    flush(client)
    (error,) = delivery.errors
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_topic_with_a_larger_limit_takes_it(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, config={"max.message.bytes": "4000000"})
    client = producer(broker, message_max_bytes=10_000_000)
    client.produce(topic, bytes(3_000_000))
    flush(client)
    (message,) = read(broker, topic, 0, 1)
    assert len(message.value()) == 3_000_000


def test_a_refused_message_does_not_stop_the_next(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    delivery = Delivery()
    client = producer(broker, message_max_bytes=10_000_000)
    client.produce(topic, bytes(2_000_000), on_delivery=delivery)
    client.produce(topic, b"small", on_delivery=delivery)
    flush(client)
    assert len(delivery.errors) == 1
    assert [message.value() for message in read(broker, topic, 0, 1)] == [b"small"]


def test_unknown_partition(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    client = producer(broker)
    client.produce(topic, b"primes the metadata")
    flush(client)
    with pytest.raises(KafkaException) as failure:
        client.produce(topic, b"value", partition=7)
    assert failure.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_offset_out_of_range(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    consumer = new_consumer(broker)
    try:
        consumer.assign([TopicPartition(topic, 0, 1_000)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    finally:
        consumer.close()
