"""Local retention: how long segment files that the remote tier has stay on the disk."""

from dataclasses import replace

import pytest

from engine.api import OffsetSpec
from engine.log_config import CleanupPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.upkeep.retention_task import RetentionOptions, RetentionTask
from testkit.cold_logs import COUNT, EVERYTHING, ROLLING, Broker
from testkit.logs import NOW_MS, read_all

TIERED = replace(ROLLING, remote_storage=True, retention_ms=-1)


async def check(log: Partition, now_ms: int = NOW_MS) -> None:
    await RetentionTask(log.log_dir, RetentionOptions(), lambda: now_ms).check()


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (replace(TIERED, local_retention_size_bytes=900), 4),  # of 1,934
        (replace(TIERED, local_retention_ms=95), 3),  # the newest record of a segment is 10 ms older than the next
        (replace(TIERED, local_retention_size_bytes=-1, local_retention_ms=-1), None),
        (replace(TIERED, remote_storage=False, local_retention_ms=0), None),
        (replace(TIERED, cleanup_policy=frozenset({CleanupPolicy.COMPACT}), local_retention_ms=0), None),
    ],
    ids=["bytes", "ms", "no limit", "not tiered", "compacted"],
)
async def test_files_go_as_local_retention_says(config: LogConfig, kept: int | None) -> None:
    broker = Broker(config)
    async with broker.life() as log:
        await broker.fill()
        before, count = await read_all(log), len(log.log.segments)
        await check(log, NOW_MS + 10 * COUNT)
        assert len(log.log.segments) == count, "the tier has nothing yet"
        broker.tier.upload(broker.filesystem, log)
        await check(log, NOW_MS + 10 * COUNT)
        assert len(log.log.segments) == (kept or count)
        assert log.log.start_offset == 0
        assert await read_all(log) == before


async def test_segments_that_the_tier_lacks_stay_on_disk() -> None:
    broker = Broker(replace(TIERED, local_retention_ms=0))
    async with broker.life() as log:
        await broker.fill()
        broker.tier.upload(broker.filesystem, log)
        log.log.tiered_to = log.log.segments[2].base_offset
        await check(log, NOW_MS + 10**9)
        assert log.log.local_start_offset == log.log.tiered_to


async def test_a_follower_drops_files_and_ends_no_segment() -> None:
    """The segments of a follower end where the leader's do."""
    config = replace(TIERED, local_retention_ms=1000)
    broker = Broker(config)
    async with broker.life() as log:
        await broker.fill()
        broker.tier.upload(broker.filesystem, log)
        log.follow(config, broker.epoch)
        await check(log, NOW_MS + 10**9)
        assert (log.log.start_offset, log.log.segments) == (0, [log.log.active])
        assert log.log.active.size_bytes > 0


async def test_an_active_segment_that_was_here_long_enough_is_finished_and_copied() -> None:
    broker = Broker(replace(TIERED, local_retention_ms=1000))
    async with broker.life() as log:
        await broker.fill()
        broker.tier.upload(broker.filesystem, log)
        await check(log, NOW_MS + 10**6)
        assert log.log.active.base_offset == COUNT
        assert [one.base_offset for one in log.log.segments][-1] == COUNT
        assert broker.tier.upload(broker.filesystem, log) == COUNT
        await check(log, NOW_MS + 10**6)
        assert log.log.local_start_offset == COUNT
        assert (await log.offset_for_timestamp(OffsetSpec.EARLIEST, EVERYTHING)).offset == 0
        assert (await log.offset_for_timestamp(OffsetSpec.EARLIEST_LOCAL, EVERYTHING)).offset == COUNT
        assert (await log.offset_for_timestamp(OffsetSpec.LATEST_TIERED, EVERYTHING)).offset == COUNT - 1


async def test_total_retention_takes_both() -> None:
    broker = Broker(replace(TIERED, retention_ms=100, local_retention_ms=50))
    async with broker.life() as log:
        await broker.fill()
        broker.tier.upload(broker.filesystem, log)
        await check(log, NOW_MS + 10 * COUNT)
        local_start = log.log.local_start_offset
        assert 0 < log.log.start_offset < local_start
        assert all(one.max_timestamp_ms >= NOW_MS + 10 * COUNT - 100 for one in log.log.all_segments)
        assert list(await read_all(log)) == list(range(log.log.start_offset, COUNT))
