"""Partitions of transactions that other brokers coordinate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio
import trio.testing

from coordinator import errors
from coordinator.api import Future
from coordinator.errors import CoordinatorError, CoordinatorNotAvailable
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Partition, ProducerIdentity
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kafkawire.peers.errors import LinkFailed
from kafkawire.peers.peers import Peers
from kafkawire.peers.tests.fake_links import Call, FakeLinks
from kafkawire.peers.tests.peers import ME, FakeCluster, image_of
from kafkawire.peers.transactions import TRANSACTIONS_PER_REQUEST, ClusterTransactions
from kafkawire.tests.fake_transactions import FakeTransactions

TOPIC = "__transaction_state"
PRODUCER = ProducerIdentity(7, 3)
ONE, OTHER = Partition("t", 0), Partition("t", 1)


@dataclass
class World:
    cluster: FakeCluster
    links: FakeLinks
    local: FakeTransactions
    transactions: ClusterTransactions

    async def add(self, name: str = "x", *partitions: Partition) -> Future[None]:
        added = self.transactions.add_partitions(name, PRODUCER, partitions or (ONE,), protocol=SECOND_PROTOCOL)
        await trio.testing.wait_all_tasks_blocked()
        return added

    async def verify(self, *partitions: Partition) -> Future[list[bool]]:
        verified = self.transactions.verify_partitions("x", PRODUCER, partitions)
        await trio.testing.wait_all_tasks_blocked()
        return verified


@asynccontextmanager
async def open_world(*leaders: int) -> AsyncIterator[World]:
    """`leaders`: of the partitions of __transaction_state."""
    cluster = FakeCluster(image_of((), {TOPIC: leaders} if leaders else {}))
    links, local = FakeLinks(), FakeTransactions()
    transactions = ClusterTransactions(local, cast(Peers, links), cast(Any, cluster), ME)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transactions.run)
        yield World(cluster, links, local, transactions)
        nursery.cancel_scope.cancel()


def questions_of(call: Call) -> list[tuple[str, ProducerIdentity, bool, list[Partition]]]:
    return [
        (
            one.transactional_id,
            ProducerIdentity(one.producer_id, one.producer_epoch),
            one.verify_only,
            [Partition(topic.name, number) for topic in one.topics for number in topic.partitions],
        )
        for one in call.request.transactions
    ]


def reply_to(call: Call, *codes: int) -> AddPartitionsToTxnResponse:
    """A reply with the same error codes for each transaction, partition by partition."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=one.topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=one.number, partition_error_code=code)
                        ],
                    )
                    for one, code in zip(partitions, codes, strict=True)
                ],
            )
            for name, _, _, partitions in questions_of(call)
        ]
    )


async def test_coordinator_on_this_broker_adds_and_verifies_partitions_locally() -> None:
    async with open_world(ME) as world:
        await world.add()
        await world.verify(ONE)
        world.transactions.add_partitions("x", PRODUCER, [ONE], protocol=FIRST_PROTOCOL)
        assert [one[0] for one in world.local.calls] == ["add_partitions", "verify_partitions", "add_partitions"]
        assert world.links.calls == []


async def test_coordinator_on_another_broker_adds_partitions_by_one_request() -> None:
    async with open_world(2) as world:
        added = await world.add("x", ONE, OTHER, Partition("__consumer_offsets", 4))
        (call,) = world.links.calls
        assert (call.broker_id, call.version, call.purpose) == (2, 5, "transactions")
        assert questions_of(call) == [("x", PRODUCER, False, [ONE, OTHER, Partition("__consumer_offsets", 4)])]
        assert not added.is_settled
        call.answer.settle(reply_to(call, 0, 0, 0))
        assert added.result() is None
        assert world.local.calls == []


async def test_the_coordinator_says_which_partitions_a_transaction_has() -> None:
    async with open_world(2) as world:
        verified = await world.verify(ONE, OTHER)
        (call,) = world.links.calls
        assert questions_of(call) == [("x", PRODUCER, True, [ONE, OTHER])]
        call.answer.settle(reply_to(call, 0, 120))
        assert verified.result() == [True, False]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((49, 49), errors.InvalidProducerIdMapping),
        ((90, 90), errors.ProducerFenced),
        ((47, 47), errors.ProducerFenced),
        ((51, 51), errors.ConcurrentTransactions),
        ((14, 14), errors.CoordinatorLoading),
        ((15, 15), errors.CoordinatorNotAvailable),
        ((16, 16), errors.NotCoordinator),
        ((-1, -1), errors.TransactionTooLarge),
        ((55, 3), errors.CoordinatorNotAvailable),  # it does not know the topic yet
        ((3, 55), errors.CoordinatorNotAvailable),
        ((55, 55), errors.CoordinatorNotAvailable),
        ((0, 51), errors.ConcurrentTransactions),
    ],
)
async def test_refusal_of_a_remote_coordinator_raises_the_same_error_as_a_local_refusal(
    codes: tuple[int, int], expected: type[CoordinatorError]
) -> None:
    async with open_world(2) as world:
        for asking in (world.add("x", ONE, OTHER), world.verify(ONE, OTHER)):
            pending: Future[Any] = await asking
            call = world.links.calls[-1]
            call.answer.settle(reply_to(call, *codes))
            with pytest.raises(expected):
                pending.result()


async def test_add_answered_with_transaction_abortable_raises_coordinator_not_available() -> None:
    async with open_world(2) as world:
        added = await world.add()
        call = world.links.calls[-1]
        call.answer.settle(reply_to(call, 120))
        with pytest.raises(CoordinatorNotAvailable):
            added.result()


@pytest.mark.parametrize("reply", [AddPartitionsToTxnResponse(error_code=31), LinkFailed("cut")])
async def test_without_an_answer_the_coordinator_is_not_available(reply: Any) -> None:
    async with open_world(2) as world:
        for asking in (world.add(), world.verify(ONE)):
            pending: Future[Any] = await asking
            world.links.calls[-1].answer.settle(reply)
            with pytest.raises(CoordinatorNotAvailable):
                pending.result()


async def test_add_and_verify_without_a_coordinator_raise_coordinator_not_available() -> None:
    for leaders in ((), (-1,)):
        async with open_world(*leaders) as world:
            for asking in (world.add(), world.verify(ONE)):
                pending: Future[Any] = await asking
                with pytest.raises(CoordinatorNotAvailable):
                    pending.result()
            assert world.links.calls == []


async def test_moved_coordinator_is_asked_at_its_new_broker() -> None:
    async with open_world(2) as world:
        first = await world.add()
        world.cluster.lead(TOPIC, 3)
        await world.add()
        world.cluster.lead(TOPIC, ME)
        await world.add()
        assert [one.broker_id for one in world.links.calls] == [2, 3]
        assert len(world.local.calls) == 1
        world.links.calls[0].answer.settle(reply_to(world.links.calls[0], 16))
        with pytest.raises(errors.NotCoordinator):
            first.result()


async def test_each_coordinator_is_asked_once_for_all_that_is_asked_at_a_moment() -> None:
    async with open_world(2, 3) as world:
        names = [f"id-{number}" for number in range(20)]
        for name in names:
            world.transactions.add_partitions(name, PRODUCER, [ONE], protocol=SECOND_PROTOCOL)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(one.broker_id for one in world.links.calls) == [2, 3]
        assert sorted(one[0] for call in world.links.calls for one in questions_of(call)) == sorted(names)


async def test_two_verifications_of_one_transaction_are_separate_requests_with_separate_answers() -> None:
    """An answer to a question from before a marker would not be true any more (RULES C6)."""
    async with open_world(2) as world:
        first = world.transactions.verify_partitions("x", PRODUCER, [ONE])
        second = await world.verify(ONE)
        one, other = world.links.calls
        one.answer.settle(reply_to(one, 0))
        assert (first.result(), second.is_settled) == ([True], False)
        other.answer.settle(reply_to(other, 120))
        assert second.result() == [False]


async def test_a_request_has_so_many_transactions_at_most() -> None:
    async with open_world(2) as world:
        for number in range(TRANSACTIONS_PER_REQUEST + 1):
            world.transactions.add_partitions(f"id-{number}", PRODUCER, [ONE], protocol=SECOND_PROTOCOL)
        await trio.testing.wait_all_tasks_blocked()
        assert [len(questions_of(one)) for one in world.links.calls] == [TRANSACTIONS_PER_REQUEST, 1]
