"""Moves of the local start during other events: a broken index, a roll, a repair, a reset, a full disk."""

import errno
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
import trio

from engine.api import TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.commit.commit_log import CommitLog
from engine.errors import CorruptMessage, OffsetOutOfRange, StorageError
from engine.files.io_workers import LoopPool
from engine.index import stored_index
from engine.log_config import CleanupPolicy, LogConfig
from engine.log_dirs.local_starts import move_local_start, note_tiered
from engine.log_dirs.log_starts import roll
from engine.logs.producers.snapshot import snapshot_offsets
from engine.logs.recovery.checkpoints import PartitionKey
from engine.logs.segments.segment import segment_name
from engine.offline.repair import repair
from engine.partitions.partition import Partition
from engine.reading.reader import LogReader
from engine.testing.simulated_disk import Fault
from engine.upkeep.retention_task import DROPPED_TOGETHER_MAX, RetentionOptions, RetentionTask
from testkit.cold_logs import COUNT, DIRECTORY, ROLLING, Broker, everything_of, lived
from testkit.logs import NOW_MS, ORDERS, append, open_orders, read, read_all, running

T = TypeVar("T")

OTHERS = TopicIdPartition(bytes(range(1, 17)), "others", 0)
FIRST_READER = 4  # of the workers of a log dir


class ReadersOnThreads(LoopPool):
    """A pool that runs jobs other than those of commit batches on a thread, while it `is_threaded`."""

    is_threaded = False

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        if self.is_threaded and worker >= FIRST_READER:
            return await trio.to_thread.run_sync(job)
        return await super().run(worker, job)


async def test_a_roll_and_a_move_write_snapshots_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _ = await lived()
    pool, filesystem = ReadersOnThreads(), broker.filesystem
    has_begun, may_go_on, loop = threading.Event(), threading.Event(), threading.current_thread()
    rename = filesystem.rename

    def held(old: str, new: str) -> None:
        if new.endswith(".snapshot") and threading.current_thread() is not loop:
            has_begun.set()
            may_go_on.wait(10)
        rename(old, new)

    async with running(filesystem, problems=broker.problems, tier=broker.tier, pool=pool) as store:
        opened = await open_orders(store, ROLLING, broker.epoch)
        assert isinstance(opened, Partition)
        broker.log, log = opened, opened
        broker.tier.upload(filesystem, log)
        offset, segments = log.log.segments[2].base_offset, len(log.log.segments)
        monkeypatch.setattr(filesystem, "rename", held)
        pool.is_threaded = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move_local_start, log.log_dir, log, offset)
            while not has_begun.is_set():
                await trio.lowlevel.checkpoint()
            count = COUNT
            while len(log.log.segments) == segments and log.log_dir.disk.offline_reason is None:
                await broker.fill(1, count)
                count += 1
            may_go_on.set()
        pool.is_threaded = False
        assert log.log_dir.disk.offline_reason is None
        assert log.log.local_start_offset == offset
        assert {offset, log.log.active.base_offset} <= set(snapshot_offsets(filesystem, DIRECTORY))


# The index


async def check_known(broker: Broker) -> None:
    async with broker.life() as log:
        assert min(await read_all(log)) == 0


async def test_an_index_replaced_after_it_was_secured_gets_cold_segments_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.drop(1)
        checkpoint = CommitLog.checkpoint_local_starts

        async def replaced(commit_log: CommitLog, offsets: Mapping[PartitionKey, int]) -> None:
            await log.log_dir.index.distrust("an entry was wrong")
            await checkpoint(commit_log, offsets)

        monkeypatch.setattr(CommitLog, "checkpoint_local_starts", replaced)
        await broker.drop(2)
        monkeypatch.undo()
        await broker.fill(8, COUNT)
    await check_known(broker)


async def test_an_index_that_breaks_while_it_is_secured_gets_the_cold_segments_again() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        broker.tier.upload(broker.filesystem, log)
        await trio.sleep(3)
        broker.filesystem.faults.append(Fault("write", errno.ENOSPC, "index/batches"))
        await move_local_start(log.log_dir, log, log.log.segments[3].base_offset)
        assert broker.problems
        await broker.fill(8, COUNT)
    await check_known(broker)


async def test_an_index_that_always_breaks_keeps_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        broker.tier.upload(broker.filesystem, log)
        index = log.log_dir.index
        write = type(index).write_pending

        async def breaks(one: stored_index.StoredIndex, *, sync: bool = False) -> None:
            await write(one, sync=sync)
            await one.distrust("wrong")

        monkeypatch.setattr(stored_index.StoredIndex, "write_pending", breaks)
        with pytest.raises(StorageError, match="again and again"):
            await move_local_start(log.log_dir, log, log.log.segments[3].base_offset)
        monkeypatch.undo()
        assert broker.files()[0] == 0


async def test_more_than_may_be_pending_is_no_reason_to_leave_a_summary_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        broker.tier.upload(broker.filesystem, log)
        index = log.log_dir.index
        await index.distrust("wrong")
        monkeypatch.setattr(stored_index, "PENDING_MAX", 10)
        index._pending += [(b"zzz%d" % number, b"") for number in range(20)]
        await move_local_start(log.log_dir, log, log.log.segments[3].base_offset)
    await check_known(broker)


async def test_a_new_index_gets_the_cold_segments_behind_an_empty_active_segment() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.drop(3)
        assert await roll(log.log_dir, log, COUNT)
        await log.log_dir.index.distrust("wrong")
    await check_known(broker)


async def test_a_new_index_gets_the_cold_segments_without_an_append() -> None:
    broker, _ = await lived()
    async with broker.life(is_clean=False) as log:
        await broker.drop(3)
        await log.log_dir.index.distrust("wrong")
        await trio.sleep(60)
    await check_known(broker)


async def test_summaries_learned_from_the_tier_are_stored_in_the_index() -> None:
    broker, _ = await lived()
    async with broker.life():
        await broker.drop(3)
    broker.lose_index()
    async with broker.life() as log:
        assert log.log.know_cold(broker.tier.summaries_of(ORDERS))
        await broker.fill(8, COUNT)
    await check_known(broker)


async def test_the_key_index_goes_on_when_the_segment_it_reads_becomes_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        index, reader = log.log_dir.index, log._state.reader
        await index.distrust("nothing is covered")
        run, dropped = LogReader.run, trio.Event()

        async def disturbed(one: LogReader, *given: object) -> object:
            found = await run(one, *given)  # type: ignore[arg-type, func-returns-value]
            if "collect_keys" in repr(given) and not dropped.is_set():
                dropped.set()
                await broker.drop(2)
            return found

        monkeypatch.setattr(LogReader, "run", disturbed)
        log._state.index_keys()
        await trio.sleep(10)
        assert dropped.is_set()
        covered_to = await index.keys_to(reader.index_key)
        assert covered_to is not None
        assert covered_to >= log.log.active.base_offset


# Others that change a log


async def test_a_reset_forgets_cold_segments_and_closes_their_files() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.drop(3)
        cold = list(log.log.cold.segments)
        await read_all(log)
        await log.delete_records(cold[1].base_offset)
        await broker.store.reset_partition(ORDERS, 2)
        assert not any(one.file for one in cold)
        broker.tier.segments.clear()
        broker.tier.summaries.clear()
        for _ in range(20):
            await append(log, b"v" * 60)
        await broker.drop(2)
        values = await read_all(log)
    async with broker.life() as log:
        assert await read_all(log) == values


async def test_a_log_rewritten_by_compaction_counts_as_not_tiered() -> None:
    policy = frozenset({CleanupPolicy.COMPACT})
    broker = Broker(replace(ROLLING, cleanup_policy=policy, min_cleanable_dirty_ratio=0.01))
    async with broker.life() as log:
        await broker.fill()
        broker.tier.upload(broker.filesystem, log)
        await trio.sleep(100)
        values = await read_all(log)
        assert log.log.compacted_to > 0
        assert log.log.tiered_to == 0
        with pytest.raises(OffsetOutOfRange):
            await move_local_start(log.log_dir, log, log.log.active.base_offset)
        assert await read_all(log) == values


async def test_files_of_many_logs_go_with_few_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each checkpoint covers all partitions: one for each log would cost the square of their number."""
    broker = Broker(replace(ROLLING, remote_storage=True, local_retention_size_bytes=0))
    counts: list[int] = []
    checkpoint = CommitLog.checkpoint_local_starts

    async def counted(commit_log: CommitLog, offsets: Mapping[PartitionKey, int]) -> None:
        counts.append(len(offsets))
        await checkpoint(commit_log, offsets)

    monkeypatch.setattr(CommitLog, "checkpoint_local_starts", counted)
    async with broker.life() as first:
        logs = [first]
        for number in range(1, 20):
            place = TopicIdPartition(ORDERS.topic_id, "orders", number)
            opened = await broker.store.open_partition(place, broker.config, 0)
            assert isinstance(opened, Partition)
            logs.append(opened)
        for log in logs:
            for _ in range(8):
                await append(log, b"v" * 60)
            broker.tier.upload(broker.filesystem, log)
        values = [await read_all(log) for log in logs]
        logs[3].log.tiered_to = 0
        await RetentionTask(first.log_dir, RetentionOptions(), lambda: NOW_MS).check()
        assert counts == [DROPPED_TOGETHER_MAX, 19 - DROPPED_TOGETHER_MAX]
        assert [number for number, log in enumerate(logs) if not log.log.has_cold] == [3]
        assert [await read_all(log) for log in logs] == values


async def test_offsets_in_the_active_segment_cannot_be_noted_as_tiered() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        with pytest.raises(OffsetOutOfRange):
            note_tiered(log.log_dir, log, log.log.active.base_offset + 1)
        note_tiered(log.log_dir, log, log.log.active.base_offset)


async def test_a_log_that_was_deleted_meanwhile_is_in_no_tier() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.store.delete_partition(ORDERS)
        with pytest.raises(StorageError):
            note_tiered(log.log_dir, log, 0)


async def test_with_all_files_lost_the_tier_is_served_and_repair_goes_on_behind_it() -> None:
    broker, _ = await lived()
    async with broker.life():
        offset = await broker.drop(3)
    for base in broker.files():
        broker.filesystem.unlink(f"{DIRECTORY}/{segment_name(base)}")
    async with broker.life(is_clean=False) as log:
        assert log.log.damaged_from == offset
        await read(log, 0)
        with pytest.raises(CorruptMessage):
            await read(log, offset)
    assert repair(broker.filesystem, "/data", accept_loss=True).unrepaired == []
    async with broker.life() as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, offset)
        assert max(await read_all(log)) == offset - 1
        await broker.fill(2, offset)
    await check_known(broker)


# A full disk


async def make_room(broker: Broker, wanted_bytes: int) -> None:
    filesystem, log_dir = broker.filesystem, broker.log.log_dir
    used_bytes = filesystem.usage("/data").used_bytes
    filesystem.capacity_bytes = used_bytes
    options = RetentionOptions(disk_max_used_ratio=1 - wanted_bytes / used_bytes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RetentionTask(log_dir, options, lambda: NOW_MS).watch_space)
        await trio.sleep(120)  # files set aside before are deleted first
        nursery.cancel_scope.cancel()


async def filled_other(broker: Broker) -> Partition:
    """Another partition, whose segments are younger."""
    other = await broker.store.open_partition(OTHERS, LogConfig(segment_size_bytes=400), 0)
    for _ in range(40):
        later = Record(b"k", b"v" * 60, NOW_MS + 1_000_000)
        await other.append(memoryview(build_batch([later])), acks=-1).wait()
    return other


async def test_a_log_whose_files_must_stay_does_not_stop_other_logs_from_freeing_space() -> None:
    broker, _ = await lived()
    async with broker.life():
        offset = await broker.drop(-2)
        broker.rot_snapshots()
        other = await filled_other(broker)
        segments = len(other.log.segments)
        await make_room(broker, 300)
        assert len(other.log.segments) < segments
        assert broker.files()[0] == offset
        assert sum("files stay" in one for one in broker.problems) == 1
        assert any("removed before their time" in one for one in broker.problems)


async def test_files_that_the_tier_has_go_first_if_they_are_older() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        full = await everything_of(log)
        other = await filled_other(broker)
        broker.tier.upload(broker.filesystem, log)
        segments = len(other.log.segments)
        await make_room(broker, 300)
        assert len(other.log.segments) == segments
        assert log.log.local_start_offset > 0
        assert await everything_of(log) == full
        assert any("left to the remote tier before their time" in one for one in broker.problems)
