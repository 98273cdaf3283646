"""A disk that fails, or hangs: reports of the failure, and no effect on other disks."""

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
import trio

from engine.api import PartitionLog, TopicIdPartition
from engine.commit.backpressure import HANGS_AFTER_S, AppendRoom, QueueBudget
from engine.commit.flusher import SLICE_FILES
from engine.errors import Overloaded, StorageError
from engine.files.disk import Disk, DiskWorkers
from engine.files.filesystem import File
from engine.log_config import FlushPolicy, LogConfig
from engine.log_dirs.changes import Changes
from engine.logs.segments.segment import segment_name
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem, SimulatedPool
from testkit.logs import NO_JOURNAL, ORDERS, HeldWorkers, SlowSyncs, append, batch, open_orders, options, running

LOG_FILE = f"/data/orders-0/{segment_name(0)}"
FIRST, SECOND = DiskWorkers.of(0, 1), DiskWorkers.of(1, 1)


def disk_on(filesystem: SimulatedFileSystem, pool: SimulatedPool, offline: list[OSError]) -> Disk:
    return Disk("/data", filesystem, pool, FIRST, offline.append)


async def test_a_file_is_synced_by_one_at_a_time() -> None:
    """Otherwise the second sync of a descriptor gets no error of the write that the first one lost (errseq_t)."""
    filesystem, pool, offline = SimulatedFileSystem(), SlowSyncs(is_slow=True), list[OSError]()
    disk = disk_on(filesystem, pool, offline)
    one, other = (filesystem.open(name, create=True) for name in ("/one", "/other"))
    one.write_at([b"x"], 0)
    filesystem.faults.append(Fault("fdatasync", errno.EIO, "/one"))
    ended = list[str]()

    async def sync(name: str, files: Sequence[File]) -> None:
        try:
            await disk.sync_commit_batch(files)
        except StorageError:
            name += " refused"
        ended.append(name)

    async with trio.open_nursery() as nursery:
        for name, files in (("first", [one]), ("second", [one, other]), ("third", [other])):
            nursery.start_soon(sync, name, files)
            await trio.testing.wait_all_tasks_blocked()
        assert [started.files for started in pool.started] == [[one], [other]]
        pool.started[1].report()
        await trio.testing.wait_all_tasks_blocked()
        pool.started[0].report()
    assert ended == ["third", "first refused", "second refused"]
    assert len(offline) == 1


async def test_an_append_is_refused_if_the_flusher_got_the_error_of_its_sync() -> None:
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    settings = options(journal_slot_size_bytes=NO_JOURNAL)
    async with running(filesystem, settings, pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        await append(log, b"durable")
        pool.is_slow = True
        filesystem.faults.append(Fault("fdatasync", errno.EIO, LOG_FILE, skip=1))
        log.log._flushed = log.log._flushed._replace(offset=0)  # as of an async topic that was made a sync one

        async def flush() -> None:
            with suppress(StorageError):
                await log.log_dir.commit_log.flusher.flush([log.log])

        nursery.start_soon(flush)
        await trio.testing.wait_all_tasks_blocked()
        pending = log.append(memoryview(batch(b"lost")), acks=1)
        await trio.testing.wait_all_tasks_blocked()
        for started in list(pool.started):
            started.end()
        for started in reversed(
            list(pool.started)
        ):  # they end in one turn of the loop; the order of their tasks is random
            started.report()
            await trio.testing.wait_all_tasks_blocked()
        for started in pool.started[1:]:
            started.report()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(pending.outcome, StorageError)


async def test_a_roll_does_not_sync_a_segment_that_is_being_synced() -> None:
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    config = LogConfig(segment_size_bytes=len(batch(b"x")), flush_policy=FlushPolicy.ASYNC)
    async with running(filesystem, pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store, config)
        assert isinstance(log, Partition)
        await append(log, b"a")
        pool.is_slow = True
        nursery.start_soon(log.log_dir.commit_log.flusher.flush, [log.log])
        await trio.testing.wait_all_tasks_blocked()
        pending = log.append(memoryview(batch(b"b")), acks=1)
        await trio.testing.wait_all_tasks_blocked()
        assert not pending.is_settled
        pool.is_slow = False
        pool.started[0].report()
        assert (await pending.wait()).base_offset == 1


async def test_a_commit_batch_waits_for_no_more_than_a_slice_of_a_flush() -> None:
    """A checkpoint flushes every log that is durable in the journal only."""
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    settings = options(journal_slot_size_bytes=NO_JOURNAL)
    async with running(filesystem, settings, pool=pool) as store, trio.open_nursery() as nursery:
        config, logs = LogConfig(flush_policy=FlushPolicy.ASYNC), list[Partition]()
        for number in range(2 * SLICE_FILES + 1):
            logs.append(await store.open_partition(TopicIdPartition(bytes(16), "payments", number), config, 0))
            await append(logs[-1], b"written, not synced")
        last = logs[-1]
        await store.open_partition(last.partition, LogConfig(), 1)  # its appends are synced from now on
        pool.is_slow = True
        nursery.start_soon(last.log_dir.commit_log.flusher.flush, [one.log for one in logs])
        await trio.testing.wait_all_tasks_blocked()
        assert [len(started.files) for started in pool.started] == [SLICE_FILES]
        pending = last.append(memoryview(batch(b"urgent")), acks=1)
        await trio.testing.wait_all_tasks_blocked()
        pool.started[1].report()
        await trio.testing.wait_all_tasks_blocked()
        assert pending.is_settled
        pool.is_slow = False
        pool.started[0].report()
    assert all(one.log.flushed_offset == one.log_end_offset for one in logs)


def on(log_dir: str, store: SegmentStore, partition: int) -> TopicIdPartition:
    """A new partition, which goes to `log_dir`: the one with the fewest partitions, the first of equals."""
    assert store._dirs[partition % 2].disk.path == log_dir
    return TopicIdPartition(bytes(16), "payments", partition)


async def two_logs(store: SegmentStore) -> tuple[PartitionLog, PartitionLog]:
    first = await store.open_partition(on("/a", store, 0), LogConfig(), 0)
    second = await store.open_partition(on("/b", store, 1), LogConfig(), 0)
    return first, second


def room_of(store: SegmentStore) -> bool:
    return store.has_room


async def test_a_disk_that_hangs_keeps_another_ones_partitions_from_nothing() -> None:
    pool = HeldWorkers()
    settings = options("/a", "/b", queue_max_bytes=1000)
    async with running(SimulatedFileSystem(), settings, pool=pool) as store:
        first, second = await two_logs(store)
        pool.held |= {FIRST.commits, FIRST.index, FIRST.scans, *FIRST.readers}
        with suppress(Overloaded):
            for _ in range(1000):
                first.append(memoryview(batch(b"x" * 50)), acks=1)
        assert room_of(store) is False, "as long as it may be only slow"
        await trio.sleep(HANGS_AFTER_S + 0.1)
        assert room_of(store) is True
        await store.wait_for_room()
        assert (await append(second, b"x")).base_offset == 0
        await store.delete_partition(second.partition)
        again = await store.open_partition(second.partition, LogConfig(), 1)
        assert (await append(again, b"y")).base_offset == 0
        pool.release()


async def test_log_dirs_are_recovered_in_parallel_and_other_work_does_not_wait_for_a_scan() -> None:
    filesystem, pool = SimulatedFileSystem(), HeldWorkers()
    settings = options("/a", "/b")
    async with running(filesystem, settings) as store:
        for log in await two_logs(store):
            await append(log, b"x")
        await open_orders(store)
    async with running(filesystem, settings, pool=pool) as store:
        pool.held |= {FIRST.scans, SECOND.scans}
        third = TopicIdPartition(bytes(16), "invoices", 0)
        await store.open_partition(third, LogConfig(), 0)
        async with trio.open_nursery() as nursery:
            for number in (0, 1):
                known = TopicIdPartition(bytes(16), "payments", number)
                nursery.start_soon(store.open_partition, known, LogConfig(), 1)
            await trio.testing.wait_all_tasks_blocked()
            assert {FIRST.scans, SECOND.scans} <= set(pool.started)
            await store.delete_partition(third)
            pool.release()
        for number in (0, 1):
            assert store.get(TopicIdPartition(bytes(16), "payments", number)).high_watermark == 1


async def test_changes_of_a_partition_come_one_after_the_other_and_of_all_alone() -> None:
    changes, done = Changes(), list[str]()
    other = ORDERS._replace(partition=1)

    async def change(name: str, *partitions: TopicIdPartition) -> None:
        async with changes.lock(partitions) if partitions else changes.lock_all():
            done.append(f"{name} begins")
            await trio.sleep(1)
            done.append(f"{name} ends")

    async with trio.open_nursery() as nursery:
        for name, *partitions in (("a", ORDERS), ("b", ORDERS, other), ("all",), ("c", other)):
            nursery.start_soon(change, name, *partitions)
            await trio.testing.wait_all_tasks_blocked()
            if name == "a":
                nursery.start_soon(change, "beside", other)
                await trio.testing.wait_all_tasks_blocked()
    assert done[:2] == ["a begins", "beside begins"]
    assert {*done[2:4]} == {"a ends", "beside ends"}
    alone = done[4:]
    assert all(alone[at] == f"{alone[at].split()[0]} begins" for at in (0, 2, 4))
    assert [one.removesuffix(" ends") for one in alone[1::2]] == [one.removesuffix(" begins") for one in alone[::2]]


async def test_a_caller_that_stops_waiting_for_all_partitions_blocks_no_later_change() -> None:
    changes = Changes()
    async with changes.lock([ORDERS]):
        with trio.move_on_after(1):
            async with changes.lock_all():
                raise AssertionError("somebody else is at it")
    async with changes.lock([ORDERS]):
        pass


async def test_appends_wait_while_all_queues_are_full_or_a_full_queue_does_not_hang() -> None:
    budgets = [QueueBudget(100), QueueBudget(100)]
    room = AppendRoom(budgets)
    assert room
    budgets[0].take(60)
    assert not room
    for _ in range(5):
        await trio.sleep(HANGS_AFTER_S * 0.9)
        budgets[0].take(5)
        budgets[0].give_back(5)
        assert not room, "it is slow, and does not hang"
    await trio.sleep(HANGS_AFTER_S * 1.1)
    assert room
    budgets[1].take(60)
    await trio.sleep(HANGS_AFTER_S * 1.1)
    assert not room
    with trio.move_on_after(10 * HANGS_AFTER_S) as waited:
        await room.wait()
    assert waited.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.wait)
        await trio.testing.wait_all_tasks_blocked()
        budgets[1].give_back(60)


@pytest.mark.parametrize("work", ["run", "scan", "run_between_commit_batches"])
async def test_an_os_error_takes_the_disk_offline_and_later_work_is_refused(work: str) -> None:
    offline = list[OSError]()
    disk = disk_on(SimulatedFileSystem(), SimulatedPool(), offline)
    run: Callable[[Callable[[], object]], object] = getattr(disk, work)

    def fails() -> None:
        raise OSError(errno.EROFS, "read-only")

    assert await run(lambda: 1) == 1  # type: ignore[misc]
    assert offline == []
    with pytest.raises(StorageError):
        await run(fails)  # type: ignore[misc]
    assert len(offline) == 1
    with pytest.raises(StorageError, match="offline"):
        await run(lambda: 1)  # type: ignore[misc]
