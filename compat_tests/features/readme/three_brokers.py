"""Records to and from the brokers of `make cluster`, each asked in turn.

`python -m compat_tests.features.readme.three_brokers produce` or `consume` connects to all three, `consume` with
addresses to those brokers only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKERS = ("127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094")
TOPIC, PARTITIONS = "tour", 6
RECORDS = 120  # by each of them
TIMEOUT_S = 30.0


def create(broker: str) -> None:
    client = AdminClient({"bootstrap.servers": broker})
    client.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(TIMEOUT_S)


def produce() -> None:
    """Print the number of acknowledged records by the broker that was asked."""
    create(BROKERS[0])
    for broker in BROKERS:
        acknowledged: list[int | None] = []
        client = Producer({"bootstrap.servers": broker, "acks": "all"})
        for number in range(RECORDS):
            report = lambda error, message, to=acknowledged: to.append(None if error else message.offset())  # noqa: E731
            client.produce(TOPIC, f"{broker} {number}", partition=number % PARTITIONS, on_delivery=report)
        assert client.flush(TIMEOUT_S) == 0
        print(f"by {broker}: {len(acknowledged) - acknowledged.count(None)} acknowledged")


def consume(brokers: Sequence[str] = BROKERS) -> None:
    """Prints how many of the records are read by way of each broker, and how many replicas are in sync."""
    for broker in brokers:
        client = Consumer({"bootstrap.servers": broker, "group.id": "tour", "enable.auto.commit": False})
        client.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        found = client.consume(RECORDS * len(BROKERS), TIMEOUT_S)
        values = {message.value() for message in found if message.error() is None}
        partitions = client.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions.values()
        client.close()
        print(f"by {broker}: {len(values)} read, in sync {sorted({len(one.isrs) for one in partitions})}")


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce()
    else:
        consume(sys.argv[2:] or BROKERS)
