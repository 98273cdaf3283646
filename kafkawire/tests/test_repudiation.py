"""Brokers that return with fewer records, or lose records while they run: none of them leads with that log
(RULES K8)."""

from __future__ import annotations

import errno

import pytest
import trio

from coordinator.api import NO_LEADER, ElectionType
from coordinator.membership.restarting_replicas import FollowedReplica, RestartingReplicas
from coordinator.testing.simulated_state_cache import SimulatedStateCaches
from engine.api import TopicIdPartition
from engine.compaction_horizon import CompactionHorizon
from engine.errors import EngineError, UnknownLeaderEpoch
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from kafkawire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kafkawire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled, until
from kafkawire.tests.test_cluster_admin import move, moved
from kafkawire.tests.test_deleted_records import delete_below
from kafkawire.tests.test_replication import (
    TOPIC,
    acknowledged,
    create,
    equal,
    in_sync,
    kill,
    log_bytes,
    produce,
    replica,
    state,
    until_gone,
    values,
)

CLEAN = "/data/clean-shutdown"
SENT = [b"%d" % number for number in range(4)]
PATIENCE_S = 10.0  # shorter than retention waits: these records are old


async def create_on(cluster: MemoryCluster, *broker_ids: int) -> None:
    """Create the topic with these replicas."""
    assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(broker_ids))]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignment)
    reply = await call(cluster, 1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
    assert reply.topics[0].error_code == 0
    await settled(cluster)


def wipe(cluster: MemoryCluster, broker_id: int) -> None:
    """Replace all disks of a broker with empty ones."""
    deps = cluster.deps_of(broker_id)
    deps.filesystem, deps.views = SimulatedFileSystem(), SimulatedStateCaches()


def empty(filesystem: SimulatedFileSystem, path: str) -> None:
    """Remove everything in a directory, as `rm -rf` does."""
    for name in filesystem.list_dir(path):
        inside = f"{path}/{name}"
        if filesystem.list_dir(inside):
            empty(filesystem, inside)
        filesystem.unlink(inside)


async def filled(cluster: MemoryCluster) -> None:
    for value in SENT:
        await acknowledged(cluster, value)


async def led(cluster: MemoryCluster) -> int:
    async def is_so() -> bool:
        return state(cluster).leader in cluster.brokers

    await until(is_so)
    return state(cluster).leader


async def stays_without_leader(cluster: MemoryCluster) -> None:
    async def is_so() -> bool:
        return state(cluster).leader == NO_LEADER

    await until(is_so)
    for _ in range(int(PATIENCE_S)):
        await trio.sleep(1)
        assert state(cluster).leader == NO_LEADER


@pytest.mark.parametrize("second", [2, 3])
async def test_wiped_dir(second: int) -> None:
    """All brokers stop, the directory of broker 1 is emptied, and it starts first: no replica leads until another one
    is back, and no log is truncated."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        assert sorted(state(cluster).isr) == list(BROKERS)
        kept = log_bytes(cluster, second)
        await kill(cluster, *BROKERS)
        wipe(cluster, 1)
        await nursery.start(cluster.serve, 1, {})
        await stays_without_leader(cluster)
        assert sorted(state(cluster).isr) == [2, 3]
        await nursery.start(cluster.serve, second, {})
        assert await led(cluster) == second
        assert log_bytes(cluster, second) == kept
        assert await values(cluster) == SENT
        await acknowledged(cluster, b"after")
        await nursery.start(cluster.serve, 5 - second, {})
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"after"]


async def test_follower_with_a_replaced_disk_copies_all_records_again() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, min_insync_replicas="2")
        await filled(cluster)
        leader = state(cluster).leader
        gone = next(one for one in BROKERS if one != leader)
        await kill(cluster, gone)
        wipe(cluster, gone)
        await acknowledged(cluster, b"meanwhile")
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"meanwhile"]


async def test_follower_with_a_damaged_log_copies_all_records_again() -> None:
    """A damaged log takes no appends, so only a new copy repairs it (RULES L5)."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        await in_sync(cluster, *BROKERS)
        gone = next(one for one in BROKERS if one != state(cluster).leader)
        log = replica(cluster, gone).log
        path = log.path_of(log.active.base_offset)
        await cluster.stop(gone)
        await until_gone(cluster, gone)
        filesystem = cluster.deps_of(gone).filesystem
        filesystem.unlink(CLEAN)
        segment = filesystem.open(path)
        segment.truncate(segment.size() - 1)
        segment.fdatasync()
        await acknowledged(cluster, b"meanwhile")
        await nursery.start(cluster.serve, gone, {})
        assert replica(cluster, gone).log.damaged_from == len(SENT) - 1
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"meanwhile"]
        await cluster.stop(gone)
        await until_gone(cluster, gone)
        assert filesystem.exists(CLEAN), "there is nothing left to scan"


async def test_follower_without_its_directory_reports_the_lost_log_before_it_restarts_the_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that ends early must be reported even if the leader's log begins behind that end: others may count on the
    lost records."""
    said: list[int] = []
    record = RestartingReplicas.record

    async def noting_record(restarting: RestartingReplicas, followed: FollowedReplica, offset: int) -> None:
        said.append(offset)
        await record(restarting, followed, offset)

    monkeypatch.setattr(RestartingReplicas, "record", noting_record)
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        await in_sync(cluster, *BROKERS)
        await delete_below(cluster, 2)
        gone = next(one for one in BROKERS if one != state(cluster).leader)
        await cluster.stop(gone)
        filesystem = cluster.deps_of(gone).filesystem
        empty(filesystem, f"/data/{TOPIC}-0")
        filesystem.unlink(f"/data/{TOPIC}-0")
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        assert said == [2]
        again = replica(cluster, gone)
        assert (again.log_start_offset, again.log_end_offset) == (2, len(SENT))


def remove_directory(cluster: MemoryCluster, broker_id: int) -> None:
    """Remove the partition's directory, as an operator or a file system check may."""
    filesystem = cluster.deps_of(broker_id).filesystem
    empty(filesystem, f"/data/{TOPIC}-0")
    filesystem.unlink(f"/data/{TOPIC}-0")


@pytest.mark.parametrize("min_isr", [1, 2])
async def test_broker_without_its_partition_directory_is_not_elected_with_an_empty_log(min_isr: int) -> None:
    """The log dir is there, and the checkpoint names the partition: so the log was lost, and is not about to be
    created."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster, min_insync_replicas=str(min_isr))
        await filled(cluster)
        assert sorted(state(cluster).isr) == list(BROKERS)
        await kill(cluster, *BROKERS)
        remove_directory(cluster, 1)
        await nursery.start(cluster.serve, 1, {})
        await stays_without_leader(cluster)
        assert state(cluster).suspect_replicas == ((1, -1, -1),)
        for one in (2, 3):
            await nursery.start(cluster.serve, one, {})
        assert await led(cluster) in (2, 3)
        await in_sync(cluster, *BROKERS)
        await acknowledged(cluster, b"after")
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"after"]


async def test_an_unclean_election_ends_the_wait_for_a_directory_that_is_gone() -> None:
    async with open_cluster() as (cluster, nursery):
        await create_on(cluster, 2)
        await filled(cluster)
        await cluster.stop(2)
        remove_directory(cluster, 2)
        await nursery.start(cluster.serve, 2, {})
        await stays_without_leader(cluster)
        [refusal] = await cluster.brokers[2].broker.coordinator.elect_leaders(ElectionType.UNCLEAN, [(TOPIC, 0)])
        assert refusal is None
        assert await led(cluster) == 2
        assert await acknowledged(cluster, b"first") == 0


async def test_single_replica_with_a_wiped_disk_is_not_elected() -> None:
    """No start may make it look like a log that was always empty."""
    async with open_cluster() as (cluster, nursery):
        await create_on(cluster, 2)
        await filled(cluster)
        await kill(cluster, 2)
        wipe(cluster, 2)
        for _ in range(2):
            await nursery.start(cluster.serve, 2, {})
            await stays_without_leader(cluster)
            assert state(cluster).suspect_replicas == ((2, -1, -1),)
            await cluster.stop(2)


async def test_partition_created_just_before_a_kill_is_not_taken_for_lost() -> None:
    async with open_cluster() as (cluster, nursery):
        await create_on(cluster, 2)
        filesystem = cluster.deps_of(2).filesystem
        await kill(cluster, 2)
        empty(filesystem, f"/data/{TOPIC}-0")
        filesystem.unlink(f"/data/{TOPIC}-0")
        await nursery.start(cluster.serve, 2, {})
        assert await led(cluster) == 2
        assert await acknowledged(cluster, b"first") == 0


async def test_replica_with_the_longest_unsynced_log_is_elected_once_all_brokers_are_back() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, flush_policy="async")
        await filled(cluster)
        assert sorted(state(cluster).isr) == list(BROKERS)
        await kill(cluster, *BROKERS)
        cluster.deps_of(1).power_cut()
        for one in (1, 2):
            await nursery.start(cluster.serve, one, {})
        await stays_without_leader(cluster)
        await nursery.start(cluster.serve, 3, {})
        assert await led(cluster) in (2, 3)
        assert state(cluster).unclean_since == state(cluster).leader_epoch
        await in_sync(cluster, *BROKERS)
        await acknowledged(cluster, b"after")
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"after"]


async def test_leader_with_unsynced_records_is_not_elected_after_a_power_cut() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, flush_policy="async")
        await filled(cluster)
        first = state(cluster).leader
        await kill(cluster, first)
        cluster.deps_of(first).power_cut()
        await nursery.start(cluster.serve, first, {})
        assert await led(cluster) != first
        await in_sync(cluster, *BROKERS)
        await acknowledged(cluster, b"after")
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"after"]


TWO_DIRS = {"log_dirs": "/a,/b"}


def dir_of(cluster: MemoryCluster, broker_id: int) -> str:
    return replica(cluster, broker_id).log_dir.disk.path


def break_disk(cluster: MemoryCluster, broker_id: int, path: str) -> None:
    """Let all writes of a disk fail."""
    cluster.deps_of(broker_id).filesystem.faults.append(Fault("write", errno.EIO, is_lasting=True, directory=path))


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_partition_of_a_failed_log_dir_is_led_by_another_isr_member(*, is_replaced: bool) -> None:
    """The broker goes on with its other log dir, and has all records again after a start with a good disk."""
    async with open_cluster(**TWO_DIRS) as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        assert sorted(state(cluster).isr) == list(BROKERS)
        first = state(cluster).leader
        path = dir_of(cluster, first)
        break_disk(cluster, first, path)
        others = [one for one in BROKERS if one != first]
        await acknowledged(cluster, b"by another")
        assert sorted(state(cluster).isr) == others
        described = await call(cluster, first, DescribeLogDirsRequest(topics=None), 4)
        errors = {one.log_dir: one.error_code for one in described.results}
        assert errors == {one: ErrorCode.KAFKA_STORAGE_ERROR * (one == path) for one in ("/a", "/b")}
        await trio.sleep(PATIENCE_S)
        assert (first in cluster.brokers, sorted(state(cluster).isr)) == (True, others)
        await cluster.stop(first)
        cluster.deps_of(first).filesystem.faults.clear()
        if is_replaced:
            empty(cluster.deps_of(first).filesystem, path)
        await nursery.start(cluster.serve, first, TWO_DIRS)
        await in_sync(cluster, *BROKERS)
        await acknowledged(cluster, b"with all")
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"by another", b"with all"]


async def test_append_does_not_wait_for_a_follower_with_a_failed_log_dir() -> None:
    async with open_cluster(**TWO_DIRS) as (cluster, _):
        await create(cluster)
        await filled(cluster)
        leader = state(cluster).leader
        gone = next(one for one in BROKERS if one != leader)
        break_disk(cluster, gone, dir_of(cluster, gone))
        started_s = trio.current_time()
        await acknowledged(cluster, b"without")
        assert trio.current_time() - started_s < 2
        assert sorted(state(cluster).isr) == [one for one in BROKERS if one != gone]


@pytest.mark.parametrize(
    ("kind", "suffix", "skip"),
    [("read", "", 0), ("fdatasync", ".log", 1)],
    ids=["from the start", "while it is opened"],
)
async def test_follower_creates_no_second_log_while_its_log_dir_is_offline(kind: str, suffix: str, skip: int) -> None:
    """Even in a partition's first epoch: with two logs the broker would not start when the log dir is back. A replay
    syncs the log before it is opened."""
    async with open_cluster(**TWO_DIRS) as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        gone = next(one for one in BROKERS if one != state(cluster).leader)
        path = dir_of(cluster, gone)
        await kill(cluster, gone)
        filesystem = cluster.deps_of(gone).filesystem
        filesystem.faults.append(Fault(kind, errno.EIO, suffix, skip, is_lasting=True, directory=path))
        await nursery.start(cluster.serve, gone, TWO_DIRS)
        await acknowledged(cluster, b"meanwhile")
        await trio.sleep(PATIENCE_S)
        assert state(cluster).leader_epoch == 0
        with pytest.raises(EngineError):
            replica(cluster, gone)
        await cluster.stop(gone)
        filesystem.faults.clear()
        await nursery.start(cluster.serve, gone, TWO_DIRS)
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"meanwhile"]


async def test_topic_created_while_a_log_dir_is_offline_is_not_taken_for_lost() -> None:
    """The log is still being created when the broker looks for logs on a log dir that it has never read."""
    async with open_cluster(1, **TWO_DIRS) as (cluster, nursery):
        await create_on(cluster, 1)
        path = dir_of(cluster, 1)
        await cluster.stop(1)
        cluster.deps_of(1).filesystem.faults.append(Fault("read", errno.EIO, is_lasting=True, directory=path))
        await nursery.start(cluster.serve, 1, TWO_DIRS)
        await stays_without_leader(cluster)
        topic = CreatableTopic(name="another", num_partitions=1, replication_factor=1)
        reply = await call(cluster, 1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
        assert reply.topics[0].error_code == 0
        await trio.sleep(PATIENCE_S)
        made = state(cluster, "another")
        assert (made.leader, made.suspect_replicas, made.offline) == (1, (), ())


async def test_reassigned_replica_creates_no_second_log_while_its_log_dir_is_offline() -> None:
    async with open_cluster(**TWO_DIRS) as (cluster, nursery):
        await create_on(cluster, 1, 2, 3)
        await filled(cluster)
        break_disk(cluster, 3, dir_of(cluster, 3))
        await acknowledged(cluster, b"without 3")
        await move(cluster, (1, 2))
        await moved(cluster, 1, 2)
        await move(cluster, (1, 2, 3))
        await trio.sleep(PATIENCE_S)
        with pytest.raises(EngineError):
            replica(cluster, 3)
        await cluster.stop(3)
        cluster.deps_of(3).filesystem.faults.clear()
        await nursery.start(cluster.serve, 3, TWO_DIRS)
        await moved(cluster, 1, 2, 3)
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"without 3"]


async def test_single_replica_leads_with_all_records_when_its_log_dir_is_back() -> None:
    """No record is missing when the log dir is back."""
    async with open_cluster(**TWO_DIRS) as (cluster, nursery):
        await create_on(cluster, 2)
        await filled(cluster)
        path = dir_of(cluster, 2)
        await cluster.stop(2)
        filesystem = cluster.deps_of(2).filesystem
        filesystem.faults.append(Fault("read", errno.EIO, is_lasting=True, directory=path))
        await nursery.start(cluster.serve, 2, TWO_DIRS)
        await stays_without_leader(cluster)
        await cluster.stop(2)
        filesystem.faults.clear()
        await nursery.start(cluster.serve, 2, TWO_DIRS)
        assert await led(cluster) == 2
        assert state(cluster).suspect_replicas == ()
        assert await values(cluster) == SENT


@pytest.mark.parametrize("min_isr", [1, 2])
async def test_in_sync_replica_leaves_the_isr_before_it_restarts_the_copy(
    min_isr: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica in sync discards its log, for example because it lacks records that decide what its leader's compaction
    has removed (RULES K19)."""
    seen: list[tuple[int, list[int], list[int], list[int]]] = []
    record, reset_partition = RestartingReplicas.record, SegmentStore.reset_partition

    def note() -> None:
        its = cluster.brokers[2].broker.coordinator._changes.image.partition(TOPIC, 0)  # maybe not published yet
        assert its is not None
        seen.append(
            (
                replica(cluster, 2).log_end_offset,
                [*its.isr],
                [*its.elr],
                [suspect[0] for suspect in its.suspect_replicas],
            )
        )

    async def noting_record(restarting: RestartingReplicas, followed: FollowedReplica, offset: int) -> None:
        note()
        await record(restarting, followed, offset)

    async def noting_reset(store: SegmentStore, partition: TopicIdPartition, offset: int, *, follows_in: int) -> None:
        note()
        await reset_partition(store, partition, offset, follows_in=follows_in)

    async def has_restarted_twice() -> bool:
        return len(seen) > 1

    async with open_cluster(2, min_insync_replicas=str(min_isr)) as (cluster, nursery):
        await create_on(cluster, 1, 2)
        await filled(cluster)
        await in_sync(cluster, 1, 2)
        await kill(cluster, 2)
        monkeypatch.setattr(RestartingReplicas, "record", noting_record)
        monkeypatch.setattr(SegmentStore, "reset_partition", noting_reset)
        replica(cluster, 1).log.dropped = CompactionHorizon(tombstones_to=len(SENT) + 1)
        await produce(cluster, b"more", acks=1)
        assert sorted(state(cluster).isr) == [1, 2]
        await nursery.start(cluster.serve, 2, {})
        await until(has_restarted_twice)
        await in_sync(cluster, 1, 2)
        assert seen == [(len(SENT), [1, 2], [], []), (len(SENT), [1], [], [2])]
        assert state(cluster).suspect_replicas == ()
        await equal(cluster)
        assert await values(cluster) == [*SENT, b"more"]


async def test_suspect_replica_with_all_records_counts_again_for_its_leader_at_once() -> None:
    """The leader may learn that the replica is suspect after the Fetch that shows all records: no other Fetch would
    come."""
    async with open_cluster(2) as (cluster, _):
        await create_on(cluster, 1, 2)
        await filled(cluster)
        await in_sync(cluster, 1, 2)
        leader = replica(cluster, 1)
        assert leader.followers.replicas is not None
        known = leader.followers.replicas._committed
        marked = frozenset({2})
        leader.followers.learn(
            known._replace(version=99, in_sync=known.in_sync - marked, marked=marked, state_version=99)
        )
        with pytest.raises(UnknownLeaderEpoch):
            leader.followers.check_fetch_counts(2)
        await trio.sleep(0.2)
        leader.followers.check_fetch_counts(2)
