"""Replicas whose logs differ in the records that the cleaner removed, or begin within a batch."""

from __future__ import annotations

import pytest
import trio

from engine.batches.batch import Record
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS
from kafkawire.tests.test_replicated_tier import delete_below
from kafkawire.tests.test_replication import acknowledged, create, in_sync, kill, log_bytes, produce, replica, state
from kafkawire.tests.test_repudiation import led
from testkit import logs

SETTINGS = {"log_cleaner_backoff_ms": "1000"}
CLEANED_AFTER_S = 40.0
IN_SYNC_WITHIN_S = 240.0
VALUE_BYTES = 300_000  # a segment has room for three
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": str(1 << 20),
    "segment_ms": "1000000000",
    "min_cleanable_dirty_ratio": "0.01",
}


def keyed(value: bytes, key: int) -> list[Record]:
    return [Record(b"%d" % key, value * VALUE_BYTES, 1)]


async def put(cluster: MemoryCluster, value: bytes, *keys: int) -> None:
    """Produce a record of each key, one after the other, until all replicas in sync have it."""
    for key in keys:
        await acknowledged(cluster, keyed(value, key))


def values_of(cluster: MemoryCluster, broker_id: int, key: int) -> list[bytes]:
    """The first bytes of the values that a broker's log has under a key."""
    found = logs.batches_in(log_bytes(cluster, broker_id))
    return [(one.value or b"")[:1] for _, records in found for one in records if one.key == b"%d" % key]


async def filled_without_the_third(cluster: MemoryCluster, **configs: str) -> None:
    """Write records while the third broker is away and has none."""
    await create(cluster, BROKERS, **{**COMPACTED, **configs})
    await in_sync(cluster, *BROKERS)
    await kill(cluster, 3)
    await put(cluster, b"a", 0, 1, 2)
    await in_sync(cluster, 1, 2)


async def copied_by_the_third(cluster: MemoryCluster, nursery: trio.Nursery, *, restarts: bool = False) -> None:
    """Let the third broker copy the records that the cleaner left on the second. Then kill the second, and start the
    first."""
    await trio.sleep(CLEANED_AFTER_S)
    await nursery.start(cluster.serve, 3, SETTINGS)
    await in_sync(cluster, 2, 3)
    if restarts:
        await kill(cluster, 3)
        await nursery.start(cluster.serve, 3, SETTINGS)
        await in_sync(cluster, 2, 3)
    await kill(cluster, 2)
    assert await led(cluster) == 3
    await nursery.start(cluster.serve, 1, SETTINGS)


@pytest.mark.parametrize("restarts", [False, True])
async def test_unacknowledged_record_is_truncated_when_the_next_epoch_begins_in_a_gap(*, restarts: bool) -> None:
    """The unacknowledged record is newer than an acknowledged record of the same key, and must not replace it."""
    async with open_cluster(3, **SETTINGS) as (cluster, nursery):
        await filled_without_the_third(cluster)
        await kill(cluster, 2)
        assert (await produce(cluster, keyed(b"G", 2), acks=1)).error_code == ErrorCode.NONE
        await kill(cluster, 1)
        await nursery.start(cluster.serve, 2, SETTINGS)
        assert await led(cluster) == 2
        await put(cluster, b"b", *[0, 1] * 7)
        await copied_by_the_third(cluster, nursery, restarts=restarts)
        await in_sync(cluster, 1, 3)
        assert values_of(cluster, 1, 2) == values_of(cluster, 3, 2) == [b"a"]


async def test_an_epoch_of_which_nothing_is_left_closes_nobodys_log() -> None:
    """All records of the replica were acknowledged, and the cleaner has removed the newer ones since."""
    async with open_cluster(3, **SETTINGS) as (cluster, nursery):
        await filled_without_the_third(cluster)
        await kill(cluster, 1)
        assert await led(cluster) == 2
        await nursery.start(cluster.serve, 1, SETTINGS)
        await in_sync(cluster, 1, 2)
        await put(cluster, b"b", 0, 1)
        await trio.sleep(2)
        await kill(cluster, 1)
        await kill(cluster, 2)
        await nursery.start(cluster.serve, 2, SETTINGS)
        assert await led(cluster) == 2
        await put(cluster, b"c", *[0, 1, 2] * 4)
        await copied_by_the_third(cluster, nursery)
        await trio.sleep(IN_SYNC_WITHIN_S)
        assert sorted(state(cluster).isr) == [1, 3]


async def test_a_new_replica_of_a_log_that_begins_within_a_batch_is_in_sync_soon() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, BROKERS, retention_ms="-1")
        await in_sync(cluster, *BROKERS)
        await kill(cluster, 3)
        assert not (await produce(cluster, [Record(None, b"%d" % number) for number in range(10)])).error_code
        await in_sync(cluster, 1, 2)
        await delete_below(cluster, 5)
        await nursery.start(cluster.serve, 3, {})
        await trio.sleep(IN_SYNC_WITHIN_S)
        await acknowledged(cluster, b"more")
        assert sorted(state(cluster).isr) == [*BROKERS]
        for _ in range(2):
            assert replica(cluster, 3).log_start_offset == 5
            assert log_bytes(cluster, 3) == log_bytes(cluster, 1)
            await kill(cluster, 3)
            await nursery.start(cluster.serve, 3, {})
            await in_sync(cluster, *BROKERS)


async def test_a_new_replica_of_a_log_that_begins_within_a_batch_and_is_compacted_is_in_sync_soon() -> None:
    """Some records behind that batch are gone."""
    async with open_cluster(3, **SETTINGS) as (cluster, nursery):
        await filled_without_the_third(cluster, cleanup_policy="compact,delete", retention_ms="-1")
        await acknowledged(cluster, [*keyed(b"d", 4), *keyed(b"d", 5)])
        await put(cluster, b"b", *[0, 1] * 7)
        await trio.sleep(CLEANED_AFTER_S)
        await delete_below(cluster, 4)
        await nursery.start(cluster.serve, 3, SETTINGS)
        await in_sync(cluster, *BROKERS)
        assert replica(cluster, 3).log_start_offset == 4
        assert replica(cluster, 3).log.compacted_to
        assert values_of(cluster, 3, 5) == [b"d"]


async def test_a_key_that_was_deleted_does_not_come_back_with_a_replica_that_was_away() -> None:
    """The cleaner has removed the tombstone meanwhile."""
    async with open_cluster(3, **SETTINGS) as (cluster, nursery):
        await create(cluster, BROKERS, **COMPACTED, delete_retention_ms="1000")
        await in_sync(cluster, *BROKERS)
        await put(cluster, b"a", 0, 1, 2)
        await in_sync(cluster, *BROKERS)
        await kill(cluster, 3)
        await acknowledged(cluster, [Record(b"1", None, 1)])
        for _ in range(3):
            await put(cluster, b"b", *[0, 2] * 4)
            await trio.sleep(CLEANED_AFTER_S)
        await in_sync(cluster, 1, 2)
        assert values_of(cluster, 1, 1) == []
        await nursery.start(cluster.serve, 3, SETTINGS)
        await in_sync(cluster, *BROKERS)
        assert values_of(cluster, 3, 1) == []
        assert replica(cluster, 3).log.dropped.tombstones_to == replica(cluster, 1).log.dropped.tombstones_to == 4


async def test_copied_batches_that_lack_records_are_sound_after_a_crash_of_the_replica() -> None:
    """There are no gaps between the batches."""
    async with open_cluster(3, **SETTINGS) as (cluster, nursery):
        await create(cluster, BROKERS, **COMPACTED)
        await in_sync(cluster, *BROKERS)
        await kill(cluster, 3)
        for key in range(9):
            await acknowledged(cluster, [Record(b"of all", b"v", 1), *keyed(b"v", key)])
        await in_sync(cluster, 1, 2)
        await trio.sleep(CLEANED_AFTER_S)
        await nursery.start(cluster.serve, 3, SETTINGS)
        await in_sync(cluster, *BROKERS)
        end_offset = replica(cluster, 3).log_end_offset
        await kill(cluster, 3)
        cluster.deps_of(3).filesystem.crash()
        await nursery.start(cluster.serve, 3, SETTINGS)
        await in_sync(cluster, *BROKERS)
        assert (replica(cluster, 3).log_end_offset, replica(cluster, 3).log.damaged_from) == (end_offset, None)
