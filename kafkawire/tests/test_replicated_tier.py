"""Replicated topics in the remote tier: segments that only the tier has are part of each replica's log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from coordinator.api import ConfigChange, ConfigOperation
from engine.api import TopicIdPartition
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, leaders, settled, until
from kafkawire.tests.test_cluster import create as create_of_all
from kafkawire.tests.test_cluster_admin import create, move, moved
from kafkawire.tests.test_replication import TOPIC, acknowledged, fetch, in_sync, kill, log_bytes, replica
from kafkawire.tests.test_repudiation import led
from testkit.cold_broker import SETTINGS, VALUE_BYTES, is_segment
from tiering.stores.memory import Fault, Operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RECORDS = 4  # one in each segment; the last segment is active
FOLLOWER_LOOKS_S = 12.0
LOOKS_S = 10.0  # in which the tier and retention look at each partition several times


@asynccontextmanager
async def tiered_cluster(**more: str) -> AsyncIterator[tuple[MemoryCluster, trio.Nursery]]:
    cluster = MemoryCluster()
    bucket = cluster.deps_of(1).objects
    for one in BROKERS:
        cluster.deps_of(one).objects = bucket
    async with open_cluster(3, cluster, **SETTINGS, **more) as opened:
        yield opened


async def create_tiered(cluster: MemoryCluster, *replicas: int, **more: str) -> None:
    """Create a topic whose leader keeps as few segments on its disk as possible."""
    configs = {"remote_storage_enable": "true", "segment_bytes": str(1 << 20), "local_retention_bytes": "1"}
    await create(cluster, *replicas, retention_ms="-1", **{**configs, **more})


async def fill(cluster: MemoryCluster) -> None:
    """Write records until the leader, broker 1, has only the last one on its disk."""
    for number in range(RECORDS):
        await acknowledged(cluster, value_of(number))
    await cold_on(cluster, 1)


async def cold_on(cluster: MemoryCluster, broker_id: int) -> None:
    async def is_cold() -> bool:
        return replica(cluster, broker_id).log.local_start_offset == RECORDS - 1

    await until(is_cold)


def value_of(number: int) -> bytes:
    return bytes([number]) * VALUE_BYTES


async def has_records(cluster: MemoryCluster, broker_id: int, offset: int) -> None:
    """Wait until this broker's clients read the record at that offset."""

    async def is_there() -> bool:
        row = await fetch(cluster, broker_id, offset)
        assert not row.error_code
        return value_of(offset)[:100] in bytes(row.records or b"")

    await until(is_there)


def segments(cluster: MemoryCluster) -> list[str]:
    """The keys of all segments in the bucket."""
    return sorted(key for key in cluster.deps_of(1).objects.objects if is_segment(key) and "/topics/" not in key)


async def delete_below(cluster: MemoryCluster, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=TOPIC, partitions=[partition])]
    reply = await call(cluster, 1, DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)
    assert reply.topics[0].partitions[0].error_code == 0


async def test_new_replica_leads_with_the_records_that_only_the_tier_has() -> None:
    async with tiered_cluster() as (cluster, _):
        await create_tiered(cluster, 1)
        await fill(cluster)
        copied = segments(cluster)
        assert len(copied) == RECORDS - 1
        assert (await move(cluster, (1, 2))).error_code == 0
        await moved(cluster, 1, 2)
        assert replica(cluster, 2).log.start_offset == 0
        assert (await move(cluster, (2,))).error_code == 0
        await moved(cluster, 2)
        await trio.sleep(LOOKS_S)
        assert segments(cluster) == copied
        await cold_on(cluster, 2)
        for offset in range(RECORDS):
            await has_records(cluster, 2, offset)


async def test_segments_are_the_same_on_all_replicas_however_the_tier_gives_them() -> None:
    """A cold read comes in chunks of 1 MiB, each a file of its own: a segment begins only in the first of them."""
    async with tiered_cluster() as (cluster, _):
        await create_tiered(cluster, 1, segment_bytes=str(3 << 20))
        for number in range(4 * RECORDS - 3):
            await acknowledged(cluster, value_of(number))
        await trio.sleep(LOOKS_S)
        copied = segments(cluster)
        bounds = [(one.base_offset, one.end_offset) for one in replica(cluster, 1).log.all_segments]
        assert bounds == [(0, 4), (4, 8), (8, 12), (12, 13)]
        assert replica(cluster, 1).log.local_start_offset == 12
        assert (await move(cluster, (1, 2))).error_code == 0
        await moved(cluster, 1, 2)
        assert [(one.base_offset, one.end_offset) for one in replica(cluster, 2).log.all_segments] == bounds
        await trio.sleep(FOLLOWER_LOOKS_S)
        assert replica(cluster, 2).log.local_start_offset == 12
        assert (await move(cluster, (2,))).error_code == 0
        await moved(cluster, 2)
        await trio.sleep(LOOKS_S)
        assert segments(cluster) == copied


async def test_restarted_follower_without_local_segments_leads_with_the_records_of_the_tier() -> None:
    async with tiered_cluster() as (cluster, nursery):
        await create_tiered(cluster, 1, 2)
        await fill(cluster)
        await cold_on(cluster, 2)
        copied = segments(cluster)
        await kill(cluster, 2)
        await nursery.start(cluster.serve, 2, SETTINGS)
        await in_sync(cluster, 1, 2)
        assert not replica(cluster, 2).log.is_tier_confirmed
        await trio.sleep(FOLLOWER_LOOKS_S)
        assert replica(cluster, 2).log.is_tier_confirmed
        await kill(cluster, 1)
        assert await led(cluster) == 2
        for offset in range(RECORDS):
            await has_records(cluster, 2, offset)
        await trio.sleep(LOOKS_S)
        assert segments(cluster) == copied


async def test_follower_log_starts_at_its_first_local_segment_when_the_topic_leaves_the_tier() -> None:
    async with tiered_cluster() as (cluster, _):
        await create_tiered(cluster, 1, 2)
        await fill(cluster)
        await cold_on(cluster, 2)
        changes = [
            ConfigChange(ConfigOperation.SET, name, value)
            for name, value in (("remote.log.delete.on.disable", "true"), ("remote.storage.enable", "false"))
        ]
        await cluster.brokers[1].broker.coordinator.alter_topic_configs(TOPIC, changes)
        await trio.sleep(2 * FOLLOWER_LOOKS_S)
        for one in (1, 2):
            log = replica(cluster, one).log
            assert (log.start_offset, log.tiered_to, log.has_cold) == (RECORDS - 1, None, False)
        assert not segments(cluster)


async def test_replica_that_ends_below_the_log_start_starts_there_and_not_behind_the_tier() -> None:
    async with tiered_cluster() as (cluster, nursery):
        await create_tiered(cluster, 1, 2)
        await in_sync(cluster, 1, 2)
        await kill(cluster, 2)
        await fill(cluster)
        await delete_below(cluster, 1)
        await nursery.start(cluster.serve, 2, SETTINGS)
        await in_sync(cluster, 1, 2)
        assert replica(cluster, 2).log.start_offset == 1


async def test_replica_whose_records_an_unclean_election_gave_up_in_the_tier_restarts_the_copy() -> None:
    """A log cannot be truncated where it has no files, so the replica copies it from scratch."""
    async with tiered_cluster() as (cluster, nursery):
        await create_tiered(cluster, 1, 2, unclean_leader_election_enable="true")
        await acknowledged(cluster, value_of(0))
        await in_sync(cluster, 1, 2)
        await kill(cluster, 2)
        for number in range(1, RECORDS):
            await acknowledged(cluster, value_of(number))
        await cold_on(cluster, 1)
        await kill(cluster, 1)
        await nursery.start(cluster.serve, 2, SETTINGS)
        assert await led(cluster) == 2
        assert await acknowledged(cluster, b"instead") == 1
        await nursery.start(cluster.serve, 1, SETTINGS)
        await in_sync(cluster, 1, 2)
        log = replica(cluster, 1).log
        assert (log.start_offset, log.end.offset) == (0, 2)
        assert (await move(cluster, (1,))).error_code == 0
        await moved(cluster, 1)
        await has_records(cluster, 1, 0)
        assert b"instead" in bytes((await fetch(cluster, 1, 1)).records or b"")


async def test_a_new_replica_waits_for_a_tier_that_cannot_be_reached() -> None:
    async with tiered_cluster() as (cluster, _):
        await create_tiered(cluster, 1)
        await fill(cluster)
        cluster.deps_of(1).objects.fault = lambda _operation, _key: Fault(is_lost=True)
        assert (await move(cluster, (1, 2))).error_code == 0
        await acknowledged(cluster, b"goes on")
        await trio.sleep(LOOKS_S)
        assert replica(cluster, 2).log.end.offset == 0
        cluster.deps_of(1).objects.fault = lambda _operation, _key: Fault()
        await moved(cluster, 1, 2)
        assert replica(cluster, 2).log.start_offset == 0
        assert log_bytes(cluster, 2).count(value_of(2)) == 1


async def test_a_follower_that_copies_from_a_slow_tier_goes_on_confirming_reads() -> None:
    """A follower's Fetch is for all its partitions, so it does not wait for the tier as long as consumers do."""
    async with tiered_cluster(remote_fetch_max_wait_ms="20000") as (cluster, _):
        await create_tiered(cluster, 1)
        await fill(cluster)
        assert not await create_of_all(cluster, 1, "warm", 3, 3)
        await settled(cluster)
        number = (await leaders(cluster, 1, "warm")).index(1)
        broker = cluster.brokers[1].broker
        topic_id = broker.coordinator.image.topics["warm"].topic_id
        warm = broker.store.replica(TopicIdPartition(topic_id, "warm", number))
        bucket = cluster.deps_of(1).objects
        bucket.fault = lambda operation, key: Fault(wait_s=4.0 if operation is Operation.GET and is_segment(key) else 0)
        assert (await move(cluster, (1, 2))).error_code == 0
        confirmed = list[bool]()
        for _ in range(100):
            warm.confirm(confirmed.append)
            await trio.sleep(0.1)
        await trio.sleep(1)
        assert confirmed == [True] * 100
        await moved(cluster, 1, 2)
        assert replica(cluster, 2).log.start_offset == 0
