"""Transactions as readers see them: records and offsets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from compat_tests.clients.confluent.clients import COORDINATED_ELSEWHERE, insist, wait_until, watermarks
from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.wire import WireConnection

if TYPE_CHECKING:
    from confluent_kafka import Message

    from compat_tests.harness.broker import Broker

TIMEOUT_S = 20.0


def read(broker: Broker, topic: str, isolation: str = "read_committed", *, partition: int = 0) -> list[str]:
    """The values of a partition, up to the end for a reader of that isolation level."""
    values = [message.value() for message in messages_of(broker, topic, isolation, partition=partition)]
    return [value.decode() for value in values if isinstance(value, bytes)]


def read_decided(broker: Broker, topic: str) -> list[str]:
    """The values of partition 0, once no transaction is open there."""
    wait_for_markers(broker, topic)
    return read(broker, topic)


def wait_for_markers(broker: Broker, topic: str, partitions: int = 1, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until readers see the end of the transactions: as with Kafka, a producer's reply comes before the
    markers."""
    wait_until(lambda: not undecided(broker, topic, partitions), f"a transaction of {topic} does not end", timeout_s)


def messages_of(broker: Broker, topic: str, isolation: str = "read_committed", *, partition: int = 0) -> list[Message]:
    """The messages of a partition up to its end, for an isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # an empty fetch shows the end
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"no end of partition after {len(found)} messages"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(message)
    finally:
        consumer.close()


def committed(broker: Broker, group: str, topic: str, partition: int = 0) -> int:
    """The committed offset of a partition, once no open transaction could change it."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "isolation.level": "read_committed"})
    where = TopicPartition(topic, partition)
    try:
        [found] = insist(lambda: consumer.committed([where], timeout=TIMEOUT_S), *COORDINATED_ELSEWHERE)
        return int(found.offset)
    finally:
        consumer.close()


def epoch_of(broker: Broker, transactional_id: str) -> int:
    """The epoch of a producer, once its last transaction is over."""
    request = encode_request("describe_transactions", 0, {"transactional_ids": [transactional_id]})
    with WireConnection(broker.coordinator_of(transactional_id).port) as connection:
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            connection.send_frame(request)
            reply = connection.receive_frame()
            assert reply is not None
            [found] = decode_response("describe_transactions", 0, reply)["transaction_states"]
            if found["transaction_state"].startswith("Complete"):
                return int(found["producer_epoch"])
            assert time.monotonic() < deadline_s, f"{transactional_id} is {found['transaction_state']}"
            time.sleep(0.01)


def undecided(broker: Broker, topic: str, partitions: int) -> list[int]:
    """The partitions in which a transaction is open."""
    stable, all_of_it = (ends(broker, topic, partitions, level) for level in ("read_committed", "read_uncommitted"))
    return [number for number in range(partitions) if stable[number] != all_of_it[number]]


def ends(broker: Broker, topic: str, partitions: int, isolation: str) -> list[int]:
    """The end of each partition for a reader of that isolation level."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "nobody", "isolation.level": isolation}
    consumer = Consumer(settings)
    try:
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        return [watermarks(consumer, each)[1] for each in asked]
    finally:
        consumer.close()
