"""Only a broker without a cluster makes one: over old log dirs it waits for the cluster of these."""

from __future__ import annotations

from random import Random

import pytest
import structlog.testing
import trio

from coordinator.errors import CannotStart
from coordinator.metadata.layout import KnownCluster, cluster_id
from coordinator.metadata.unlogged_nodes import encode_cluster
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create
from coordinator.testing.fakes import FakeEnsemble

OURS = KnownCluster("ours", waits=True)


async def test_a_broker_without_a_cluster_makes_one() -> None:
    store = FakeEnsemble().connect()
    made = await cluster_id(store, Random(1))
    assert await cluster_id(store, Random(2)) == made
    assert await cluster_id(store, Random(3), KnownCluster(made, waits=True)) == made


@pytest.mark.parametrize("fault", ["none", "disconnected", "silent", "session lost"])
async def test_a_broker_with_old_log_dirs_waits_for_their_cluster_and_logs_this_once(fault: str) -> None:
    ensemble = FakeEnsemble()
    store, other = ensemble.connect(), ensemble.connect()
    found, is_started = list[str](), trio.Event()

    async def start() -> None:
        found.append(await cluster_id(store, Random(1), OURS))
        is_started.set()

    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await trio.sleep(60)
            store.disconnected, store.silent = fault == "disconnected", fault == "silent"
            if fault == "session lost":
                ensemble.expire(store)
            await trio.sleep(3600)
            store.disconnected = store.silent = False
            await trio.sleep(60)
            assert found == []
            assert await other.children("") == []
            with trio.fail_after(20):
                await other.multi([Create(paths.CLUSTER, encode_cluster("ours"))])
                await is_started.wait()
    assert found == ["ours"]
    assert [line["cluster_id"] for line in lines if "waits" in line["event"]] == ["ours"]


async def test_a_broker_that_stands_alone_is_refused_over_old_log_dirs() -> None:
    """The store is the broker's own: there is nothing to wait for."""
    store = FakeEnsemble().connect()
    with pytest.raises(CannotStart, match="no cluster, and the log dirs belong to the cluster ours"):
        await cluster_id(store, Random(1), KnownCluster("ours"))
    assert await store.children("") == []


async def test_another_cluster_refuses_the_start() -> None:
    store = FakeEnsemble().connect()
    other = await cluster_id(store, Random(1))
    with pytest.raises(CannotStart, match=f"^the log dirs belong to the cluster ours, the metadata store has {other}$"):
        await cluster_id(store, Random(2), OURS)
