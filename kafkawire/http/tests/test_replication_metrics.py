"""Replication in the metrics: ISRs, and lags of followers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from engine.errors import StorageError
from kafkawire.http.tests.test_metrics import scraped
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS
from kafkawire.tests.test_replication import acknowledged, create, in_sync, kill, log_bytes, produce, replica, state

if TYPE_CHECKING:
    from collections.abc import Mapping


UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
UNDER_MIN, AT_MIN = (f"kafka_server_replicamanager_{which}minisrpartitioncount" for which in ("under", "at"))
SHRINKS, EXPANDS = (f"kafka_server_replicamanager_isr{which}_total" for which in ("shrinks", "expands"))
BYTES_IN, BYTES_OUT = (f"kafka_server_brokertopicmetrics_replicationbytes{which}_total" for which in ("in", "out"))


async def metrics_of(cluster: MemoryCluster, broker_id: int) -> Mapping[str, Any]:
    """Values without labels by name; lags of followers by the name of the lag."""
    found = await scraped(cluster.brokers[broker_id].broker.http_app(LoopWatch()))
    values: dict[str, Any] = {name: samples[0][1] for name, samples in found.items() if samples and not samples[0][0]}
    for name in ("kafkawire_replica_lag_records", "kafkawire_replica_lag_seconds"):
        values[name] = {labels["follower"]: value for labels, value in found.get(name, [])}
    return values


async def test_a_follower_that_is_silent_is_late_and_then_not_in_sync() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, min_insync_replicas="2")
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        silent, other = (one for one in BROKERS if one != leader)
        found = await metrics_of(cluster, leader)
        assert found["kafkawire_replica_lag_records"] == {str(silent): 0, str(other): 0}
        assert (found[UNDER_REPLICATED], found[UNDER_MIN], found[AT_MIN], found[SHRINKS]) == (0, 0, 0, 0)
        replica(cluster, silent).close(lambda: StorageError("its disk is gone"))
        for value in (b"on one", b"on two"):
            assert (await produce(cluster, value, acks=1)).error_code == 0
        await trio.sleep(10)
        found = await metrics_of(cluster, leader)
        assert found["kafkawire_replica_lag_records"] == {str(silent): 2, str(other): 0}
        assert 9 < found["kafkawire_replica_lag_seconds"][str(silent)] < 12
        await in_sync(cluster, leader, other)
        found = await metrics_of(cluster, leader)
        assert (found[UNDER_REPLICATED], found[UNDER_MIN], found[AT_MIN], found[SHRINKS]) == (1, 0, 1, 1)
        assert found[BYTES_OUT] >= 2 * len(log_bytes(cluster, other)) - 100
        assert (await metrics_of(cluster, other))[BYTES_IN] == len(log_bytes(cluster, other))


async def test_under_replicated_partitions_and_isr_expansions_are_counted() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, min_insync_replicas="2")
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        others = [one for one in BROKERS if one != leader]
        await kill(cluster, *others)
        await in_sync(cluster, leader)
        found = await metrics_of(cluster, leader)
        assert (found[UNDER_REPLICATED], found[UNDER_MIN], found[AT_MIN]) == (1, 1, 0)
        for one in others:
            await nursery.start(cluster.serve, one, {})
        await in_sync(cluster, *BROKERS)
        found = await metrics_of(cluster, leader)
        assert (found[UNDER_REPLICATED], found[UNDER_MIN], found[AT_MIN]) == (0, 0, 0)
        assert found[EXPANDS] >= 1


async def test_leaders_without_a_session_and_followers_are_counted() -> None:
    """Coordinators of such leaders answer nothing (RULES K24)."""
    async with open_cluster(replica_lag_time_max_ms="5000") as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        assert (await metrics_of(cluster, leader))["kafkawire_stale_leaders"] == 0
        cluster.deps[leader].sessions[-1].disconnected = True
        others = [one for one in BROKERS if one != leader]
        for one in others:
            replica(cluster, one).close(lambda: StorageError("its disk is gone"))
        await trio.sleep(30)
        found = await metrics_of(cluster, leader)
        assert (found["kafkawire_stale_leaders"], found["kafkawire_waiting_reads"]) == (1, 0)
