"""Coordinators with replicated topics: no acknowledged commit goes back, whichever broker dies or stands still."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from engine.api import TopicIdPartition
from engine.errors import StorageError
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import open_cluster
from kafkawire.tests import test_replication as replication
from kafkawire.tests.test_cluster import BROKERS, call, settled, until

if TYPE_CHECKING:
    from coordinator.api import PartitionState
    from engine.partitions.partition import Partition
    from kafkawire.testing import MemoryCluster

GROUP, OFFSETS = "g", "__consumer_offsets"
TOPICS = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "3"}
LEASE_S = 1.5
TOPIC = 2  # of AlterConfigs
enforces = pytest.mark.enforces


def state(cluster: MemoryCluster) -> PartitionState:
    """The state of the group's partition in the newest image."""
    return replication.state(cluster, OFFSETS)


def replica(cluster: MemoryCluster, broker_id: int) -> Partition:
    broker = cluster.brokers[broker_id].broker
    topic = broker.coordinator.image.topics[OFFSETS]
    return broker.store.replica(TopicIdPartition(topic.topic_id, OFFSETS, 0))


async def coordinated(cluster: MemoryCluster) -> int:
    """Create the topics, and return the coordinator of the group."""
    await replication.create(cluster)

    async def is_found() -> bool:
        reply = await call(cluster, 1, FindCoordinatorRequest(key=GROUP, key_type=0), 3)
        return not reply.error_code

    await until(is_found)
    await settled(cluster)
    return state(cluster).leader


def commit_of(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=GROUP, topics=[topic])


def fetch_of(*, require_stable: bool = False) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


async def commit(cluster: MemoryCluster, broker_id: int, offset: int) -> int:
    reply = await call(cluster, broker_id, commit_of(offset), 8)
    return int(reply.topics[0].partitions[0].error_code)


def offset_in(reply: OffsetFetchResponse) -> int:
    """The offset, or the negative error code."""
    [group] = reply.groups
    return -group.error_code if group.error_code else group.topics[0].partitions[0].committed_offset


async def fetched(cluster: MemoryCluster, broker_id: int, *, require_stable: bool = False) -> int:
    """See `offset_in`."""
    reply: OffsetFetchResponse = await call(cluster, broker_id, fetch_of(require_stable=require_stable), 8)
    return offset_in(reply)


async def committed(cluster: MemoryCluster, offset: int) -> int:
    """Commit until the present leader acknowledges, as clients do, and return its id."""
    found: list[int] = []

    async def is_done() -> bool:
        leader = state(cluster).leader
        if leader not in cluster.brokers:
            return False
        try:
            code = await commit(cluster, leader, offset)
        except (EOFError, trio.BrokenResourceError):
            return False
        found.append(leader)
        return not code

    await until(is_done)
    return found[-1]


async def newest(cluster: MemoryCluster) -> int:
    """The committed offset that the present coordinator returns."""
    found: list[int] = []

    async def is_answered() -> bool:
        leader = state(cluster).leader
        if leader not in cluster.brokers:
            return False
        try:
            found.append(await fetched(cluster, leader))
        except (EOFError, trio.BrokenResourceError):
            return False
        return found[-1] >= 0

    await until(is_answered)
    return found[-1]


async def led_by_another(cluster: MemoryCluster, broker_id: int) -> int:
    return await replication.led_by_another(cluster, broker_id, OFFSETS)


async def in_sync(cluster: MemoryCluster, *wanted: int) -> None:
    async def is_so() -> bool:
        return sorted(state(cluster).isr) == sorted(wanted)

    await until(is_so)


async def set_min_isr(cluster: MemoryCluster, min_isr: int) -> None:
    config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(min_isr))
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=OFFSETS, configs=[config])
    reply = await call(cluster, next(iter(cluster.brokers)), IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert reply.responses[0].error_code == 0
    await settled(cluster)


async def test_commit_above_hw() -> None:
    """A commit is acknowledged. The next leader has it, but does not know yet that all replicas have it."""
    async with open_cluster(**TOPICS) as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 41)
        assert await committed(cluster, 42) == first
        await replication.kill(cluster, first)
        second = await led_by_another(cluster, first)
        log = replica(cluster, second)
        found, started_s = [-ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], trio.current_time()
        while found[-1] != 42:
            await trio.sleep(0.05)
            found.append(await fetched(cluster, second))
        assert {*found[:-1]} <= {-ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -ErrorCode.NOT_COORDINATOR}
        assert trio.current_time() - started_s < 1
        assert log.high_watermark == log.log_end_offset


async def test_new_coordinator_answers_only_once_the_last_commit_before_it_is_committed() -> None:
    """The next leader has a commit that not all replicas in sync have, and one of these does not answer."""
    async with open_cluster(**TOPICS, replica_lag_time_max_ms="5000") as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 42)
        order = state(cluster).replicas
        second, third = (one for one in order if one != first)
        replica(cluster, third).close(lambda: StorageError("its disk is gone"))
        end_offset = replica(cluster, second).log_end_offset
        await cluster.connect(first).send(commit_of(43), version=8)

        async def is_there() -> bool:
            return replica(cluster, second).log_end_offset > end_offset

        await until(is_there)
        await replication.kill(cluster, first)
        assert await led_by_another(cluster, first) == second
        found = [await fetched(cluster, second)]
        while found[-1] < 0:
            await trio.sleep(0.05)
            found.append(await fetched(cluster, second))
        assert found[-1] == 43
        assert {*found[:-1]} <= {-ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("seed", range(3))
async def test_committed_offset_never_goes_back_while_random_brokers_are_killed(seed: int) -> None:
    rng = random.Random(seed)
    async with open_cluster(**TOPICS) as (cluster, nursery):
        await coordinated(cluster)
        await set_min_isr(cluster, 2)
        for offset in range(8):
            gone = rng.choice([state(cluster).leader, *BROKERS])
            await replication.kill(cluster, gone)
            await committed(cluster, offset)
            assert await newest(cluster) == offset
            await nursery.start(cluster.serve, gone, TOPICS)
            if offset % 2:
                await in_sync(cluster, *BROKERS)
        await in_sync(cluster, *BROKERS)
        assert await newest(cluster) == 7


async def test_zombie() -> None:
    """A broker that stood still goes on with the requests in its sockets, and knows of no change since."""
    async with open_cluster(**TOPICS) as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 41)
        assert await fetched(cluster, first) == 41
        reader, writer, stale_reader = (cluster.connect(first) for _ in range(3))
        cluster.suspend(first)
        await trio.sleep(1)  # its followers send one more Fetch, which waits in its sockets too
        cluster.ensemble.expire(cluster.deps[first].sessions[-1])

        async def is_led_by_others() -> bool:
            leaders = {state(cluster).leader, replication.state(cluster).leader}
            return leaders.isdisjoint({-1, first})

        await until(is_led_by_others)
        assert await committed(cluster, 42) != first
        await reader.send(fetch_of(require_stable=True), version=8)
        await stale_reader.send(fetch_of(), version=8)
        await writer.send(commit_of(40), version=8)
        cluster.resume(first)
        stale: Any = await stale_reader.receive()
        assert offset_in(stale) in (41, -ErrorCode.NOT_COORDINATOR), "as by Kafka"
        cluster.resume_session(first)
        stable: Any = await reader.receive()
        assert offset_in(stable) == -ErrorCode.NOT_COORDINATOR
        written: Any = await writer.receive()
        written_codes = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert written.topics[0].partitions[0].error_code in written_codes
        await in_sync(cluster, *BROKERS)
        assert await newest(cluster) == 42


async def test_coordinator_takes_over_without_delay_from_a_broker_that_stops_in_order() -> None:
    async with open_cluster(**TOPICS) as (cluster, nursery):
        first = await coordinated(cluster)
        for offset in range(6):
            await trio.sleep(2 * LEASE_S)
            await committed(cluster, offset)
            started_s = trio.current_time()
            nursery.start_soon(cluster.stop, first)
            second = await led_by_another(cluster, first)
            assert await newest(cluster) == offset
            assert await committed(cluster, offset) == second
            assert trio.current_time() - started_s < LEASE_S / 5
            await replication.until_gone(cluster, first)
            await nursery.start(cluster.serve, first, TOPICS)
            await in_sync(cluster, *BROKERS)
            first = second


async def test_stopping_coordinator_answers_until_another_broker_leads() -> None:
    """The metadata store has not got its request yet, or the answer does not come."""
    async with open_cluster(**TOPICS) as (cluster, nursery):
        first = await coordinated(cluster)
        await committed(cluster, 41)
        session = cluster.deps[first].sessions[-1]
        session.pause()
        nursery.start_soon(cluster.stop, first)
        await trio.sleep(0.1)
        assert await fetched(cluster, first) == 41
        assert await fetched(cluster, first, require_stable=True) == 41
        assert await commit(cluster, first, 42) == 0, "that is on all replicas, whoever leads them"
        session.resume()
        assert await led_by_another(cluster, first) != first
        assert await newest(cluster) == 42


def slow_down(cluster: MemoryCluster, broker_id: int, sync_s: float) -> None:
    """Let each sync of that broker take so long."""
    pool = cluster.brokers[broker_id].broker.deps.pool
    sync = pool.sync

    async def slow_sync(*arguments: Any, **options: Any) -> None:
        await trio.sleep(sync_s)
        await sync(*arguments, **options)

    pool.sync = slow_sync  # type: ignore[method-assign]


async def test_a_follower_with_a_slow_disk_holds_up_commits_and_no_reads() -> None:
    async with open_cluster(**TOPICS) as (cluster, nursery):
        first = await coordinated(cluster)
        await committed(cluster, 7)
        slow_down(cluster, next(one for one in BROKERS if one != first), 2.5)
        took_s: list[float] = []

        async def keep_committing() -> None:
            request = commit_of(7)
            request.group_id = "another one of the same partition"
            for _ in range(8):
                await call(cluster, first, request, 8)

        nursery.start_soon(keep_committing)
        for number in range(40):
            started_s = trio.current_time()
            assert await fetched(cluster, first, require_stable=number % 2 == 0) == 7
            beat = await call(cluster, first, HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 4)
            assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            took_s.append(trio.current_time() - started_s)
            await trio.sleep(0.25)
        assert sorted(state(cluster).isr) == list(BROKERS)
        assert max(took_s) < 0.5


async def test_a_read_that_has_to_be_the_newest_is_confirmed_within_a_round_trip() -> None:
    """A follower's Fetch that waits for records is answered at once."""
    async with open_cluster(**TOPICS) as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 7)
        session = cluster.deps[first].sessions[-1]
        session.pause()
        for _ in range(5):
            await trio.sleep(1.1)
            started_s = trio.current_time()
            assert await fetched(cluster, first, require_stable=True) == 7
            assert trio.current_time() - started_s < 0.1


async def test_a_coordinator_that_is_cut_off_answers_stale_reads_no_longer_than_a_follower_may_lag() -> None:
    async with open_cluster(**TOPICS, replica_lag_time_max_ms="5000") as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 7)
        cluster.deps[first].sessions[-1].disconnected = True
        for one in BROKERS:
            if one != first:
                cluster.kill(one)
        answers: list[int] = []
        for _ in range(60):
            await trio.sleep(0.5)
            answers.append(await fetched(cluster, first))
        assert {*answers} == {7, -ErrorCode.NOT_COORDINATOR}
        assert answers == sorted(answers, reverse=True), "once it has ceased to answer it does not begin again"


async def test_coordinator_below_min_isr_refuses_commits_and_keeps_its_table() -> None:
    async with open_cluster(**TOPICS) as (cluster, nursery):
        first = await coordinated(cluster)
        await committed(cluster, 7)
        others = [one for one in BROKERS if one != first]
        await replication.kill(cluster, *others)
        await in_sync(cluster, first)
        await set_min_isr(cluster, 2)  # the ELR is empty: the leader relies on its session
        shard = cluster.brokers[first].broker.coordinators.groups._shards.find(0)
        assert shard is not None
        table = shard.table
        for _ in range(20):
            assert await commit(cluster, first, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await fetched(cluster, first) == 7
            await trio.sleep(1)
        beat = await call(cluster, first, HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 4)
        assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await nursery.start(cluster.serve, others[0], TOPICS)
        assert await committed(cluster, 9) == first
        assert await newest(cluster) == 9
        assert shard.table is table


async def test_with_the_elr_away_a_coordinator_answers_reads_that_may_fall_back_and_no_others() -> None:
    async with open_cluster(**TOPICS) as (cluster, nursery):
        first = await coordinated(cluster)
        await set_min_isr(cluster, 2)
        await committed(cluster, 7)
        others = [one for one in BROKERS if one != first]
        await replication.kill(cluster, *others)
        await in_sync(cluster, first)
        assert state(cluster).elr
        assert await fetched(cluster, first) == 7
        assert await fetched(cluster, first, require_stable=True) == 7, "the metadata confirm it"
        assert await commit(cluster, first, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for one in others:
            await nursery.start(cluster.serve, one, TOPICS)
        await committed(cluster, 9)
        assert await newest(cluster) == 9


@enforces("offsets.commit.timeout.ms")
@pytest.mark.parametrize("timeout_ms", [2_000, 8_000])
async def test_commit_waits_for_a_silent_replica_no_longer_than_its_timeout(timeout_ms: int) -> None:
    async with open_cluster(**TOPICS, offsets_commit_timeout_ms=str(timeout_ms)) as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 7)
        silent = next(one for one in BROKERS if one != first)
        replica(cluster, silent).close(lambda: StorageError("its disk is gone"))
        started_s = trio.current_time()
        assert await commit(cluster, first, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert timeout_ms <= (trio.current_time() - started_s) * 1000 <= 1.5 * timeout_ms + 100
        await committed(cluster, 9)  # it is in sync no longer


async def test_acks_1_needs_only_the_leader() -> None:
    async with open_cluster() as (cluster, _):
        await replication.create(cluster)
        leader = replication.state(cluster).leader
        for one in BROKERS:
            if one != leader:
                replication.replica(cluster, one).close(lambda: StorageError("its disk is gone"))
        await trio.sleep(5)
        assert (await replication.produce(cluster, b"2", acks=1)).error_code == 0


async def test_a_leader_goes_on_without_the_metadata_store_while_its_followers_fetch() -> None:
    async with open_cluster(**TOPICS) as (cluster, _):
        first = await coordinated(cluster)
        await committed(cluster, 7)
        for deps in cluster.deps.values():
            deps.sessions[-1].disconnected = True
        for number in range(10):
            await trio.sleep(1)
            assert await fetched(cluster, first) == 7 + number
            assert await commit(cluster, first, 8 + number) == 0
            to = replication.state(cluster).leader
            assert (await replication.produce(cluster, b"x", acks=1, to=to)).error_code == 0
