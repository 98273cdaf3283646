"""Metrics and probes of a metadata store that is silent, damaged, or slow to be applied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from coordinator.metadata_store import paths
from coordinator.metadata_store.store import ConnectionLost, Create, Delete
from kafkawire.http.tests.test_metrics import scraped
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_replication import create
from testkit.asgi import get_response

if TYPE_CHECKING:
    from collections.abc import Mapping

AGE, SILENT = "kafkawire_metadata_age_seconds", "kafkawire_zookeeper_silent_seconds"
BROKERS = (1, 2, 3)


async def metrics_of(cluster: MemoryCluster, broker_id: int) -> Mapping[str, Any]:
    """Values without labels by name; with one label by name and its value."""
    found = await scraped(cluster.brokers[broker_id].broker.http_app(LoopWatch()))
    return {
        " ".join([name, *labels.values()]): value
        for name, samples in found.items()
        for labels, value in samples
        if len(labels) < 2
    }


async def health(cluster: MemoryCluster, broker_id: int, path: str) -> tuple[int, list[str]]:
    status, body = await get_response(cluster.brokers[broker_id].broker.http_app(LoopWatch()), f"/health/{path}")
    return status, json.loads(body)["reasons"]


async def test_a_silent_store_shows_everywhere_but_turns_no_broker_unready() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, min_insync_replicas="2")
        await trio.sleep(60)
        found = await metrics_of(cluster, 1)
        assert (found[AGE], found[SILENT], found["kafkawire_metadata_publication_lag"]) == (0, 0, 0)
        assert found["kafka_server_sessionexpirelistener_sessionstate CONNECTED"] == 1
        assert found["kafkawire_metadata_request_latency_seconds_count"] > 5
        assert (await health(cluster, 1, "cluster")) == (200, [])
        for one in BROKERS:
            cluster.deps_of(one).sessions[-1].silent = True
        await trio.sleep(60)
        for one in BROKERS:
            found = await metrics_of(cluster, one)
            assert 60 <= found[AGE] < 80
            assert (await health(cluster, one, "ready")) == (200, [])
            status, reasons = await health(cluster, one, "cluster")
            assert status == 503
            assert reasons[0].startswith("the metadata store has not answered for 6")


async def test_a_broker_that_was_fenced_is_unready_as_soon_as_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_cluster() as (cluster, _):
        store = cluster.deps_of(3).sessions[-1]
        store.silent = True
        await trio.sleep(40)
        assert 3 not in cluster.brokers[1].broker.coordinator.image.brokers
        assert (await health(cluster, 3, "ready")) == (200, []), "it cannot know"

        async def no_server() -> None:
            await trio.lowlevel.checkpoint()
            raise ConnectionLost

        with monkeypatch.context() as patched:
            patched.setattr(store, "renew", no_server)
            store.silent = False
            await trio.sleep(15)
            assert (await health(cluster, 3, "ready")) == (503, ["the broker is fenced: it registers again"])
        await trio.sleep(5)
        assert (await health(cluster, 3, "ready")) == (200, [])


async def test_damaged_metadata_are_counted_and_named() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, min_insync_replicas="2")
        bad = paths.change(cluster.brokers[1].broker.coordinator.image.version + 1)
        await cluster.ensemble.connect().multi([Create(bad, b"not a change")])
        await trio.sleep(60)
        for one in BROKERS:
            assert (await metrics_of(cluster, one))["kafkawire_metadata_errors_total malformed"] > 1
            assert (await health(cluster, one, "ready")) == (200, [])
            status, [reason] = await health(cluster, one, "cluster")
            assert status == 503
            assert reason.startswith(f"metadata cannot be used: the metadata node {bad} is damaged")
        await cluster.ensemble.connect().multi([Delete(bad)])
        await trio.sleep(60)
        for one in BROKERS:
            assert (await health(cluster, one, "cluster")) == (200, [])
