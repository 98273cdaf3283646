"""Rolls by time and by index size, as in Kafka."""

import pytest

from engine.api import PartitionLog
from engine.batches.batch import NO_TIMESTAMP_MS, Record, build_batch
from engine.log_config import LogConfig
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, open_orders, running

HOUR_MS = 3_600_000


async def add(log: PartitionLog, timestamp_ms: int, size_bytes: int = 10) -> None:
    records = build_batch([Record(None, bytes(size_bytes), timestamp_ms)])
    await log.append(memoryview(records), acks=-1).wait()


def segments(filesystem: SimulatedFileSystem) -> list[int]:
    return [int(name[:-4]) for name in filesystem.list_dir("/data/orders-0") if name.endswith(".log")]


async def test_a_segment_rolls_by_the_timestamps_of_its_first_batch_and_the_next() -> None:
    filesystem = SimulatedFileSystem()
    config = LogConfig(segment_age_ms=1000)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for timestamp_ms in (NOW_MS, NOW_MS + 1000, NOW_MS - HOUR_MS, NOW_MS + 1001, NOW_MS + 2001, NOW_MS + 2002):
            await add(log, timestamp_ms)
        assert segments(filesystem) == [0, 3, 5]
        await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, config, 1)
        await add(log, NOW_MS + 3003)
        assert segments(filesystem) == [0, 3, 5, 6], "and after a restart"


async def test_without_timestamps_the_clock_decides() -> None:
    filesystem, clock = SimulatedFileSystem(), [NOW_MS]
    async with running(filesystem, clock=lambda: clock[0]) as store:
        log = await open_orders(store, LogConfig(segment_age_ms=1000))
        for later_ms in (0, 1000, 1001, 1500, 2002):
            clock[0] = NOW_MS + later_ms
            await add(log, NO_TIMESTAMP_MS)
        assert segments(filesystem) == [0, 2, 4]


async def test_segment_jitter_makes_segments_roll_earlier_by_at_most_the_jitter() -> None:
    rolled = set()
    for jitter_ms in (400, 800, 999):
        filesystem = SimulatedFileSystem()
        async with running(filesystem) as store:
            log = await open_orders(store, LogConfig(segment_age_ms=1000, segment_jitter_ms=jitter_ms))
            for step in range(11):
                await add(log, NOW_MS + step * 100)
            assert all(base >= (1000 - jitter_ms) / 100 for base in segments(filesystem)[1:2])
            rolled.add(tuple(segments(filesystem)))
    assert len(rolled) > 1


@pytest.mark.parametrize(("index_size_bytes", "expected"), [(4, [0, 1, 2, 3, 4, 5]), (48, [0, 3]), (10_485_760, [0])])
async def test_a_full_index_ends_a_segment(index_size_bytes: int, expected: list[int]) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig(segment_index_size_bytes=index_size_bytes))
        for _ in range(6):
            records = build_batch([Record(None, bytes(5), NOW_MS)] * 1000)
            await log.append(memoryview(records), acks=-1).wait()
        assert [base // 1000 for base in segments(filesystem)] == expected
