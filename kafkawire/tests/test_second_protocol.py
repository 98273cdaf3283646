"""Transactions of the second protocol (KIP-890) in the whole broker: late requests, lost replies, epochs used up."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from kafkawire.config.tests.test_dynamic import configure
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import EPOCH_MS, MemoryDeps, OpenBroker, open_broker
from kafkawire.tests.test_transactions import (
    FEW,
    NONE,
    Identity,
    Producer,
    committed,
    connected,
    fetched,
    power_cut,
    stable_end,
    state,
)

enforces = pytest.mark.enforces
LAST_EPOCH = 32_766
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


class NewProducer(Producer):
    """A producer that adds no partitions by itself, and gets another identity at each end of a transaction."""

    produce_version = 12
    commit_version = 5
    adds_offsets = False

    async def end(self, *, is_commit: bool = True) -> int:
        code, following = await self.end_as(self.identity, is_commit=is_commit)
        if code == NONE:
            self.identity, self.sequence = following, 0
        return code

    async def end_as(self, identity: Identity, *, is_commit: bool = True) -> tuple[int, Identity]:
        """End the transaction with that identity, as a retry or a late request does. Return the error code and the
        identity."""
        producer_id, epoch = identity
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )
        reply: Any = await self.client.call(request, 5)
        return int(reply.error_code), (reply.producer_id, reply.producer_epoch)

    async def produce_as(self, identity: Identity, sequence: int = 0) -> int:
        """Produce with that identity, as a late request does."""
        now, self.identity, self.sequence = (self.identity, self.sequence), identity, sequence
        try:
            return await self.produce(b"late")
        finally:
            self.identity, self.sequence = now


async def new_producer(opened: OpenBroker, name: str = "tx") -> NewProducer:
    producer = NewProducer(await connected(opened), name)
    assert await producer.initialise() == NONE
    return producer


async def test_a_transaction_has_the_partitions_that_are_written_to() -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        for is_commit in (True, False, True):
            for partition in (0, 1):
                producer.sequence = 0
                assert [await producer.produce(b"v", partition) for _ in range(2)] == [NONE] * 2
            assert await producer.commit_offset(5) == [NONE]
            assert await producer.end(is_commit=is_commit) == NONE
            await trio.testing.wait_all_tasks_blocked()
        assert producer.identity == (0, 3)
        assert await stable_end(producer.client) == 9
        assert (await fetched(producer.client))[1] == [(producer.identity[0], 3)], "the second one was aborted"
        assert await committed(producer.client) == (NONE, 5)


async def test_next_transaction_waits_for_the_markers_of_the_previous_transaction() -> None:
    """Kafka would answer CONCURRENT_TRANSACTIONS here, and a client would wait longer."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        for _ in range(3):
            assert await producer.produce() == NONE
            assert await producer.end() == NONE
        assert await producer.end(is_commit=False) == NONE


@pytest.mark.parametrize("is_commit", [True, False])
async def test_repeated_end_txn_after_a_lost_reply_returns_the_same_result(*, is_commit: bool) -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        before = producer.identity
        await producer.produce()
        result = await producer.end_as(before, is_commit=is_commit)
        assert result == (NONE, (0, 1))
        assert await producer.end_as(before, is_commit=is_commit) == result
        code, _ = await producer.end_as(before, is_commit=not is_commit)
        assert code == ErrorCode.INVALID_TXN_STATE


async def test_a_late_end_does_not_end_the_next_transaction() -> None:
    """A late EndTxn has the previous epoch. Before the next transaction begins it may pass as a retry, from then on it
    is fenced."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        before = producer.identity
        await producer.produce()
        await producer.end()
        await producer.produce()
        for is_commit in (True, False):
            assert (await producer.end_as(before, is_commit=is_commit))[0] == ErrorCode.PRODUCER_FENCED
        assert await state(producer.client) == "Ongoing"
        assert await stable_end(producer.client) == 2


async def test_late_produce_of_ended_transaction() -> None:
    """Named case 6: the request is held up past the commit, and past the next begin."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        before = producer.identity
        await producer.produce()
        await producer.end()
        await trio.testing.wait_all_tasks_blocked()
        assert await producer.produce_as(before, 1) == FENCED
        await producer.produce()
        assert await producer.produce_as(before, 1) == FENCED
        await producer.end()
        await trio.testing.wait_all_tasks_blocked()
        assert await stable_end(producer.client) == 4


async def test_a_late_produce_to_a_partition_that_the_transaction_never_had() -> None:
    """The partition knows nothing of the producer; the coordinator does."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        before = producer.identity
        await producer.produce(partition=1)
        await producer.end()
        await trio.testing.wait_all_tasks_blocked()
        assert await producer.produce_as(before) == FENCED
        await producer.produce(partition=1)
        assert await producer.produce_as(before) == FENCED
        assert await stable_end(producer.client) == 0


async def test_late_offsets_of_an_ended_transaction() -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        before = producer.identity
        await producer.commit_offset(5)
        await producer.end()
        await trio.testing.wait_all_tasks_blocked()
        after, producer.identity = producer.identity, before
        assert await producer.commit_offset(6) == [FENCED]
        producer.identity = after
        await producer.produce()
        producer.identity = before
        assert await producer.commit_offset(6) == [FENCED]
        assert await committed(producer.client) == (NONE, 5)


async def test_a_late_marker_of_an_administrator_is_refused() -> None:
    """A marker of WriteTxnMarkers 2 has the epoch in which the next transaction has begun."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        await producer.produce()
        await producer.end()
        await producer.produce()
        producer_id, epoch = producer.identity
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            transaction_version=2,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )
        reply: Any = await producer.client.call(WriteTxnMarkersRequest(markers=[marker]), 2)
        assert reply.markers[0].topics[0].partitions[0].error_code == FENCED
        assert await stable_end(producer.client) == 2


async def test_a_sequence_that_does_not_begin_with_0() -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        assert await producer.produce_as(producer.identity, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.produce() == NONE


async def test_a_plain_batch_in_a_transaction() -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        await producer.produce()
        assert await producer.produce(is_plain=True) == ErrorCode.INVALID_TXN_STATE


async def test_produce_to_many_partitions_does_not_block_the_writes_of_the_coordinator() -> None:
    """More than half of the queue for the disk in one request: the coordinator waits for room too."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        topic = CreatableTopic(name="wide", num_partitions=40, replication_factor=1)
        await producer.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 6)
        batches = [
            build_batch(
                [Record(None, bytes(900_000), EPOCH_MS)],
                attributes=TRANSACTIONAL_BIT,
                producer=(*producer.identity, 0),
            )
            for _ in range(40)
        ]
        rows = [PartitionProduceData(index=index, records=memoryview(one)) for index, one in enumerate(batches)]
        topics = [TopicProduceData(name="wide", partition_data=rows)]
        request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=30_000, topic_data=topics)
        reply: Any = await producer.client.call(request, 12)
        assert {row.error_code for row in reply.responses[0].partition_responses} == {NONE}
        assert await producer.end() == NONE


async def test_both_protocols_side_by_side() -> None:
    async with open_broker(**FEW) as opened:
        new = await new_producer(opened, "new")
        old = Producer(new.client, "old")
        await old.initialise()
        await old.add(0)
        for producer in (new, old, new, old):
            assert await producer.produce() == NONE
        assert await new.end() == NONE
        await trio.testing.wait_all_tasks_blocked()
        assert await stable_end(new.client) == 1, "the other one has begun behind it"
        assert await old.end(is_commit=False) == NONE
        await trio.testing.wait_all_tasks_blocked()
        assert await stable_end(new.client) == 6
        assert (await fetched(new.client))[1] == [(old.identity[0], 1)]


async def test_a_client_that_is_older_goes_on_with_the_same_id() -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        await producer.produce()
        await producer.end()
        older = Producer(producer.client)
        await older.initialise()
        assert older.identity == (0, 2)
        await older.transact(b"v")
        assert await producer.produce() == FENCED


@pytest.mark.parametrize("is_power_cut", [True, False])
async def test_decided_transaction_is_completed_after_a_crash(*, is_power_cut: bool) -> None:
    """Only EndTxn was answered before the crash: the next process writes the markers, and the producer goes on."""
    deps = MemoryDeps()
    with power_cut(deps) as cut:
        async with open_broker(deps, **FEW) as opened:
            producer = await new_producer(opened)
            before = producer.identity
            await producer.produce()
            after = (await producer.end_as(before))[1]
            if is_power_cut:
                cut()
    async with open_broker(deps, **FEW) as opened:
        again = NewProducer(await connected(opened))
        assert await stable_end(again.client) in (2, 3), "a marker may be written twice"
        assert await again.end_as(before) == (NONE, after)
        again.identity = after
        assert await again.produce() == NONE
        assert await again.produce_as(before, 1) == FENCED
        assert await again.end() == NONE


async def use_up_epochs(producer: NewProducer) -> None:
    """Initialise the producer until it has the last possible epoch."""
    while producer.identity[1] < LAST_EPOCH:
        assert await producer.initialise() == NONE


@pytest.fixture
def first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let producers begin with this epoch."""
    monkeypatch.setattr("coordinator.transactions.transitions.FIRST_EPOCH", LAST_EPOCH - 2)


@pytest.mark.usefixtures("first_epoch")
async def test_when_epochs_are_used_up_a_producer_goes_on_under_another_id() -> None:
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        identities = [producer.identity]
        for _ in range(4):
            assert await producer.produce() == NONE
            assert await producer.end() == NONE
            identities.append(producer.identity)
        assert identities == [(0, LAST_EPOCH - 2), (0, LAST_EPOCH - 1), (0, LAST_EPOCH), (1, 0), (1, 1)]
        await trio.testing.wait_all_tasks_blocked()
        assert await stable_end(producer.client) == 8
        assert await producer.produce_as(identities[2], 1) == FENCED


@pytest.mark.usefixtures("first_epoch")
async def test_epoch_32766_times_out() -> None:
    """Named case 8."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        await use_up_epochs(producer)
        last = producer.identity
        await producer.produce()
        await trio.sleep(75)
        assert await state(producer.client) == "CompleteAbort"
        assert await stable_end(producer.client) == 2
        assert await producer.produce_as(last, 1) == FENCED
        assert await producer.end_as(last, is_commit=False) == (NONE, (1, 0))
        code, _ = await producer.end_as(last)
        assert code == ErrorCode.INVALID_TXN_STATE
        producer.identity, producer.sequence = (1, 0), 0
        assert await producer.produce() == NONE


async def test_an_empty_abort_after_a_commit() -> None:
    """Named case 9: the abort waits for the commit's markers, and is a real abort."""
    async with open_broker(**FEW) as opened:
        producer = await new_producer(opened)
        await producer.produce()
        assert await producer.end() == NONE
        assert await producer.end(is_commit=False) == NONE
        assert producer.identity == (0, 2)
        assert await producer.end() == ErrorCode.INVALID_TXN_STATE, "there is nothing to commit"


# Older clients


async def test_produce_to_a_partition_that_was_not_added_is_refused() -> None:
    async with open_broker(**FEW) as opened:
        producer = Producer(await connected(opened))
        await producer.initialise()
        assert await producer.produce() == ErrorCode.TRANSACTION_ABORTABLE
        producer.produce_version, producer.sequence = 10, 0
        assert await producer.produce() == ErrorCode.INVALID_TXN_STATE
        producer.sequence = 0
        await producer.add(0)
        assert await producer.produce() == NONE
        assert await stable_end(producer.client) == 0


async def test_offset_commit_without_an_added_offsets_partition_is_refused() -> None:
    async with open_broker(**FEW) as opened:
        producer = Producer(await connected(opened))
        await producer.initialise()
        producer.adds_offsets = False
        for version, code in ((4, ErrorCode.TRANSACTION_ABORTABLE), (3, ErrorCode.INVALID_TXN_STATE)):
            producer.commit_version = version
            assert await producer.commit_offset(5) == [code]
        assert await committed(producer.client) == (NONE, -1)


@enforces("transaction.partition.verification.enable")
async def test_whether_older_clients_are_believed() -> None:
    async with open_broker(**FEW, transaction_partition_verification_enable="false") as opened:
        producer = Producer(await connected(opened))
        await producer.initialise()
        assert await producer.produce() == NONE
        producer.adds_offsets = False
        assert await producer.commit_offset(5) == [NONE]
        await configure(opened, {"transaction.partition.verification.enable": "true"})
        assert await producer.produce(partition=1) == ErrorCode.TRANSACTION_ABORTABLE
