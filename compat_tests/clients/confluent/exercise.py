"""An exercise of confluent-kafka against the broker named on the command line: it has to read the records it sent."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

COUNT = 1000
FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
TIMEOUT_S = 30


def produce(bootstrap: str, topic: str, codec: str) -> None:
    """Produce idempotently."""
    failed: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {"compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(COUNT):
        producer.produce(
            topic,
            f"value {number}",
            f"key {number}",
            headers={"number": str(number)},
            timestamp=FIRST_MS + number,
            on_delivery=delivered,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def check(found: Message) -> None:
    assert found.error() is None, found.error()
    number = found.headers()[0][1].decode()
    assert (found.key(), found.value()) == (f"key {number}".encode(), f"value {number}".encode())
    assert found.timestamp()[1] == FIRST_MS + int(number)


def consume(bootstrap: str, topic: str, expected: int) -> None:
    """Read all records as the only member of a group, and commit them."""
    settings = {"group.id": f"readers of {topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    seen = 0
    while seen < expected:
        messages = consumer.consume(1000, TIMEOUT_S)
        assert messages, f"only {seen} messages came"
        for found in messages:
            check(found)
        seen += len(messages)
    assert seen == expected
    consumer.commit(asynchronous=False)
    partitions = [TopicPartition(topic, one) for one in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(one, timeout=TIMEOUT_S)[1] for one in partitions]
    assert sum(ends) == expected
    assert [one.offset for one in consumer.committed(partitions, timeout=TIMEOUT_S)] == ends
    [found_at] = consumer.offsets_for_times([TopicPartition(topic, 0, FIRST_MS)], timeout=TIMEOUT_S)
    assert found_at.offset == 0
    consumer.close()


def exercise(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(TIMEOUT_S)
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    [described] = admin.describe_configs([ConfigResource("topic", topic)]).values()
    assert described.result(TIMEOUT_S)["retention.ms"].value == "-1"
    for codec in CODECS:
        produce(bootstrap, topic, codec)
    consume(bootstrap, topic, len(CODECS) * COUNT)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


if __name__ == "__main__":
    exercise(*sys.argv[1:])
    print("done")
