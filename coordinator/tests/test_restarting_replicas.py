"""A follower discards its log once the others know: else it could lead without acknowledged records (RULES K8)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from coordinator.api import BrokerState
from coordinator.controller.elections import with_suspect
from coordinator.errors import NotFollowedInEpoch
from coordinator.membership.lost_replicas import restart_operations
from coordinator.testing.fakes import FakeEnsemble, Loss
from coordinator.tests.test_cluster_manager import elect, two_brokers

if TYPE_CHECKING:
    from coordinator.api import PartitionState
    from coordinator.tests.test_cluster_manager import Member

PARTITIONS = 3


async def assigned(one: Member, *replicas: int) -> bytes:
    topic = await one.coordinator.create_topic("a", assignments={number: [*replicas] for number in range(PARTITIONS)})
    await trio.testing.wait_all_tasks_blocked()
    return topic.topic_id


def states(one: Member) -> tuple[PartitionState, ...]:
    return tuple(one.coordinator.image.topics["a"].partitions)


async def test_a_follower_that_restarts_its_copy_leaves_the_isr_and_becomes_suspect_first() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        topic_id = await assigned(one, 1, 2)
        await two.coordinator.record_restart(topic_id, 0, 0, 7)
        await trio.testing.wait_all_tasks_blocked()
        state, other, _ = states(one)
        assert (state.leader, state.leader_epoch, state.isr, state.suspect_replicas) == (1, 0, (1,), ((2, -1, 7),))
        assert (other.isr, other.suspect_replicas) == ((1, 2), ())
        nursery.cancel_scope.cancel()


async def test_copies_that_restart_at_the_same_time_are_written_in_one_change() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        topic_id = await assigned(one, 1, 2)
        before = one.coordinator.image.version
        async with trio.open_nursery() as followers:
            for number in range(PARTITIONS):
                followers.start_soon(two.coordinator.record_restart, topic_id, number, 0, 7)
        await trio.testing.wait_all_tasks_blocked()
        assert [state.isr for state in states(one)] == [(1,)] * PARTITIONS
        assert one.coordinator.image.version == before + 1
        nursery.cancel_scope.cancel()


async def test_a_suspect_replica_that_restarts_its_copy_is_written_again() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        topic_id = await assigned(one, 1, 2)
        versions = []
        for _ in range(2):
            await two.coordinator.record_restart(topic_id, 0, 0, 7)
            await trio.testing.wait_all_tasks_blocked()
            versions.append(states(one)[0].version)
        assert versions[1] == versions[0] + 1
        nursery.cancel_scope.cancel()


async def test_a_broker_that_was_elected_meanwhile_does_not_restart_its_copy() -> None:
    """The broker was elected, and learns that after it was told to re-replicate from scratch."""
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = await two_brokers(nursery, ensemble)
        topic_id = await assigned(one, 1, 2)
        two.store.pause()
        await elect(ensemble, one, one.coordinator.image.topics_by_id[topic_id], 2, two)
        outcome = []

        async def record_restart() -> None:
            with pytest.raises(NotFollowedInEpoch):
                await two.coordinator.record_restart(topic_id, 0, 0, 7)
            outcome.append(trio.current_time())

        nursery.start_soon(record_restart)
        await trio.testing.wait_all_tasks_blocked()
        assert outcome == []
        two.store.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert outcome
        state = states(one)[0]
        assert (state.leader, state.isr, state.suspect_replicas) == (2, (1, 2), ())
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["is fenced", "leaves", "lives again", "lacks something", "is out of sync"])
async def test_a_copy_is_not_restarted_without_a_leader_that_has_all_records(what: str) -> None:
    """The log may be the last one with all acknowledged records, and a follower without them could lead."""
    async with trio.open_nursery() as nursery:
        one, _ = await two_brokers(nursery, FakeEnsemble())
        topic_id = await assigned(one, 1, 2)
        image = one.coordinator.image
        leader, state = image.members[1], image.topics_by_id[topic_id].partitions[0]
        assert restart_operations(image, topic_id, 0, 0, 7, image.members[2]) is not None
        if what == "is fenced":
            leader = replace(leader, state=BrokerState.FENCED)
        elif what == "leaves":
            leader = replace(leader, state=BrokerState.LEAVING)
        elif what == "lives again":
            leader = replace(leader, incarnation=bytes(16))
        elif what == "lacks something":
            state = with_suspect(replace(state, isr=(1,)), 1, (0, 0), min_isr=1)
        else:
            state = replace(state, isr=(2,))
        topic = replace(image.topics_by_id[topic_id], partitions=(state,))
        image = replace(image, members={**image.members, 1: leader}, topics_by_id={topic_id: topic})
        assert restart_operations(image, topic_id, 0, 0, 7, image.members[2]) is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["another partition", "another topic", "no replica"])
async def test_the_copy_of_a_partition_that_is_not_followed_is_not_restarted(what: str) -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        topic_id = await assigned(one, *((1,) if what == "no replica" else (1, 2)))
        number = PARTITIONS if what == "another partition" else 0
        with pytest.raises(NotFollowedInEpoch):
            await two.coordinator.record_restart(bytes(16) if what == "another topic" else topic_id, number, 0, 7)
        nursery.cancel_scope.cancel()


async def test_a_restart_of_a_copy_waits_for_the_metadata_and_for_an_outcome() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        topic_id = await assigned(one, 1, 2)
        two.store.disconnected = True
        with trio.move_on_after(5) as scope:
            await two.coordinator.record_restart(topic_id, 0, 0, 7)
        assert scope.cancelled_caught
        assert states(one)[0].suspect_replicas == ()
        two.store.disconnected = False
        two.store.script.append(Loss.REQUEST)
        await two.coordinator.record_restart(topic_id, 1, 0, 8)
        await trio.sleep(1)
        assert [state.suspect_replicas for state in states(one)] == [(), ((2, -1, 8),), ()], (
            "no request waits for the first any more"
        )
        nursery.cancel_scope.cancel()
