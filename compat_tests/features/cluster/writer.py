"""A producer that goes on writing while a test does something to brokers."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Self

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from compat_tests.clients.confluent.clients import TIMEOUT_S, Admin, Delivery, flush, new_consumer, producer

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

PAUSE_S = 0.002


class Writer:
    """An idempotent producer that writes numbers from 0 to the partitions in turn, until the end of `with`. Then
    `delivery` has its delivery reports."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self.partitions = len(Admin(broker).topics()[topic].partitions)
        self.delivery = Delivery()
        # Brokers that leave in turn are not to be waited for all at a time.
        self._client = producer(broker, enable_idempotence=True, reconnect_backoff_max_ms=200)
        self._is_left = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        number = 0
        while not self._is_left.wait(PAUSE_S):
            partition = number % self.partitions
            self._client.produce(self.topic, str(number), partition=partition, on_delivery=self.delivery)
            self._client.poll(0)
            number += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_left.set()
        self._thread.join()
        flush(self._client)


def numbers_in(broker: Broker, topic: str, count: int, partitions: int) -> Counter[int]:
    """The numbers of a Writer in a topic, with their counts. Reads until `count` records are there."""
    consumer = new_consumer(broker)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        found: Counter[int] = Counter()
        while found.total() < count and (batch := consumer.consume(count, TIMEOUT_S)):
            assert not [message for message in batch if message.error()]
            found.update(int(message.value()) for message in batch)
        return found
    finally:
        consumer.close()
