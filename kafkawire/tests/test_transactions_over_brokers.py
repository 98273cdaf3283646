"""Transactions whose coordinator and partitions are on several brokers, in both protocols, while any of these dies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import trio

from engine.api import TopicIdPartition
from engine.batches.batch import Record, build_batch
from kafkawire.handlers.add_partitions_to_txn import FIRST_VERSION_OF_BROKERS
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafkawire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, create, leaders, settled, until
from kafkawire.tests.test_replication import TOPIC, in_sync, kill, led_by_another, produce, state
from kafkawire.tests.test_replication import create as create_replicated

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.testing import MemoryCluster

PARTITIONS = 6
ID = "transformer"
TRANSACTIONAL = 0x10
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
FIRST_THAT_ADDS = 12  # the first Produce version of the second protocol


@dataclass
class Producer:
    """A producer like stock ones: it retries retriable errors."""

    cluster: MemoryCluster
    coordinator: int
    leaders: list[int]
    version: int  # of Produce
    adds_with: int = 3  # version of AddPartitionsToTxn: stock producers send 3, some others 5
    identity: tuple[int, int] = (-1, -1)
    sequence: int = 0

    async def ask(self, broker_id: int, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        with trio.fail_after(120):
            while True:
                reply = await call(self.cluster, broker_id, request, version)
                if code_of(reply) not in RETRIABLE:
                    assert code_of(reply) == 0
                    return reply
                await trio.sleep(0.05)

    async def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        reply = await self.ask(self.coordinator, request, 4, lambda reply: reply.error_code)
        self.identity = reply.producer_id, reply.producer_epoch

    async def transact(self, *, is_commit: bool) -> None:
        """Run a transaction with a record in each partition."""
        if self.version < FIRST_THAT_ADDS:
            await self._add_partitions()
        for partition, leader in enumerate(self.leaders):
            await self.ask(leader, self._produce(partition), self.version, _code_of_produce)
        producer_id, epoch = self.identity
        request = EndTxnRequest(transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=is_commit)
        version = 5 if self.version >= FIRST_THAT_ADDS else 3
        reply = await self.ask(self.coordinator, request, version, lambda reply: reply.error_code)
        self.sequence += 1
        if version == 5:  # each transaction has an epoch of its own, in which sequences begin at 0
            self.identity, self.sequence = (reply.producer_id, reply.producer_epoch), 0

    async def _add_partitions(self) -> None:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(PARTITIONS)))]
        if self.adds_with >= FIRST_VERSION_OF_BROKERS:
            one = AddPartitionsToTxnTransaction(
                transactional_id=ID, producer_id=self.identity[0], producer_epoch=self.identity[1], topics=topics
            )
            request = AddPartitionsToTxnRequest(transactions=[one])
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self.identity[0],
                v3_and_below_producer_epoch=self.identity[1],
                v3_and_below_topics=topics,
            )
        await self.ask(self.coordinator, request, self.adds_with, _code_of_addition)

    def _produce(self, partition: int) -> ProduceRequest:
        records = build_batch([Record(None, b"v")], attributes=TRANSACTIONAL, producer=(*self.identity, self.sequence))
        data = [PartitionProduceData(index=partition, records=memoryview(records))]
        topics = [TopicProduceData(name="t", partition_data=data)]
        return ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=30_000, topic_data=topics)


def _code_of_addition(reply: AddPartitionsToTxnResponse) -> int:
    topics = [row for one in reply.results_by_transaction for row in one.topic_results]
    rows = topics or reply.results_by_topic_v3_and_below
    return reply.error_code or rows[0].results_by_partition[0].partition_error_code


def _code_of_produce(reply: ProduceResponse) -> int:
    return reply.responses[0].partition_responses[0].error_code


async def producer_on(cluster: MemoryCluster, version: int) -> Producer:
    assert await create(cluster, 1, "t", PARTITIONS) == 0
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    found = Producer(cluster, 0, [], version)
    reply = await found.ask(1, request, 4, lambda reply: reply.coordinators[0].error_code)
    await settled(cluster)
    found.coordinator, found.leaders = reply.coordinators[0].node_id, await leaders(cluster, 1, "t")
    assert len({*found.leaders}) == 3
    await found.begin()
    return found


def ends(producer: Producer) -> list[tuple[int, int]]:
    """The log end and the last stable offset of each partition."""
    found = []
    for partition, leader in enumerate(producer.leaders):
        broker = producer.cluster.brokers[leader].broker
        topic_id = broker.coordinator.image.topics["t"].topic_id
        log = broker.store.get(TopicIdPartition(topic_id, "t", partition))
        found.append((log.log_end_offset, log.last_stable_offset))
    return found


@pytest.mark.parametrize(("version", "adds_with"), [(11, 3), (11, 5), (12, 5)])
async def test_transaction_ends_on_every_partition_that_it_has_written(version: int, adds_with: int) -> None:
    async with open_cluster() as (cluster, _):
        producer = await producer_on(cluster, version)
        producer.adds_with = adds_with
        for is_commit in (True, False, True):
            await producer.transact(is_commit=is_commit)
        await trio.sleep(3)
        assert ends(producer) == [(6, 6)] * PARTITIONS  # a record and a marker of each transaction


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("victim", ["coordinator", "leader"])
async def test_decided_transaction_ends_although_a_coordinator_or_leader_is_killed(version: int, victim: str) -> None:
    async with open_cluster() as (cluster, nursery):
        producer = await producer_on(cluster, version)
        leader = next(one for one in producer.leaders if one != producer.coordinator)
        for _ in range(3):
            producer.coordinator = coordinator_of(producer)  # it may be another one now
            dies = producer.coordinator if victim == "coordinator" else leader
            await producer.transact(is_commit=True)
            cluster.kill(dies)
            await trio.sleep(1)
            await nursery.start(cluster.serve, dies, {})
            await trio.sleep(5)
        await trio.sleep(20)
        for log_end_offset, last_stable_offset in ends(producer):
            assert log_end_offset == last_stable_offset >= 6, "a marker may be there twice"


def coordinator_of(producer: Producer) -> int:
    """The coordinator of the producer in the newest image; -1 if there is none."""
    brokers = [one.broker for one in producer.cluster.brokers.values()]
    newest = max(brokers, key=lambda broker: broker.coordinator.image.version)
    topic = newest.coordinator.image.topics["__transaction_state"]
    return topic.partitions[newest.coordinators.transactions._shards.partition_of(ID)].leader


@pytest.mark.parametrize("version", [11, 12])
async def test_next_coordinator_completes_decided_transactions_of_a_killed_coordinator(version: int) -> None:
    async with open_cluster() as (cluster, nursery):
        producer = await producer_on(cluster, version)
        for is_commit in (True, False, True):
            first = coordinator_of(producer)
            await kill(cluster, first)

            async def has_moved(first: int = first) -> bool:
                return coordinator_of(producer) not in (-1, first)

            await until(has_moved)
            await nursery.start(cluster.serve, first, {})
            producer.coordinator = coordinator_of(producer)
            await producer.transact(is_commit=is_commit)
        await trio.sleep(5)
        for log_end_offset, last_stable_offset in ends(producer):
            assert log_end_offset == last_stable_offset >= 6, "a marker may be there twice"


async def test_with_too_few_replicas_in_sync_no_transaction_begins_and_all_go_on_when_there_are_enough() -> None:
    async with open_cluster() as (cluster, nursery):
        producer = await producer_on(cluster, FIRST_THAT_ADDS)
        first = coordinator_of(producer)
        await producer.transact(is_commit=True)
        others = [one for one in cluster.brokers if one != first]
        await kill(cluster, *others)
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)

        async def is_refused() -> bool:
            reply = await call(cluster, first, request, 4)
            return bool(reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE)

        await until(is_refused)
        await trio.sleep(120)
        assert await is_refused()
        for one in others:
            await nursery.start(cluster.serve, one, {})
        producer.coordinator = coordinator_of(producer)
        await producer.transact(is_commit=True)
        await trio.sleep(5)
        assert all(log_end_offset == last_stable_offset >= 4 for log_end_offset, last_stable_offset in ends(producer))


async def test_a_transaction_is_ended_by_a_successor_at_once() -> None:
    """The earlier leader may still answer, but refuses nothing because of its log (RULES K24)."""
    async with open_cluster() as (cluster, _):
        await create_replicated(cluster, BROKERS)
        await in_sync(cluster, *BROKERS)
        assert not (await produce(cluster, b"before")).error_code
        before = state(cluster).leader
        await kill(cluster, before)
        leader = await led_by_another(cluster, before)
        topics = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])]
        marker = WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics)
        reply = await call(cluster, leader, WriteTxnMarkersRequest(markers=[marker]), 1)
        assert reply.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
