"""Rounds: written in the turn that holds them, or by the task; whoever waits for the end of one gets its turn."""

import errno
from collections.abc import Sequence

import pytest
import trio

from engine.api import AppendResult, FlushPolicy, LogConfig, PartitionLog, PendingAppend, TopicPartition
from engine.errors import StorageError
from engine.files.twin import Fault, MemoryFileSystem
from engine.store import SegmentStore
from engine.tests.helpers import NO_JOURNAL, HeldPool, append, batch, open_orders, options, running

APPENDS = 200
ASYNC = LogConfig(flush_policy=FlushPolicy.ASYNC)


def append_held(store: SegmentStore, *logs: PartitionLog) -> list[PendingAppend]:
    """One batch to each, in one turn."""
    store.hold_rounds()
    queued = [log.append(memoryview(batch(b"x")), acks=1) for log in logs]
    assert not any(one.is_settled for one in queued)
    store.write_rounds()
    return queued


def offsets(queued: Sequence[PendingAppend]) -> list[int]:
    """Of those that are settled."""
    outcomes = [one.outcome for one in queued if one.is_settled]
    return [one.base_offset for one in outcomes if isinstance(one, AppendResult)]


async def test_what_waits_for_nothing_is_written_by_who_held_it() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store, ASYNC)
        assert offsets(append_held(store, log, log)) == [0, 1]
        assert log.high_watermark == 2
        assert offsets(append_held(store, log)) == [2]
        assert (await append(log, b"y")).base_offset == 3  # by the task again, as whoever holds nothing


async def test_what_has_to_be_durable_is_begun_and_the_task_goes_on_with_it() -> None:
    async with running(MemoryFileSystem()) as store:
        fast = await open_orders(store, ASYNC)
        safe = await store.open_partition(TopicPartition(bytes(16), "payments", 0), LogConfig(), 0)
        queued = append_held(store, safe, fast)
        assert offsets(queued) == []
        following = append_held(store, fast)  # behind a round that is under way
        assert offsets(following) == []
        await trio.testing.wait_all_tasks_blocked()
        assert offsets([*queued, *following]) == [0, 0, 1]


async def test_what_is_held_while_somebody_is_between_two_rounds_is_written_behind_him() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store, ASYNC)
        async with store._dirs[0].commit_log.committer.between_rounds():
            queued = append_held(store, log)
            await trio.testing.wait_all_tasks_blocked()
            assert offsets(queued) == []
        await trio.testing.wait_all_tasks_blocked()
        assert offsets(queued) == [0]
        assert offsets(append_held(store, log)) == [1]


async def test_a_round_that_nobody_goes_on_with_keeps_nobody_from_the_turn() -> None:
    """As when the store is cancelled in the very turn that has begun it."""
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store)
        lane = store._dirs[0].commit_log.committer
        append_held(store, log)
        store._serving.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            async with lane.between_rounds():
                append_held(store, log)
        append_held(store, log)
        with trio.fail_after(1):
            async with lane.between_rounds():
                pass


async def test_a_segment_begins_on_a_worker() -> None:
    pool = HeldPool()
    async with running(MemoryFileSystem(), pool=pool) as store:
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
async def test_a_disk_that_fails_whoever_writes_refuses_what_was_held(code: int, is_fatal: bool) -> None:
    filesystem, fatal = MemoryFileSystem(), list[str]()
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


async def test_a_producer_that_never_pauses_holds_up_nobody_between_rounds() -> None:
    """It has the next batch queued before the one on its way is answered."""
    appended = 0
    async with running(MemoryFileSystem(), options(journal_slot_size_bytes=NO_JOURNAL)) as store:
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


async def test_who_waits_for_one_again_and_again_holds_up_no_round() -> None:
    async with running(MemoryFileSystem()) as store:
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
