"""Transactions in the whole broker: begun, ended, fenced and timed out by requests; they survive restarts, and obey the
broker's configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkawire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.describe_transactions import DescribeTransactionsRequest
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.messages.list_transactions import ListTransactionsRequest
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkawire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import EPOCH_MS, Client, MemoryDeps, OpenBroker, open_broker

enforces = pytest.mark.enforces
TOPIC = "__transaction_state"
FEW = {"offsets_topic_num_partitions": "2", "transaction_state_log_num_partitions": "2"}
NONE = ErrorCode.NONE
Identity = tuple[int, int]


class Crash(Exception):
    """Ends a broker as a power cut does."""


@contextmanager
def power_cut(deps: MemoryDeps) -> Iterator[Callable[[], None]]:
    """A function that ends the broker when it is called; later disk operations of that broker fail."""
    is_cut = False

    def cut() -> None:
        nonlocal is_cut
        is_cut = True
        deps.power_cut()
        raise Crash

    try:
        yield cut
    except* (Crash, AssertionError):
        if not is_cut:
            raise


class Producer:
    """A transactional producer, request by request; each method returns the error code."""

    produce_version = 11
    commit_version = 3
    adds_offsets = True

    def __init__(self, client: Client, name: str = "tx") -> None:
        self.client = client
        self.name = name
        self.identity: Identity = (-1, -1)
        self.sequence = 0

    async def initialise(self, timeout_ms: int = 60_000, expected: Identity = (-1, -1)) -> int:
        producer_id, epoch = expected
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        reply: Any = await self.client.call(request, 4)
        if reply.error_code == NONE:
            self.identity, self.sequence = (reply.producer_id, reply.producer_epoch), 0
        return int(reply.error_code)

    async def add(self, *partitions: int) -> int:
        producer_id, epoch = self.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        reply: Any = await self.client.call(request, 3)
        codes = {row.partition_error_code for row in reply.results_by_topic_v3_and_below[0].results_by_partition}
        [code] = codes
        return int(code)

    async def produce(self, value: bytes = b"v", partition: int = 0, *, is_plain: bool = False) -> int:
        attributes = 0 if is_plain else TRANSACTIONAL_BIT
        batch = build_batch(
            [Record(None, value, EPOCH_MS)], attributes=attributes, producer=(*self.identity, self.sequence)
        )
        self.sequence += 1
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=topics)
        reply: Any = await self.client.call(request, self.produce_version)
        return int(reply.responses[0].partition_responses[0].error_code)

    async def commit_offset(self, offset: int, group: str = "g", **fields: Any) -> list[int]:
        """The error codes of AddOffsetsToTxn, if the producer sends it, and of TxnOffsetCommit."""
        producer_id, epoch = self.identity
        named: dict[str, Any] = {
            "transactional_id": self.name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "group_id": group,
        }
        codes = []
        if self.adds_offsets:
            added: Any = await self.client.call(AddOffsetsToTxnRequest(**named), 3)
            codes.append(added.error_code)
        rows = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")]
        topics = [TxnOffsetCommitRequestTopic(name="t", partitions=rows)]
        reply: Any = await self.client.call(
            TxnOffsetCommitRequest(**named, topics=topics, **fields), self.commit_version
        )
        return [*codes, reply.topics[0].partitions[0].error_code]

    async def end(self, *, is_commit: bool = True) -> int:
        producer_id, epoch = self.identity
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )
        reply: Any = await self.client.call(request, 4)
        return int(reply.error_code)

    async def transact(self, value: bytes, *, is_commit: bool = True) -> None:
        assert await self.add(0) == NONE
        assert await self.produce(value) == NONE
        assert await self.end(is_commit=is_commit) == NONE


async def connected(opened: OpenBroker) -> Client:
    """A client that knows its coordinators, of a broker with a topic `t`."""
    client = opened.connect()
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 6)
    for key_type in (0, 1):
        found: Any = await client.call(FindCoordinatorRequest(key="g", key_type=key_type), 3)
        assert (found.error_code, found.node_id) == (NONE, 1)
    await trio.testing.wait_all_tasks_blocked()  # the partitions are read
    return client


async def fetched(client: Client, isolation: int = 1) -> tuple[int, list[tuple[int, int]]]:
    """The bytes of partition 0 that a reader gets, and the transactions that it must leave out."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        isolation_level=isolation, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    reply: Any = await client.call(request, 11)
    [[row]] = [topic.partitions for topic in reply.responses]
    return len(row.records or b""), [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]


async def stable_end(client: Client) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    reply: Any = await client.call(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics), 7)
    return int(reply.topics[0].partitions[0].offset)


async def committed(client: Client, *, require_stable: bool = True) -> tuple[int, int]:
    """The error code and the committed offset of partition 0."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=require_stable)
    reply: Any = await client.call(request, 7)
    row = reply.topics[0].partitions[0]
    return row.error_code, row.committed_offset


async def state(client: Client, name: str = "tx") -> str:
    reply: Any = await client.call(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    return str(reply.transaction_states[0].transaction_state)


async def test_read_committed_fetch_ends_at_the_stable_offset_and_lists_aborted_transactions() -> None:
    async with open_broker(**FEW) as opened:
        client = await connected(opened)
        producer = Producer(client)
        assert await producer.initialise() == NONE
        await producer.transact(b"yes")
        await producer.transact(b"no", is_commit=False)
        assert await producer.add(0) == NONE
        assert await producer.produce(b"perhaps") == NONE
        assert await stable_end(client) == 4, "two records and two markers"
        assert (await fetched(client))[1] == [(producer.identity[0], 2)]
        assert (await fetched(client))[0] < (await fetched(client, isolation=0))[0]


async def test_offsets_count_with_their_transaction() -> None:
    async with open_broker(**FEW) as opened:
        client = await connected(opened)
        producer = Producer(client)
        await producer.initialise()
        assert await producer.commit_offset(5) == [NONE, NONE]
        assert await committed(client) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await committed(client, require_stable=False) == (NONE, -1)
        assert await producer.end() == NONE
        await trio.testing.wait_all_tasks_blocked()
        assert await committed(client) == (NONE, 5)
        assert await producer.commit_offset(6) == [NONE, NONE]
        assert await producer.end(is_commit=False) == NONE
        await trio.testing.wait_all_tasks_blocked()
        assert await committed(client) == (NONE, 5)


async def test_a_second_producer_fences_the_first() -> None:
    async with open_broker(**FEW) as opened:
        first, second = Producer(await connected(opened)), Producer(opened.connect())
        await first.initialise()
        assert await first.add(0) == NONE
        assert await first.produce() == NONE
        assert await second.initialise() == NONE
        assert second.identity == (first.identity[0], first.identity[1] + 2), "one epoch for the fence"
        assert await first.end() == ErrorCode.PRODUCER_FENCED
        assert await first.add(0) == ErrorCode.PRODUCER_FENCED
        assert await first.produce() == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await first.commit_offset(1))[0] == ErrorCode.PRODUCER_FENCED
        await second.transact(b"mine")
        assert (await fetched(first.client))[1] == [(first.identity[0], 0)]


async def test_offsets_of_a_fenced_producer_are_refused() -> None:
    async with open_broker(**FEW) as opened:
        first, second = Producer(await connected(opened)), Producer(opened.connect())
        await first.initialise()
        assert await first.commit_offset(1) == [NONE, NONE]
        await second.initialise()
        assert await second.commit_offset(2) == [NONE, NONE]
        assert await first.commit_offset(3) == [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await second.end() == NONE
        await trio.testing.wait_all_tasks_blocked()
        assert await committed(first.client) == (NONE, 2)


@pytest.mark.parametrize("is_commit", [False, True])
async def test_a_decision_outlives_a_power_cut(*, is_commit: bool) -> None:
    deps = MemoryDeps()
    identity: Identity = (-1, -1)
    with power_cut(deps) as cut:
        async with open_broker(deps, **FEW) as opened:
            producer = Producer(await connected(opened))
            await producer.initialise()
            await producer.commit_offset(5)
            await producer.add(0)
            await producer.produce()
            assert await producer.end(is_commit=is_commit) == NONE
            identity = producer.identity
            cut()
    async with open_broker(deps, **FEW) as opened:
        client = await connected(opened)
        await trio.sleep(1)  # markers are tried again until their partitions are read
        assert await stable_end(client) in (2, 3), "its marker may be there twice"
        assert (await fetched(client))[1] == ([] if is_commit else [(identity[0], 0)])
        assert await committed(client) == (NONE, 5 if is_commit else -1)
        assert await state(client) == ("CompleteCommit" if is_commit else "CompleteAbort")


async def test_an_open_transaction_outlives_a_power_cut() -> None:
    """Named case 2: the pending offset is unstable, and the producer goes on."""
    deps = MemoryDeps()
    producer = Producer(None)  # type: ignore[arg-type]
    with power_cut(deps) as cut:
        async with open_broker(deps, **FEW) as opened:
            producer.client = await connected(opened)
            await producer.initialise()
            await producer.transact(b"before")
            await producer.commit_offset(5)
            await producer.add(0)
            await producer.produce()
            await trio.sleep(1)  # until the cache of coordinator state is written
            cut()
    async with open_broker(deps, **FEW) as opened:
        client = producer.client = await connected(opened)
        assert await state(client) == "Ongoing"
        assert await committed(client) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await stable_end(client) == 2
        assert await producer.produce() == NONE
        assert await producer.end() == NONE
        assert await committed(client) == (NONE, 5)
        assert await stable_end(client) == 5


@enforces("transaction.abort.timed.out.transaction.cleanup.interval.ms")
async def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    async with open_broker(**FEW, transaction_abort_timed_out_transaction_cleanup_interval_ms="2000") as opened:
        client = await connected(opened)
        producer = Producer(client)
        await producer.initialise(timeout_ms=5_000)
        await producer.add(0)
        await producer.produce()
        await trio.sleep(4.9)
        assert await state(client) == "Ongoing"
        await trio.sleep(2.2)
        assert await state(client) == "CompleteAbort"
        assert await stable_end(client) == 2
        assert await producer.end() == ErrorCode.PRODUCER_FENCED
        assert await producer.initialise() == NONE
        await producer.transact(b"again")


@enforces("transaction.max.timeout.ms")
async def test_a_transaction_has_a_longest_time() -> None:
    async with open_broker(**FEW, transaction_max_timeout_ms="5000") as opened:
        producer = Producer(await connected(opened))
        assert await producer.initialise(timeout_ms=5_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await producer.initialise(timeout_ms=0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await producer.initialise(timeout_ms=5_000) == NONE


@enforces("transactional.id.expiration.ms")
@enforces("transaction.remove.expired.transaction.cleanup.interval.ms")
async def test_unused_transactional_id_expires() -> None:
    ages = {
        "transactional_id_expiration_ms": "60000",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "10000",
    }
    async with open_broker(**FEW, **ages) as opened:
        client = await connected(opened)
        used, unused = Producer(client, "used"), Producer(client, "unused")
        await used.initialise()
        await unused.initialise()
        await trio.sleep(55)
        await used.transact(b"v")
        await trio.sleep(16)
        listed: Any = await client.call(ListTransactionsRequest(), 0)
        assert [one.transactional_id for one in listed.transaction_states] == ["used"]
        assert await unused.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await unused.initialise() == NONE


@enforces("transaction.state.log.num.partitions")
@enforces("transaction.state.log.replication.factor")
@enforces("transaction.state.log.min.isr")
@enforces("transaction.state.log.segment.bytes")
async def test_the_topic_of_transactions() -> None:
    given = {
        "transaction_state_log_num_partitions": "3",
        "transaction_state_log_replication_factor": "3",
        "transaction_state_log_min_isr": "2",
        "transaction_state_log_segment_bytes": "2097152",
    }
    async with open_broker(**given) as opened:
        await connected(opened)
        topic = opened.broker.coordinator.image.topics[TOPIC]
        assert topic.internal
        assert [one.replicas for one in topic.partitions] == [(1,)] * 3, "as many replicas as brokers"
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "2097152",
        }


async def test_a_topic_that_is_deleted_holds_no_transaction_up() -> None:
    async with open_broker(**FEW) as opened:
        client = await connected(opened)
        producer = Producer(client)
        await producer.initialise()
        await producer.add(0)
        await producer.produce()
        await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
        assert await producer.end() == NONE
        await trio.testing.wait_all_tasks_blocked()
        assert await state(client) == "CompleteCommit"


async def test_administrator_ends_a_transaction_that_no_coordinator_knows() -> None:
    """The administrator writes a marker, as `kafka-transactions abort` does."""
    async with open_broker(transaction_partition_verification_enable="false", **FEW) as opened:
        client = await connected(opened)
        hanging = Producer(client)
        hanging.identity = (4_711, 0)
        assert await hanging.produce() == NONE, "nobody asks whether the partition was added"
        assert await stable_end(client) == 0
        marker = WritableTxnMarker(
            producer_id=4_711,
            producer_epoch=0,
            transaction_result=False,
            coordinator_epoch=0,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
        )
        reply: Any = await client.call(WriteTxnMarkersRequest(markers=[marker]), 1)
        rows = reply.markers[0].topics[0].partitions
        assert [row.error_code for row in rows] == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await stable_end(client) == 2
