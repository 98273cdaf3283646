"""An exercise of kafka-python against the broker named on the command line: it has to read the records it sent."""

from __future__ import annotations

import sys
import warnings

with warnings.catch_warnings():  # of how it reads its message definitions
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

COUNT = 1000
FIRST_MS = 1_700_000_000_000
CODECS = (None, "gzip", "lz4", "zstd")
PARTITIONS = 3
POLL_TIMEOUT_MS = 30_000  # longer than a join lasts: compat_tests/FINDINGS.md, 6


def produce(bootstrap: str, topic: str, codec: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all", linger_ms=20)
    sent = [
        producer.send(
            topic,
            f"value {number}".encode(),
            f"key {number}".encode(),
            headers=[("number", str(number).encode())],
            timestamp_ms=FIRST_MS + number,
        )
        for number in range(COUNT)
    ]
    producer.flush(30)
    assert all(one.succeeded() for one in sent)
    producer.close()


def consume(bootstrap: str, topic: str, expected: int) -> None:
    """Read all records as the only member of a group, and commit them."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"readers of {topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    seen = 0
    while seen < expected:
        for records in consumer.poll(POLL_TIMEOUT_MS).values():
            for found in records:
                number = found.headers[0][1].decode()
                assert (found.key, found.value) == (f"key {number}".encode(), f"value {number}".encode())
                assert found.timestamp == FIRST_MS + int(number)
                seen += 1
    assert seen == expected
    consumer.commit()
    partitions = [TopicPartition(topic, one) for one in range(PARTITIONS)]
    ends = consumer.end_offsets(partitions)
    assert sum(ends.values()) == expected
    assert {one: consumer.committed(one) for one in partitions} == ends
    assert consumer.offsets_for_times({partitions[0]: FIRST_MS})[partitions[0]].offset == 0
    consumer.close()


def exercise(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    admin.create_partitions({topic: NewPartitions(PARTITIONS)})
    for codec in CODECS:
        produce(bootstrap, topic, codec)
    consume(bootstrap, topic, len(CODECS) * COUNT)
    admin.delete_topics([topic])
    admin.close()


if __name__ == "__main__":
    exercise(*sys.argv[1:])
    print("done")
