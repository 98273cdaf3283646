"""Logs that the metadata do not name: a broker keeps them, and they come back with all records (RULES D3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

import coordinator.metadata.change_retention
from coordinator.membership.role_changes import host_changes
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Delete
from coordinator.testing.images import with_topics
from coordinator.testing.simulated_metadata_store import FakeEnsemble
from engine.errors import EngineError, StorageError
from engine.log_dirs.stray_files import find_strays
from engine.log_dirs.strays import CHECK_INTERVAL_S
from engine.store import SegmentStore
from kafkawire.adapters.followed_change import NAME
from kafkawire.config.tests.test_enforced import enforces
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkawire.testing import MemoryCluster, MemoryDeps, open_broker, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled, until
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_replication import TOPIC, acknowledged, create, in_sync, kill, state, until_gone, values
from kafkawire.tests.test_repudiation import led

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.api import TopicIdPartition

SENT = [b"%d" % number for number in range(4)]
KEPT_S = 14_400


def restored(ensemble: FakeEnsemble, length: int) -> FakeEnsemble:
    """The metadata servers with the data that they had after that many writes."""
    found = FakeEnsemble()
    found._sessions_given = ensemble._sessions_given
    for effects in ensemble.history[:length]:
        found._commit(effects)
    return found


def use(cluster: MemoryCluster, ensemble: FakeEnsemble) -> None:
    """Let all brokers use that metadata store from their next start on. They do not remember a followed change, like
    brokers of an earlier version or with a new log dir."""
    cluster.ensemble = ensemble
    for deps in cluster.deps.values():
        deps.ensemble = ensemble
        if deps.filesystem.exists(f"/data/{NAME}"):
            deps.filesystem.unlink(f"/data/{NAME}")
        for session in deps.sessions:
            ensemble._commit(ensemble._tree.stage_end_of_session(session.session_id))


def strays(deps: MemoryDeps) -> list[str]:
    return [one.topic for one in find_strays(deps.filesystem, "/data")]


async def delete(cluster: MemoryCluster, broker_id: int, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    assert (await call(cluster, broker_id, request, 6)).responses[0].error_code == 0


async def stop_all(cluster: MemoryCluster, *, is_killed: bool) -> None:
    if is_killed:
        await kill(cluster, *BROKERS)
    else:
        for one in BROKERS:
            await cluster.stop(one)
        await until_gone(cluster, *BROKERS)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_d3_topics_that_are_newer_than_a_restored_zookeeper_come_back_with_all_records(
    *, is_killed: bool
) -> None:
    async with open_cluster() as (cluster, nursery):
        length = len(cluster.ensemble.history)
        await create(cluster)
        for value in SENT:
            await acknowledged(cluster, value)
        await stop_all(cluster, is_killed=is_killed)
        newest = cluster.ensemble
        use(cluster, restored(newest, length))
        for one in BROKERS:
            await nursery.start(cluster.serve, one, {})
        for one in BROKERS:
            assert strays(cluster.deps_of(one)) == [TOPIC]
            reply = await call(cluster, one, DescribeLogDirsRequest(topics=None), 4)
            assert [(row.error_code, row.topics) for row in reply.results] == [(0, [])]
        await trio.sleep(3 * CHECK_INTERVAL_S)
        await stop_all(cluster, is_killed=False)
        use(cluster, newest)
        for one in BROKERS:
            await nursery.start(cluster.serve, one, {})
        await led(cluster)
        await in_sync(cluster, *BROKERS)
        assert await values(cluster) == SENT
        assert [strays(cluster.deps_of(one)) for one in BROKERS] == [[], [], []]
        await acknowledged(cluster, b"on it goes")


async def test_d3_a_topic_that_is_deleted_while_a_broker_is_down_leaves_no_stray() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster, b"a")
        await kill(cluster, 3)
        await delete(cluster, 1, TOPIC)
        await nursery.start(cluster.serve, 3, {})
        await settled(cluster)
        for one in BROKERS:
            names = cluster.deps_of(one).filesystem.list_dir("/data")
            assert [name for name in names if "-0" in name or "stray" in name] == []


async def test_d3_log_left_by_an_unfinished_deletion_is_deleted_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single broker deletes the log too, instead of making it a stray."""
    deps = MemoryDeps()

    async def fails(_store: SegmentStore, partitions: Sequence[TopicIdPartition]) -> list[EngineError | None]:
        return [StorageError("the process ends before it is done") for _ in partitions]

    with monkeypatch.context() as patched:
        patched.setattr(SegmentStore, "delete_partitions", fails)
        async with open_broker(deps) as opened:
            plane = opened.broker.coordinator
            await plane.create_topic(TOPIC, partition_count=1)
            await plane.delete_topic(TOPIC)
    assert f"{TOPIC}-0" in deps.filesystem.list_dir("/data")
    async with open_broker(deps):
        names = deps.filesystem.list_dir("/data")
    assert [name for name in names if "-0" in name or "stray" in name] == []


async def test_d3_a_deletion_that_is_no_longer_kept_leaves_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both at a start, and on a running broker that reads all metadata again."""
    monkeypatch.setattr(coordinator.metadata.change_retention, "KEPT_MAX", 3)
    async with open_cluster() as (cluster, nursery):
        await create(cluster, (1, 2, 3))
        await acknowledged(cluster, b"a")
        await kill(cluster, 3)
        await trio.sleep(60)
        cluster.deps_of(2).sessions[-1].lagging = True
        await delete(cluster, 1, TOPIC)
        for number in range(3):
            assert await create_topic(cluster, 1, f"other{number}", 1) == 0
        cluster.deps_of(2).sessions[-1].lagging = False
        cluster.ensemble.catch_up_all()
        await nursery.start(cluster.serve, 3, {})
        await settled(cluster)
        assert [strays(cluster.deps_of(one)) for one in BROKERS] == [[], [TOPIC], [TOPIC]]


async def test_d3_lost_topic_node_is_no_deletion_and_its_logs_become_strays() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"a")
        await stop_all(cluster, is_killed=False)
        await cluster.ensemble.connect().multi([Delete(paths.topic(TOPIC))])
        for one in BROKERS:
            await nursery.start(cluster.serve, one, {})
        await trio.sleep(600)
        found = await cluster.ensemble.connect().children(paths.PARTITIONS)
        assert found == []
        await stop_all(cluster, is_killed=False)
        for one in BROKERS:
            await nursery.start(cluster.serve, one, {})
        assert [strays(cluster.deps_of(one)) for one in BROKERS] == [[TOPIC]] * 3


async def test_d3_a_log_that_is_named_again_while_the_broker_runs_is_offline_until_the_metadata_say_so() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, (1, 2, 3))
        for value in SENT:
            await acknowledged(cluster, value)
        broker, deps = cluster.brokers[1].broker, cluster.deps_of(1)
        host, plane = broker._host, broker.coordinator
        assert host is not None
        image, me = plane.image, plane._membership.me
        without = with_topics(image, removed=[image.topics[TOPIC]])
        await host.apply(host_changes(image, without, me, ()))
        assert strays(deps) == [TOPIC]
        await host.apply(host_changes(without, image, me, ()))
        assert strays(deps) == []
        [reason] = host.not_served().values()
        assert reason == "its log was a stray, and is back"
        plane._replica_states.applied()

        async def is_led_by_another() -> bool:
            return state(cluster).leader in (2, 3)

        await until(is_led_by_another)
        await in_sync(cluster, *BROKERS)
        assert not host.not_served()
        await acknowledged(cluster, b"on it goes")
        assert await values(cluster) == [*SENT, b"on it goes"]


async def with_stray(world_of: MemoryCluster) -> None:
    """Leave a stray log of the topic on its only broker."""
    async with open_cluster(1, world_of):
        length = len(world_of.ensemble.history)
        assert await create_topic(world_of, 1, TOPIC, 1) == 0
        await settled(world_of)
        await acknowledged(world_of, b"a")
    use(world_of, restored(world_of.ensemble, length))


@enforces("log.dir.stray.retention.ms")
async def test_a_stray_is_deleted_after_so_much_running_time() -> None:
    cluster = MemoryCluster()
    await with_stray(cluster)
    configs = {"log_dir_stray_retention_ms": str(KEPT_S * 1000)}
    async with open_cluster(1, cluster, **configs):
        await trio.sleep(KEPT_S / 2)
        assert strays(cluster.deps_of(1)) == [TOPIC]
    await trio.sleep(2 * KEPT_S)
    async with open_cluster(1, cluster, **configs):
        await trio.sleep(KEPT_S / 2 - 2 * CHECK_INTERVAL_S)
        assert strays(cluster.deps_of(1)) == [TOPIC]
        await trio.sleep(4 * CHECK_INTERVAL_S)
        assert strays(cluster.deps_of(1)) == []


async def test_d3_time_without_a_session_does_not_count() -> None:
    cluster = MemoryCluster()
    await with_stray(cluster)
    async with open_cluster(1, cluster, log_dir_stray_retention_ms="600000"):
        cluster.deps_of(1).sessions[-1].disconnected = True
        await trio.sleep(6000)
        assert strays(cluster.deps_of(1)) == [TOPIC]
        cluster.deps_of(1).sessions[-1].disconnected = False
        await trio.sleep(600 + 3 * CHECK_INTERVAL_S)
        assert strays(cluster.deps_of(1)) == []
