"""A reader that begins at offset 0 again and again while a campaign runs: each time, it must get the same records."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from compat_tests.faults.writers import padded, unpadded

if TYPE_CHECKING:
    from confluent_kafka import Message

    from compat_tests.harness.broker import Broker

WAIT_S = 0.1
CAUGHT_UP_AFTER = 5  # polls without records
# Errors of reads while a store is away or sends damaged bytes. Wrong bytes or a missing log are no such errors.
PASSING = {
    KafkaError.KAFKA_STORAGE_ERROR, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.INVALID_MSG,
    KafkaError._RESOLVE, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
}  # fmt: skip


class ColdReader:
    """Reader of all partitions of a topic that loses nothing. `records` counts the records, `rounds` the reads from
    offset 0."""

    def __init__(self, broker: Broker, topic: str, partitions: int) -> None:
        self.anomalies: list[str] = []
        self.records = 0
        self.rounds = 0
        self._broker = broker
        self._topic = topic
        self._seen: list[list[str]] = [[] for _ in range(partitions)]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def values(self, partition: int) -> list[str]:
        """The values from offset 0 on, as far as the reader came."""
        return list(self._seen[partition])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "reconnect.backoff.max.ms": 200,
                "fetch.error.backoff.ms": 50,
                "log_level": 0,
            }
        )
        try:
            while not self._is_over.is_set():
                self._round(consumer)
        finally:
            consumer.close()

    def _round(self, consumer: Consumer) -> None:
        """Read from offset 0 until no more records come for a while."""
        next_offsets = [0 for _ in self._seen]
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(len(self._seen))])
        silent = 0
        while silent < CAUGHT_UP_AFTER and not self._is_over.is_set():
            messages = consumer.consume(1000, WAIT_S)
            silent = 0 if messages else silent + 1
            for message in messages:
                self._take(message, next_offsets)

    def _take(self, message: Message, next_offsets: list[int]) -> None:
        error = message.error()
        if error is not None:
            if error.code() not in PASSING:
                self.anomalies.append(f"{error.name()}: {error.str()}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.records += 1
        self.rounds += offset == 0
        text = unpadded(value.decode())
        seen = self._seen[partition]
        if offset != next_offsets[partition]:
            self.anomalies.append(f"{offset} of {partition} follows {next_offsets[partition] - 1}")
        elif padded(text) != value.decode():
            self.anomalies.append(f"{offset} of {partition} has other bytes than were sent")
        elif offset < len(seen) and seen[offset] != text:
            self.anomalies.append(f"{offset} of {partition} was {seen[offset]} and is {text}")
        elif offset == len(seen):
            seen.append(text)
        next_offsets[partition] = offset + 1
