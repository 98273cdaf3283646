"""Transactions, read with read_committed: no aborted record comes, and no query waits for offsets without a record."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial, reduce
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from compat_tests.applications.spark.queries import DONE_WITHIN_S, Output, await_end, numbers, run_to_end, running
from compat_tests.clients.confluent.clients import TIMEOUT_S, Admin, create_topic, flush, producer, wait_until
from compat_tests.harness.log_files import size_on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka import Producer
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from compat_tests.applications.spark.queries import Connector
    from compat_tests.harness.broker import Broker

# A task fails that gets nothing for so long, and with it the query; Spark itself would wait for two minutes.
COMMITTED = {"kafka.isolation.level": "read_committed", "kafkaConsumer.pollTimeoutMs": "40000"}
# For many small parts: a consumer that asks what there is first waits for the answer to its last fetch.
QUICK = {"kafka.fetch.max.wait.ms": "20"}
BATCH_WITHIN_MS = 39_000  # so that none had to wait in vain

# The committed numbers of `write_every_kind`, by offset. Between them are aborted records and markers.
KEPT = {0: 0, 1: 1, 5: 2, 11: 3, 12: 4}
END = 16

KEYS = [f"key {number}" for number in range(50)]
ROUNDS = 20
VALUE_SIZE_BYTES = 1000
SEGMENT_SIZE_BYTES = 1 << 20
LAST_SIZE_BYTES = SEGMENT_SIZE_BYTES * 9 // 10  # so large that two do not fit into a segment
COMPACTED_SIZE_BYTES = 2 * LAST_SIZE_BYTES + 2 * len(KEYS) * VALUE_SIZE_BYTES
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_SIZE_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "500",
}


class Transactional:
    """A producer whose records go to one topic, in one transaction after the other."""

    def __init__(self, broker: Broker, topic: str, name: str) -> None:
        self._client = producer(broker, transactional_id=name)
        self._client.init_transactions(TIMEOUT_S)
        self._admin = Admin(broker)
        self._topic = topic
        self._partitions: set[int] = set()

    def begin(self) -> None:
        self._client.begin_transaction()
        self._partitions.clear()

    def send(self, values: Iterable[int], partition: int = 0) -> None:
        self._partitions.add(partition)
        send(self._client, self._topic, values, partition)

    def send_keys(self, keys: Iterable[str], version: int, size_bytes: int) -> None:
        """Send a record for each key, whose value is a version number, filled up with spaces."""
        self._partitions.add(0)
        for key in keys:
            self._client.produce(self._topic, str(version).ljust(size_bytes), key, partition=0)
        flush(self._client)

    def commit(self) -> None:
        expected = self._ends(1)
        self._client.commit_transaction(TIMEOUT_S)
        self._wait_for(expected)

    def abort(self) -> None:
        expected = self._ends(1)
        self._client.abort_transaction(TIMEOUT_S)
        self._wait_for(expected)

    def _ends(self, further: int = 0) -> list[int]:
        return [end_of(self._admin, self._topic, partition) + further for partition in sorted(self._partitions)]

    def _wait_for(self, expected: list[int]) -> None:
        """Wait until the markers are written: Apache Kafka answers before."""
        wait_until(lambda: self._ends() == expected, "there are no markers")


class Writer:
    """Writes committed numbers from 0 on, and aborted ones from -1 downwards."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.kept = 0
        self.aborted = 0
        self._plain = partial(send, producer(broker), topic)
        self._commits = Transactional(broker, topic, f"{topic} commits")
        self._aborts = Transactional(broker, topic, f"{topic} aborts")

    def plain(self, count: int, *partitions: int) -> None:
        """Write `count` records to each partition, without a transaction."""
        for partition in partitions:
            self._plain(self._keep(count), partition)

    def commit(self, count: int, *partitions: int) -> None:
        self._commits.begin()
        for partition in partitions:
            self._commits.send(self._keep(count), partition)
        self._commits.commit()

    def abort(self, count: int, *partitions: int) -> None:
        self._aborts.begin()
        for partition in partitions:
            self._aborts.send(self._take_back(count), partition)
        self._aborts.abort()

    def interleave(self, count: int, partition: int, *, aborts_last: bool) -> None:
        """Write records of two open transactions and of none in turn; one of the transactions is aborted."""
        self._commits.begin()
        self._aborts.begin()
        for _ in range(count):
            self._commits.send(self._keep(1), partition)
            self._aborts.send(self._take_back(1), partition)
            self._plain(self._keep(1), partition)
        in_order = (self._commits.commit, self._aborts.abort)
        for end in in_order if aborts_last else reversed(in_order):
            end()

    def everything(self, number: int) -> None:
        """Write every kind to two partitions; four calls with successive numbers differ."""
        self.interleave(5, number % 2, aborts_last=number > 1)
        self.abort(3, 0, 1)
        self.plain(2, 1)
        self.commit(4, 0, 1)

    def _keep(self, count: int) -> range:
        self.kept += count
        return range(self.kept - count, self.kept)

    def _take_back(self, count: int) -> range:
        self.aborted += count
        return range(-self.aborted, count - self.aborted)


def send(client: Producer, topic: str, values: Iterable[int], partition: int = 0) -> None:
    for value in values:
        client.produce(topic, str(value), partition=partition)
    flush(client)


def write_every_kind(broker: Broker, topic: str) -> None:
    """Write records of every kind to fixed offsets, with two aborted transactions in a row, and one at the end."""
    writer = Writer(broker, topic)
    writer.plain(2, 0)
    writer.abort(2, 0)
    writer.commit(1, 0)
    writer.abort(1, 0)
    writer.abort(1, 0)
    writer.plain(1, 0)
    writer.commit(1, 0)
    writer.abort(1, 0)
    assert ends(broker, topic) == {"0": END}


def end_of(admin: Admin, topic: str, partition: int) -> int:
    """The high watermark."""
    return admin.offset(TopicPartition(topic, partition), OffsetSpec.latest())


def ends(broker: Broker, topic: str, partitions: int = 1) -> dict[str, int]:
    """The ends by partition, in Spark's format of offsets."""
    admin = Admin(broker)
    return {str(partition): end_of(admin, topic, partition) for partition in range(partitions)}


def position(query: StreamingQuery, topic: str) -> Mapping[str, int]:
    """The end offsets of the last batch."""
    progress = query.lastProgress
    if progress is None:
        return {}
    found: dict[str, int] = json.loads(progress["sources"][0]["endOffset"])[topic]
    return found


def assert_no_batch_waited(query: StreamingQuery) -> None:
    took_ms = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
    assert took_ms, "there was no batch"
    assert max(took_ms) < BATCH_WITHIN_MS


# --- batches


def test_a_batch_has_all_committed_and_no_aborted_records(connector: Connector, broker: Broker, topic: str) -> None:
    """A batch has all committed records, for each split over tasks, some of which find only aborted records and
    markers."""
    create_topic(broker, topic, partitions=4)
    writer = Writer(broker, topic)
    for partition, aborts_last in ((0, True), (1, False)):
        writer.interleave(4, partition, aborts_last=aborts_last)
    writer.abort(3, 0, 1, 2)
    writer.commit(3, 1, 3)
    between = {"subscribe": topic, "startingOffsets": "earliest", "endingOffsets": "latest", **QUICK}
    for split in ({}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "2"}):
        assert numbers(connector.reader(broker, **between, **split, **COMMITTED).load()) == list(range(writer.kept))
    assert numbers(connector.reader(broker, **between).load()) == list(range(-writer.aborted, writer.kept))


def read_part(connector: Connector, broker: Broker, topic: str, first: int, end: int) -> DataFrame:
    between = {"startingOffsets": json.dumps({topic: {"0": first}}), "endingOffsets": json.dumps({topic: {"0": end}})}
    frame = connector.reader(broker, subscribe=topic, **between, **QUICK, **COMMITTED).load()
    return frame.selectExpr(f"{first} first", f"{end} end", "offset", "cast(cast(value as string) as int) number")


def test_a_part_begins_and_ends_anywhere(connector: Connector, broker: Broker, topic: str) -> None:
    """Parts begin and end at markers, within transactions, or without a record between: such offsets are no loss of
    data."""
    create_topic(broker, topic)
    write_every_kind(broker, topic)
    parts = [(0, cut) for cut in range(END + 1)] + [(cut, END) for cut in range(1, END + 1)] + [(2, 5), (3, 4), (7, 11)]
    frames = [read_part(connector, broker, topic, first, end) for first, end in parts]
    found = [tuple(row) for row in reduce(lambda one, other: one.union(other), frames).collect()]
    assert sorted(found) == sorted(
        (first, end, offset, number) for first, end in parts for offset, number in KEPT.items() if first <= offset < end
    )


def test_a_batch_ends_where_a_transaction_is_open(connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    writer = Writer(broker, topic)
    writer.plain(3, 0)
    writer.abort(1, 0)
    client = Transactional(broker, topic, topic)
    client.begin()
    client.send([1000])
    writer.plain(3, 0)
    frame = connector.reader(broker, subscribe=topic, **COMMITTED)
    assert numbers(frame.load()) == [0, 1, 2]
    client.commit()
    assert numbers(frame.load()) == [*range(6), 1000]


# --- streams


def test_available_now_goes_on_behind_markers(connector: Connector, broker: Broker, topic: str, output: Output) -> None:
    """Each run ends at the end of the log, also if it finds only an aborted transaction, or nothing."""
    create_topic(broker, topic, partitions=2)
    writer = Writer(broker, topic)
    steps: tuple[Callable[[], None], ...] = (
        lambda: writer.commit(10, 0, 1),
        lambda: writer.interleave(5, 0, aborts_last=True),
        lambda: writer.abort(10, 0, 1),
        lambda: None,
        lambda: writer.commit(1, 1),
    )
    source = connector.stream(broker, subscribe=topic, maxOffsetsPerTrigger="9", **COMMITTED).load()
    for step in steps:
        step()
        query = output.writer(source).trigger(availableNow=True).start()
        await_end(query)
        assert output.numbers() == list(range(writer.kept))
        assert position(query, topic) == ends(broker, topic, 2)


def test_batches_without_a_record(connector: Connector, broker: Broker, topic: str, output: Output) -> None:
    """Batches that begin at an aborted record; some of them have only aborted records and markers."""
    create_topic(broker, topic)
    write_every_kind(broker, topic)
    options = {"startingOffsets": json.dumps({topic: {"0": 2}}), "maxOffsetsPerTrigger": "2"}
    query = output.writer(connector.stream(broker, subscribe=topic, **options, **COMMITTED).load())
    ended = query.trigger(availableNow=True).start()
    await_end(ended)
    assert output.numbers() == [2, 3, 4]
    assert [progress["numInputRows"] for progress in ended.recentProgress] == [0, 1, 0, 0, 1, 1, 0]
    assert_no_batch_waited(ended)


def test_a_running_stream_keeps_up(connector: Connector, broker: Broker, topic: str, output: Output) -> None:
    create_topic(broker, topic, partitions=2)
    writer = Writer(broker, topic)
    source = connector.stream(broker, subscribe=topic, **COMMITTED).load()
    with running(output.writer(source).trigger(processingTime="100 milliseconds")) as query:
        for number in range(30):
            writer.commit(1, number % 2)
            writer.abort(1, 0, 1)
            writer.interleave(1, number % 2, aborts_last=number % 3 == 0)
        output.wait_for(writer.kept, query)
        writer.abort(1, 0, 1)
        end = ends(broker, topic, 2)
        wait_until(lambda: position(query, topic) == end, "it does not come to the end of the log", DONE_WITHIN_S)
        assert_no_batch_waited(query)
    assert output.numbers() == list(range(writer.kept))


@pytest.mark.parametrize("outcome", ["commit", "abort", "successor"])
def test_an_open_transaction_hides_later_records_of_its_partition(
    connector: Connector, broker: Broker, topic: str, output: Output, outcome: str
) -> None:
    """An open transaction hides later records of its partition only. A successor is a producer with the same
    transactional id, whose start aborts the transaction."""
    create_topic(broker, topic, partitions=2)
    plain = producer(broker)
    client = Transactional(broker, topic, topic)
    source = connector.stream(broker, subscribe=topic, **COMMITTED).load()
    send(plain, topic, [0])
    with running(output.writer(source).trigger(processingTime="100 milliseconds")) as query:
        output.wait_for(1, query)
        client.begin()
        client.send([3])
        send(plain, topic, [2])
        send(plain, topic, [1], partition=1)
        output.wait_for(2, query)
        wait_until(lambda: position(query, topic) == {"0": 1, "1": 1}, "it has read what is open", DONE_WITHIN_S)
        end_as(outcome, client, broker, topic)
        output.wait_for(4 if outcome == "commit" else 3, query)
        wait_until(lambda: position(query, topic)["0"] == 4, "it does not pass the marker", DONE_WITHIN_S)
        assert_no_batch_waited(query)


def end_as(outcome: str, client: Transactional, broker: Broker, topic: str) -> None:
    if outcome == "commit":
        client.commit()
    elif outcome == "abort":
        client.abort()
    else:
        Transactional(broker, topic, topic)


# --- compaction


def write_versions(client: Transactional, versions: Iterable[int]) -> None:
    """Commit each version of all keys, and abort a newer one before the next."""
    for version in versions:
        client.begin()
        client.send_keys(KEYS, version, VALUE_SIZE_BYTES)
        client.commit()
        write_aborted(client, version)


def write_aborted(client: Transactional, version: int) -> None:
    client.begin()
    client.send_keys(KEYS, -version, VALUE_SIZE_BYTES)
    client.abort()


def compact(broker: Broker, client: Transactional, topic: str) -> None:
    """Write two records of version 0 at the end, of which only the second is in the last segment, and wait for
    compaction."""
    for _ in range(2):
        client.begin()
        client.send_keys(["last"], 0, LAST_SIZE_BYTES)
        client.commit()
    wait_until(lambda: size_on_disk(broker, topic) < COMPACTED_SIZE_BYTES, "it is not compacted", DONE_WITHIN_S)


def test_a_compacted_topic_has_the_newest_that_was_committed(
    connector: Connector, own_broker: Broker, topic: str, output: Output
) -> None:
    """A stream that was away during a compaction goes on, although its offset is gone."""
    create_topic(own_broker, topic, config=COMPACT)
    client = Transactional(own_broker, topic, topic)
    source = connector.stream(own_broker, subscribe=topic, maxOffsetsPerTrigger="500", **COMMITTED).load()
    before = range(1, ROUNDS // 2 + 1)
    write_versions(client, before)
    run_to_end(output.writer(source))
    assert Counter(output.numbers()) == dict.fromkeys(before, len(KEYS))

    write_versions(client, range(before.stop, ROUNDS + 1))
    compact(own_broker, client, topic)
    write_aborted(client, ROUNDS + 1)
    left = {ROUNDS: len(KEYS), 0: 2}
    for split in ({}, {"minPartitions": "7"}):
        assert Counter(numbers(connector.reader(own_broker, subscribe=topic, **split, **COMMITTED).load())) == left
    query = output.writer(source).trigger(availableNow=True).start()
    await_end(query)
    assert Counter(output.numbers()) == dict.fromkeys(before, len(KEYS)) | left
    assert position(query, topic) == ends(own_broker, topic)
    assert_no_batch_waited(query)
