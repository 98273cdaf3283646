"""Replicas whose log is not open: others lead, the metadata say so, and they serve again by themselves (RULES K8)."""

from __future__ import annotations

import errno
from functools import partial

import pytest
import trio

from coordinator.api import NO_LEADER, ElectionType
from engine.errors import EngineError, LogsContradict, StorageError
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from kafkawire.config.tests.test_enforced import metadata
from kafkawire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled, until
from kafkawire.tests.test_cluster_admin import move, moved
from kafkawire.tests.test_replication import (
    TOPIC,
    acknowledged,
    create,
    equal,
    in_sync,
    kill,
    led_by_another,
    produce,
    replica,
    state,
    until_gone,
    values,
)
from kafkawire.tests.test_repudiation import (
    SENT,
    TWO_DIRS,
    break_disk,
    create_on,
    dir_of,
    empty,
    filled,
    led,
    stays_without_leader,
)
from testkit.asgi import get_response

LONG_S = 100.0
KEPT = {"retention_ms": "-1"}  # the records of these tests are old


def fill_disk(cluster: MemoryCluster, broker_id: int, code: int = errno.ENOSPC) -> None:
    """Let the disk have no room for the partition's directory, or the process no descriptor."""
    fault = Fault("make_dir", code, f"{TOPIC}-0", is_lasting=True)
    cluster.deps_of(broker_id).filesystem.faults.append(fault)


def close(cluster: MemoryCluster, broker_id: int, error: type[EngineError] = StorageError) -> None:
    """Close the log of that broker's replica, on a log dir that is online."""
    replica(cluster, broker_id).put_offline(partial(error, "closed by a test"))


async def offline(cluster: MemoryCluster, *broker_ids: int) -> None:
    async def are_reported_offline() -> bool:
        return set(state(cluster).offline) == set(broker_ids)

    await until(are_reported_offline)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
async def test_a_disk_that_was_full_when_a_topic_was_made_takes_part_once_there_is_room(code: int) -> None:
    async with open_cluster() as (cluster, _):
        await settled(cluster)
        fill_disk(cluster, 2, code)
        await create(cluster, replicas=(2, 1, 3), min_insync_replicas="2", **KEPT)
        assert await led_by_another(cluster, 2) == 1
        await acknowledged(cluster, b"without 2")
        assert (sorted(state(cluster).isr), state(cluster).offline, state(cluster).suspect_replicas) == (
            [1, 3],
            (2,),
            (),
        )
        await trio.sleep(LONG_S)
        assert state(cluster).offline == (2,)
        cluster.deps_of(2).filesystem.faults.clear()
        await in_sync(cluster, *BROKERS)
        assert state(cluster).offline == ()
        await equal(cluster)


async def test_a_follower_that_could_not_be_opened_is_in_sync_once_there_is_room() -> None:
    async with open_cluster() as (cluster, _):
        await settled(cluster)
        fill_disk(cluster, 3)
        await create(cluster, replicas=(1, 2, 3), **KEPT)
        await acknowledged(cluster, b"without 3")
        await offline(cluster, 3)
        cluster.deps_of(3).filesystem.faults.clear()
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert state(cluster).leader_epoch == 0


async def test_operators_and_clients_see_which_replicas_are_not_open() -> None:
    """Metrics and health of their broker show them, and so does the Metadata response of each broker."""
    replica_count = "kafka_server_replicamanager_offlinereplicacount"
    partition_count = "kafka_controller_kafkacontroller_offlinepartitionscount"

    async def shown(broker_id: int, path: str) -> str:
        return (await get_response(cluster.brokers[broker_id].broker.http_app(LoopWatch()), path))[1]

    async with open_cluster() as (cluster, _):
        await settled(cluster)
        fill_disk(cluster, 2)
        await create(cluster, replicas=(2, 1, 3), **KEPT)
        await acknowledged(cluster, b"without 2")
        await settled(cluster)
        for broker_id in BROKERS:
            text = await shown(broker_id, "/metrics")
            assert f"{replica_count} {float(broker_id == 2)}" in text
            assert f"{partition_count} 0.0" in text
            reported = (await metadata(cluster.connect(broker_id), TOPIC)).topics[0].partitions[0]
            assert (reported.leader_id, reported.offline_replicas) == (1, [2])
            described = await call(
                cluster, broker_id, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]), 0
            )
            assert described.topics[0].partitions[0].offline_replicas == [2]
        assert f"{TOPIC}-0 is not open here: /data: ENOSPC" in await shown(2, "/health/cluster")
        for broker_id in (1, 3):
            await kill(cluster, broker_id)
        await stays_without_leader(cluster)
        assert f"{partition_count} 1.0" in await shown(2, "/metrics")


async def test_the_only_replica_leads_once_there_is_room() -> None:
    async with open_cluster(1) as (cluster, _):
        fill_disk(cluster, 1)
        await create_on(cluster, 1)
        await stays_without_leader(cluster)
        assert (state(cluster).isr, state(cluster).offline) == ((1,), (1,))
        cluster.deps_of(1).filesystem.faults.clear()
        await filled(cluster)
        assert await values(cluster) == SENT


async def test_leader_with_a_closed_log_is_replaced_and_rejoins_with_all_records() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, (), min_insync_replicas="2", **KEPT)
        await filled(cluster)
        first = state(cluster).leader
        close(cluster, first)
        second = await led_by_another(cluster, first)
        await acknowledged(cluster, b"by another")
        await in_sync(cluster, *BROKERS)
        assert (state(cluster).leader, state(cluster).offline) == (second, ())
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"by another"]


async def test_log_that_contradicts_its_leader_stays_closed_until_the_next_epoch() -> None:
    """The replica is then elected from the ELR, because it lacks no acknowledged record."""
    async with open_cluster() as (cluster, _):
        await create(cluster, replicas=(1, 2, 3), min_insync_replicas="3", **KEPT)
        await filled(cluster)
        close(cluster, 2, LogsContradict)
        await offline(cluster, 2)
        await trio.sleep(LONG_S)
        assert (state(cluster).isr, state(cluster).elr, state(cluster).offline) == ((1, 3), (2,), (2,))
        with pytest.raises(LogsContradict):
            replica(cluster, 2)
        await kill(cluster, 1)
        assert await led_by_another(cluster, 1) == 3
        await offline(cluster)
        await kill(cluster, 3)
        assert await led_by_another(cluster, 3) == 2
        assert await values(cluster) == SENT


async def test_broker_with_a_rolled_back_disk_leads_only_until_it_is_killed() -> None:
    """Followers with more records close their logs, and open them again in the epoch without a leader."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster, (), min_insync_replicas="2", **KEPT)
        await filled(cluster)
        await trio.sleep(10)
        before = len(cluster.deps_of(1).filesystem.operations)
        await filled(cluster)
        await trio.sleep(130)
        await kill(cluster, *BROKERS)
        cluster.deps_of(1).filesystem = SimulatedFileSystem.replayed(cluster.deps_of(1).filesystem.operations[:before])
        await nursery.start(cluster.serve, 1, {})
        assert await led(cluster) == 1
        for one in (2, 3):
            await nursery.start(cluster.serve, one, {})
        await offline(cluster, 2, 3)
        assert (state(cluster).isr, sorted(state(cluster).elr)) == ((1,), [2, 3])
        await kill(cluster, 1)
        assert await led_by_another(cluster, 1) in (2, 3)
        await in_sync(cluster, 2, 3)
        assert await values(cluster) == [*SENT, *SENT]


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_log_dir_that_is_away_for_two_lives_is_remembered(*, is_replaced: bool) -> None:
    """A start that finds it has all records again; a start that finds another disk in its place reports the loss."""
    async with open_cluster(**TWO_DIRS) as (cluster, nursery):
        await create_on(cluster, 2)
        await filled(cluster)
        path = dir_of(cluster, 2)
        filesystem = cluster.deps_of(2).filesystem
        for _ in range(2):
            await cluster.stop(2)
            await until_gone(cluster, 2)
            filesystem.faults[:] = [Fault("read", errno.EIO, is_lasting=True, directory=path)]
            await nursery.start(cluster.serve, 2, TWO_DIRS)
            await stays_without_leader(cluster)
            assert (state(cluster).offline, state(cluster).suspect_replicas) == ((2,), ())
        await cluster.stop(2)
        await until_gone(cluster, 2)
        filesystem.faults.clear()
        if is_replaced:
            empty(filesystem, path)
        await nursery.start(cluster.serve, 2, TWO_DIRS)
        if not is_replaced:
            assert await led(cluster) == 2
            assert await values(cluster) == SENT
            return
        await stays_without_leader(cluster)
        assert (state(cluster).offline, state(cluster).suspect_replicas) == ((), ((2, -1, -1),))
        [refusal] = await cluster.brokers[2].broker.coordinator.elect_leaders(ElectionType.UNCLEAN, [(TOPIC, 0)])
        assert refusal is None
        assert await acknowledged(cluster, b"first") == 0


async def test_a_replica_whose_log_dir_fails_stays_in_the_elr() -> None:
    """The records are on that disk, and the next start finds them."""
    async with open_cluster(**TWO_DIRS) as (cluster, nursery):
        await create(cluster, replicas=(1, 2, 3), min_insync_replicas="3", **KEPT)
        await filled(cluster)
        break_disk(cluster, 3, dir_of(cluster, 3))
        await produce(cluster, b"more", acks=1)
        await offline(cluster, 3)
        assert (state(cluster).isr, state(cluster).elr, state(cluster).suspect_replicas) == ((1, 2), (3,), ())
        await cluster.stop(3)
        await until_gone(cluster, 3)
        cluster.deps_of(3).filesystem.faults.clear()
        await nursery.start(cluster.serve, 3, TWO_DIRS)
        await in_sync(cluster, *BROKERS)
        await equal(cluster)


async def test_reassignment_completes_on_a_broker_with_one_failed_log_dir() -> None:
    """The failed log dir had no log of the partition, in any leader epoch."""
    async with open_cluster(**TWO_DIRS) as (cluster, _):
        await create_on(cluster, 1, 2)
        await filled(cluster)
        await kill(cluster, 1)
        assert await led_by_another(cluster, 1) == 2
        log_dir = cluster.brokers[3].broker.store._dirs[0]
        log_dir.disk.fail(OSError(errno.EIO, "broken by a test"))
        await move(cluster, (2, 3), ask=2)
        await moved(cluster, 2, 3)
        assert dir_of(cluster, 3) != log_dir.disk.path
        await equal(cluster)


async def test_a_log_that_was_not_made_while_a_log_dir_is_offline_is_made_once_there_is_room() -> None:
    async with open_cluster(**TWO_DIRS) as (cluster, _):
        await settled(cluster)
        cluster.brokers[2].broker.store._dirs[0].disk.fail(OSError(errno.EIO, "broken by a test"))
        fill_disk(cluster, 2)
        await create(cluster, replicas=(2, 1, 3), **KEPT)
        await acknowledged(cluster, b"without 2")
        assert state(cluster).offline == (2,)
        cluster.deps_of(2).filesystem.faults.clear()
        await in_sync(cluster, *BROKERS)
        await equal(cluster)


async def test_no_unclean_election_has_a_replica_lead_that_is_not_open() -> None:
    async with open_cluster(1) as (cluster, _):
        fill_disk(cluster, 1)
        await create_on(cluster, 1)
        await stays_without_leader(cluster)
        [refusal] = await cluster.brokers[1].broker.coordinator.elect_leaders(ElectionType.UNCLEAN, [(TOPIC, 0)])
        assert refusal is not None
        assert state(cluster).leader == NO_LEADER
