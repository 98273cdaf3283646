"""Followers of compacted logs: records that one replica has dropped decide nothing in a replica that still had them
(RULES K18, K19)."""

import dataclasses
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from engine.api import Following, Leadership, Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.commit.commit_log import CHECKPOINT_PAUSE_S
from engine.compaction.tests.test_cleaner import BACKOFF_S, COMPACT, fill, send, until_compacted, values_in
from engine.compaction_horizon import Compacted, CompactionHorizon
from engine.errors import NotLoaded, OffsetOutOfRange, StorageError
from engine.log_config import CleanupPolicy, LogConfig
from engine.logs.recovery.checkpoints import key_of, read_checkpoint
from engine.logs.segments.swap import swap_in
from engine.partitions.partition import Partition
from engine.replication.exchange import LeaderReply
from engine.replication.fetch_state import Append, Restart
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import NOW_MS, ORDERS, bytes_of, keyed_batch, running

LAZY = dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=1.0)
DELETE = dataclasses.replace(COMPACT, cleanup_policy=frozenset({CleanupPolicy.DELETE}))
PRODUCER = 7
BEGINS_MAX = 20


def now_ms() -> int:
    return NOW_MS + int(trio.current_time() * 1000)


@asynccontextmanager
async def stores(count: int) -> AsyncIterator[list[SegmentStore]]:
    """The stores of `count` brokers."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(SimulatedFileSystem(), clock=now_ms)) for _ in range(count)]


async def followed(store: SegmentStore, epoch: int) -> Partition:
    [log] = await store.open_partitions([Following(ORDERS, LAZY, epoch)])
    assert isinstance(log, Partition)
    return log


async def led(store: SegmentStore, epoch: int, config: LogConfig = COMPACT) -> Partition:
    [log] = await store.open_partitions([Leadership(ORDERS, config, epoch)])
    assert isinstance(log, Partition)
    return log


async def copy(store: SegmentStore, leader: Partition, to: int | None = None, *, is_older: bool = False) -> int:
    """Copy the log as a follower, in small Fetches; returns how often the follower re-replicated from scratch.

    `is_older`: the leader is an older broker, which does not tell which records are dropped.
    """
    follower, times = store.replica(ORDERS), 0
    while follower.log_end_offset < (leader.high_watermark if to is None else to):
        times += await copy_some(store, leader, is_older=is_older)
        assert times < BEGINS_MAX
    return times


async def copy_some(store: SegmentStore, leader: Partition, *, is_older: bool = False) -> int:
    follower = store.replica(ORDERS)
    state = follower.fetching
    assert state is not None
    asked = state.ask(follower.log_state)
    assert asked is not None
    try:
        found = leader.followers.read(asked.offset, 1, at_least_one=True)
    except NotLoaded:
        await leader.followers.load(asked.offset, 1)
        found = leader.followers.read(asked.offset, 1, at_least_one=True)
    compacted = Compacted(found.compacted.epoch_starts) if is_older else found.compacted
    answer = LeaderReply(found.high_watermark, found.log_start_offset, compacted=compacted)
    action = state.answered(asked, answer, follower.log_state)
    if isinstance(action, Restart):
        await store.reset_partition(ORDERS, action.offset, follows_in=state.epoch)
        state.done()
        return 1
    assert isinstance(action, Append)
    records, begins = memoryview(bytearray(bytes_of(found.records))), found.begins_segment
    try:
        await follower.replicate(records, begins_segment=begins, compacted=compacted).wait()
    except OffsetOutOfRange:
        await follower.expect_compacted(records, compacted)
        await follower.replicate(records, begins_segment=begins, compacted=compacted).wait()
    follower.note_leader(action.high_watermark)
    state.done()
    return 0


async def compact(log: Partition, times: int = 4) -> None:
    """Compact until all tombstones and markers that may go are gone."""
    for _ in range(times):
        await fill(log, count=20)
        await until_compacted(log)
        await trio.sleep(COMPACT.delete_retention_ms / 1000)


async def without_a_tombstone(leader: Partition, *, behind: int) -> None:
    """Make a log that has dropped a tombstone, which came behind `behind` records that stay."""
    await fill(leader, count=behind, keys=behind)
    await send(leader, (b"gone", b"value"))
    await send(leader, (b"gone", None))
    await compact(leader)


async def latest(log: Partition) -> Mapping[bytes | None, bytes]:
    values = dict(value for _, value in sorted((await values_in(log)).items()))
    return {key: value for key, value in values.items() if value is not None}


async def equal(log: Partition, leader: Partition) -> None:
    assert await latest(log) == await latest(leader)
    assert log.last_stable_offset == leader.last_stable_offset == leader.log_end_offset


async def test_a_follower_that_missed_a_dropped_tombstone_copies_the_log_again() -> None:
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        await followed(b, 0)
        await send(leader, (b"gone", b"value"))
        await copy(b, leader)
        await send(leader, (b"gone", None))
        await compact(leader)
        assert leader.log.dropped.tombstones_to == 2
        assert await copy(b, leader) == 1
        assert await copy(b, leader) == 0
        await equal(await led(b, 1), leader)


async def test_a_replica_that_has_the_tombstone_goes_on() -> None:
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        await followed(b, 0)
        await send(leader, (b"gone", b"value"))
        await send(leader, (b"gone", None))
        await copy(b, leader)
        await compact(leader)
        assert await copy(b, leader) == 0
        await equal(await led(b, 1), leader)


def transactional(sequence: int, key: bytes, producer_id: int = PRODUCER) -> memoryview:
    records = [Record(key, b"value", NOW_MS)]
    return memoryview(build_batch(records, attributes=TRANSACTIONAL_BIT, producer=(producer_id, 0, sequence)))


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_follower_that_missed_a_dropped_marker_copies_the_log_again(*, goes_on: bool) -> None:
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        await followed(b, 0)
        await leader.append(transactional(0, b"taken back"), acks=-1).wait()
        await copy(b, leader)
        await leader.end_transaction(Marker(PRODUCER, 0, 1, Outcome.ABORT)).wait()
        if goes_on:
            await leader.append(transactional(1, b"other"), acks=-1).wait()
            await leader.end_transaction(Marker(PRODUCER, 0, 1, Outcome.COMMIT)).wait()
        else:
            leader.log.producers.expire(2**62)  # producer.id.expiration.ms has passed
        await compact(leader)
        assert leader.log.dropped.markers_to == 2
        assert await copy(b, leader) == 1
        await equal(await led(b, 1), leader)


@pytest.mark.parametrize("restarts", [False, True])
async def test_leaders_that_have_compacted_or_not_change_while_a_new_replica_copies(*, restarts: bool) -> None:
    """The follower has the value from the first leader; the second, in sync all the time, has neither value nor
    tombstone."""
    world = SimulatedFileSystem()
    async with stores(2) as (a, b):
        first = await led(a, 0, LAZY)
        await b.open_partitions([Following(ORDERS, COMPACT, 0)])
        await send(first, (b"gone", b"value"))
        await send(first, (b"gone", None))
        for _ in range(4):
            await fill(first, count=20)
            await copy(b, first)
            await trio.sleep(BACKOFF_S + COMPACT.delete_retention_ms / 1000)
        assert b.replica(ORDERS).log.dropped.tombstones_to == 2
        async with running(world, clock=now_ms) as c:
            await followed(c, 0)
            await copy(c, first, to=1)
            second = await led(b, 1)
            if not restarts:
                await followed(c, 1)
                assert await copy(c, second) == 1
                await equal(await led(c, 2), second)
                return
        world.crash()
        async with running(world, clock=now_ms) as c:
            await followed(c, 1)
            assert await copy(c, second) == 1
            await equal(await led(c, 2), second)


async def test_a_copy_from_a_leader_without_the_tombstone_restarts_only_after_a_crash() -> None:
    """Records are copied again only if the follower does not know any more that all came from such a leader."""
    world = SimulatedFileSystem()
    async with stores(1) as (a,):
        leader = await led(a, 0)
        await without_a_tombstone(leader, behind=9)
        assert leader.log.dropped.tombstones_to == 11
        for times in (0, 1):
            async with running(world, clock=now_ms) as b:
                await followed(b, 0)
                assert await copy_some(b, leader) == times
                assert await copy_some(b, leader) == 0
                assert b.replica(ORDERS).log_end_offset < 11
            world.crash()
        async with running(world, clock=now_ms) as b:
            await followed(b, 0)
            assert await copy(b, leader) == 1
            assert read_checkpoint(world, "/data").partitions[key_of(ORDERS)].tombstones_to == 11
            await equal(await led(b, 1), leader)
            assert b.replica(ORDERS).log.dropped.tombstones_to == 11, "it tells who copies from it"


async def test_a_copy_restarts_at_most_once_per_delete_retention_while_the_leader_drops_tombstones() -> None:
    """The tombstones are older than the copy, which never had the records that they deleted."""
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        await followed(b, 0)
        dropped_to, begun_at_s, seconds = set[int](), trio.current_time(), list[float]()
        for number in range(14):
            for each in range(9):
                await send(leader, (b"%d of %d" % (each, number), b"stays"))
            await send(leader, (b"gone %d" % number, b"value"))
            await send(leader, (b"gone %d" % number, None))
            await fill(leader, count=9, keys=9)
            await trio.sleep(20)
            dropped_to.add(leader.log.dropped.tombstones_to)
            if number == 6:
                begun_at_s = trio.current_time()
            if number >= 6 and await copy_some(b, leader):
                seconds.append(trio.current_time() - begun_at_s)
                begun_at_s = trio.current_time()
        assert len(dropped_to) > 5
        assert seconds
        assert min(seconds) >= COMPACT.delete_retention_ms / 1000


async def test_a_copy_continued_from_a_less_compacted_leader_restarts_at_the_first_leader() -> None:
    """The follower began with a leader without the tombstone, got the value from a leader with it, and is back."""
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await b.open_partitions([Following(ORDERS, LAZY, 0)])
        await fill(leader, count=9, keys=9)
        await send(leader, (b"gone", b"value"))
        for _ in range(3):
            await fill(leader, count=9)
        await send(leader, (b"gone", None))
        await copy(b, leader)
        tombstone_at = leader.log_end_offset - 1
        await compact(leader)
        assert leader.log.dropped.tombstones_to > tombstone_at
        await followed(c, 0)
        await copy_some(c, leader)
        assert c.replica(ORDERS).log_end_offset < 9
        other = await led(b, 1)
        await followed(c, 1)
        await copy(c, other, to=20)
        await a.open_partitions([Leadership(ORDERS, COMPACT, 2)])
        await followed(c, 2)
        assert await copy(c, leader) == 1
        await equal(await led(c, 3), leader)


async def test_a_marker_dropped_below_an_earlier_tombstone_horizon_restarts_the_copy() -> None:
    """The marker is of a committed transaction whose record was overwritten while the log was copied."""
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        await leader.append(transactional(0, b"overwritten"), acks=-1).wait()
        await leader.end_transaction(Marker(PRODUCER, 0, 1, Outcome.COMMIT)).wait()
        await send(leader, (b"gone", b"value"))
        await send(leader, (b"gone", None))
        await compact(leader)
        assert leader.log.dropped == CompactionHorizon(4, 0)
        await followed(b, 0)
        assert await copy_some(b, leader) == 0
        assert b.replica(ORDERS).log_end_offset == 1
        leader.log.producers.expire(2**62)
        await send(leader, (b"overwritten", b"newer"))
        await compact(leader)
        assert leader.log.dropped == CompactionHorizon(4, 2)
        assert await copy(b, leader) == 1
        await equal(await led(b, 1), leader)


@pytest.mark.parametrize("config", [LAZY, DELETE], ids=["lazy", "no_longer_compacted"])
async def test_a_leader_that_is_a_copy_itself_can_be_copied(config: LogConfig) -> None:
    """Records that were dropped before the copy decide nothing in it, although its own cleaner has not run."""
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await without_a_tombstone(leader, behind=9)
        await followed(b, 0)
        assert await copy(b, leader) == 0
        second = await led(b, 1, config)
        assert (second.log.clean_to, second.log.dropped.tombstones_to) == (0, 11)
        await followed(c, 1)
        assert await copy(c, second) == 0
        await equal(await led(c, 2), second)


async def test_a_leader_that_is_a_copy_and_half_cleaned_can_be_copied() -> None:
    """The cleaner of the copy has run once; the later records are less than half of the log."""
    half = dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await without_a_tombstone(leader, behind=40)
        await b.open_partitions([Following(ORDERS, half, 0)])
        await copy(b, leader, to=36)
        await trio.sleep(BACKOFF_S + 1)
        await copy(b, leader)
        second = await led(b, 1, half)
        await trio.sleep(BACKOFF_S + 1)
        assert 0 < second.log.clean_to < second.log.dropped.tombstones_to == 42
        await followed(c, 1)
        assert await copy(c, second) == 0
        await equal(await led(c, 2), second)


async def test_a_copy_restarts_at_most_once_per_delete_retention_while_the_leader_drops_markers() -> None:
    """The markers are of transactions that were gone before the copy began, while it is within another transaction."""
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        await followed(b, 0)
        begun_at_s, seconds, markers_to, within, sequence = 0.0, list[float](), set[int](), 0, 0
        for number in range(16):
            for each in range(6):
                key = b"stays %d" % each if number == 0 else b"key %d %d" % (number, each)
                for producer_id, keys in ((PRODUCER, (key, b"hot")), (8, (b"hot", b"hot"))):
                    for at, one in enumerate(keys):
                        await leader.append(transactional(sequence + at, one, producer_id), acks=-1).wait()
                    await leader.end_transaction(Marker(producer_id, 0, 1, Outcome.COMMIT)).wait()
                sequence += 2
            await trio.sleep(20)
            markers_to.add(leader.log.dropped.markers_to)
            if number == 7:
                begun_at_s = trio.current_time()
            if number > 7 and await copy_some(b, leader):
                seconds.append(trio.current_time() - begun_at_s)
                begun_at_s = trio.current_time()
            within += b.replica(ORDERS).log_state.has_open_transactions
        assert len(markers_to) > 5
        assert within > 3
        assert all(one >= COMPACT.delete_retention_ms / 1000 for one in seconds), "it may never restart"


async def test_a_marker_with_the_horizon_of_another_log_is_dropped_after_its_local_records() -> None:
    """The second replica has the record, and the marker with a horizon that is past, because its leader had dropped the
    record.

    A follower that copies while both go there has the record.
    """
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await followed(b, 0)
        await leader.append(transactional(0, b"overwritten"), acks=-1).wait()
        await copy(b, leader)
        await leader.end_transaction(Marker(PRODUCER, 0, 1, Outcome.COMMIT)).wait()
        leader.log.producers.expire(2**62)
        await send(leader, (b"overwritten", b"newer"))
        for _ in range(2):
            await fill(leader, count=20)
            await until_compacted(leader)
        assert await copy(b, leader) == 0
        await trio.sleep(COMPACT.delete_retention_ms / 1000)
        second = await led(b, 1, LAZY)
        second.log.producers.expire(2**62)
        await fill(second, count=20)
        await followed(c, 1)
        assert await copy_some(c, second) == 0
        await b.open_partitions([Leadership(ORDERS, COMPACT, 1)])
        for _ in range(3):
            await until_compacted(second)
            await fill(second, count=20)
        await trio.sleep(BACKOFF_S + 1)
        assert second.log.dropped.markers_to == 0
        await compact(second)
        assert second.log.dropped.markers_to == 2
        assert await copy(c, second) == 1
        await equal(await led(c, 2), second)


async def test_a_copy_restarts_at_a_leader_whose_log_came_from_an_older_broker() -> None:
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await followed(c, 0)
        await send(leader, (b"gone", b"value"))
        await copy(c, leader)
        await send(leader, (b"gone", None))
        await compact(leader)
        await followed(b, 0)
        await copy(b, leader, is_older=True)
        second = await led(b, 1, LAZY)
        await followed(c, 1)
        assert await copy(c, second) == 1
        await equal(await led(c, 2), second)


async def test_a_tombstone_with_the_horizon_of_another_log_is_dropped_after_its_local_value() -> None:
    """The second replica has the value, and the tombstone with a horizon that is past.

    A follower that copies while both go there has the value.
    """
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await followed(b, 0)
        await send(leader, (b"gone", b"value"))
        await copy(b, leader)
        await send(leader, (b"gone", None))
        await fill(leader, count=20)
        await until_compacted(leader)
        assert await copy(b, leader) == 0
        await trio.sleep(COMPACT.delete_retention_ms / 1000)
        second = await led(b, 1, LAZY)
        await fill(second, count=20)
        await followed(c, 1)
        assert await copy_some(c, second) == 0
        await b.open_partitions([Leadership(ORDERS, COMPACT, 1)])
        await trio.sleep(BACKOFF_S + 1)
        assert second.log.compacted_to
        assert second.log.dropped.tombstones_to == 0
        await compact(second)
        assert second.log.dropped.tombstones_to == 2
        await copy(c, second)
        await equal(await led(c, 2), second)


async def test_noting_expected_gaps_keeps_a_horizon_that_the_cleaner_raised_meanwhile() -> None:
    """The cleaner runs while expected gaps wait to be noted."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store, trio.open_nursery() as nursery:
        follower = await followed(store, 0)
        async with follower.log_dir.commit_log.replacing():
            nursery.start_soon(follower.expect_gaps, 10)
            await trio.testing.wait_all_tasks_blocked()
            follower.log.dropped = CompactionHorizon(40, 30)
            await follower.log_dir.commit_log.checkpoint_alone()
        await trio.testing.wait_all_tasks_blocked()
        assert follower.log.dropped == CompactionHorizon(40, 30)
        point = read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)]
        assert (point.compacted_to, point.tombstones_to, point.markers_to) == (10, 40, 30)


async def test_records_are_not_appended_if_their_compaction_horizon_cannot_be_noted() -> None:
    filesystem = SimulatedFileSystem()
    sent, compacted = memoryview(keyed_batch((b"a", b"1"))), Compacted(dropped=CompactionHorizon(9))
    async with running(filesystem) as store:
        follower = await followed(store, 0)
        filesystem.faults.append(Fault("write", errno.ENOSPC, "checkpoint.tmp"))
        with pytest.raises(StorageError):
            await follower.expect_compacted(sent, compacted)
        with pytest.raises(OffsetOutOfRange):
            await follower.replicate(sent, compacted=compacted).wait()
        await follower.expect_compacted(sent, compacted)
        assert read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)].tombstones_to == 1
        await follower.replicate(sent, compacted=compacted).wait()


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_leader_with_a_partial_copy_has_no_compaction_horizon_behind_its_end(*, restarts: bool) -> None:
    """Otherwise a replica that is in sync with it would re-replicate from scratch.

    A replica that ends there, or before, has to: the part may lack records that it has. The same holds if the broker
    leads from its start on.
    """
    world = SimulatedFileSystem()
    async with stores(1) as (a,):
        leader = await led(a, 0)
        await without_a_tombstone(leader, behind=9)
        async with running(world, clock=now_ms) as b:
            await followed(b, 0)
            await copy_some(b, leader)
            end_offset = b.replica(ORDERS).log_end_offset
            assert end_offset < leader.log.dropped.tombstones_to
            if not restarts:
                await leads_with_a_part(b, end_offset)
                return
        world.crash()
        async with running(world, clock=now_ms) as b:
            await leads_with_a_part(b, end_offset)


async def leads_with_a_part(store: SegmentStore, end_offset: int) -> None:
    elected = await led(store, 1, LAZY)
    assert elected.log_end_offset == end_offset
    elected = await led(store, 2, LAZY)  # no reason to forget it
    await send(elected, (b"new", b"value"))
    assert elected.log.dropped == CompactionHorizon(end_offset + 1, 0, end_offset + 1, 2)
    await elected.log_dir.commit_log.checkpoint()


async def test_a_follower_copies_the_partial_copy_of_an_uncleanly_elected_leader_again() -> None:
    """The part lacks a value that another replica has, and also the record that replaced it."""
    async with stores(3) as (a, b, c):
        leader = await led(a, 0)
        await followed(c, 0)
        await send(leader, (b"k", b"old"))
        await fill(leader, count=9, keys=9)
        await copy(c, leader)
        await send(leader, (b"k", b"new"))
        await fill(leader, count=20)
        await until_compacted(leader)
        await followed(b, 0)
        await copy(b, leader, to=c.replica(ORDERS).log_end_offset)
        elected = await led(b, 1)
        assert elected.log_end_offset == c.replica(ORDERS).log_end_offset
        await c.open_partitions([Following(ORDERS, LAZY, 1, unclean_since=1)])
        await fill(elected, count=40)
        assert await copy(c, elected) == 1
        assert b"k" not in await latest(elected)
        await equal(await led(c, 2), elected)


async def test_a_copy_of_segments_about_to_be_replaced_restarts_after_the_tombstone_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Value and tombstone are in one segment: the value goes when the tombstone gets its delete horizon."""
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        follower = await followed(b, 0)
        await fill(leader, count=2, keys=2)
        await send(leader, (b"gone", b"value"))
        await send(leader, (b"gone", None))
        commit_log = leader.log_dir.commit_log
        checkpoint = commit_log.checkpoint_alone

        async def copy_before() -> None:
            if leader.log.compacted_to and follower.log_end_offset < 3:
                for _ in range(3):
                    assert await copy_some(b, leader) == 0
            await checkpoint()

        monkeypatch.setattr(commit_log, "checkpoint_alone", copy_before)
        await fill(leader, count=20)
        await until_compacted(leader)
        assert follower.log_end_offset == 3
        await compact(leader)
        assert leader.log.dropped.tombstones_to == 4
        assert await copy(b, leader) == 1
        await equal(await led(b, 1), leader)


async def test_a_load_during_a_segment_swap_opens_no_file_of_the_new_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the old segment is not open; its name belongs to the new one before the log has replaced it."""
    async with stores(1) as (a,), trio.open_nursery() as nursery:
        leader = await led(a, 0)
        await fill(leader, count=30, keys=2)
        segment, disk = leader.log.segments[0], leader.log_dir.disk
        assert leader.log.close_file(segment)
        run = disk.run

        async def reading(job: Any) -> object:
            found = await run(job)
            if getattr(job, "func", None) is swap_in and leader.log.has(segment):
                nursery.start_soon(leader.followers.load, 0, 1)
                await trio.testing.wait_all_tasks_blocked()
                assert segment.file is None
                has_read.set()
            return found

        has_read = trio.Event()
        monkeypatch.setattr(disk, "run", reading)
        await until_compacted(leader)
        assert has_read.is_set()
        assert not leader.log.has(segment)


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_elected_leader_forgets_a_noted_compaction_horizon_whose_records_never_came(*, restarts: bool) -> None:
    """The promotion comes before the records, or a crash."""
    world = SimulatedFileSystem()
    async with running(world, clock=now_ms) as store:
        follower = await followed(store, 0)
        await follower.expect_gaps(50, (), CompactionHorizon(50, 50))
        if not restarts:
            elected = await led(store, 1, LAZY)
            await trio.sleep(2 * CHECKPOINT_PAUSE_S)  # durable after this time
            assert noted_in(world) == (CompactionHorizon(), 0)
            await fill(elected, count=60, keys=60)
            assert (elected.log.dropped, elected.log.compacted_to) == (CompactionHorizon(), 0)
    world.crash()
    async with running(world, clock=now_ms) as store:
        elected = await led(store, 2, LAZY)
        await fill(elected, count=60, keys=60)
        assert (elected.log.dropped, elected.log.compacted_to) == (CompactionHorizon(), 0)
        await elected.log_dir.commit_log.checkpoint()
        assert noted_in(world) == (CompactionHorizon(), 0)


def noted_in(world: SimulatedFileSystem) -> tuple[CompactionHorizon, int]:
    noted = read_checkpoint(world, "/data").partitions[key_of(ORDERS)]
    return noted.dropped, noted.compacted_to


async def test_a_damaged_log_keeps_its_noted_compaction_horizon() -> None:
    """A later start may be able to read them."""
    world = SimulatedFileSystem()
    async with running(world, clock=now_ms) as store:
        follower = await followed(store, 0)
        await follower.expect_gaps(50, (), CompactionHorizon(50, 50))
        await fill(await led(store, 1, LAZY), count=9, keys=9)
        follower.log.dropped = CompactionHorizon(5, 5)
        await follower.log_dir.commit_log.checkpoint()
        path = follower.log.path_of(0)
    world.damage(path, 0, b"?")
    for leader_epoch in (2, 3):
        async with running(world, clock=now_ms) as store:
            damaged = await led(store, leader_epoch, LAZY)
            assert damaged.log.damaged_from == 0
            assert damaged.log.dropped == CompactionHorizon(5, 5)
            await damaged.log_dir.commit_log.checkpoint()
            assert read_checkpoint(world, "/data").partitions[key_of(ORDERS)].dropped == CompactionHorizon(5, 5)


async def without_what_counts_again(leader: Partition, late: SegmentStore) -> None:
    """Make a log whose cleaner dropped a value that `late` has, because of a record that `late` lacks."""
    await send(leader, (b"k", b"acknowledged"))
    for number in range(9):
        await send(leader, (b"before %d" % number, b"value"))
    await copy(late, leader)
    await send(leader, (b"k", b"given up"))
    for number in range(20):
        await send(leader, (b"behind %d" % number, b"value"))
    await until_compacted(leader)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_short_copy_of_a_compacted_log_restarts_after_an_unclean_election(*, restarts: bool) -> None:
    """The record that replaced the value lies behind the end of the copy, so the logs do not diverge."""
    world = SimulatedFileSystem()
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        late = await followed(b, 0)
        await without_what_counts_again(leader, b)
        async with running(world, clock=now_ms) as c:
            await followed(c, 0)
            await copy(c, leader, to=late.log_end_offset)
            assert c.replica(ORDERS).log_end_offset == late.log_end_offset
            elected = await led(b, 1)
            if not restarts:
                await gives_back(c, elected)
                return
        world.crash()
        async with running(world, clock=now_ms) as c:
            await gives_back(c, elected)


async def test_a_copy_of_a_compacted_log_begun_after_an_unclean_election_does_not_restart() -> None:
    """The leader was elected since, and its records are older; the follower may know any part of them."""
    world = SimulatedFileSystem()
    async with stores(1) as (a,):
        await fill(await led(a, 0), count=40, keys=40)
        leader = await led(a, 2)
        await fill(leader, count=40, keys=4)
        await until_compacted(leader)
        for to in (20, 40, leader.log_end_offset):
            async with running(world, clock=now_ms) as b:
                await b.open_partitions([Following(ORDERS, LAZY, 2, unclean_since=1)])
                assert await copy(b, leader, to) == 0
            world.crash()


async def gives_back(store: SegmentStore, elected: Partition) -> None:
    """Assert that the value comes back."""
    await store.open_partitions([Following(ORDERS, LAZY, 1, unclean_since=1)])
    await fill(elected, count=9)
    assert await copy(store, elected) == 1
    assert (await latest(elected))[b"k"] == b"acknowledged"
    await equal(await led(store, 2), elected)


@pytest.mark.parametrize("loses_power", [False, True])
async def test_a_compacted_copy_longer_than_its_leader_restarts_after_an_unclean_election(*, loses_power: bool) -> None:
    """The cleaner of the old leader had dropped the value, which counts again. The follower may know any high
    watermark."""
    world = SimulatedFileSystem()
    async with stores(2) as (a, b):
        leader = await led(a, 0)
        late = await followed(b, 0)
        await without_what_counts_again(leader, b)
        async with running(world, clock=now_ms) as c:
            await followed(c, 0)
            await copy(c, leader, to=late.log_end_offset + 1)
            if not loses_power:
                await c.close()
        world.crash()
        elected = await led(b, 1)
        async with running(world, clock=now_ms) as c:
            await c.open_partitions([Following(ORDERS, LAZY, 1, unclean_since=1)])
            await restarts_behind(c, elected)
            await fill(elected, count=9)
            await copy(c, elected)
            assert (await latest(elected))[b"k"] == b"acknowledged"
            await equal(await led(c, 2), elected)


async def restarts_behind(store: SegmentStore, elected: Partition) -> None:
    """Re-replicate from scratch, because the two logs diverge."""
    follower = store.replica(ORDERS)
    state = follower.fetching
    assert state is not None
    asked = state.ask(follower.log_state)
    assert asked is not None
    end = elected.end_offset_for_epoch(asked.last_epoch)
    action = state.answered(asked, LeaderReply(diverging=end, log_start_offset=0), follower.log_state)
    assert action == Restart(0)
    await store.reset_partition(ORDERS, action.offset, follows_in=state.epoch)
    state.done()


async def test_an_unclean_election_restores_a_value_that_a_follower_had_compacted_away() -> None:
    """The cleaner of a replica has dropped the value, which counts again."""
    async with stores(3) as (a, b, c):
        leader = await led(a, 0, LAZY)
        late = await followed(b, 0)
        await c.open_partitions([Following(ORDERS, COMPACT, 0)])
        await send(leader, (b"k", b"acknowledged"))
        await fill(leader, count=9)
        await copy(b, leader)
        await send(leader, (b"k", b"given up"))
        await fill(leader, count=30)
        await copy(c, leader)
        await trio.sleep(BACKOFF_S + 1)
        assert c.replica(ORDERS).log.clean_to > late.log_end_offset
        elected = await led(b, 1)
        await c.open_partitions([Following(ORDERS, COMPACT, 1, unclean_since=1)])
        await restarts_behind(c, elected)
        await fill(elected, count=9)
        await copy(c, elected)
        assert (await latest(elected))[b"k"] == b"acknowledged"
        await equal(await led(c, 2), elected)
