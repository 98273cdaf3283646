"""A reader of committed records that never stops during a campaign: each record that it got has to stay committed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from compat_tests.faults.atomicity import Output
from compat_tests.faults.writers import unpadded

if TYPE_CHECKING:
    from confluent_kafka import Message

    from compat_tests.harness.broker import Broker

WAIT_S = 0.1


def output_of(message: Message) -> Output:
    """A record as its transformer wrote it."""
    key, value, partition, offset = message.key(), message.value(), message.partition(), message.offset()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    assert partition is not None
    assert offset is not None
    return Output(partition, offset, key.decode(), unpadded(value.decode()))


class Watcher:
    """Reader of all partitions of a topic, from their beginning on."""

    def __init__(self, broker: Broker, topic: str, partitions: int) -> None:
        self.seen: list[Output] = []
        self._broker = broker
        self._places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        consumer.assign(self._places)
        try:
            while not self._is_over.is_set():
                message = consumer.poll(WAIT_S)
                if message is not None and message.error() is None:
                    self.seen.append(output_of(message))
        finally:
            consumer.close()
