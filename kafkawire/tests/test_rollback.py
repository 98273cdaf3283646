"""Whole brokers after a rollback of the metadata store, and their records after it was accepted (RULES M7)."""

from __future__ import annotations

from random import Random

import pytest
import trio

from coordinator.api import NO_LEADER
from coordinator.metadata.history import History, HistoryPosition
from coordinator.transfer.rollback import accept, next_history, read_store
from engine.log_dirs.layout import is_partition_name
from engine.log_dirs.stray_files import find_strays
from kafkawire.adapters.followed_change import INTERVAL_S, NAME, decode, encode, last_followed
from kafkawire.broker import StartError
from kafkawire.testing import MemoryCluster, MemoryDeps, open_broker, open_cluster
from kafkawire.tests.test_cluster import BROKERS, settled, until
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_cluster import produce as produce_to
from kafkawire.tests.test_replication import (
    acknowledged,
    create,
    equal,
    fetch,
    in_sync,
    kill,
    state,
    until_gone,
)
from kafkawire.tests.test_repudiation import led
from testkit.logs import batches_in

PATIENCE_S = 20.0
RETENTION_MS = 300_000  # of strays; the strays of an accepted rollback stay beyond it


async def accepted(cluster: MemoryCluster) -> History:
    """Accept the rollback with the followed changes in the brokers' log dirs. The sessions of the snapshot have
    ended."""
    store = cluster.ensemble.connect()
    found = await read_store(store)
    known = [last_followed(cluster.deps_of(one).filesystem, ["/data"]) for one in BROKERS]
    followed = [one for one in known if one is not None]
    assert found.contradictions(followed)
    history = next_history(found, followed, Random(0))
    await accept(store, found, history)
    await store.close()
    return history


async def stop_all(cluster: MemoryCluster, how: str) -> None:
    if how == "kill":
        await trio.sleep(INTERVAL_S)  # until the log dirs have the newest followed change
        await kill(cluster, *cluster.brokers)
    else:
        for one in [*cluster.brokers]:
            await cluster.stop(one)
            await until_gone(cluster, one)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_acknowledged_records_are_there_though_the_snapshot_names_others_in_sync(how: str) -> None:
    """Broker 1 was in sync at the snapshot, and lacks the records acknowledged since."""
    keys = {"log_dir_stray_retention_ms": str(RETENTION_MS)}
    async with open_cluster(**keys) as (cluster, nursery):
        await create(cluster, [1, 2, 3], min_insync_replicas="2")
        await acknowledged(cluster, b"before")
        snapshot = len(cluster.ensemble.history)
        await kill(cluster, 1)
        await acknowledged(cluster, b"since")
        await in_sync(cluster, 2, 3)
        assert await create_topic(cluster, 2, "unnamed", 1, 2) == 0
        await settled(cluster)
        leader = state(cluster, "unnamed").leader
        assert (await produce_to(cluster, leader, "unnamed", 0)).responses[0].partition_responses[0].error_code == 0
        epoch = state(cluster).leader_epoch
        unnamed = [one for one in BROKERS if "unnamed-0" in names(cluster, one)]
        await stop_all(cluster, how)
        cluster.ensemble.roll_back(snapshot)
        await accepted(cluster)
        await nursery.start(cluster.serve, 1, keys)
        await trio.sleep(PATIENCE_S)
        assert state(cluster).leader == NO_LEADER
        for one in (2, 3):
            await nursery.start(cluster.serve, one, keys)
        assert await led(cluster) in (2, 3)
        await reads(cluster, b"before", b"since")
        assert state(cluster).leader_epoch > epoch + 2**20 - 100
        await acknowledged(cluster, b"after")
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        await reads(cluster, b"before", b"since", b"after")
        await trio.sleep(2 * RETENTION_MS / 1000)
        strays = {one: find_strays(cluster.deps_of(one).filesystem, "/data") for one in BROKERS}
        assert [one for one in BROKERS if strays[one]] == unnamed
        assert leader in unnamed


async def reads(cluster: MemoryCluster, *wanted: bytes) -> None:
    """Wait for the high watermark of the leader, and read. A response may end before the log does."""

    async def is_so() -> bool:
        found: list[bytes | None] = []
        while data := bytes((await fetch(cluster, state(cluster).leader, len(found))).records):
            found += [one.value for _, records in batches_in(data) for one in records]
        return found == [*wanted]

    await until(is_so)


def names(cluster: MemoryCluster, broker_id: int) -> set[str]:
    return {name for name in cluster.deps_of(broker_id).filesystem.list_dir("/data") if is_partition_name(name)}


async def test_a_broker_refuses_to_start_on_a_store_that_was_rolled_back_and_removes_nothing() -> None:
    cluster = MemoryCluster()
    async with open_cluster(3, cluster) as (_, _nursery):
        await create(cluster)
        snapshot = len(cluster.ensemble.history)
        assert await create_topic(cluster, 1, "unnamed", 1, 3) == 0
        await stop_all(cluster, "stop")
    cluster.ensemble.roll_back(snapshot)
    before = names(cluster, 1)
    assert any(name.startswith("unnamed") for name in before)
    with pytest.RaisesGroup(StartError, flatten_subgroups=True) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.serve, 1, {})
    message = str(caught.value.exceptions)
    assert "the metadata store was rolled back: its newest change is" in message
    assert "accept-rollback" in message
    assert names(cluster, 1) == before


async def test_single_broker_stores_the_followed_change_in_its_log_dir() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        await opened.broker.coordinator.create_topic("t")
        newest = opened.broker.coordinator.image.version
    followed = last_followed(deps.filesystem, ["/data"])
    assert followed is not None
    assert followed.change == newest
    async with open_broker(deps) as opened:
        await trio.sleep(1)
        await opened.broker.coordinator.create_topic("u")
        await trio.sleep(INTERVAL_S)
        again = last_followed(deps.filesystem, ["/data"])
        assert again == opened.broker.coordinator.followed


def test_newest_valid_followed_change_counts_and_damaged_files_are_ignored() -> None:
    deps = MemoryDeps()
    known, newer = HistoryPosition(1, "a" * 32, 7, "b" * 32), HistoryPosition(2, "c" * 32, 3)
    assert decode(encode(known)) == known
    for path, content in (("/a", encode(known)), ("/b", encode(newer)), ("/c", encode(newer)[:-2])):
        deps.filesystem.make_dir(path)
        deps.filesystem.open(f"{path}/{NAME}", create=True).write_at([content], 0)
    assert last_followed(deps.filesystem, ["/a", "/b", "/c", "/d"]) == newer
    assert last_followed(deps.filesystem, ["/c", "/d"]) is None
    with pytest.raises(ValueError, match="damaged"):
        decode(encode(known).replace(b"change=7", b"change=8"))
