"""A disk that hangs affects its own partitions only: the other log dir follows the metadata (RULES K34)."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from engine.api import TopicIdPartition
from engine.errors import EngineError, StorageError
from engine.files.disk import DiskWorkers
from engine.partitions.suspension import take_role
from engine.testing.simulated_disk import Fault
from kafkawire.adapters.dir_workers import APPLY_MAX_S
from kafkawire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.process.run import STOP_MAX_S
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled, until
from kafkawire.tests.test_cluster import produce as produce_to
from kafkawire.tests.test_cluster_admin import move, moved
from kafkawire.tests.test_replication import (
    TOPIC,
    acknowledged,
    equal,
    in_sync,
    kill,
    led_by_another,
    produce,
    replica,
    state,
    values,
)
from kafkawire.tests.test_repudiation import TWO_DIRS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from coordinator.api import ClusterImage
    from engine.partitions.partition import Partition
    from engine.roles import Role
    from kafkawire.broker import Broker

SMALL_S = 0.5  # beyond the wait for a log dir that is behind
LAG_S = 30.0  # replica.lag.time.max.ms


async def create(cluster: MemoryCluster, name: str, *replicas: Sequence[int], asked: int = 2) -> float:
    """Create a topic with a partition for each list of replicas, and return how many seconds that took."""
    started_s = trio.current_time()
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=[*ids]) for number, ids in enumerate(replicas)
    ]
    forever = [CreatableTopicConfig(name="retention.ms", value="-1")]  # the records of these tests are old
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=forever
    )
    reply = await call(cluster, asked, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
    assert reply.topics[0].error_code == 0
    return trio.current_time() - started_s


async def delete(cluster: MemoryCluster, name: str, asked: int = 2) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    assert (await call(cluster, asked, request, 6)).responses[0].error_code == 0


def broker(cluster: MemoryCluster, broker_id: int = 1) -> Broker:
    return cluster.brokers[broker_id].broker


def partition(cluster: MemoryCluster, broker_id: int, name: str, number: int = 0) -> Partition | None:
    """The partition in the engine, even if it is suspended, or None."""
    topic = broker(cluster, broker_id).coordinator.image.topics[name]
    return broker(cluster, broker_id).store._partitions.get(TopicIdPartition(topic.topic_id, name, number))


def workers(cluster: MemoryCluster, path: str, broker_id: int = 1) -> DiskWorkers:
    return DiskWorkers.of(["/a", "/b"].index(path), broker(cluster, broker_id).config.io_workers)


@contextmanager
def hanging(cluster: MemoryCluster, path: str, broker_id: int = 1, *, only_scans: bool = False) -> Iterator[None]:
    """Let the disk of that log dir answer nothing within the block."""
    deps, found = cluster.deps_of(broker_id), workers(cluster, path, broker_id)
    there = [found.scans] if only_scans else found.all
    deps.delays.hang(there)
    try:
        yield
    finally:
        deps.delays.set(there)


def path_of(cluster: MemoryCluster, name: str, number: int = 0, broker_id: int = 1) -> str:
    found = partition(cluster, broker_id, name, number)
    assert found is not None
    return found.log_dir.disk.path


async def until_served(cluster: MemoryCluster, name: str, *, number: int = 0, by: int = 1) -> float:
    async def is_served() -> bool:
        row = (await produce_to(cluster, by, name, number)).responses[0].partition_responses[0]
        return not row.error_code

    return await until(is_served)


def check_roles(cluster: MemoryCluster, broker_id: int, image: ClusterImage) -> None:
    """Check that the broker serves no role that is older than its published image."""
    for topic in image.topics_by_id.values():
        for number, wanted in enumerate(topic.partitions):
            key = TopicIdPartition(topic.topic_id, topic.name, number)
            found = broker(cluster, broker_id).store._partitions.get(key)
            if found is None or found.is_closed or found.is_suspended or broker_id not in wanted.replicas:
                continue
            assert found.leader_epoch >= wanted.leader_epoch, f"{key} of {broker_id} is stale"
            assert not found.is_led or found.leader_epoch > wanted.leader_epoch or wanted.leader == broker_id


async def watch_roles(cluster: MemoryCluster, broker_id: int = 1) -> None:
    """Check the roles with each published image."""
    coordinator = broker(cluster, broker_id).coordinator
    image = coordinator.image
    while True:
        check_roles(cluster, broker_id, image)
        image = await coordinator.wait_for_image_after(image.version)


@asynccontextmanager
async def prepared(leader: int = 1) -> AsyncIterator[tuple[MemoryCluster, trio.Nursery, str]]:
    """A cluster with the topic of these tests, and a topic on the other log dir. The path is the log dir of the first
    topic on broker 1."""
    async with open_cluster(**TWO_DIRS) as (cluster, nursery), trio.open_nursery() as watching:
        path = await topics_of(cluster, leader)
        watching.start_soon(watch_roles, cluster)
        yield cluster, nursery, path
        watching.cancel_scope.cancel()


async def topics_of(cluster: MemoryCluster, leader: int) -> str:
    await settled(cluster)
    others = [one for one in (3, 2, 1) if one != leader]
    await create(cluster, TOPIC, (leader, *others))
    await create(cluster, "healthy", (leader, *others))
    await acknowledged(cluster, b"before")
    await settled(cluster)
    assert path_of(cluster, TOPIC) != path_of(cluster, "healthy")
    return path_of(cluster, TOPIC)


async def fall_behind(cluster: MemoryCluster) -> None:
    """Create a topic of two partitions: one of them belongs on the log dir that hangs."""
    assert await create(cluster, "two", (1, 2, 3), (1, 2, 3)) < APPLY_MAX_S + SMALL_S
    await settled(cluster)
    assert broker(cluster).store.statistics()


def behind(cluster: MemoryCluster) -> list[str]:
    return [one.path for one in broker(cluster).store.statistics() if one.behind_s is not None]


@pytest.mark.parametrize("leader", [1, 2])
async def test_hanging_disk_does_not_delay_partitions_on_the_other_log_dir(leader: int) -> None:
    async with prepared(leader) as (cluster, _, path):
        with hanging(cluster, path):
            started_s = trio.current_time()
            await fall_behind(cluster)
            assert behind(cluster) == [path]
            assert trio.current_time() - started_s < APPLY_MAX_S + SMALL_S
            healthy = next(one for one in (0, 1) if partition(cluster, 1, "two", one) is not None)
            assert path_of(cluster, "two", healthy) != path
            assert await until_served(cluster, "two", number=healthy) < SMALL_S
            row = (await produce_to(cluster, 1, "two", 1 - healthy)).responses[0].partition_responses[0]
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            for number in range(3):  # no request waits for a log dir that is behind, and no new partition goes there
                assert await create(cluster, f"more{number}", (1, 2, 3)) < SMALL_S
                await settled(cluster)
                assert path_of(cluster, f"more{number}") != path
                assert await until_served(cluster, f"more{number}") < SMALL_S
            assert await until_served(cluster, "healthy", by=leader) < SMALL_S
        assert await until_served(cluster, "two", number=1 - healthy) < LAG_S
        assert behind(cluster) == []


async def test_partition_on_a_hanging_disk_is_led_by_another_broker_after_the_lag_time() -> None:
    async with prepared() as (cluster, _, path):
        with hanging(cluster, path):
            await fall_behind(cluster)
            await trio.sleep(LAG_S - APPLY_MAX_S - 1)
            assert (state(cluster).leader, state(cluster).offline) == (1, ())
            started_s = trio.current_time()
            second = await led_by_another(cluster, 1)
            assert trio.current_time() - started_s < 2
            await acknowledged(cluster, b"by another")
            assert (state(cluster).offline, sorted(state(cluster).isr)) == ((1,), [2, 3])
            assert state(cluster, "healthy").leader == 1
            assert state(cluster, "healthy").offline == ()
            assert "does not answer" in broker(cluster)._host.not_served()[replica_key(cluster, TOPIC)]  # type: ignore[union-attr]
        await in_sync(cluster, *BROKERS)
        assert (state(cluster).leader, state(cluster).offline, state(cluster).suspect_replicas) == (second, (), ())
        await acknowledged(cluster, b"after")
        await equal(cluster)
        assert await values(cluster) == [b"before", b"by another", b"after"]
        for number in (0, 1):
            await until_served(cluster, "two", number=number, by=leader_of(cluster, "two", number))


def replica_key(cluster: MemoryCluster, name: str) -> TopicIdPartition:
    return TopicIdPartition(broker(cluster).coordinator.image.topics[name].topic_id, name, 0)


def leader_of(cluster: MemoryCluster, name: str, number: int) -> int:
    return broker(cluster, 2).coordinator.image.topics[name].partitions[number].leader


async def test_a_broker_stops_in_time_while_a_log_dir_is_behind() -> None:
    async with prepared() as (cluster, _, path):
        with hanging(cluster, path):
            await fall_behind(cluster)
            stopping = broker(cluster)
            started_s = trio.current_time()
            stopping.stop.set()
            assert await led_by_another(cluster, 1, "healthy") in (2, 3)
            assert trio.current_time() - started_s < APPLY_MAX_S + SMALL_S + 2
            await stopping.drained.wait()
            assert trio.current_time() - started_s < STOP_MAX_S


async def until_resumed(log: Partition) -> None:
    async def is_resumed() -> bool:
        return not log.is_suspended

    await until(is_resumed)


async def change_leader(cluster: MemoryCluster, nursery: trio.Nursery, broker_id: int) -> None:
    """Change the leader by a restart of that broker, which leads."""
    await kill(cluster, broker_id)
    assert await led_by_another(cluster, broker_id) != 1
    await nursery.start(cluster.serve, broker_id, TWO_DIRS)

    async def is_in_sync() -> bool:
        return broker_id in state(cluster).isr

    await until(is_in_sync)


def taken_by(log: Partition, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that collects the epochs of all roles that the partition takes from now on."""
    taken: list[int] = []

    def take_and_note(found: Partition, role: Role) -> None:
        if found is log:
            taken.append(role.leader_epoch)
        take_role(found, role)

    monkeypatch.setattr("engine.partition_changes.take_role", take_and_note)
    return taken


async def test_follower_on_a_hanging_disk_takes_only_its_newest_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with prepared(2) as (cluster, nursery, path):
        found = partition(cluster, 1, TOPIC)
        assert found is not None
        taken = taken_by(found, monkeypatch)
        with hanging(cluster, path):
            await fall_behind(cluster)
            for _ in range(2):
                await change_leader(cluster, nursery, state(cluster).leader)
                await settled(cluster)
            assert found.is_suspended
            assert (taken, state(cluster).leader_epoch) == ([], 2)
        await until_resumed(found)
        await in_sync(cluster, *BROKERS)
        assert (taken, found.leader_epoch) == ([2], 2)
        await acknowledged(cluster, b"after")
        await equal(cluster)
        assert await values(cluster) == [b"before", b"after"]


async def test_leader_replaced_while_its_disk_hangs_refuses_appends() -> None:
    """The broker's session ends, it registers again, and another broker leads by then."""
    async with prepared() as (cluster, _, path):
        found = partition(cluster, 1, TOPIC)
        assert found is not None
        with hanging(cluster, path):
            await fall_behind(cluster)
            cluster.ensemble.expire(cluster.deps_of(1).sessions[-1])
            await led_by_another(cluster, 1)
            await settled(cluster)
            assert found.is_suspended
            for acks in (1, -1):
                assert (await produce(cluster, b"x", acks=acks, to=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await acknowledged(cluster, b"by another")
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [b"before", b"by another"]


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_topic_deleted_while_its_disk_hangs_is_deleted_when_the_disk_is_back(*, is_made_again: bool) -> None:
    """The next topic of that name begins with an empty log."""
    async with prepared() as (cluster, _, path):
        old = partition(cluster, 1, TOPIC)
        assert old is not None
        with hanging(cluster, path):
            await fall_behind(cluster)
            await delete(cluster, TOPIC)
            await settled(cluster)
            with pytest.raises(EngineError):
                broker(cluster).store.replica(old.partition)
            if is_made_again:
                assert await create(cluster, TOPIC, (1, 2, 3)) < SMALL_S
                await settled(cluster)
            assert cluster.deps_of(1).filesystem.exists(f"{path}/{TOPIC}-0")
        if is_made_again:
            await acknowledged(cluster, b"new")
            await equal(cluster)
            assert await values(cluster) == [b"new"]
            assert path_of(cluster, TOPIC) == path
        else:
            await trio.sleep(1)
            assert not cluster.deps_of(1).filesystem.exists(f"{path}/{TOPIC}-0")
        assert broker(cluster).store._partitions.get(old.partition) is None


async def test_replica_reassigned_away_and_back_while_its_disk_hangs_survives_its_next_change() -> None:
    """The partition was reassigned away and back while the disk hung: its deletion and its new role waited together."""
    async with prepared(2) as (cluster, _, path):
        with hanging(cluster, path):
            await fall_behind(cluster)
            assert (await move(cluster, (2, 3), ask=2)).error_code == ErrorCode.NONE
            await moved(cluster, 2, 3)
            assert (await move(cluster, (2, 3, 1), ask=2)).error_code == ErrorCode.NONE
            await trio.sleep(5)
        await moved(cluster, 2, 3, 1)
        await in_sync(cluster, 1, 2, 3)
        log = replica(cluster, 1)
        change = ConfigChange(ConfigOperation.SET, "message.max.bytes", "4321")
        await broker(cluster, 2).coordinator.alter_broker_configs(CLUSTER_DEFAULT, [change])
        await settled(cluster)
        await trio.sleep(5)
        assert replica(cluster, 1) is log
        assert log.config.max_message_size_bytes == 4321
        await acknowledged(cluster, b"after")
        await equal(cluster)


async def test_topic_deleted_while_its_log_is_opened_again_is_deleted() -> None:
    """The log is not in the list of open logs then, and its opening fails."""
    async with prepared(2) as (cluster, _, path):
        closed = replica(cluster, 1)
        closed.put_offline(partial(StorageError, "closed by a test"))

        async def is_reported_offline() -> bool:
            return state(cluster).offline == (1,)

        with hanging(cluster, path, only_scans=True):
            await until(is_reported_offline)
            await trio.sleep(5)
            assert broker(cluster)._host.workers._workers[closed.log_dir].is_reopening  # type: ignore[union-attr]
            await delete(cluster, TOPIC)
            await settled(cluster)
        await trio.sleep(5)
        assert broker(cluster).store._partitions.get(closed.partition) is None
        assert not cluster.deps_of(1).filesystem.exists(f"{path}/{TOPIC}-0")
        assert broker(cluster).coordinator.has_session


async def test_topics_created_and_deleted_while_disks_hang_leave_no_waiting_changes() -> None:
    async with prepared() as (cluster, _, path):
        other = next(one for one in ("/a", "/b") if one != path)
        with hanging(cluster, path), hanging(cluster, other):
            await fall_behind(cluster)
            assert sorted(behind(cluster)) == ["/a", "/b"]
            for _ in range(20):
                await create(cluster, "again", (1, 2, 3))
                await delete(cluster, "again")
            await settled(cluster)
            waiting = [len(one.changes.unapplied) for one in broker(cluster)._host.workers._workers.values()]  # type: ignore[union-attr]
            assert sum(waiting) <= 3
        await until_served(cluster, "two")
        assert broker(cluster).store.changes._coming.keys() == {*broker(cluster).store.log_dirs}
        assert not any(broker(cluster).store.changes._coming.values())


async def test_replicas_on_a_disk_that_is_slow_for_a_moment_go_on_without_a_word_to_the_others() -> None:
    """No metadata are written, and the leader keeps its epoch."""
    async with prepared() as (cluster, _, path):
        with hanging(cluster, path):
            await fall_behind(cluster)
            await trio.sleep(10)
        await until_served(cluster, "two", number=0)
        await until_served(cluster, "two", number=1)
        assert (state(cluster).leader_epoch, state(cluster).offline) == (0, ())
        await acknowledged(cluster, b"after")
        await equal(cluster)


async def test_a_follower_made_late_is_followed_without_another_image() -> None:
    async with prepared(2) as (cluster, _, path):
        with hanging(cluster, path):
            await create(cluster, "two", (2, 1, 3), (2, 1, 3))
            await settled(cluster)
            late = next(one for one in (0, 1) if partition(cluster, 1, "two", one) is None)
        version = broker(cluster).coordinator.image.version
        assert await until_served(cluster, "two", number=late, by=2) < LAG_S / 2
        assert broker(cluster).coordinator.image.version == version
        made = partition(cluster, 1, "two", late)
        assert made is not None
        assert made.log_end_offset == 1


async def test_a_topic_with_one_replica_is_led_again_once_its_disk_answers() -> None:
    """The metadata name no other leader: the broker is the last member of the ISR."""
    async with open_cluster(**TWO_DIRS) as (cluster, _):
        await settled(cluster)
        await create(cluster, TOPIC, (1,))
        await acknowledged(cluster, b"before")
        await create(cluster, "healthy", (1, 2, 3))
        with hanging(cluster, path_of(cluster, TOPIC)):
            await fall_behind(cluster)
            await trio.sleep(LAG_S + 5)
            assert (state(cluster).leader, state(cluster).offline, state(cluster).isr) == (-1, (1,), (1,))
        await acknowledged(cluster, b"after")
        assert await values(cluster) == [b"before", b"after"]
        assert (state(cluster).offline, state(cluster).suspect_replicas) == ((), ())


async def test_config_change_reaches_healthy_log_dirs_at_once_and_a_hanging_log_dir_later() -> None:
    async with prepared() as (cluster, _, path):
        change = ConfigChange(ConfigOperation.SET, "message.max.bytes", "4321")
        with hanging(cluster, path):
            await fall_behind(cluster)
            started_s = trio.current_time()
            await broker(cluster, 2).coordinator.alter_broker_configs(CLUSTER_DEFAULT, [change])
            await settled(cluster)
            assert trio.current_time() - started_s < SMALL_S
            assert replica_named(cluster, "healthy").config.max_message_size_bytes == 4321
            assert not replica(cluster, 1).is_suspended, "its epoch is the newest"
        await until_served(cluster, TOPIC)
        assert replica(cluster, 1).config.max_message_size_bytes == 4321


def replica_named(cluster: MemoryCluster, name: str) -> Partition:
    found = partition(cluster, 1, name)
    assert found is not None
    return found


async def test_leader_replaced_during_a_hanging_write_acknowledges_nothing() -> None:
    """The log dir is not behind before that: the change of the role itself waits for the write."""
    async with prepared() as (cluster, nursery, path):
        found = replica(cluster, 1)
        rows = []

        async def write(acks: int) -> None:
            rows.append(await produce(cluster, b"hangs", acks=acks, to=1))

        with hanging(cluster, path):
            for acks in (1, -1):
                nursery.start_soon(write, acks)
            await trio.sleep(0.1)
            cluster.ensemble.expire(cluster.deps_of(1).sessions[-1])
            await led_by_another(cluster, 1)
            await settled(cluster)
            assert (behind(cluster), found.is_suspended, found.leader_epoch) == ([path], True, 0)
            await acknowledged(cluster, b"by another")
        await until_resumed(found)
        assert found.leader_epoch == 1
        await equal(cluster)
        assert {row.error_code for row in rows} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        kept = [one for one in await values(cluster) if one != b"hangs"]  # the others may have got that record
        assert kept == [b"before", b"by another"]


async def test_a_role_that_waits_for_a_write_is_not_taken_once_there_is_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with prepared() as (cluster, nursery, path):
        found = replica(cluster, 1)
        taken = taken_by(found, monkeypatch)
        with hanging(cluster, path):
            nursery.start_soon(partial(produce, cluster, b"hangs", acks=1, to=1))
            await trio.sleep(0.1)
            cluster.ensemble.expire(cluster.deps_of(1).sessions[-1])
            await led_by_another(cluster, 1)
            await settled(cluster)
            await change_leader(cluster, nursery, state(cluster).leader)
            await settled(cluster)
            assert (found.is_suspended, found.leader_epoch, state(cluster).leader_epoch) == (True, 0, 2)
        await until_resumed(found)
        assert (taken, found.leader_epoch) == ([2], 2)
        await equal(cluster)


async def test_follower_on_a_hanging_disk_leaves_the_isr_after_the_lag_time_and_rejoins() -> None:
    async with prepared(2) as (cluster, _, path):
        found = replica(cluster, 1)
        with hanging(cluster, path):
            await fall_behind(cluster)
            await trio.sleep(LAG_S + 1)
            assert (state(cluster).offline, sorted(state(cluster).isr)) == ((1,), [2, 3])
            await acknowledged(cluster, b"meanwhile")
        await in_sync(cluster, *BROKERS)
        assert (state(cluster).offline, state(cluster).leader_epoch, found.leader_epoch) == ((), 0, 0)
        await equal(cluster)


async def test_log_that_waits_for_a_hanging_disk_survives_the_failure_of_another_log_dir() -> None:
    cluster = MemoryCluster()
    broken = Fault("write", errno.EIO, is_lasting=True, directory="/a")
    cluster.deps_of(1).filesystem.faults.append(broken)
    async with open_cluster(3, cluster, **TWO_DIRS):
        await settled(cluster)
        with hanging(cluster, "/b"):
            assert await create(cluster, TOPIC, (2, 1, 3)) < SMALL_S
            await trio.sleep(APPLY_MAX_S + SMALL_S)
            broker(cluster).coordinator.note_loss()
            await trio.sleep(5)
            assert state(cluster).offline == ()
        await acknowledged(cluster, b"x")
        await equal(cluster)
        assert path_of(cluster, TOPIC) == "/b"


@pytest.mark.parametrize("in_new_epoch", [False, True])
async def test_a_log_may_take_minutes_to_be_opened_again(*, in_new_epoch: bool) -> None:
    """The scan delays no role of other partitions in the log dir, and images do not wait for it."""
    async with prepared(2) as (cluster, _, path):
        closed = replica(cluster, 1)
        closed.put_offline(partial(StorageError, "closed by a test"))

        async def is_reported_offline() -> bool:
            return state(cluster).offline == (1,)

        async def is_deleted() -> bool:
            return not cluster.deps_of(1).filesystem.exists(f"{path}/{TOPIC}-0")

        with hanging(cluster, path, only_scans=True):
            await until(is_reported_offline)
            if in_new_epoch:
                cluster.ensemble.expire(cluster.deps_of(2).sessions[-1])
                await led_by_another(cluster, 2)
            await trio.sleep(5)
            worker = broker(cluster)._host.workers._workers[closed.log_dir]  # type: ignore[union-attr]
            assert worker.is_reopening
            assert await create(cluster, "two", (1, 2, 3), (1, 2, 3)) < SMALL_S
            for number in (0, 1):
                assert await until_served(cluster, "two", number=number) < SMALL_S
            assert path in [path_of(cluster, "two", number) for number in (0, 1)]
            await delete(cluster, TOPIC)
            await settled(cluster)
            await trio.sleep(2 * LAG_S)
            assert behind(cluster) == []
        await until(is_deleted)
