"""A partition with transactions as clients see it: committed, aborted and open ones, plain records between them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette

from engine.api import Isolation, Marker, OffsetSpec, Outcome, PartitionLog, TopicIdPartition
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch, parse_header
from kafkawire.client import consumer as client
from kafkawire.client.offsets import LATEST, known_offsets
from kafkawire.client.partitions import TopicPartition as ClientPartition
from kafkawire.client.tests.test_against_broker import cluster_of
from kafkawire.http.queries import ReadableTopics
from kafkawire.http.record_search import RecordSearch
from kafkawire.messages import describe_producers, list_offsets
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.requests.context import allow_all
from kafkawire.testing import EPOCH_MS, open_broker
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import Broker, open_handlers
from testkit.asgi import get_response

ABORTING, COMMITTING = 7, 8
END, STABLE_END = 7, 5
NO_PRODUCER = -1, -1, -1


async def fill(log: PartitionLog) -> None:
    """Fill the log: 0 plain, 1 aborted by the marker 3, 2 committed by the marker 4, 5 open, 6 plain."""
    await append(log, 0)
    await append(log, 1, (ABORTING, 0, 0))
    await append(log, 2, (COMMITTING, 0, 0))
    await log.end_transaction(Marker(ABORTING, 0, 3, Outcome.ABORT)).wait()
    await log.end_transaction(Marker(COMMITTING, 0, 3, Outcome.COMMIT)).wait()
    await append(log, 5, (ABORTING, 0, 1))
    await append(log, 6)
    assert (log.log_end_offset, log.last_stable_offset) == (END, STABLE_END)


async def append(log: PartitionLog, number: int, producer: tuple[int, int, int] = NO_PRODUCER) -> None:
    record = Record(b"key", b"%d" % number, EPOCH_MS + number)
    attributes = 0 if producer == NO_PRODUCER else TRANSACTIONAL_BIT
    await log.append(memoryview(build_batch([record], attributes=attributes, producer=producer)), acks=-1).wait()


async def filled(broker: Broker) -> None:
    await broker.create("t")
    await fill(broker.log("t"))


def offsets_in(records: Any) -> list[int]:
    data, found = bytes(records or b""), list[int]()
    while data:
        header = parse_header(data)
        found.append(header.base_offset)
        data = data[header.size_bytes :]
    return found


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize("session_id", [0, -1])
async def test_fetch(version: int, session_id: int) -> None:
    async with open_handlers() as broker:
        await filled(broker)
        for isolation, end in ((Isolation.READ_COMMITTED, STABLE_END), (Isolation.READ_UNCOMMITTED, END)):
            asked = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic="t", partitions=[asked])]
            request = FetchRequest(isolation_level=isolation, max_bytes=1 << 20, topics=topics)
            if session_id:
                request.session_epoch = session_id
            [[row]] = [topic.partitions for topic in (await broker.ask(request, version)).responses]
            assert offsets_in(row.records) == list(range(1, end))
            assert (row.high_watermark, row.last_stable_offset) == (END, STABLE_END)
            if isolation is Isolation.READ_COMMITTED:
                assert [(one.producer_id, one.first_offset) for one in row.aborted_transactions] == [(ABORTING, 1)]
            else:
                assert row.aborted_transactions is None


async def test_a_reader_of_committed_records_waits_for_the_end_of_a_transaction() -> None:
    async with open_handlers() as broker:
        await filled(broker)
        asked = FetchPartition(partition=0, fetch_offset=STABLE_END, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[asked])]
        request = FetchRequest(isolation_level=1, max_bytes=1 << 20, max_wait_ms=10_000, min_bytes=1, topics=topics)
        dispatched = broker.dispatch(request, 12)
        await broker.log("t").end_transaction(Marker(ABORTING, 0, 3, Outcome.COMMIT)).wait()
        [[row]] = [topic.partitions for topic in broker.read(await answer(dispatched), 1, 12).responses]
        assert offsets_in(row.records) == [5, 6, 7]
        assert row.aborted_transactions == []


@pytest.mark.parametrize(
    ("timestamp_ms", "committed", "uncommitted"),
    [
        (OffsetSpec.LATEST, STABLE_END, END),
        (OffsetSpec.MAX_TIMESTAMP, -1, 6),
        (EPOCH_MS + 5, -1, 5),
        (EPOCH_MS + 1, 1, 1),
    ],
)
async def test_list_offsets(timestamp_ms: int, committed: int, uncommitted: int) -> None:
    """A lookup by time finds aborted records too, as in Kafka."""
    async with open_handlers() as broker:
        await filled(broker)
        for isolation, offset in ((1, committed), (0, uncommitted)):
            asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
            topics = [list_offsets.ListOffsetsTopic(name="t", partitions=[asked])]
            request = list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            [[row]] = [topic.partitions for topic in (await broker.ask(request, 8)).topics]
            assert (row.error_code, row.offset) == (0, offset)


async def test_describe_producers() -> None:
    async with open_handlers() as broker:
        await filled(broker)
        asked = describe_producers.TopicRequest(name="t", partition_indexes=[0])
        response = await broker.ask(describe_producers.DescribeProducersRequest(topics=[asked]), 0)
        [[partition]] = [topic.partitions for topic in response.topics]
        found = {one.producer_id: one for one in partition.active_producers}
        told = {
            producer: (one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset)
            for producer, one in found.items()
        }
        assert told == {ABORTING: (1, 3, 5), COMMITTING: (0, 3, -1)}


async def test_record_search_finds_only_committed_records() -> None:
    async with open_broker() as opened:
        topic = await opened.broker.coordinator.create_topic("t", partition_count=1, configs={"index.keys": "true"})
        await fill(opened.broker.store.get(TopicIdPartition(topic.topic_id, "t", 0)))
        topics = ReadableTopics(opened.broker.coordinator, opened.broker.store, allow_all)
        app = Starlette(routes=RecordSearch(topics).routes())
        for query in ({"key": "key"}, {"from": str(EPOCH_MS)}, {"offset": "0", "partition": "0"}):
            status, body = await get_response(app, "/v1/topics/t/messages", **query)
            document = json.loads(body)
            assert status == 200, document
            assert [one["offset"] for one in document["messages"]] == [0, 2]
            assert document["next"] is None


@pytest.mark.parametrize(
    ("isolation", "values", "end"),
    [(Isolation.READ_COMMITTED, [0, 2], STABLE_END), (Isolation.READ_UNCOMMITTED, [0, 1, 2, 5, 6], END)],
)
async def test_our_own_client(isolation: Isolation, values: Sequence[int], end: int) -> None:
    partition = ClientPartition("t", 0)
    async with open_broker() as opened, cluster_of(opened) as cluster:
        topic = await opened.broker.coordinator.create_topic("t", partition_count=1)
        await fill(opened.broker.store.get(TopicIdPartition(topic.topic_id, "t", 0)))
        reader = client.Consumer(cluster, {partition: 0}, lambda _: None, isolation)
        found = [record.value for batch in await reader.poll() for record in batch.records()]
        assert found == [b"%d" % value for value in values]
        assert reader.positions == {partition: end}
        assert await known_offsets(cluster, [partition], LATEST, isolation) == {partition: end}
