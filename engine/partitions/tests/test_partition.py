"""Appending to and reading from one partition: acks, order, fetch slices, searches, failures."""

import errno
from functools import partial

import pytest
import trio
import trio.testing

from engine.api import Isolation, OffsetAtTimestamp, OffsetSpec, TopicIdPartition
from engine.batches.batch import Codec, Record, has_right_crc
from engine.errors import (
    EngineError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    Overloaded,
    RecordListTooLarge,
    StorageError,
    UnknownLeaderEpoch,
)
from engine.log_config import FlushPolicy, LogConfig, TimestampType
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import (
    MAX_BYTES,
    NO_JOURNAL,
    NOW_MS,
    HeldPool,
    append,
    batch,
    batches_in,
    bytes_of,
    compressed_batch,
    open_orders,
    options,
    read,
    read_all,
    running,
)

EVERYTHING = Isolation.READ_UNCOMMITTED
NOTHING_FOUND = OffsetAtTimestamp(-1, -1, -1)
LOG_FILE = "/data/orders-0/00000000000000000000.log"


async def test_append_assigns_offsets_and_stamps_the_leader_epoch() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, leader_epoch=7)
        first = await append(log, b"a", b"b")
        second = await append(log, b"c")
        assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
        assert first.log_append_time_ms == -1
        assert (log.high_watermark, log.log_end_offset, log.last_stable_offset) == (3, 3, 3)
        result = log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True)
        assert [header.leader_epoch for header, _ in batches_in(bytes_of(result.records))] == [7, 7]
        assert await read_all(log) == {0: b"a", 1: b"b", 2: b"c"}


@pytest.mark.parametrize("acks", [1, -1])
async def test_l1_an_append_is_answered_when_it_is_synced_and_can_be_read_then(acks: int) -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store)
        pool.is_holding = True
        pending = log.append(memoryview(batch(b"a")), acks=acks)
        with trio.move_on_after(10) as waited:
            await pending.wait()
        assert waited.cancelled_caught, "answered before it was durable"
        assert (log.log_end_offset, log.high_watermark) == (1, 0)
        assert log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True).records == [], "readable before it was durable"
        seen: list[int] = []
        pending.call_when_settled(lambda: seen.append(log.high_watermark))
        pool.release.set()
        assert (await pending.wait()).base_offset == 0
        assert seen == [1], "not readable when it was answered"


async def test_l1_async_topics_acknowledge_written_and_sync_topics_synced_records() -> None:
    pool = HeldPool()
    filesystem = SimulatedFileSystem()
    async with running(filesystem, pool=pool) as store:
        fast = await open_orders(store, LogConfig(flush_policy=FlushPolicy.ASYNC))
        safe = await store.open_partition(TopicIdPartition(bytes(16), "payments", 0), LogConfig(), 0)
        pool.is_holding = True
        waiting = safe.append(memoryview(batch(b"b")), acks=-1)
        assert (await append(fast, b"a")).base_offset == 0
        assert (fast.high_watermark, safe.high_watermark) == (1, 0)
        pool.release.set()
        assert (await waiting.wait()).base_offset == 0
        synced = [operation.path for operation in filesystem.operations if operation.kind == "fdatasync"]
        assert "/data/payments-0/00000000000000000000.log" in synced
        assert LOG_FILE not in synced


async def test_a_flush_that_fails_takes_the_log_dir_offline() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig(flush_policy=FlushPolicy.ASYNC, flush_interval_ms=1000))
        await append(log, b"a")
        filesystem.faults.append(Fault("fdatasync", errno.EIO))
        await trio.sleep(2)
        with pytest.raises(StorageError):
            await append(log, b"b")


async def test_much_that_is_unflushed_is_flushed_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.partitions.commits.FLUSH_BEHIND_BYTES", 1000)
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig(flush_policy=FlushPolicy.ASYNC))
        await append(log, b"small")
        await trio.sleep(1)
        assert not [one for one in filesystem.operations if one.kind == "fdatasync" and one.path == LOG_FILE]
        await append(log, b"x" * 1000)
        await trio.sleep(1)
        assert [one for one in filesystem.operations if one.kind == "fdatasync" and one.path == LOG_FILE]


async def test_group_commit_appends_during_a_round_share_the_next_sync() -> None:
    filesystem, pool = SimulatedFileSystem(), HeldPool()
    async with running(filesystem, options(journal_slot_size_bytes=NO_JOURNAL), pool=pool) as store:
        log = await open_orders(store)
        filesystem.operations.clear()
        pool.is_holding = True
        pending = [log.append(memoryview(batch(b"first")), acks=-1)]
        await trio.testing.wait_all_tasks_blocked()
        pending += [log.append(memoryview(batch(b"%d" % n)), acks=-1) for n in range(50)]
        pool.release.set()
        offsets = [(await one.wait()).base_offset for one in pending]
        assert offsets == list(range(51))
        kinds = [operation.kind for operation in filesystem.operations if operation.path == LOG_FILE]
        assert kinds == ["write", "fdatasync", "write", "fdatasync"]


async def test_fetch_from_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        await append(log, b"a", b"b", b"c")
        await append(log, b"d")
        result = log.read(1, MAX_BYTES, EVERYTHING, at_least_one=True)
        assert [header.base_offset for header, _ in batches_in(bytes_of(result.records))] == [0, 3]
        assert result.aborted is None
        assert log.read(1, MAX_BYTES, Isolation.READ_COMMITTED, at_least_one=True).aborted == []


async def test_fetch_gives_one_whole_batch_when_asked_to_and_cuts_later_ones_by_bytes() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        size_bytes = len(batch(b"x" * 1000))
        for _ in range(3):
            await append(log, b"x" * 1000)
        assert log.read(0, 10, EVERYTHING, at_least_one=True).size_bytes == size_bytes
        assert log.read(0, 10, EVERYTHING, at_least_one=False).records == []
        assert log.read(0, size_bytes + 500, EVERYTHING, at_least_one=False).size_bytes == size_bytes + 500
        assert log.read(0, MAX_BYTES, EVERYTHING, at_least_one=False).size_bytes == 3 * size_bytes


async def test_offsets_outside_the_log_are_out_of_range_and_its_end_is_empty() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        await append(log, b"a")
        assert log.read(1, MAX_BYTES, EVERYTHING, at_least_one=True).records == []
        for offset in (-1, 2):
            with pytest.raises(OffsetOutOfRange):
                log.read(offset, MAX_BYTES, EVERYTHING, at_least_one=True)


async def test_log_rolls_at_segment_size_and_reads_go_on_across_segments() -> None:
    filesystem = SimulatedFileSystem()
    config = LogConfig(segment_size_bytes=500)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        pending = [log.append(memoryview(batch(b"x" * 100, b"y")), acks=-1) for _ in range(10)]
        for one in pending:
            await one.wait()
        names = [name for name in filesystem.list_dir("/data/orders-0") if name.endswith(".log")]
        assert names == [f"{base:020d}.log" for base in (0, 4, 8, 12, 16)]
        assert list(await read_all(log)) == list(range(20))
        with pytest.raises(RecordListTooLarge):
            log.append(memoryview(batch(b"x" * 500)), acks=-1)


async def test_log_append_time_replaces_timestamps_and_keeps_the_crc_right() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
        pending = log.append(memoryview(batch(b"a", timestamps_ms=[5])), acks=-1)
        assert (await pending.wait()).log_append_time_ms == NOW_MS
        data = bytes_of(log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True).records)
        [(header, [record])] = batches_in(data)
        assert header.is_log_append_time
        assert record.timestamp_ms == NOW_MS
        assert has_right_crc(memoryview(data), header)


@pytest.mark.parametrize("codec", list(Codec))
async def test_search_by_timestamp_is_exact_to_the_record(codec: Codec) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(segment_size_bytes=600), leader_epoch=3)
        for start in range(0, 100, 5):
            records = [Record(None, b"v" * 40, start * 10 + n * 10) for n in (0, 2, 1, 4, 3)]
            await log.append(memoryview(compressed_batch(codec, records)), acks=-1).wait()
        stored = dict(enumerate(time for s in range(0, 100, 5) for time in _times(s)))
        for wanted in (0, 1, 45, 500, 505, 985, 990):
            offset = min(offset for offset, time in stored.items() if time >= wanted)
            found = await log.offset_for_timestamp(wanted, EVERYTHING)
            assert found == OffsetAtTimestamp(offset, stored[offset], 3)
        assert await log.offset_for_timestamp(991, EVERYTHING) == NOTHING_FOUND
        newest = max(stored, key=lambda offset: (stored[offset], -offset))
        found = await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, EVERYTHING)
        assert found == OffsetAtTimestamp(newest, 990, 3)


def _times(start: int) -> list[int]:
    return [start * 10 + n * 10 for n in (0, 2, 1, 4, 3)]


async def test_offsets_with_a_meaning() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, leader_epoch=2)
        assert await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, EVERYTHING) == NOTHING_FOUND
        assert await log.offset_for_timestamp(OffsetSpec.LATEST_TIERED, EVERYTHING) == NOTHING_FOUND
        await append(log, b"a", b"b")
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
            assert await log.offset_for_timestamp(spec, EVERYTHING) == OffsetAtTimestamp(0, -1, 2)
        assert await log.offset_for_timestamp(OffsetSpec.LATEST, EVERYTHING) == OffsetAtTimestamp(2, -1, 2)


async def test_leader_epochs_are_fenced_and_go_into_the_batches() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, leader_epoch=4)
        await append(log, b"a")
        assert await open_orders(store, leader_epoch=6) is log
        await append(log, b"b")
        log.check_leader_epoch(6)
        log.check_leader_epoch(-1)
        with pytest.raises(FencedLeaderEpoch):
            log.check_leader_epoch(5)
        with pytest.raises(UnknownLeaderEpoch):
            log.check_leader_epoch(7)
        with pytest.raises(FencedLeaderEpoch):
            await open_orders(store, leader_epoch=5)
        data = bytes_of(log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True).records)
        assert [header.leader_epoch for header, _ in batches_in(data)] == [4, 6]
        assert (await log.offset_for_timestamp(OffsetSpec.EARLIEST, EVERYTHING)).leader_epoch == 4


async def test_a_leader_epoch_begins_behind_appends_on_their_way_to_disk() -> None:
    filesystem, pool = SimulatedFileSystem(), HeldPool()
    half = b"x" * 700_000  # two of them are too much to be written by the loop
    async with running(filesystem, pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store, leader_epoch=4)
        pool.is_holding = True
        pending = [log.append(memoryview(batch(half)), acks=-1) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(open_orders, store, leader_epoch=5))
        await trio.testing.wait_all_tasks_blocked()
        pool.is_holding = False
        pool.release.set()
        for one in pending:
            await one.wait()
        await trio.testing.wait_all_tasks_blocked()
        await append(log, b"next")
        assert [log.end_offset_for_epoch(epoch).end_offset for epoch in (4, 5)] == [2, 3]
        await log.load(0, 4 * MAX_BYTES)
        data = bytes_of(log.read(0, 4 * MAX_BYTES, EVERYTHING, at_least_one=True).records)
        assert [header.leader_epoch for header, _ in batches_in(data)] == [4, 4, 5]


async def test_a_single_replica_is_enough_for_min_insync_replicas_2() -> None:
    """KIP-966: the smaller of that and the number of replicas counts."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(min_insync_replicas=2))
        assert (await append(log, b"a")).base_offset == 0


async def test_full_queue_refuses_and_room_comes_back() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), options(queue_max_bytes=1000), pool=pool) as store:
        log = await open_orders(store)
        pool.is_holding = True
        large = log.append(memoryview(batch(b"x" * 2000)), acks=-1)
        with pytest.raises(Overloaded):
            log.append(memoryview(batch(b"y")), acks=-1)
        with trio.move_on_after(1) as waited:
            await store.wait_for_room()
        assert waited.cancelled_caught
        pool.release.set()
        await large.wait()
        await store.wait_for_room()
        await append(log, b"y")


@pytest.mark.parametrize(
    ("kind", "path", "slot_size_bytes"),
    [
        ("write", ".log", 16 * 1024),
        ("fdatasync", ".log", NO_JOURNAL),
        ("write", ".journal", 16 * 1024),
        ("fdatasync", ".journal", 16 * 1024),
    ],
)
async def test_l4_failed_write_or_fsync_takes_the_log_dir_offline_without_retry(
    kind: str, path: str, slot_size_bytes: int
) -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, options(journal_slot_size_bytes=slot_size_bytes), fatal=fatal) as store:
        log = await open_orders(store)
        await append(log, b"kept")
        await trio.sleep(2)  # by now there is a slot, if slots can be used at all
        filesystem.faults.append(Fault(kind, errno.EIO, path))
        with pytest.raises(StorageError):
            await append(log, b"lost")
        before = len(filesystem.operations)
        with pytest.raises(StorageError):
            await append(log, b"more")
        with pytest.raises(StorageError):
            log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True)
        with pytest.raises(StorageError):
            store.get(log.partition)
        assert len(filesystem.operations) == before, "the disk was touched again after the failure"
        assert fatal == ["the last log dir went offline: /data: [Errno 5] injected"]


async def test_l4_full_disk_rejects_the_round_and_nothing_else() -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, fatal=fatal) as store:
        log = await open_orders(store)
        await append(log, b"a")
        filesystem.faults.append(Fault("write", errno.ENOSPC, ".log"))
        with pytest.raises(StorageError, match="no space"):
            await append(log, b"b")
        assert (await append(log, b"c")).base_offset == 1
        assert await read_all(log) == {0: b"a", 1: b"c"}
        assert fatal == []


async def test_l4_disk_that_fills_up_within_a_write_takes_the_log_dir_offline() -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, fatal=fatal) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault("write", errno.ENOSPC, ".log", written_bytes=10))
        with pytest.raises(StorageError):
            await append(log, b"b")
        assert len(fatal) == 1


async def test_a_failed_sync_raises_for_all_appends_that_waited_for_it() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault("fdatasync", errno.EIO, ".log"))
        for pending in [log.append(memoryview(batch(b"a")), acks=acks) for acks in (0, 1, -1)]:
            with pytest.raises(StorageError):
                await pending.wait()
        assert log.high_watermark == 0


async def test_a_sync_that_fails_takes_no_answer_back_from_an_async_topic_beside_it() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        fast = await open_orders(store, LogConfig(flush_policy=FlushPolicy.ASYNC))
        safe = await store.open_partition(TopicIdPartition(bytes(16), "payments", 0), LogConfig(), 0)
        filesystem.faults.append(Fault("fdatasync", errno.EIO, ".log"))
        answered, lost = [log.append(memoryview(batch(b"a")), acks=1) for log in (fast, safe)]
        assert (await answered.wait()).base_offset == 0
        with pytest.raises(StorageError):
            await lost.wait()
        assert not isinstance(answered.outcome, EngineError)


async def test_an_append_queued_under_an_earlier_leader_epoch_is_refused() -> None:
    """The producer sent to an earlier leadership. An append that was already on its way to the disk is acknowledged."""
    pool = HeldPool()
    async with running(SimulatedFileSystem(), options(journal_slot_size_bytes=NO_JOURNAL), pool=pool) as store:
        log = await open_orders(store)
        pool.is_holding = True
        on_its_way = log.append(memoryview(batch(b"a")), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        queued = log.append(memoryview(batch(b"b")), acks=-1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(open_orders, store, leader_epoch=1))
            await trio.testing.wait_all_tasks_blocked()
            pool.is_holding = False
            pool.release.set()
        assert (await on_its_way.wait()).base_offset == 0
        with pytest.raises(NotLeaderOrFollower):
            await queued.wait()
        assert (await append(log, b"c")).base_offset == 1
        assert [header.leader_epoch for header, _ in batches_in(bytes_of((await read(log, 0)).records))] == [0, 1]


async def test_another_configuration_refuses_nothing() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), options(journal_slot_size_bytes=NO_JOURNAL), pool=pool) as store:
        log = await open_orders(store)
        pool.is_holding = True
        queued = [log.append(memoryview(batch(b"a")), acks=-1) for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_orders, store, LogConfig(segment_size_bytes=1000))
            await trio.testing.wait_all_tasks_blocked()
            pool.is_holding = False
            pool.release.set()
        assert [(await one.wait()).base_offset for one in queued] == [0, 1, 2]
