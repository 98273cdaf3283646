"""Retention at work: segments that are due go, in order, and no client sees an error meanwhile."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from engine.api import Isolation, OffsetSpec, PartitionLog, TopicIdPartition
from engine.errors import StorageError, UnknownPartition
from engine.files.filesystem import PosixFileSystem
from engine.files.io_workers import LoopPool
from engine.log_config import CleanupPolicy, LogConfig
from engine.log_dirs import log_starts
from engine.log_dirs.local_starts import note_tiered
from engine.log_dirs.log_dir import LogDir
from engine.options import StoreOptions
from engine.partitions.partition import Partition
from engine.stats import Reason
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.upkeep.retention_task import (
    SPACE_CHECK_INTERVAL_S,
    WINDOW_CHECK_S,
    RetentionOptions,
    RetentionTask,
    _written_ms,
)
from testkit.logs import MAX_BYTES, NOW_MS, ORDERS, batch, bytes_of, open_orders, options, read_all, running
from testkit.replicas import following, stamped
from testkit.wrong_timestamps import stored_as_sent, with_max_timestamp

T = TypeVar("T")

HOUR_MS = 3_600_000
CHECK_S = 10
HOURLY = LogConfig(segment_size_bytes=200, retention_ms=HOUR_MS)


def checking(**fields: object) -> StoreOptions:
    retention = RetentionOptions(check_interval_ms=CHECK_S * 1000, initial_delay_ms=CHECK_S * 1000)
    return dataclasses.replace(options(), retention=dataclasses.replace(retention, **fields))  # type: ignore[arg-type]


async def fill(log: PartitionLog, timestamps_ms: Sequence[int], size_bytes: int = 60) -> None:
    """Append a segment of two records for each timestamp; -1: records without timestamps."""
    for timestamp_ms in timestamps_ms:
        records = batch(bytes(size_bytes), bytes(size_bytes), timestamps_ms=[timestamp_ms] * 2)
        await log.append(memoryview(records), acks=-1).wait()


def names(filesystem: SimulatedFileSystem, suffix: str = ".log", directory: str = "/data/orders-0") -> list[int]:
    return [int(name.split(".")[0]) for name in filesystem.list_dir(directory) if name.endswith(suffix)]


class Clock:
    """The wall clock."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


async def test_expired_segments_are_removed_and_readers_in_flight_go_on() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [NOW_MS - HOUR_MS, NOW_MS - 10, NOW_MS - 20, NOW_MS])
        held = log.read(0, MAX_BYTES, Isolation.READ_UNCOMMITTED, at_least_one=True)
        await trio.sleep(CHECK_S + 1)
        assert log.log_start_offset == 0
        clock.now_ms += 1
        await trio.sleep(CHECK_S)
        assert log.log_start_offset == 2
        assert (names(filesystem), names(filesystem, ".deleted")) == ([2, 4, 6], [0])
        earliest = await log.offset_for_timestamp(OffsetSpec.EARLIEST, Isolation.READ_UNCOMMITTED)
        assert earliest.offset == 2
        clock.now_ms += HOUR_MS - 12
        await trio.sleep(CHECK_S)
        assert log.log_start_offset == 2, "the third is old enough, the second before it is not"
        clock.now_ms += 2
        await trio.sleep(CHECK_S)
        assert log.log_start_offset == 6
        assert sorted(await read_all(log)) == [6, 7]
        assert len(bytes_of(held.records)) == held.size_bytes
        await trio.sleep(62)
        assert names(filesystem, ".deleted") == []
        assert len(bytes_of(held.records)) == held.size_bytes
        assert store.stats.removed_segments == {Reason.TIME: 3}


@pytest.mark.parametrize("how", ["kill", "power cut", "clean stop"])
async def test_a_log_whose_segments_have_all_expired_keeps_an_empty_segment(how: str) -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [NOW_MS, NOW_MS])
        clock.now_ms += 2 * HOUR_MS
        await trio.sleep(2 * CHECK_S + 1)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 4)
        assert names(filesystem) == [4]
        assert await read_all(log) == {}
        await trio.sleep(5 * CHECK_S)
        assert names(filesystem) == [4], "and nothing more happens to it"
        if how == "clean stop":
            await store.close()
    if how == "power cut":
        filesystem.crash(random.Random(1))
    problems = list[str]()
    async with running(filesystem, checking(), clock=clock, problems=problems) as store:
        log = await open_orders(store, HOURLY, 1)
        assert (log.log_start_offset, log.log_end_offset) == (4, 4)
        await fill(log, [clock.now_ms])
        assert sorted(await read_all(log)) == [4, 5]
    assert problems == []


async def test_segments_beyond_the_retention_size_are_removed() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, checking()) as store:
        log = await open_orders(store, dataclasses.replace(HOURLY, retention_size_bytes=500))
        await fill(log, [NOW_MS] * 6)
        sizes = [filesystem.size(f"/data/orders-0/{base:020d}.log") for base in names(filesystem)]
        await trio.sleep(CHECK_S + 1)
        remaining = [filesystem.size(f"/data/orders-0/{base:020d}.log") for base in names(filesystem)]
        assert sum(remaining) >= 500 > sum(remaining[1:])
        gone_bytes = sum(sizes) - sum(remaining)
        assert store.stats.removed_bytes == {Reason.SIZE: gone_bytes}


async def test_a_compacted_topic_is_left_to_compaction() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    config = dataclasses.replace(HOURLY, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, config)
        await fill(log, [NOW_MS] * 3)
        assert await log.delete_records(-1) == 6
        await fill(log, [NOW_MS])
        assert names(filesystem) == [4, 6]
        clock.now_ms += 9 * HOUR_MS
        await trio.sleep(CHECK_S + 1)
        assert names(filesystem) == [6], "but what the log start has passed goes"
        assert sorted(await read_all(log)) == [6, 7]
        assert store.stats.removed_segments == {Reason.LOG_START: 3}


async def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    filesystem.now_ms = clock
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [-1])
        clock.now_ms += 1000
        await fill(log, [-1, -1])
        clock.now_ms = NOW_MS + HOUR_MS + 1
        await trio.sleep(CHECK_S + 1)
        assert names(filesystem) == [2, 4]


async def test_segments_of_version_0_1_are_as_old_as_their_records() -> None:
    """Their headers have no timestamp, and their files were copied an hour ago."""
    filesystem, clock = SimulatedFileSystem(), Clock()
    filesystem.now_ms = clock
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        with stored_as_sent():
            for first_ms in (NOW_MS - HOUR_MS - 8, NOW_MS - HOUR_MS, NOW_MS):
                sent = batch(bytes(60), bytes(60), timestamps_ms=[first_ms, first_ms + 7])
                await log.append(with_max_timestamp(sent), acks=-1).wait()
        await trio.sleep(CHECK_S + 1)
        assert names(filesystem) == [2, 4]
        clock.now_ms += 8
        await trio.sleep(CHECK_S + 1)
        assert names(filesystem) == [4]


async def test_a_file_that_is_old_matters_only_to_records_without_timestamps() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    filesystem.now_ms = lambda: 0
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [NOW_MS] * 3)
        await trio.sleep(CHECK_S + 1)
        assert names(filesystem) == [0, 2, 4]


async def test_outside_of_the_window_nothing_goes() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    times = list[bool]()
    async with running(filesystem, checking(is_time=lambda _: bool(times)), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [NOW_MS] * 3)
        clock.now_ms += 2 * HOUR_MS
        await trio.sleep(3 * WINDOW_CHECK_S)
        assert names(filesystem) == [0, 2, 4]
        times.append(True)
        await trio.sleep(WINDOW_CHECK_S + 1)
        assert names(filesystem) == [6]


async def test_without_the_journal_nothing_goes() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [NOW_MS - 2 * HOUR_MS] * 3)
        filesystem.faults.append(Fault("fdatasync", 5, ".journal"))
        await trio.sleep(CHECK_S + 1)
        assert names(filesystem, ".deleted") == []


async def test_a_full_disk_delays_the_new_segment_and_the_removal_of_expired_segments() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        log = await open_orders(store, HOURLY)
        await fill(log, [NOW_MS - 2 * HOUR_MS] * 3)
        filesystem.faults.append(Fault("create", 28, ".log"))
        await trio.sleep(CHECK_S + 1)
        assert (log.log_start_offset, names(filesystem)) == (0, [0, 2, 4])
        await trio.sleep(CHECK_S)
        assert (log.log_start_offset, names(filesystem)) == (6, [6])


async def test_retention_leaves_a_damaged_log_unchanged() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        await fill(await open_orders(store, HOURLY), [NOW_MS] * 3)
    filesystem.unlink(f"/data/orders-0/{2:020d}.log")
    clock.now_ms += 2 * HOUR_MS
    async with running(filesystem, checking(), clock=clock) as store:
        await open_orders(store, HOURLY, 1)
        await trio.sleep(3 * CHECK_S)
        assert names(filesystem) == [0, 4]


async def test_appends_while_many_logs_are_cut() -> None:
    """Each append goes behind the others; a log that got a record meanwhile is not rolled."""
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        logs = [await _open(store, number) for number in range(20)]
        for log in logs:
            await fill(log, [NOW_MS] * 2)
        clock.now_ms += 2 * HOUR_MS
        ends = [4] * len(logs)
        with trio.move_on_after(3 * CHECK_S):
            while True:
                for number, log in enumerate(logs):
                    await fill(log, [clock.now_ms])
                    ends[number] += 2
                await trio.sleep(0.5)
        for log, end in zip(logs, ends, strict=True):
            assert (log.log_start_offset, log.log_end_offset) == (4, end)
            assert sorted(await read_all(log)) == list(range(4, end))


async def _open(store: SegmentStore, number: int, config: LogConfig = HOURLY) -> PartitionLog:
    return await store.open_partition(TopicIdPartition(ORDERS.topic_id, "orders", number), config, 0)


async def test_deletion_of_partitions_does_not_stop_the_retention_of_others() -> None:
    filesystem, clock = SimulatedFileSystem(), Clock()
    async with running(filesystem, checking(), clock=clock) as store:
        for number in range(8):
            await fill(await _open(store, number), [NOW_MS] * 3)
        clock.now_ms += 2 * HOUR_MS
        await trio.sleep(CHECK_S)
        await store.delete_partitions(
            [TopicIdPartition(ORDERS.topic_id, "orders", number) for number in range(0, 8, 2)]
        )
        await trio.sleep(CHECK_S)
        for number in range(1, 8, 2):
            assert names(filesystem, directory=f"/data/orders-{number}") == [6]


async def test_d2_a_disk_too_full_costs_the_oldest_segments_of_all_logs() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    config = LogConfig(segment_size_bytes=11_000, retention_ms=-1, file_delete_delay_ms=20_000)
    policy = frozenset({CleanupPolicy.COMPACT})
    compacted = dataclasses.replace(config, cleanup_policy=policy, min_cleanable_dirty_ratio=1.0)
    async with running(filesystem, checking(disk_max_used_ratio=0.9), problems=problems) as store:
        first, second = await _open(store, 0, config), await _open(store, 1, config)
        kept = await _open(store, 2, compacted)
        await fill(first, [NOW_MS + 1, NOW_MS + 3, NOW_MS + 5], 5000)
        await fill(second, [NOW_MS + 2, NOW_MS + 4, NOW_MS + 6], 5000)
        await fill(kept, [NOW_MS, NOW_MS, NOW_MS], 5000)
        await trio.sleep(SPACE_CHECK_INTERVAL_S + 1)
        assert (first.log_start_offset, second.log_start_offset) == (0, 0)
        used_bytes = filesystem.usage("/data").used_bytes
        filesystem.capacity_bytes = int((used_bytes - 22_000) / 0.9)
        await trio.sleep(3 * SPACE_CHECK_INTERVAL_S)
        assert (first.log_start_offset, second.log_start_offset, kept.log_start_offset) == (4, 2, 0)
        assert store.stats.removed_segments == {Reason.SPACE: 3}
        [problem] = problems
        assert "disk.max.used.ratio" in problem
        assert "3 segments of 2 partitions" in problem
        await trio.sleep(25)
        assert len(problems) == 1, "what was set aside has made room"
        filesystem.capacity_bytes = 100
        await trio.sleep(SPACE_CHECK_INTERVAL_S + 1)
        assert (first.log_start_offset, second.log_start_offset) == (4, 4), "active segments stay"


async def test_d2_a_follower_that_restarts_the_copy_removes_no_segment_by_itself() -> None:
    """The tier's progress in the old log says nothing of the new one, and only the leader deletes records."""
    filesystem, problems = SimulatedFileSystem(), list[str]()
    config = LogConfig(segment_size_bytes=6000, retention_ms=-1, remote_storage=True)
    async with running(filesystem, checking(disk_max_used_ratio=0.9), problems=problems) as store:
        log = await following(store, config, epoch=1)

        async def take(*offsets: int) -> None:
            for offset in offsets:
                records = memoryview(bytearray(stamped(offset, 1, bytes(5000))))
                await log.replicate(records, begins_segment=True).wait()
                log.note_leader(offset + 1)

        await take(0, 1, 2)
        note_tiered(log.log_dir, log, 2)
        await store.reset_partition(ORDERS, 10, follows_in=1)
        assert (log.log.tiered_to, log.log.is_tier_confirmed) == (None, False)
        await take(10, 11, 12, 13)
        filesystem.capacity_bytes = int((filesystem.usage("/data").used_bytes - 11_000) / 0.9)
        await trio.sleep(3 * SPACE_CHECK_INTERVAL_S)
        assert (log.log.start_offset, len(log.log.segments)) == (10, 4)
        assert not any("removed" in one for one in problems)


async def test_d2_is_off_by_default() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, checking()) as store:
        log = await open_orders(store, LogConfig(segment_size_bytes=200))
        await fill(log, [NOW_MS] * 4)
        filesystem.capacity_bytes = filesystem.usage("/data").used_bytes
        await trio.sleep(3 * SPACE_CHECK_INTERVAL_S)
        assert log.log_start_offset == 0
        with pytest.raises(StorageError):
            await fill(log, [NOW_MS])


async def test_a_real_file_has_a_time(tmp_path: Path) -> None:
    filesystem = PosixFileSystem()
    path = f"{tmp_path}/file"
    filesystem.open(path, create=True).write_at([b"x"], 0)
    assert filesystem.modified_ms(path) == (tmp_path / "file").stat().st_mtime_ns // 1_000_000


async def test_a_topic_created_again_under_its_name_keeps_its_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is created between the barrier and the work on the files."""
    filesystem = SimulatedFileSystem()
    set_aside = log_starts._set_aside
    again = ORDERS._replace(topic_id=b"another".ljust(16))
    async with running(filesystem) as store:
        await fill(await open_orders(store, HOURLY), [NOW_MS] * 3)

        async def later(log_dir: LogDir, gone: Sequence[log_starts._RemovedSegments]) -> None:
            await store.delete_partition(ORDERS)
            await store.open_partition(again, HOURLY, 0)
            await set_aside(log_dir, gone)

        monkeypatch.setattr(log_starts, "_set_aside", later)
        with pytest.raises(UnknownPartition):
            await store.get(ORDERS).delete_records(2)
        assert (names(filesystem), names(filesystem, ".deleted")) == ([0], [])


async def test_a_partition_deleted_before_its_retention_check_has_no_expired_segment() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, HOURLY)
        assert isinstance(log, Partition)
        await fill(log, [NOW_MS] * 3)
        await store.delete_partition(ORDERS)
        assert await RetentionTask(log.log_dir, RetentionOptions(), Clock())._old_segments(log.log) == []


async def test_deletion_of_a_partition_during_the_check_of_its_file_ages_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the store would end with an IndexError."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, HOURLY)
        assert isinstance(log, Partition)
        await fill(log, [-1])
        log_dir, run, asked = log.log_dir, log.log_dir.disk.run, []

        async def run_and_delete(job: Callable[[], object]) -> object:
            found = await run(job)
            if isinstance(job, partial) and job.func is _written_ms:
                asked.append(found)
                await store.delete_partition(ORDERS)
            return found

        monkeypatch.setattr(log_dir.disk, "run", run_and_delete)
        await RetentionTask(log_dir, RetentionOptions(), Clock()).check()
        assert len(asked) == 1


class SlowStat(LoopPool):
    """A pool on which asking a file for its age takes seconds, without cancellation."""

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        if isinstance(job, partial) and job.func is _written_ms:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
        return await super().run(worker, job)


async def test_l7_retention_writes_nothing_behind_the_clean_marker() -> None:
    """Retention was about to move a log start when the store closed: its barrier came behind the clean-shutdown
    marker."""
    filesystem, clock = SimulatedFileSystem(), Clock()
    filesystem.now_ms = clock
    async with running(filesystem, checking(), pool=SlowStat(), clock=clock) as store:
        await fill(await open_orders(store, HOURLY), [-1, -1])
        clock.now_ms += 2 * HOUR_MS
        await trio.sleep(CHECK_S + 1)
        await store.close()
        operations = len(filesystem.operations)
        await trio.sleep(2 * CHECK_S)
        assert len(filesystem.operations) == operations


async def test_moving_no_log_start_does_not_wait_for_a_checkpoint() -> None:
    async with running(SimulatedFileSystem()) as store:
        [log_dir] = store._dirs
        async with log_dir.commit_log.between_checkpoints():
            await log_starts.move_log_starts(log_dir, [])
