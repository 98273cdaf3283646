"""Commit batches: written by the caller that has held them, or by the task; a task that waits for the turn gets it."""

import errno
from collections.abc import Sequence
from functools import partial

import pytest
import trio
import trio.testing

from engine.api import AppendResult, PartitionLog, PendingAppend, TopicIdPartition
from engine.commit.group_committer import OVERLAP_MIN_BYTES
from engine.errors import StorageError
from engine.log_config import FlushPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFile, SimulatedFileSystem
from testkit.logs import NO_JOURNAL, HeldPool, SlowSyncs, append, batch, keyed_batch, open_orders, options, running

APPENDS = 200
ASYNC = LogConfig(flush_policy=FlushPolicy.ASYNC)


def append_held(store: SegmentStore, *logs: PartitionLog) -> list[PendingAppend]:
    """Append a batch to each log while commit batches are held, then write them."""
    store.hold_commit_batches()
    queued = [log.append(memoryview(batch(b"x")), acks=1) for log in logs]
    assert not any(one.is_settled for one in queued)
    store.write_commit_batches()
    return queued


def offsets(queued: Sequence[PendingAppend]) -> list[int]:
    """The base offsets of the appends that are settled."""
    outcomes = [one.outcome for one in queued if one.is_settled]
    return [one.base_offset for one in outcomes if isinstance(one, AppendResult)]


async def test_async_appends_are_written_by_the_caller_that_held_them() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, ASYNC)
        assert offsets(append_held(store, log, log)) == [0, 1]
        assert log.high_watermark == 2
        assert offsets(append_held(store, log)) == [2]
        assert (await append(log, b"y")).base_offset == 3  # by the task again: nothing is held


async def test_a_held_sync_append_is_started_by_the_caller_and_finished_by_the_task() -> None:
    async with running(SimulatedFileSystem()) as store:
        fast = await open_orders(store, ASYNC)
        safe = await store.open_partition(TopicIdPartition(bytes(16), "payments", 0), LogConfig(), 0)
        queued = append_held(store, safe, fast)
        assert [one.is_settled for one in queued] == [False, True]
        following = append_held(store, fast)  # beside a sync that is under way
        assert offsets(following) == [1]
        await trio.testing.wait_all_tasks_blocked()
        assert offsets([*queued, *following]) == [0, 0, 1]


async def test_held_appends_wait_for_a_caller_that_is_between_two_commit_batches() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, ASYNC)
        async with store._dirs[0].commit_log.committer.between_commit_batches():
            queued = append_held(store, log)
            await trio.testing.wait_all_tasks_blocked()
            assert offsets(queued) == []
        await trio.testing.wait_all_tasks_blocked()
        assert offsets(queued) == [0]
        assert offsets(append_held(store, log)) == [1]


async def test_a_commit_batch_staged_as_the_store_is_cancelled_does_not_block_the_turn() -> None:
    """The store is cancelled in the same turn in which a commit batch was staged."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        committer = store._dirs[0].commit_log.committer
        append_held(store, log)
        store._serving.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            async with committer.between_commit_batches():
                append_held(store, log)
        append_held(store, log)
        with trio.fail_after(1):
            async with committer.between_commit_batches():
                pass


async def test_a_segment_begins_on_a_worker() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, LogConfig(flush_policy=FlushPolicy.ASYNC, segment_size_bytes=len(batch(b"x"))))
        assert offsets(append_held(store, log)) == [0]
        pool.is_holding = True
        queued = append_held(store, log)
        await trio.testing.wait_all_tasks_blocked()
        assert (offsets(queued), pool.waiting) == ([], 1)
        pool.is_holding = False
        pool.release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert offsets(queued) == [1]


@pytest.mark.parametrize(("code", "is_fatal"), [(errno.EIO, True), (errno.ENOSPC, False)])
async def test_a_write_error_of_the_disk_refuses_the_held_append(code: int, is_fatal: bool) -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, fatal=fatal) as store:
        log = await open_orders(store, ASYNC)
        append_held(store, log)
        filesystem.faults.append(Fault("write", code, ".log"))
        [refused] = append_held(store, log)
        assert isinstance(refused.outcome, StorageError)
        assert bool(fatal) is is_fatal
        assert log.log_end_offset == 1
        if not is_fatal:
            assert offsets(append_held(store, log)) == [1]


async def test_a_producer_that_never_pauses_does_not_delay_work_between_commit_batches() -> None:
    """The producer always has the next batch queued before the one on its way is answered."""
    appended = 0
    async with running(SimulatedFileSystem(), options(journal_slot_size_bytes=NO_JOURNAL)) as store:
        log = await open_orders(store)

        async def produce() -> None:
            nonlocal appended
            on_its_way = log.append(memoryview(batch(b"x")), acks=-1)
            for _ in range(APPENDS):
                following = log.append(memoryview(batch(b"x")), acks=-1)
                await on_its_way.wait()
                appended, on_its_way = appended + 1, following
            await on_its_way.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            while appended < 3:
                await trio.lowlevel.checkpoint()
            await log.delete_records(1)
            assert appended < 30
            await open_orders(store)
            assert appended < 60
        assert log.log_end_offset == APPENDS + 1


async def test_repeated_work_between_commit_batches_does_not_delay_an_append() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        waited = 0

        async def wait_on_and_on() -> None:
            nonlocal waited
            for _ in range(APPENDS):
                await open_orders(store)
                waited += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_on_and_on)
            nursery.start_soon(wait_on_and_on)
            await append(log, b"x")
            assert waited < 30


LARGE = b"x" * OVERLAP_MIN_BYTES


async def started(pool: SlowSyncs, count: int) -> None:
    """Check that `count` syncs have begun."""
    await trio.testing.wait_all_tasks_blocked()
    assert len(pool.started) == count


async def in_flight(pool: SlowSyncs, log: PartitionLog) -> PendingAppend:
    """Append a batch whose sync is slow, as are all later ones."""
    pool.is_slow = True
    pending = log.append(memoryview(batch(b"x")), acks=-1)
    await started(pool, 1)
    return pending


async def test_much_is_written_while_a_sync_is_in_flight_and_answered_behind_it() -> None:
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    async with running(filesystem, pool=pool) as store:
        log = await open_orders(store)
        pool.is_slow = True
        first = log.append(memoryview(batch(b"x")), acks=-1)
        await started(pool, 1)
        later = [log.append(memoryview(batch(LARGE)), acks=-1) for _ in range(3)]
        await started(pool, 1)
        assert (log.log_end_offset, log.high_watermark) == (4, 0)
        pool.started[0].report()
        await started(pool, 2)
        assert offsets([first, *later]) == [0]
        assert log.high_watermark == 1
        pool.started[1].report()
        await trio.testing.wait_all_tasks_blocked()
        assert offsets(later) == [1, 2, 3]
        assert log.high_watermark == 4


async def test_little_is_written_together_behind_the_sync_in_flight() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store)
        pending = [await in_flight(pool, log)]
        for _ in range(3):
            pending.append(log.append(memoryview(batch(b"x")), acks=-1))
            await trio.testing.wait_all_tasks_blocked()
        assert log.log_end_offset == 1
        pool.started[0].report()
        await started(pool, 2)
        assert log.log_end_offset == 4
        pool.started[1].report()
        await trio.testing.wait_all_tasks_blocked()
        assert offsets(pending) == [0, 1, 2, 3]


async def test_appends_that_arrive_during_a_sync_are_durable_with_the_next_sync() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store)
        pending = [await in_flight(pool, log)]
        for value in (LARGE, b"little, behind what was written beside the sync"):
            pending.append(log.append(memoryview(batch(value)), acks=-1))
            await trio.testing.wait_all_tasks_blocked()
        assert log.log_end_offset == 2
        for number in range(2):
            pool.started[number].report()
            await trio.testing.wait_all_tasks_blocked()
        assert offsets(pending) == [0, 1, 2]


async def test_an_async_append_does_not_wait_for_the_sync_of_another_partition() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        safe = await open_orders(store)
        fast = await store.open_partition(TopicIdPartition(bytes(16), "payments", 0), ASYNC, 0)
        pool.is_slow = True
        slow = safe.append(memoryview(batch(b"x")), acks=-1)
        await started(pool, 1)
        assert (await append(fast, b"y")).base_offset == 0
        assert not slow.is_settled
        pool.started[0].report()


async def test_an_append_waits_for_the_sync_of_an_earlier_append_of_its_log() -> None:
    """The topic is async, with a sync for every third record."""
    pool = SlowSyncs()
    config = LogConfig(flush_policy=FlushPolicy.ASYNC, flush_messages=3)
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, config)
        pool.is_slow = True
        waiting = log.append(memoryview(batch(b"a", b"b", b"c")), acks=-1)
        await started(pool, 1)
        behind = log.append(memoryview(batch(b"d")), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        assert not behind.is_settled
        assert (log.log_end_offset, log.high_watermark) == (4, 0)
        for number in range(2):
            pool.started[number].report()
            await trio.testing.wait_all_tasks_blocked()
        assert offsets([waiting, behind]) == [0, 3]


async def test_an_append_waits_for_an_unanswered_earlier_append_though_the_flusher_synced_its_file() -> None:
    """The flusher has synced the file first; the commit batch is in the journal, whose sync is still in flight."""
    pool = SlowSyncs()
    config = LogConfig(flush_policy=FlushPolicy.ASYNC, flush_messages=3)
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, config)
        assert isinstance(log, Partition)
        pool.is_slow = True
        waiting = log.append(memoryview(batch(b"a", b"b", b"c")), acks=-1)
        await started(pool, 1)
        log.log.note_flushed(log.log.end)
        behind = log.append(memoryview(batch(b"d")), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        assert not behind.is_settled
        assert log.high_watermark == 0
        pool.is_slow = False
        pool.started[0].report()
        await trio.testing.wait_all_tasks_blocked()
        assert offsets([waiting, behind]) == [0, 3]


async def test_after_a_failed_sync_later_appends_are_undone_before_earlier_ones() -> None:
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    async with running(filesystem, options(journal_slot_size_bytes=NO_JOURNAL), pool=pool) as store:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        producer = (7, 0)
        await log.append(memoryview(keyed_batch((b"k", b"v"), producer=(*producer, 0))), acks=-1).wait()
        before = log.log.producers.get(7)
        pool.is_slow = True
        filesystem.faults.append(Fault("fdatasync", errno.EIO, ".log"))
        refused = list[int]()
        pending = []
        for number, value in enumerate((b"v", LARGE, LARGE), start=1):
            records = keyed_batch((b"k", value), producer=(*producer, number))
            pending.append(log.append(memoryview(records), acks=-1))
            pending[-1].call_when_settled(partial(refused.append, number))
            await trio.testing.wait_all_tasks_blocked()
        again = log.append(memoryview(keyed_batch((b"k", LARGE), producer=(*producer, 3))), acks=-1)
        await started(pool, 1)
        assert log.log_end_offset == 4
        pool.started[0].report()
        await trio.testing.wait_all_tasks_blocked()
        assert refused == [3, 2, 1]
        assert all(isinstance(one.outcome, StorageError) for one in [*pending, again])
        assert log.log.producers.get(7) == before
        assert len(pool.started) == 1, "nothing of it is synced any more"


async def test_a_duplicate_waits_for_its_original_in_an_earlier_commit_batch() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store)
        pool.is_slow = True

        def send(value: bytes, sequence: int) -> PendingAppend:
            return log.append(memoryview(keyed_batch((b"k", value), producer=(7, 0, sequence))), acks=-1)

        original = send(b"v", 0)
        await started(pool, 1)
        duplicate, next_one = send(b"v", 0), send(LARGE, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert log.log_end_offset == 2
        pool.started[0].report()
        await started(pool, 2)
        assert offsets([original, duplicate, next_one]) == [0, 0]
        pool.started[1].report()
        await trio.testing.wait_all_tasks_blocked()
        assert offsets([next_one]) == [1]


async def test_a_caller_between_commit_batches_runs_after_all_written_appends_are_durable() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store)
        pending = [await in_flight(pool, log)]
        pending.append(log.append(memoryview(batch(LARGE)), acks=-1))
        await trio.testing.wait_all_tasks_blocked()
        seen = list[int]()

        async def look() -> None:
            async with store._dirs[0].commit_log.committer.between_commit_batches():
                seen.append(log.high_watermark)
                await trio.sleep(1)
                seen.append(log.high_watermark)

        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        pending.append(log.append(memoryview(batch(LARGE)), acks=-1))
        for number in range(2):
            assert seen == []
            pool.started[number].report()
            await started(pool, 2)
        await trio.sleep(2)
        assert seen == [2, 2]
        pool.started[2].report()
        assert [(await one.wait()).base_offset for one in pending] == [0, 1, 2]


async def test_a_caller_that_stops_waiting_for_a_sync_gives_the_turn_back() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store)
        pending = [await in_flight(pool, log)]
        with trio.move_on_after(1):
            async with store._dirs[0].commit_log.committer.between_commit_batches():
                raise AssertionError("a sync is in flight")
        pending.append(log.append(memoryview(batch(LARGE)), acks=-1))
        for number in range(2):
            pool.started[number].report()
            await trio.testing.wait_all_tasks_blocked()
        assert offsets(pending) == [0, 1]


async def test_the_index_gets_only_entries_of_durable_batches() -> None:
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    async with running(filesystem, pool=pool) as store:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        pool.is_slow = True
        log.append(memoryview(batch(*[b"x" * 100] * 1000)), acks=-1)
        await started(pool, 1)
        log.append(memoryview(batch(*[b"x" * 100] * 1000)), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        assert [entry.offset for _, entry in log.log.unindexed] == [0, 1000]
        pool.started[0].report()
        await started(pool, 2)
        assert [entry.offset for _, entry in log.log.unindexed] == [1000]
        pool.started[1].report()
        await trio.testing.wait_all_tasks_blocked()
        assert log.log.unindexed == []


async def test_an_exception_during_a_write_gives_the_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for the turn may be shielded from cancellation, so that it would wait forever."""

    class End(BaseException):
        pass

    def end(_file: SimulatedFile, _buffers: object, _position: int) -> None:
        raise End

    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, ASYNC)
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "write_at", end)
            with pytest.raises(End):
                append_held(store, log)
        with trio.fail_after(1):
            async with store._dirs[0].commit_log.committer.between_commit_batches():
                pass
