"""Brokers that all lose power: the replica with the longest log leads, not the one whose broker returns first
(RULES K33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog
import trio

from coordinator.api import NO_LEADER
from coordinator.controller.recovery import LIVED_ON_S
from coordinator.ports import LogEndRequest
from engine.errors import NotLeaderOrFollower
from engine.testing.simulated_disk import SimulatedFileSystem
from kafkawire.adapters import replica_ends
from kafkawire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, led_again, until
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_replication import (
    TOPIC,
    acknowledged,
    create,
    equal,
    in_sync,
    kill,
    led_by_another,
    replica,
    state,
    values,
)
from kafkawire.tests.test_repudiation import SENT, filled, led

if TYPE_CHECKING:
    from collections.abc import Sequence

SESSION_S = 18.0
WAIT_S = 10.0
WAITS = "election waits for replicas"


async def rolled_back(cluster: MemoryCluster, broker_id: int = 1) -> None:
    """Cut the power of all brokers. One disk gets back the state from before the last acknowledged records."""
    await create(cluster, min_insync_replicas="2", retention_ms="-1")
    await filled(cluster)
    await trio.sleep(WAIT_S)
    kept = len(cluster.deps_of(broker_id).filesystem.operations)
    await filled(cluster)
    await trio.sleep(2)
    await kill(cluster, *BROKERS)
    deps = cluster.deps_of(broker_id)
    deps.filesystem = SimulatedFileSystem.replayed(deps.filesystem.operations[:kept])


@pytest.mark.parametrize("away_s", [0.0, 2 * SESSION_S])
async def test_broker_with_a_rolled_back_disk_that_returns_first_loses_no_records(away_s: float) -> None:
    """`away_s`: as long as the sessions of the others last, and longer."""
    async with open_cluster() as (cluster, nursery):
        await rolled_back(cluster)
        await trio.sleep(away_s)
        with structlog.testing.capture_logs() as lines:
            await nursery.start(cluster.serve, 1, {})
            await trio.sleep(3)
            for one in (2, 3):
                await nursery.start(cluster.serve, one, {})
            await trio.sleep(WAIT_S / 2)
            assert await led(cluster) in (2, 3)
            await in_sync(cluster, *BROKERS)
        [waits] = [one for one in lines if one["event"] == WAITS]
        assert (waits["count"], waits["brokers"], waits["wait_ms"]) == (1, [1, 2, 3], 1000 * WAIT_S)
        [found] = [one for one in lines if one["event"] == "replica short"]
        assert (found["broker"], found["end"], found["longest_end"]) == (1, len(SENT), 2 * len(SENT))
        await equal(cluster)
        assert await values(cluster) == [*SENT, *SENT]
        assert state(cluster).unclean_since == -1
        counters = [one.broker.coordinator.counters for one in cluster.brokers.values()]
        assert sum(one.short_replicas for one in counters) == 1
        assert sum(one.elections_waiting for one in counters) == 0


async def failover_s(wait_ms: str) -> float:
    async with open_cluster(controller_recovery_wait_ms=wait_ms) as (cluster, _):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        leader, begin_s = state(cluster).leader, trio.current_time()
        await kill(cluster, leader)
        await led_by_another(cluster, leader)
        return trio.current_time() - begin_s


async def test_election_after_the_failure_of_one_broker_does_not_wait() -> None:
    with structlog.testing.capture_logs() as lines:
        took_s = await failover_s("10000")
    assert took_s <= await failover_s("0") + 0.01
    assert WAITS not in [one["event"] for one in lines]


async def test_brokers_that_restart_one_after_the_other_make_no_election_wait() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        with structlog.testing.capture_logs() as lines:
            for one in BROKERS:
                await kill(cluster, one)
                await nursery.start(cluster.serve, one, {})
                await in_sync(cluster, *BROKERS)
                await trio.sleep(LIVED_ON_S + 1)
                await in_sync(cluster, *BROKERS)
            last = state(cluster).leader
            await kill(cluster, last)
            await led_by_another(cluster, last)
        assert WAITS not in [one["event"] for one in lines]
        assert await values(cluster) == SENT


async def test_sessions_that_all_end_make_no_election_wait() -> None:
    """The processes live on, and so do their logs."""
    async with open_cluster() as (cluster, _):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        with structlog.testing.capture_logs() as lines:
            for one in BROKERS:
                cluster.ensemble.expire(cluster.deps_of(one).sessions[-1])
            await trio.sleep(WAIT_S)
            await acknowledged(cluster, b"after")
        assert WAITS not in [one["event"] for one in lines]


async def test_when_all_are_back_the_election_is_held_at_once() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        await kill(cluster, *BROKERS)
        await trio.sleep(2 * SESSION_S)
        for one in BROKERS:
            assert state(cluster).leader == NO_LEADER if cluster.brokers else True
            await nursery.start(cluster.serve, one, {})
        begin_s = trio.current_time()
        await led(cluster)
        assert trio.current_time() - begin_s < 1.0
        assert await values(cluster) == SENT


@pytest.mark.enforces("controller.recovery.wait.ms")
@pytest.mark.parametrize("wait_s", [3, 10])
async def test_available_replica_is_elected_when_the_recovery_wait_is_over(wait_s: int) -> None:
    properties = {"controller_recovery_wait_ms": str(1000 * wait_s)}
    async with open_cluster(**properties) as (cluster, nursery):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        await kill(cluster, *BROKERS)
        await trio.sleep(2 * SESSION_S)
        begin_s = trio.current_time()
        await nursery.start(cluster.serve, 2, properties)
        assert await led(cluster) == 2
        assert wait_s <= trio.current_time() - begin_s < wait_s + 1
        assert await values(cluster) == SENT


async def test_the_next_controller_goes_on_with_the_wait() -> None:
    async with open_cluster() as (cluster, nursery):
        await rolled_back(cluster)
        await trio.sleep(2 * SESSION_S)
        await nursery.start(cluster.serve, 1, {})
        await trio.sleep(5)
        await nursery.start(cluster.serve, 2, {})
        await kill(cluster, 1)
        await nursery.start(cluster.serve, 3, {})
        assert await led(cluster) in (2, 3)
        await nursery.start(cluster.serve, 1, {})
        await in_sync(cluster, *BROKERS)
        assert await values(cluster) == [*SENT, *SENT]


async def test_a_member_that_restarts_again_is_asked_again() -> None:
    async with open_cluster() as (cluster, nursery):
        await rolled_back(cluster, 3)
        await trio.sleep(2 * SESSION_S)
        await nursery.start(cluster.serve, 1, {})
        await nursery.start(cluster.serve, 3, {})
        await trio.sleep(2)
        await kill(cluster, 3)
        await trio.sleep(1)
        assert state(cluster).leader == NO_LEADER
        await nursery.start(cluster.serve, 3, {})
        await nursery.start(cluster.serve, 2, {})
        assert await led(cluster) in (1, 2)
        assert await values(cluster) == [*SENT, *SENT]


async def test_brokers_that_do_not_know_the_question_are_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of the previous version skip the tag, and answer as for a client."""
    request_of = replica_ends.request_of

    def untagged(batch: Sequence[LogEndRequest]) -> OffsetForLeaderEpochRequest:
        request = request_of(batch)
        for topic in request.topics:
            for row in topic.partitions:
                row.of_replica = False
        return request

    monkeypatch.setattr(replica_ends, "request_of", untagged)
    async with open_cluster() as (cluster, nursery):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        await kill(cluster, *BROKERS)
        await trio.sleep(2 * SESSION_S)
        begin_s = trio.current_time()
        for one in BROKERS:
            await nursery.start(cluster.serve, one, {})
        await led(cluster)
        assert WAIT_S <= trio.current_time() - begin_s < WAIT_S + 1
        assert await values(cluster) == SENT


async def test_many_partitions_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    count, together = 120, 50
    monkeypatch.setattr(replica_ends, "PARTITIONS_PER_REQUEST", together)
    asked: list[int] = []
    request_of = replica_ends.request_of

    def counted(batch: Sequence[LogEndRequest]) -> OffsetForLeaderEpochRequest:
        asked.append(len(batch))
        return request_of(batch)

    monkeypatch.setattr(replica_ends, "request_of", counted)
    async with open_cluster() as (cluster, nursery):
        assert await create_topic(cluster, 1, "many", count, replicas=3) == 0
        await kill(cluster, *BROKERS)
        await trio.sleep(2 * SESSION_S)
        for one in BROKERS:
            await nursery.start(cluster.serve, one, {})
        await led_again(cluster, 1, "many")
        assert max(asked) == together
        assert len(asked) < count


async def test_only_brokers_are_told_where_a_replica_ends() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        topic = cluster.brokers[1].broker.coordinator.image.topics[TOPIC]
        asked = LogEndRequest(topic.topic_id, TOPIC, 0, 0)
        follower = next(one for one in BROKERS if one != state(cluster).leader)
        reply = await call(cluster, follower, replica_ends.request_of([asked]), replica_ends.VERSION)
        assert reply.topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert replica_ends.ends_of(reply, [asked]) == {}


async def test_a_member_that_restarts_at_once_leaves_the_isr_later_and_returns() -> None:
    """So no later election waits for it. Its leader has lived on meanwhile."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        restarted = next(one for one in BROKERS if one != state(cluster).leader)
        await kill(cluster, restarted)
        await nursery.start(cluster.serve, restarted, {})

        async def is_known() -> bool:
            processes = dict(state(cluster).processes)
            members = cluster.brokers[restarted].broker.coordinator.image.members
            return processes.get(restarted) == members[restarted].process_epoch

        assert await until(is_known) <= LIVED_ON_S + 2
        await in_sync(cluster, *BROKERS)


async def test_replica_returns_its_end_only_in_the_epoch_in_which_it_follows() -> None:
    """The log may still change if it follows in another epoch."""
    async with open_cluster() as (cluster, _):
        await create(cluster, retention_ms="-1")
        await filled(cluster)
        found = state(cluster)
        stores = {one: cluster.brokers[one].broker.store for one in BROKERS}
        partition = replica(cluster, found.leader).partition
        follower = next(one for one in BROKERS if one != found.leader)
        assert stores[follower].replica_end(partition, found.leader_epoch)[:2] == (found.leader_epoch, len(SENT))
        for broker_id, epoch in ((found.leader, 0), (follower, found.leader_epoch + 1)):
            with pytest.raises(NotLeaderOrFollower):
                stores[broker_id].replica_end(partition, epoch)
