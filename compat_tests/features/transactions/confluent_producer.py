"""A transactional producer by confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from compat_tests.features.transactions.driver import Producer, main

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

TIMEOUT_S = 20.0


class _Producer(Producer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._failure: KafkaError | None = None
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def initialise(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        self._failure = None
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        try:
            self._producer.flush(TIMEOUT_S)
        except SystemError as error:  # a fatal error that arrives together with a delivery is only the cause
            raise KafkaException(str(error.__cause__)) from error
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._failure = error

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([TopicPartition(topic, partition, offset)], metadata, TIMEOUT_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self._producer.flush(1.0)


if __name__ == "__main__":
    main(_Producer)
