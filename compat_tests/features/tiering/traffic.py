"""Producers of a topic in the tier that survive kills of the broker, and the comparison of readers with them.

The first part is in the tier only when readers begin; the second is written, copied and dropped while they read. The
expected place of a record is the offset of its acknowledgement; aborted records have none. Readers are compared with
that: each committed offset once, in order, with every byte, and no others.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import KafkaException, Producer

from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.features.transactions.readers import ends, wait_for_markers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

    from confluent_kafka import Message

    from compat_tests.harness.broker import Broker

SEED = int(os.environ.get("KAFKAWIRE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
CONFIGS = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
PARTITIONS = 3
BEFORE, IN_ALL = 6000, 9000  # records of each writer
THREADS = 16  # more than all that write and read at once
FIRST_MS = time.time_ns() // 1_000_000
IN_FLIGHT_MAX = 200  # so that a writer stops soon when the broker is gone
WITHIN_S = 90.0
SLOWLY_S = 0.05  # between two records of a writer, so that the second part takes longer than all the kills
TRANSACTION_RECORDS = 50
ABORTED_EVERY = 3  # transactions
RANDOM_BYTES, REPEATED_BYTES = 1000, 500

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """The content of a record as a client sees it, without its place."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def record(number: int, writer: str) -> Record:
    """The record of that number: every seventh has no value, every fifth no key, every third a header without a value.

    No bytes by which tools separate their output.
    """
    source = random.Random(f"{writer} {number}")
    value = source.randbytes(RANDOM_BYTES).translate(None, b"\t\n") + b"-" * REPEATED_BYTES
    headers: Headers = (("number", b"%d" % number), ("writer", writer.encode()))
    return Record(
        FIRST_MS + number,
        None if number % 5 == 0 else b"key %d" % number,
        None if number % 7 == 0 else value,
        (*headers, ("nothing", None)) if number % 3 == 0 else headers,
    )


class Placed(NamedTuple):
    partition: int
    offset: int
    record: Record


class History:
    """The acknowledged records that were not aborted. For any thread.

    Unless `may_hurry` is set, writers pause between two records. When `is_complete` is set, no more records will come.
    """

    def __init__(self) -> None:
        self.may_hurry = threading.Event()
        self.is_complete = threading.Event()
        self.is_given_up = False
        self._records: list[dict[int, Record]] = [{} for _ in range(PARTITIONS)]

    def give_up(self) -> None:
        """End the writers and readers."""
        self.is_given_up = True
        self.may_hurry.set()

    def keep(self, placed: Placed) -> None:
        before = self._records[placed.partition].setdefault(placed.offset, placed.record)
        assert before is placed.record, f"offset {placed.offset} of {placed.partition} was given twice"

    def expected(self, partition: int) -> list[tuple[int, Record]]:
        """The records of a partition with their offsets, in order."""
        return sorted(self._records[partition].items())

    def count(self) -> int:
        return sum(map(len, self._records))

    def last(self, partition: int) -> int:
        return max(self._records[partition])


class ReaderRecords:
    """The records of one reader, in its order; it reads until it `is_done`."""

    def __init__(self, history: History) -> None:
        self.has_started = threading.Event()
        self._history = history
        self._found: list[list[tuple[int, Record]]] = [[] for _ in range(PARTITIONS)]
        self._deadline = math.inf  # from when on there is nothing to wait for

    def add(self, partition: int, offset: int, found: Record) -> None:
        self._found[partition].append((offset, found))
        self.has_started.set()

    def count(self) -> int:
        return sum(map(len, self._found))

    def is_done(self) -> bool:
        """Whether all records are written and the reader has come to the end. Raises AssertionError after
        `WITHIN_S`."""
        assert not self._history.is_given_up
        if self._history.is_complete.is_set():
            self._deadline = min(self._deadline, time.monotonic() + WITHIN_S)
        assert time.monotonic() < self._deadline, f"it has come to {[each[-1:] for each in self._found]}"
        return self._history.is_complete.is_set() and all(
            self._found[each] and self._found[each][-1][0] >= self._history.last(each) for each in range(PARTITIONS)
        )

    def check(self, least: Sequence[int] | None = None) -> None:
        """Compare with the history. Raises AssertionError. With `least`, an end offset for each partition, records
        behind it and behind the reader's own end may be missing."""
        for partition, found in enumerate(self._found):
            expected = self._history.expected(partition)
            if least is not None:
                end = max(least[partition], found[-1][0] + 1 if found else 0)
                expected = [(offset, one) for offset, one in expected if offset < end]
            offsets, wanted = [offset for offset, _ in found], [offset for offset, _ in expected]
            assert offsets == sorted(set(offsets)), f"partition {partition}: doubled, or out of order"
            lost, invented = (sorted(set(one) - set(other)) for one, other in ((wanted, offsets), (offsets, wanted)))
            assert not lost, f"partition {partition}: lost {len(lost)}, {lost[0]} to {lost[-1]} of {wanted[-1]}"
            assert not invented, f"partition {partition}: invented {len(invented)}, {invented[0]} to {invented[-1]}"
            wrong = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
            assert not wrong, f"partition {partition}: {len(wrong)} are not what was written: {wrong[:1]}"


class Writer:
    """An idempotent producer of librdkafka, which waits as long as the broker is away."""

    def __init__(self, broker: Broker, topic: str, name: str, history: History, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self._client = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                **given,
            }
        )
        self._topic = topic
        self._name = name
        self._history = history
        self._failed: list[object] = []

    def write(self, numbers: Sequence[int]) -> None:
        """Write all of these records."""
        for number in numbers:
            self._send(number, self._history.keep)
        self._flush()

    def _send(self, number: int, acknowledged: Callable[[Placed], None]) -> None:
        sent = record(number, self._name)

        def delivered(error: object, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None or partition is None or offset is None:
                self._failed.append(error)
            else:
                acknowledged(Placed(partition, offset, sent))

        self._history.may_hurry.wait(SLOWLY_S)
        assert not self._history.is_given_up
        wait_until(self._has_room, f"{self._name}: nothing is acknowledged", WITHIN_S)
        self._client.produce(
            self._topic,
            sent.value,
            sent.key,
            number % PARTITIONS,
            timestamp=sent.timestamp_ms,
            headers=list(sent.headers),
            on_delivery=delivered,
        )

    def _has_room(self) -> bool:
        self._client.poll(0)
        return len(self._client) < IN_FLIGHT_MAX

    def _flush(self) -> None:
        assert self._client.flush(WITHIN_S) == 0, f"{self._name}: nothing is acknowledged"
        assert not self._failed, f"{self._name}: {self._failed[:3]}"


class TransactionalWriter(Writer):
    """A producer of transactions, one after the other, some of them aborted; transactions that a kill aborts are
    repeated."""

    def __init__(self, broker: Broker, topic: str, name: str, history: History, **settings: str) -> None:
        super().__init__(broker, topic, name, history, transactional_id=name, **settings)
        self._transactions = 0
        self._client.init_transactions(WITHIN_S)

    def write(self, numbers: Sequence[int]) -> None:
        for first in range(0, len(numbers), TRANSACTION_RECORDS):
            part = numbers[first : first + TRANSACTION_RECORDS]
            while not self._transact(part):
                pass

    def _transact(self, numbers: Sequence[int]) -> bool:
        """Write a transaction. Returns whether all of it counts."""
        placed: list[Placed] = []
        self._transactions += 1
        self._client.begin_transaction()
        try:
            for number in numbers:
                self._send(number, placed.append)
            self._flush()
            if self._transactions % ABORTED_EVERY == 0:
                self._until_done(self._client.abort_transaction)
                return False
            self._until_done(self._client.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._until_done(self._client.abort_transaction)
            self._failed.clear()
            return False
        for each in placed:
            self._history.keep(each)
        return True

    def _until_done(self, end: Callable[[float], None]) -> None:
        """Repeat the end of a transaction while its error is retriable, for instance after a kill."""

        def is_done() -> bool:
            try:
                end(10.0)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                return False
            return True

        wait_until(is_done, f"{self._name}: a transaction does not end", WITHIN_S)


class Traffic:
    """A topic and its writers. Each writes in a thread of `pool`: `before` records before the readers begin, and
    `in_all`.

    When `with` is entered, the first part is in the tier; the end of `with` ends all writers and readers.
    """

    def __init__(self, broker: Broker, topic: str, pool: Executor, before: int = BEFORE, in_all: int = IN_ALL) -> None:
        self.history = History()
        self.broker = broker
        self.topic = topic
        self._pool = pool
        self._first, self._second = range(before), range(before, in_all)
        self._writers: list[Writer] = []
        self._writing: list[Future[None]] = []

    def _begin(self) -> None:
        """Begin, and return when the first part is in the tier and no longer in the log dir."""
        create_topic(self.broker, self.topic, PARTITIONS, CONFIGS)
        given = (self.broker, self.topic)
        self._writers = [
            Writer(*given, "zstd", self.history, compression_type="zstd"),
            Writer(*given, "lz4", self.history, compression_type="lz4"),
            TransactionalWriter(*given, "transactional", self.history, compression_type="zstd"),
        ]
        self.history.may_hurry.set()
        for done in [self._pool.submit(writer.write, self._first) for writer in self._writers]:
            done.result(WITHIN_S)
        wait_until(self._is_dropped, "files stay that the tier has", WITHIN_S)
        self.history.may_hurry.clear()
        self._writing = [self._pool.submit(writer.write, self._second) for writer in self._writers]

    def _is_dropped(self) -> bool:
        """Whether all partitions only have their active segment in the log dir, and it is not their first."""
        directories = [self.broker.data_dir / f"{self.topic}-{partition}" for partition in range(PARTITIONS)]
        files = [sorted(int(one.stem) for one in directory.glob("*.log")) for directory in directories]
        return all(len(bases) == 1 and bases[0] > 0 for bases in files)

    def kill(self) -> None:
        """Kill the broker while all write, and start it again."""
        ended = [done for done in self._writing if done.done()]
        assert not ended, f"writers ended before the broker was killed: {[done.exception() for done in ended]}"
        self.broker.kill()
        self.broker.start()

    def stable_ends(self) -> list[int]:
        """The last stable offset of each partition: every reader gets all acknowledged records below it.

        Records above it wait for the end of a transaction, also if they are part of none. A transaction ends with its
        marker, which is written after its producer was told that it is committed.
        """
        return ends(self.broker, self.topic, PARTITIONS, "read_committed")

    def complete(self) -> None:
        """Returns when all is written, and no reader has to wait for the end of a transaction."""
        self.history.may_hurry.set()
        for done in self._writing:
            done.result(WITHIN_S)
        wait_for_markers(self.broker, self.topic, PARTITIONS, WITHIN_S)
        self.history.is_complete.set()

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.history.give_up()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.history.give_up()
