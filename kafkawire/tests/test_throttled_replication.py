"""Throttled replication (KIP-73): limits apply to replicas that are not in sync, where topics and brokers say so."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import trio

from kafkawire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled
from kafkawire.tests.test_replication import TOPIC, acknowledged, create, equal, in_sync, kill, state

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_BYTES_PER_S = 20_000
RECORD = os.urandom(10_000)
COUNT = 30  # the records that a broker lacks
SMALL = {"replica_fetch_max_bytes": "10000", "replica_fetch_wait_max_ms": "100"}  # a record at a time
WINDOW_S = 11  # unless configured
IS_TOPIC, IS_BROKER = 2, 4
enforces = pytest.mark.enforces


async def tell(cluster: MemoryCluster, kind: int, name: str, key: str, value: str) -> None:
    config = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    asked = int(name) if kind == IS_BROKER and name else 1
    reply = await call(cluster, asked, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert reply.responses[0].error_code == 0, reply.responses[0].error_message


async def seconds_to_return(
    cluster: MemoryCluster, nursery: trio.Nursery, gone: int, given: Mapping[str, str] = SMALL, count: int = COUNT
) -> float:
    """The seconds until a broker that lacks some records is in sync again."""
    await kill(cluster, gone)
    for _ in range(count):
        await acknowledged(cluster, RECORD)
    await nursery.start(cluster.serve, gone, given)
    started_s = trio.current_time()
    await in_sync(cluster, *BROKERS)
    await equal(cluster)
    return trio.current_time() - started_s


async def a_follower(cluster: MemoryCluster) -> int:
    await create(cluster, retention_ms="-1")  # records have no time
    await acknowledged(cluster, b"first")
    return next(one for one in BROKERS if one != state(cluster).leader)


@enforces("leader.replication.throttled.rate")
@enforces("leader.replication.throttled.replicas")
@enforces("follower.replication.throttled.rate")
@enforces("follower.replication.throttled.replicas")
@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("is_cluster_wide", [True, False])
async def test_returning_broker_copies_no_faster_than_its_throttle(side: str, is_cluster_wide: bool) -> None:
    async with open_cluster(**SMALL) as (cluster, nursery):
        gone = await a_follower(cluster)
        throttled = gone if side == "follower" else state(cluster).leader
        broker = "" if is_cluster_wide else str(throttled)
        await tell(cluster, IS_TOPIC, TOPIC, f"{side}.replication.throttled.replicas", f"0:{throttled}")
        await tell(cluster, IS_BROKER, broker, f"{side}.replication.throttled.rate", str(RATE_BYTES_PER_S))
        await settled(cluster)
        least_s = COUNT * len(RECORD) / RATE_BYTES_PER_S
        assert least_s - 2 < await seconds_to_return(cluster, nursery, gone) < 2 * least_s + WINDOW_S
        await tell(cluster, IS_BROKER, broker, f"{side}.replication.throttled.rate", str(2**63 - 1))
        assert await seconds_to_return(cluster, nursery, gone) < least_s / 3, "it is limited no longer"


@pytest.mark.parametrize("named", ["", "1:1,1:2,1:3"])
async def test_a_limit_is_for_replicas_that_are_named(named: str) -> None:
    async with open_cluster(**SMALL) as (cluster, nursery):
        gone = await a_follower(cluster)
        for side in ("leader", "follower"):
            await tell(cluster, IS_TOPIC, TOPIC, f"{side}.replication.throttled.replicas", named)
            await tell(cluster, IS_BROKER, "", f"{side}.replication.throttled.rate", "1")
        assert await seconds_to_return(cluster, nursery, gone) < COUNT * len(RECORD) / RATE_BYTES_PER_S / 3


async def test_in_sync_replica_is_not_throttled() -> None:
    async with open_cluster() as (cluster, _):
        await a_follower(cluster)
        for side in ("leader", "follower"):
            await tell(cluster, IS_TOPIC, TOPIC, f"{side}.replication.throttled.replicas", "*")
            await tell(cluster, IS_BROKER, "", f"{side}.replication.throttled.rate", "1")
        started_s = trio.current_time()
        for _ in range(COUNT):
            await acknowledged(cluster, RECORD)
        assert trio.current_time() - started_s < 3
        assert sorted(state(cluster).isr) == list(BROKERS)
        assert cluster.brokers[state(cluster).leader].broker.metrics.replication.isr_shrinks == 0


@enforces("replication.quota.window.num")
@enforces("replication.quota.window.size.seconds")
@pytest.mark.parametrize(("samples", "sample_s", "least_s"), [("2", "1", 8), ("1", "30", 40)])
async def test_a_limit_holds_over_the_samples_that_are_configured(samples: str, sample_s: str, least_s: int) -> None:
    """A record is as large as the limit of ten seconds: a window of two seconds forgets it soon, a window of thirty
    allows three records."""
    window = {"replication_quota_window_num": samples, "replication_quota_window_size_seconds": sample_s}
    async with open_cluster(**SMALL, **window) as (cluster, nursery):
        gone = await a_follower(cluster)
        await tell(cluster, IS_TOPIC, TOPIC, "follower.replication.throttled.replicas", "*")
        await tell(cluster, IS_BROKER, "", "follower.replication.throttled.rate", "1000")
        assert least_s < await seconds_to_return(cluster, nursery, gone, SMALL | window, 6) < 2 * least_s
