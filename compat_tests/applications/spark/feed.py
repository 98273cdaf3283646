"""Writes records to a topic without an end, in transactions of which some are aborted, and outside of any.

The committed records are read from the topic afterwards: a producer whose broker is killed does not always know them.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compat_tests.harness.broker import Broker

KEYS = 16
KEYLESS = 0.1  # share of records
ABORTED = 0.25  # share of transactions
IN_TRANSACTION, OUTSIDE = 12, 4  # records each turn
PAUSE_S = 0.2  # between two turns
TIMEOUT_S = 60.0


def numbered(number: int, choice: random.Random) -> Mapping[str, Any]:
    """A small record, as a producer takes it."""
    key = None if choice.random() < KEYLESS else str(choice.randrange(KEYS))
    return {"value": str(number), "key": key}


class Feed:
    """Writes from `start` to `finish`, in a thread. `record` gets each number; a larger `times` writes more records a
    turn."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        seed: int,
        record: Callable[[int, random.Random], Mapping[str, Any]] = numbered,
        times: int = 1,
    ) -> None:
        self._settings = {
            "bootstrap.servers": broker.bootstrap,
            "partitioner": "murmur2_random",  # as Kafka's own, and Spark's: a key has one partition
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
        self._topic = topic
        self._record = record
        self._times = times
        self._choice = random.Random(seed)
        self._number = 0
        self._plain = Producer(self._settings)
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feed")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop writing, with no transaction open. Raises the error of the thread."""
        self._is_over.set()
        self._thread.join(2 * TIMEOUT_S)
        assert not self._thread.is_alive(), "the feed does not end"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            transactional = self._transactional()
            while not self._is_over.wait(PAUSE_S):
                self._write(self._plain, OUTSIDE)
                try:
                    self._transaction(transactional)
                except KafkaException:  # its outcome is unknown, perhaps: the next one of this name ends it
                    transactional = self._transactional()
            assert self._plain.flush(TIMEOUT_S) == 0, "records are still queued"
        except BaseException as failure:  # it is raised where the feed is ended
            self._failure = failure

    def _transactional(self) -> Producer:
        while True:
            made = Producer({**self._settings, "transactional.id": f"feed of {self._topic}"})
            try:
                made.init_transactions(TIMEOUT_S)
            except KafkaException:
                if self._is_over.is_set():
                    raise
            else:
                return made

    def _transaction(self, producer: Producer) -> None:
        """Write a transaction. Raises KafkaException: then the producer cannot be used any more."""
        producer.begin_transaction()
        self._write(producer, IN_TRANSACTION)
        producer.flush(TIMEOUT_S)
        if self._choice.random() < ABORTED:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)

    def _write(self, producer: Producer, count: int) -> None:
        for _ in range(count * self._times):
            producer.produce(self._topic, **self._record(self._number, self._choice))
            self._number += 1
        producer.poll(0)
