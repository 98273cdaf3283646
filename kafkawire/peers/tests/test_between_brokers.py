"""A transaction whose coordinator and partition are on two brokers: the leader asks the coordinator, which sends
markers.

Both brokers are real, except that the test makes the coordinator's decisions; real peer connections are between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest
import trio
import trio.testing

from coordinator.errors import MarkerNotWritten, ProducerFenced
from coordinator.groups.service import GroupCoordinators
from coordinator.state.log import SECOND_PROTOCOL, StateMarker
from coordinator.transactions.api import Partition, ProducerIdentity
from kafkawire.adapters.markers import LocalMarkers
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkawire.peers.markers import ClusterMarkers
from kafkawire.peers.peers import Peers, PeerSettings
from kafkawire.peers.tests.peers import LINKS, ME, SECRET, World, open_peer, open_world
from kafkawire.peers.transactions import ClusterTransactions
from kafkawire.requests.headers import decode_response
from kafkawire.tests.answers import answer
from kafkawire.tests.fake_transactions import FakeMarkers, FakeTransactions
from kafkawire.tests.harness import Broker, batch, join

PEER = 2
PRODUCER = ProducerIdentity(7, 3)
COMMIT = StateMarker(7, 4, 8, is_commit=True, protocol=SECOND_PROTOCOL)
ABORT_OF_FIRST = StateMarker(7, 3, 8, is_commit=False)
WHERE = Partition("t", 0)
TRANSACTIONAL = 0x10
NOT_ENOUGH_REPLICAS, PRODUCER_EPOCH = 19, 47


@dataclass
class Two:
    """Broker 1 coordinates; broker 2 leads the partition."""

    world: World
    leader: Broker
    markers: ClusterMarkers  # of the coordinator
    transactions: FakeTransactions  # the coordinator's decisions

    def produce(self, sequence: int = 0, version: int = 12) -> Any:
        """Send a Produce of the transaction to the leader. Await the result for its error code."""
        records = batch(attributes=TRANSACTIONAL, producer=(*PRODUCER, sequence))
        data = [PartitionProduceData(index=0, records=memoryview(records))]
        topics = [TopicProduceData(name="t", partition_data=data)]
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=30_000, topic_data=topics)
        started = self.leader.dispatch(request, version)

        async def code() -> int:
            reply = await answer(started)
            assert reply is not None
            response: Any = decode_response(join(reply), request.API_KEY, version)[1]
            return int(response.responses[0].partition_responses[0].error_code)

        return code

    async def wait_until_asked(self, count: int) -> None:
        await trio.sleep(1)
        assert len(self.transactions.asked) >= count

    async def written(self, marker: StateMarker = COMMIT) -> None:
        """Write a marker and wait for it. Raises MarkerNotWritten."""
        pending = self.markers.write(marker, WHERE)
        settled = trio.Event()
        pending.call_when_settled(settled.set)
        await settled.wait()
        pending.result()


@asynccontextmanager
async def open_two() -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_world(topics={"t": (PEER,), "__transaction_state": (ME,)}))
        coordinator = await stack.enter_async_context(open_peer(world, ME))
        back = Peers(
            PeerSettings(broker_id=PEER, listener_name=LINKS, secret=SECRET),
            cast(Any, world.cluster),
            lambda: 1,
            world.network.connect,
            Random(2),
        )
        elsewhere = ClusterTransactions(FakeTransactions(), back, cast(Any, world.cluster), PEER)
        leader = await stack.enter_async_context(open_peer(world, PEER, transactions_of_cluster=elsewhere))
        for broker in (coordinator, leader):
            await broker.create("t")
            await broker.create("__consumer_offsets", partition_count=50)
        local = LocalMarkers(leader.store, cast(Any, leader.cluster), cast(GroupCoordinators, None))
        object.__setattr__(leader.interfaces, "markers", local)
        markers = ClusterMarkers(FakeMarkers(), world.links, cast(Any, world.cluster), ME)
        for part in (back, elsewhere, markers):
            world.start(part.run)
        yield Two(world, leader, markers, coordinator.transactions)


async def test_a_coordinator_adds_the_partition_and_the_leader_writes_its_marker() -> None:
    async with open_two() as two:
        code = two.produce()
        await two.wait_until_asked(1)
        assert two.transactions.calls == [("add_partitions", "x", PRODUCER, [WHERE], SECOND_PROTOCOL)]
        log = two.leader.log("t")
        assert log.log_end_offset == 0
        two.transactions.asked[0].settle(None)
        assert await code() == 0
        assert (log.last_stable_offset, log.high_watermark) == (0, 1)
        await two.written()
        assert (log.last_stable_offset, log.log_end_offset) == (2, 2)


async def test_batches_of_a_producer_stay_in_order_while_they_wait_for_the_coordinator() -> None:
    async with open_two() as two:
        codes = [two.produce(sequence) for sequence in range(3)]
        await two.wait_until_asked(1)
        await trio.sleep(1)
        for one in two.transactions.asked:
            one.settle(None)
        assert [await code() for code in codes] == [0, 0, 0]
        assert two.leader.log("t").log_end_offset == 3


async def test_a_client_of_the_first_protocol_is_asked_about() -> None:
    async with open_two() as two:
        code = two.produce(version=11)
        await two.wait_until_asked(1)
        assert two.transactions.calls == [("verify_partitions", "x", PRODUCER, [WHERE])]
        two.transactions.asked[0].settle([True])
        assert await code() == 0


async def test_a_batch_that_the_coordinator_refuses_is_not_appended() -> None:
    async with open_two() as two:
        code = two.produce()
        await two.wait_until_asked(1)
        two.transactions.asked[0].settle(ProducerFenced("older"))
        assert await code() == PRODUCER_EPOCH
        assert two.leader.log("t").log_end_offset == 0


async def test_without_the_coordinator_a_producer_tries_again() -> None:
    async with open_two() as two:
        two.world.cluster.lose(ME)
        assert await two.produce()() == NOT_ENOUGH_REPLICAS
        assert two.leader.log("t").log_end_offset == 0


async def test_a_batch_verified_after_a_marker_was_written_is_refused() -> None:
    """The next transaction has the same epoch in the first protocol (RULES C6)."""
    async with open_two() as two:
        code = two.produce(version=11)
        await two.wait_until_asked(1)
        await two.written(ABORT_OF_FIRST)
        two.transactions.asked[0].settle([True])
        assert await code() != 0
        assert two.leader.log("t").last_stable_offset == two.leader.log("t").log_end_offset


async def test_an_offset_commit_first_adds_the_offsets_partition_at_the_coordinator() -> None:
    async with open_two() as two:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=PRODUCER.producer_id,
            producer_epoch=PRODUCER.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        two.leader.dispatch(request, 5)
        await two.wait_until_asked(1)
        ((call, name, _, partitions, _),) = two.transactions.calls
        assert (call, name) == ("add_partitions", "x")
        assert [one.topic for one in partitions] == ["__consumer_offsets"]


async def test_a_marker_that_is_left_in_a_cut_connection_does_not_end_the_next_transaction() -> None:
    """Both transactions have the same epoch in the first protocol (RULES C5, K23)."""
    async with open_two() as two:
        for answered in range(1, 3):
            code = two.produce(answered - 1, version=11)
            await two.wait_until_asked(answered)
            two.transactions.asked[-1].settle([True])
            assert await code() == 0
            if answered == 1:
                await two.written(ABORT_OF_FIRST._replace(producer_id=8))  # so that there is a connection
                (stream,) = [one for one in two.world.network.opened if not one.is_held][-1:]
                stream.is_held = True
                with pytest.raises(MarkerNotWritten):
                    await two.written(ABORT_OF_FIRST)
                await two.written(ABORT_OF_FIRST)  # over the next connection: the first transaction is over
        log = two.leader.log("t")
        open_from = log.last_stable_offset
        await stream.arrive()
        await trio.sleep(1)
        assert log.last_stable_offset == open_from < log.log_end_offset
