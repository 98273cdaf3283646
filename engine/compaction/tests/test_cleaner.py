"""Logs that are compacted while they are in use."""

import dataclasses
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
import trio

from engine.api import Isolation, OffsetSpec, PartitionLog
from engine.batches.batch import Codec, parse_header
from engine.compaction.cleaner import Cleaner
from engine.compaction.cleaning_pass import CleanerOptions
from engine.log_config import CleanupPolicy, LogConfig
from engine.options import StoreOptions
from engine.partitions.partition import Partition
from engine.stats import CleanerStats
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import (
    NOW_MS,
    ORDERS,
    bytes_of,
    keyed_batch,
    offsets_for_key,
    open_orders,
    options,
    read,
    records_in,
    running,
)
from testkit.wrong_timestamps import stored_as_sent, with_max_timestamp

T = TypeVar("T")

BACKOFF_S = 15
COMPACT = LogConfig(
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    segment_size_bytes=400,
    file_delete_delay_ms=1000,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=60_000,
)
DIRECTORY = "/data/orders-0"
EVERYTHING = Isolation.READ_UNCOMMITTED
Values = dict[int, tuple[bytes | None, bytes | None]]


def files(filesystem: SimulatedFileSystem, suffix: str = ".log") -> list[str]:
    return [name for name in filesystem.list_dir(DIRECTORY) if name.endswith(suffix)]


async def send(log: PartitionLog, *records: tuple[bytes | None, bytes | None]) -> int:
    return (await log.append(memoryview(keyed_batch(*records)), acks=-1).wait()).base_offset


async def fill(log: PartitionLog, count: int = 40, keys: int = 4) -> Values:
    """Append records; returns the newest of each key, which compaction has to leave."""
    sent: Values = {}
    for number in range(count):
        key, value = b"key %d" % (number % keys), b"value %d" % number
        sent[await send(log, (key, value))] = key, value
    return newest(sent)


def newest(sent: Values) -> Values:
    last = {key: offset for offset, (key, _) in sent.items()}
    return {offset: sent[offset] for offset in sorted(last.values())}


async def values_in(log: PartitionLog) -> Values:
    return {offset: (one.key, one.value) for offset, one in (await records_in(log)).items()}


async def until_compacted(log: PartitionLog) -> Partition:
    assert isinstance(log, Partition)
    await trio.sleep(BACKOFF_S + 1)
    assert log.log.clean_to == log.log.active.base_offset
    return log


def log_of(log: PartitionLog) -> Partition:
    assert isinstance(log, Partition)
    return log


async def test_the_newest_of_each_key_and_the_active_segment_stay() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        expected = await fill(log)
        before = files(filesystem)
        partition = await until_compacted(log)
        active = partition.log.active.base_offset
        values = await values_in(log)
        assert expected.items() <= values.items()
        assert len({key for offset, (key, _) in values.items() if offset < active}) == 4
        assert len([offset for offset in values if offset < active]) == 4
        assert files(filesystem)[-1] == before[-1]
        assert (log.log_start_offset, log.log_end_offset) == (0, 40)
        assert len(files(filesystem, ".deleted")) == len([base for base in before if base < before[-2]])
        await trio.sleep(3)
        assert files(filesystem, ".deleted") == []


async def test_a_reader_in_flight_and_one_in_a_gap() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        held = await read(log, 3)
        content = bytes_of(held.records)
        await until_compacted(log)
        assert bytes_of(held.records) == content, "it has what it was given"
        values = await values_in(log)
        for offset in range(40):
            filesystem.drop_cache()
            found = bytes_of((await read(log, offset, 1)).records)
            header = parse_header(found)
            assert header.next_offset > offset
            following = min(one for one in values if one >= offset)
            assert following < header.next_offset or header.record_count == 0 or following >= offset


async def test_later_records_are_compacted_together_with_the_clean_part() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        await until_compacted(log)
        await send(log, (b"key 1", b"last"))
        await fill(log, keys=1)
        partition = await until_compacted(log)
        values = await values_in(log)
        below = {key: value for offset, (key, value) in values.items() if offset < partition.log.active.base_offset}
        assert (below[b"key 1"], below[b"key 2"]) == (b"last", b"value 38")


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_restart_finds_the_same(is_clean: bool) -> None:
    filesystem = SimulatedFileSystem()
    problems: list[str] = []
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        await until_compacted(log)
        before = await values_in(log)
        ends = [log.end_offset_for_epoch(epoch) for epoch in range(3)]
        if is_clean:
            await store.close()
    if not is_clean:
        filesystem.crash()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, COMPACT, leader_epoch=1)
        assert await values_in(log) == before
        assert [log.end_offset_for_epoch(0)] == ends[:1]
        assert 0 < log_of(log).log.compacted_to <= log_of(log).log.clean_to
        assert log_of(log).log.damaged_from is None
    assert problems == []


async def test_epochs_of_which_nothing_is_left_are_known_after_a_restart() -> None:
    filesystem = SimulatedFileSystem()
    ends = []
    for epoch in range(4):
        async with running(filesystem) as store:
            log = await open_orders(store, COMPACT, leader_epoch=epoch)
            await fill(log, count=7)
            ends.append(log.log_end_offset)
            if epoch == 3:
                await fill(log, count=20)
                await until_compacted(log)
            await store.close()
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT, leader_epoch=4)
        assert [log.end_offset_for_epoch(epoch).end_offset for epoch in range(3)] == ends[:3]


async def test_times_and_keys_are_found_as_by_a_scan() -> None:
    config = dataclasses.replace(COMPACT, index_keys=True)
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for number in range(60):
            batch = keyed_batch((b"key %d" % (number % 7), b"v"), timestamps_ms=[NOW_MS + number * 37 % 50])
            await log.append(memoryview(batch), acks=-1).wait()
        for _ in range(2):
            await check_answers(log)
            await until_compacted(log)
        await trio.sleep(1)
        await check_answers(log)
        assert await store._dirs[0].index.keys_to(store._dirs[0].partitions[ORDERS]._state.reader.index_key) == (  # type: ignore[attr-defined]
            log_of(log).log.active.base_offset
        )


async def check_answers(log: PartitionLog) -> None:
    records = await records_in(log)
    for time_ms in range(NOW_MS - 1, NOW_MS + 51):
        found = await log.offset_for_timestamp(time_ms, EVERYTHING)
        assert found.offset == next((offset for offset, one in records.items() if one.timestamp_ms >= time_ms), -1)
    greatest_ms = max(one.timestamp_ms for one in records.values())
    assert (await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, EVERYTHING)).timestamp_ms == greatest_ms
    for number in range(8):
        key = b"key %d" % number
        assert await offsets_for_key(log, key) == [offset for offset, one in records.items() if one.key == key]


async def test_tombstones_go_after_their_retention() -> None:
    def now_ms() -> int:
        return NOW_MS + int(trio.current_time() * 1000)

    async with running(SimulatedFileSystem(), clock=now_ms) as store:
        log = await open_orders(store, COMPACT)
        await send(log, (b"gone", b"value"))
        tombstone = await send(log, (b"gone", None))
        await fill(log, count=20)
        await until_compacted(log)
        assert (await values_in(log))[tombstone] == (b"gone", None)
        assert 0 not in await values_in(log)
        await trio.sleep(30)
        await fill(log, count=20)
        await until_compacted(log)
        assert tombstone in await values_in(log), "its time has not come"
        await trio.sleep(30)
        await fill(log, count=20)
        await until_compacted(log)
        assert tombstone not in await values_in(log)


async def test_producer_state_is_recovered_from_the_remaining_batches_without_a_snapshot() -> None:
    """The state comes from the remaining batches alone, without a snapshot."""
    filesystem = SimulatedFileSystem()

    def numbered(sequence: int) -> memoryview:
        return memoryview(keyed_batch((b"a", b"%d" % sequence), producer=(7, 0, sequence)))

    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        for sequence in range(3):
            await log.append(numbered(sequence), acks=-1).wait()
        await fill(log)
        await send(log, (b"a", b"newer"))
        await fill(log)
        await until_compacted(log)
    for name in files(filesystem, ".snapshot"):
        filesystem.unlink(f"{DIRECTORY}/{name}")
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT, leader_epoch=1)
        assert (await log.append(numbered(2), acks=-1).wait()).base_offset == 2, "a duplicate"
        assert (await log.append(numbered(3), acks=-1).wait()).base_offset == 84


async def test_as_many_passes_as_there_is_room_for_keys() -> None:
    tiny = dataclasses.replace(options(), cleaner=CleanerOptions(dedupe_buffer_size_bytes=160 * 10, threads=2))
    async with running(SimulatedFileSystem(), tiny) as store:
        log = await open_orders(store, COMPACT)
        expected = await fill(log, count=100, keys=30)
        for _ in range(20):
            await trio.sleep(BACKOFF_S)
        partition = await until_compacted(log)
        below = [offset for offset in await values_in(log) if offset < partition.log.active.base_offset]
        values = await values_in(log)
        assert expected.items() <= values.items()
        assert len({values[offset][0] for offset in below}) == len(below)


async def test_compressed_batches_larger_than_the_buffer() -> None:
    small = dataclasses.replace(options(), cleaner=CleanerOptions(io_buffer_size_bytes=64))
    filesystem = SimulatedFileSystem()
    async with running(filesystem, small) as store:
        log = await open_orders(store, dataclasses.replace(COMPACT, segment_size_bytes=5000))
        for number in range(9):
            records = [(b"%d" % (each % 20), b"%d" % number * 50) for each in range(30)]
            await log.append(memoryview(keyed_batch(*records, codec=Codec.LZ4)), acks=-1).wait()
        await log.append(memoryview(keyed_batch((b"x", bytes(4900)))), acks=-1).wait()
        await until_compacted(log)
        assert sorted(await values_in(log)) == [*range(250, 270), 270]


async def test_the_rate_is_kept() -> None:
    slow = dataclasses.replace(options(), cleaner=CleanerOptions(io_max_bytes_per_s=100.0, io_buffer_size_bytes=100))
    async with running(SimulatedFileSystem(), slow) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        size_bytes = sum(one.size_bytes for one in log_of(log).log.segments[:-1])
        await trio.sleep(BACKOFF_S + 2 * size_bytes / 100 - 1)
        assert not log_of(log).log.clean_to, "it is read twice, and something is written"
        await trio.sleep(size_bytes / 100)
        assert log_of(log).log.clean_to


@pytest.mark.parametrize(
    ("config", "cleaner"),
    [
        (dataclasses.replace(COMPACT, cleanup_policy=frozenset({CleanupPolicy.DELETE})), CleanerOptions()),
        (dataclasses.replace(COMPACT, cleanup_policy=frozenset()), CleanerOptions()),
        (COMPACT, CleanerOptions(threads=0)),
        (dataclasses.replace(COMPACT, min_compaction_lag_ms=1000), CleanerOptions()),
        (dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=1.0), CleanerOptions()),
    ],
)
async def test_logs_that_are_not_to_be_compacted(config: LogConfig, cleaner: CleanerOptions) -> None:
    async with running(SimulatedFileSystem(), dataclasses.replace(options(), cleaner=cleaner)) as store:
        log = await open_orders(store, config)
        await fill(log)
        await trio.sleep(10 * BACKOFF_S)
        assert len(await values_in(log)) == 40


async def test_segments_of_version_0_1_are_as_young_as_their_records() -> None:
    """Their headers have no timestamp: min.compaction.lag.ms counts from the records."""
    config = dataclasses.replace(COMPACT, min_compaction_lag_ms=1000)
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        with stored_as_sent():
            for number in range(40):
                sent = keyed_batch((b"key", b"value %d" % number), timestamps_ms=[NOW_MS - 1001 + 100 * (number // 20)])
                await log.append(with_max_timestamp(sent), acks=-1).wait()
        await trio.sleep(BACKOFF_S + 1)
        partition = log_of(log)
        assert 0 < partition.log.clean_to <= 20, "as far as the old records go"
        assert len([offset for offset in await values_in(log) if offset >= 20]) == 20


async def test_cleaner_stats_count_passes_bytes_and_the_dirtiest_ratio() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        stats = store.stats.cleaner
        log = await open_orders(store, COMPACT)
        await fill(log)
        await trio.sleep(0.1)
        segments = log_of(log).log.segments[:-1]
        before_bytes = sum(one.size_bytes for one in segments)
        await until_compacted(log)
        after_bytes = sum(one.size_bytes for one in log_of(log).log.segments[:-1])
        assert (stats.passes, stats.read_bytes, stats.written_bytes) == (1, before_bytes, after_bytes)
        assert (stats.last.read_bytes, stats.last.written_bytes) == (before_bytes, after_bytes)
        assert 0 < stats.last.buffer_ratio < 1e-4
        assert stats.dirtiest_ratio == 0, "it has looked again"
        assert stats.looked_at_s is not None
        await fill(log, 12)
        await store.open_partition(ORDERS, dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=1.0), 0)
        await trio.sleep(BACKOFF_S)
        assert 0 < stats.dirtiest_ratio < 1
        assert stats.passes == 1
        assert stats.given_up == {"/data": 0}


async def test_segments_that_end_up_unchanged_stay() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, dataclasses.replace(COMPACT, segment_size_bytes=100))
        for number in range(5):
            await send(log, (b"%d" % number, b"v" * 20))
        before = files(filesystem)
        await until_compacted(log)
        assert files(filesystem) == before
        assert log_of(log).log.compacted_to == 0
        assert files(filesystem, ".cleaned") == []


async def rotten(store: SegmentStore, filesystem: SimulatedFileSystem) -> PartitionLog:
    """A log in which the cleaner has met damage."""
    log = await open_orders(store, COMPACT)
    await fill(log)
    filesystem.damage(f"{DIRECTORY}/{files(filesystem)[1]}", 65, b"\xff")
    await trio.sleep(5 * BACKOFF_S)
    return log


async def test_damage_ends_the_compaction_of_a_log_and_is_logged() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await rotten(store, filesystem)
        [problem] = problems
        assert "is not compacted any more" in problem
        assert store.stats.cleaner.given_up == {"/data": 1}
        assert store.stats.cleaner.passes == 0
        assert log_of(log).log.compacted_to == 0
        assert files(filesystem, ".cleaned") == []


async def test_a_damaged_log_is_compacted_again_after_its_reset() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await rotten(store, filesystem)
        assert store.stats.cleaner.given_up == {"/data": 1}
        await store.reset_partition(ORDERS, 0)
        await fill(log)
        await until_compacted(log)
        assert store.stats.cleaner.given_up == {"/data": 0}
        assert len(problems) == 1


async def test_the_cleaner_waits_while_the_disk_is_full() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        filesystem.capacity_bytes = 1
        await trio.sleep(5 * BACKOFF_S)
        [problem] = [one for one in problems if "compacted" in one]
        assert "space left" in problem
        filesystem.capacity_bytes = 1 << 60
        await until_compacted(log)


async def test_a_full_disk_costs_nothing_but_the_pass() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        expected = await fill(log)
        filesystem.faults.append(Fault("write", errno.ENOSPC, ".cleaned"))
        await trio.sleep(BACKOFF_S + 1)
        assert log_of(log).log.compacted_to == 0
        assert files(filesystem, ".cleaned") == []
        await until_compacted(log)
        assert expected.items() <= (await values_in(log)).items()


@pytest.mark.parametrize("slices", range(0, 6, 2))
async def test_a_pass_does_not_touch_a_partition_deleted_and_created_again_meanwhile(slices: int) -> None:
    """The partition is deleted and created again during a pass: the new log is not touched."""
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, slow_options(), problems=problems) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        await trio.sleep(BACKOFF_S + 0.5 + slices)
        await store.delete_partition(ORDERS)
        log = await open_orders(store, COMPACT, leader_epoch=1)
        expected = await fill(log, count=9)
        await trio.sleep(60)
        assert expected.items() <= (await values_in(log)).items()
        assert files(filesystem, ".cleaned") == []
    assert problems == []


def slow_options() -> StoreOptions:
    """Options with which a pass takes some ten seconds."""
    return dataclasses.replace(options(), cleaner=CleanerOptions(io_max_bytes_per_s=800.0, io_buffer_size_bytes=100))


@pytest.mark.parametrize("seconds", range(0, 8, 2))
async def test_records_deleted_meanwhile_stay_deleted(seconds: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, slow_options(), problems=problems) as store:
        log = await open_orders(store, COMPACT)
        expected = await fill(log)
        await trio.sleep(BACKOFF_S + 0.5 + seconds)
        await log.delete_records(17)
        await trio.sleep(60)
        values = await values_in(log)
        assert min(values) >= 17
        assert expected.items() <= values.items()
        assert log_of(log).log.clean_to == log_of(log).log.active.base_offset
    assert problems == []


@pytest.mark.parametrize("seconds", range(0, 8, 2))
async def test_a_log_truncated_meanwhile(seconds: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, slow_options(), problems=problems) as store:
        log = await open_orders(store, COMPACT)
        await fill(log, count=20)
        await trio.sleep(BACKOFF_S + 0.5 + seconds)
        end = await store.truncate_partition(ORDERS, 11, below_sealed=True)
        assert end <= 11
        expected = await fill(log)
        await trio.sleep(60)
        assert expected.items() <= (await values_in(log)).items()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, COMPACT, leader_epoch=1)
        assert expected.items() <= (await values_in(log)).items()
    assert problems == []


async def test_reads_go_on_while_segments_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No damage is reported because a file name belongs to another segment for a moment."""
    filesystem, problems = SimulatedFileSystem(), list[str]()
    few_files = dataclasses.replace(slow_options(), open_files_max=1, loaded_indexes_max=1, reader_workers=3)
    async with running(filesystem, few_files, problems=problems) as store:
        log = await open_orders(store, COMPACT)
        await fill(log, count=60)
        last = newest(await values_in(log))
        log_dir = log_of(log).log_dir
        monkeypatch.setattr(log_dir.disk, "run", partial(_late, run=log_dir.disk.run))
        with trio.move_on_after(60):
            while True:
                filesystem.drop_cache()
                found = await log.offset_for_timestamp(NOW_MS, EVERYTHING)
                assert found.offset == min(await records_in(log)) or found.offset in range(60)
                assert last.items() <= (await values_in(log)).items()
                await trio.sleep(0.01)
        assert log_of(log).log.compacted_to
    assert problems == []


async def _late(job: Callable[[], T], *, run: Callable[[Callable[[], T]], Awaitable[T]]) -> T:
    await trio.sleep(0.003)
    result = await run(job)
    await trio.sleep(0.003)
    return result


async def test_produce_is_not_held_up() -> None:
    """Commit batches go on while the pass uses its workers."""
    async with running(SimulatedFileSystem(), slow_options()) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        await trio.sleep(BACKOFF_S + 0.5)
        for _ in range(50):
            started_s = trio.current_time()
            await send(log, (b"key", b"value"))
            assert trio.current_time() == started_s
            await trio.sleep(0.1)


@pytest.mark.parametrize("appends", [0, 1])
async def test_the_cleaner_rests_between_slices_only_while_appends_arrive(appends: int) -> None:
    commit_batches = 0
    cleaner = Cleaner(CleanerOptions(), list, lambda: commit_batches, lambda: NOW_MS, pytest.fail, CleanerStats())
    for _ in range(3):
        commit_batches += appends
        before_s = trio.current_time()
        await cleaner._paced(1000, 2.0)
        assert trio.current_time() - before_s == 2.0 * appends
