"""Transformer by librdkafka, until stdin ends: it reads, writes and commits in transactions, and may be killed.

Arguments: broker, input, output, group, transactional id. Keys of records name their transaction, and say how many
there are of it (`atomicity.Output`). It prints a JSON document for each transaction that ended, and leaves with RESTART
when another process, or the broker, has taken its place.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

RESTART = 3
RECORDS_MAX = 100  # of a transaction
ABORTED_SHARE = 0.1
TIMEOUT_S = 30.0
WAIT_S = 0.05
HANGS_AFTER_S = 3.0


class Transformer:
    """The transformer of one process, with a name that no other process has."""

    def __init__(self, bootstrap: str, source: str, output: str, group: str, transactional_id: str) -> None:
        self._output = output
        self._name = f"{transactional_id}-{uuid4().hex}"
        self._transactions = 0
        common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
        self._consumer = Consumer(
            common
            | {
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 1500,
                "heartbeat.interval.ms": 300,
            }
        )
        self._producer = Producer(
            common | {"transactional.id": transactional_id, "transaction.timeout.ms": 10_000, "linger.ms": 1}
        )
        _insist(lambda: self._producer.init_transactions(TIMEOUT_S))
        self._consumer.subscribe([source], on_assign=_begin_where_committed)

    def transact(self) -> None:
        """Copy records in one transaction, unless there is nothing to read."""
        messages = self._read()
        if not messages:
            return
        self._producer.begin_transaction()
        try:
            self._write(messages)
            if random.random() < ABORTED_SHARE:
                self._abort()
            else:
                _insist(lambda: self._producer.commit_transaction(TIMEOUT_S))
                _print_event("committed", len(messages))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _read(self) -> list[Message]:
        """Read a few records. They are polled one by one: after a seek, a batch may contain records from before it."""
        messages: list[Message] = []
        while len(messages) < RECORDS_MAX:
            message = self._consumer.poll(0 if messages else WAIT_S)
            if message is None:
                break
            if message.error() is None:
                messages.append(message)
        return messages

    def _write(self, messages: list[Message]) -> None:
        offsets: dict[tuple[str, int], int] = {}
        self._transactions += 1
        name = f"{self._name}-{self._transactions}/{len(messages)}"
        for message in messages:
            self._producer.produce(self._output, message.value(), name, partition=message.partition())
            offsets[message.topic(), message.partition()] = message.offset() + 1
        positions = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        group = self._consumer.consumer_group_metadata()
        with _leaving_if_it_hangs():
            _insist(lambda: self._producer.send_offsets_to_transaction(positions, group, TIMEOUT_S))

    def _abort(self) -> None:
        """Abort the transaction and seek back to the committed offsets."""
        _insist(lambda: self._producer.abort_transaction(TIMEOUT_S))
        _print_event("aborted", 0)
        for place in _committed(self._consumer, self._consumer.assignment()):
            self._consumer.seek(place)

    def close(self) -> None:
        self._consumer.close()


def _begin_where_committed(consumer: Consumer, places: list[TopicPartition]) -> None:
    """Assign partitions at their committed offsets. librdkafka's own lookup begins at the start of a partition if
    partitions are assigned again while a transaction that has committed offsets is still open, with Apache Kafka
    too."""
    consumer.assign(_committed(consumer, places))


def _committed(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets, as soon as no transaction can change them; the beginning for partitions without one."""
    found = consumer.committed(places, TIMEOUT_S)
    begin = ((one, OFFSET_BEGINNING if one.offset == OFFSET_INVALID else one.offset) for one in found)
    return [TopicPartition(one.topic, one.partition, offset) for one, offset in begin]


@contextmanager
def _leaving_if_it_hangs() -> Iterator[None]:
    """Leave the process if the block hangs: librdkafka may wait for a group's coordinator for good, if that was away
    (its issues 5456 and 5511)."""
    watch = threading.Timer(HANGS_AFTER_S, os._exit, [RESTART])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _insist(action: Callable[[], object]) -> None:
    """Repeat an action until it succeeds. Raises KafkaException if an error is not retriable."""
    while True:
        try:
            action()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _print_event(event: str, count: int) -> None:
    print(json.dumps({"event": event, "count": count}), flush=True)


def main() -> int:
    listening = threading.Thread(target=sys.stdin.read, daemon=True)
    listening.start()
    try:
        transformer = Transformer(*sys.argv[1:])
        while listening.is_alive():
            transformer.transact()
        transformer.close()
    except (KafkaException, KafkaError) as error:  # the latter comes out of a call back
        print(error, file=sys.stderr)
        return RESTART
    return 0


if __name__ == "__main__":
    sys.exit(main())
