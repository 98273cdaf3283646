"""Truncation: removed records stay away, the others stay, and offsets go on from the new end (RULES J2)."""

import errno
import random
from array import array
from functools import partial

import pytest
import trio
import trio.testing

from engine.api import Isolation, TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.commit.journal_format import Barrier, BarrierKind
from engine.commit.replay import apply_barrier
from engine.errors import (
    EngineError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageError,
    UnknownPartition,
    UnreadableMessage,
)
from engine.log_config import FlushPolicy, LogConfig
from engine.logs.recovery.checkpoints import PartitionCheckpoint
from engine.logs.recovery.epochs import EpochStart
from engine.logs.segments.segment import segment_name
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import (
    MAX_BYTES,
    NOW_MS,
    ORDERS,
    HeldWorkers,
    SlowSyncs,
    append,
    batch,
    open_orders,
    options,
    read_all,
    running,
)

ROLLING = LogConfig(segment_size_bytes=400)
OTHER = TopicIdPartition(bytes([5] * 16), "payments", 0)


async def filled(store: SegmentStore, count: int, config: LogConfig = ROLLING) -> Partition:
    """The orders log with `count` records; the journal has a slot from the third on."""
    log = await open_orders(store, config)
    assert isinstance(log, Partition)
    for number in range(count):
        await append(log, b"value %d" % number)
        if number < 3:
            await trio.sleep(5)
    return log


def values(count: int) -> dict[int, bytes | None]:
    return {number: b"value %d" % number for number in range(count)}


@pytest.mark.parametrize("offset", [0, 1, 6, 7, 19, 20, 99])
@pytest.mark.parametrize("config", [ROLLING, LogConfig()])
async def test_appends_go_on_from_the_new_end(config: LogConfig, offset: int) -> None:
    filesystem = SimulatedFileSystem()
    kept = min(offset, 20)
    async with running(filesystem) as store:
        log = await filled(store, 20, config)
        assert await store.truncate_partition(ORDERS, offset, below_sealed=True) == kept
        assert (log.high_watermark, log.log_end_offset) == (kept, kept)
        assert await read_all(log) == values(kept)
        with pytest.raises(OffsetOutOfRange):
            log.read(kept + 1, MAX_BYTES, Isolation.READ_UNCOMMITTED, at_least_one=True)
        assert (await append(log, b"after")).base_offset == kept
        expected = values(kept) | {kept: b"after"}
        assert await read_all(log) == expected
        assert (await log.offset_for_timestamp(NOW_MS, Isolation.READ_UNCOMMITTED)).offset == 0
    filesystem.crash()
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, config, leader_epoch=1)) == expected


async def test_no_batch_is_cut_in_two() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        for _ in range(3):
            await append(log, b"a", b"b", b"c", b"d")
        assert await store.truncate_partition(ORDERS, 6, below_sealed=True) == 4
        assert await store.truncate_partition(ORDERS, 4, below_sealed=True) == 4


async def test_epochs_are_cut_and_the_present_one_begins_at_the_new_end() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        for epoch in range(3):
            log = await open_orders(store, ROLLING, leader_epoch=epoch)
            await append(log, b"value", b"value")
        assert isinstance(log, Partition)
        await store.truncate_partition(ORDERS, 2, below_sealed=True)
        assert [log.log.epochs.epoch_of(offset) for offset in (0, 1, 2)] == [0, 0, 2]
        await append(log, b"value")
        await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING, leader_epoch=3)
        assert isinstance(log, Partition)
        assert [log.log.epochs.epoch_of(offset) for offset in (0, 1, 2)] == [0, 0, 2]


@pytest.mark.parametrize("seed", [None, *range(5)])
@pytest.mark.parametrize("has_slot", [True, False])
async def test_j2_every_crash_state_of_a_truncation(has_slot: bool, seed: int | None) -> None:
    """Records below the cut are always there; no replay truncates later appends."""
    filesystem = SimulatedFileSystem()
    store_options = options(journal_slot_size_bytes=64 * 1024 if has_slot else 100)
    done = list[int]()
    async with running(filesystem, store_options) as store:
        log = await filled(store, 9)
        started = len(filesystem.operations)
        assert await store.truncate_partition(ORDERS, 4, below_sealed=True) == 4
        done.append(len(filesystem.operations))
        for value in (b"new 4", b"new 5"):
            await append(log, value)
            done.append(len(filesystem.operations))
        await store.close()
    operations = list(filesystem.operations)
    for count in range(started, len(operations) + 1):
        image = SimulatedFileSystem.replayed(operations[:count])
        image.crash(None if seed is None else random.Random(seed * 1000 + count))
        async with running(image, store_options) as store:
            found = await read_all(await open_orders(store, ROLLING, leader_epoch=9))
        assert list(found) == list(range(len(found)))
        assert list(found.values())[:4] == list(values(4).values())
        rest = list(found.values())[4:]
        if count < done[0]:
            assert rest == [b"value %d" % number for number in range(4, len(found))]
        else:
            acknowledged = sum(count >= one for one in done[1:])
            assert acknowledged <= len(rest)
            assert rest == [b"new 4", b"new 5"][: len(rest)]


@pytest.mark.parametrize("seed", [None, *range(3)])
async def test_j2_every_crash_state_of_a_truncation_of_several_logs(seed: int | None) -> None:
    """The journal has rows of each log behind its new end: barriers for all of them are written."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        logs = [await open_orders(store, ROLLING), await store.open_partition(OTHER, ROLLING, 0)]
        for number in range(9):
            for log in logs:
                await append(log, b"value %d" % number)
            if number == 5:
                await trio.sleep(70)
        started = len(filesystem.operations)
        cut = await store.truncate_partitions({ORDERS: 2, OTHER: 3}, below_sealed=True)
        assert cut == [None, None]
    operations = list(filesystem.operations)
    for count in range(started, len(operations) + 1):
        image, problems = SimulatedFileSystem.replayed(operations[:count]), list[str]()
        image.crash(None if seed is None else random.Random(seed * 1000 + count))
        async with running(image, problems=problems) as store:
            assert await read_all(await open_orders(store, ROLLING, leader_epoch=1)) in (values(9), values(2))
            assert await read_all(await store.open_partition(OTHER, ROLLING, 1)) in (values(9), values(3))
        assert not problems


async def test_j2_nothing_behind_a_synced_barrier_comes_back() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 9)
        filesystem.faults.append(Fault("unlink", errno.EIO, ".log"))
        with pytest.raises(StorageError):
            await store.truncate_partition(ORDERS, 4, below_sealed=True)
        with pytest.raises(EngineError):
            log.append(memoryview(batch(b"offline")), acks=-1)
    filesystem.crash()
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, ROLLING, leader_epoch=1)) == values(4)


async def test_j2_without_a_checkpoint_behind_the_barrier_nothing_is_appended() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 9)
        filesystem.faults.append(Fault("write", errno.ENOSPC, "/checkpoint.tmp"))
        with pytest.raises(StorageError, match="ENOSPC"):
            await store.truncate_partition(ORDERS, 4, below_sealed=True)
        with pytest.raises(StorageError, match="wait for a checkpoint"):
            log.append(memoryview(batch(b"later")), acks=-1)
    async with running(filesystem) as store:
        again = await open_orders(store, ROLLING, leader_epoch=1)
        assert await read_all(again) == values(4)
        await append(again, b"value 4")


async def test_appends_meanwhile_are_refused_or_behind_the_new_end() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await filled(store, 9)
        results, refused = list[int](), list[str]()

        async def produce(number: int) -> None:
            try:
                results.append((await append(log, b"during %d" % number)).base_offset)
            except NotLeaderOrFollower as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(produce, number)
            nursery.start_soon(partial(store.truncate_partition, ORDERS, 2, below_sealed=True))
            for number in range(4, 8):
                nursery.start_soon(produce, number)
        found = await read_all(log)
        assert list(found) == list(range(log.log_end_offset))
        assert len(found) <= 2 + 8
        assert set(refused) <= {"the log is being truncated"}
        assert (await append(log, b"after")).base_offset == len(found)


async def test_others_append_while_logs_are_looked_at_and_cut() -> None:
    """Appends to the truncated log are refused from the barrier to the checkpoint."""
    pool = HeldWorkers()
    async with running(SimulatedFileSystem(), options(), pool=pool) as store:
        log = await filled(store, 9, LogConfig())
        other = await store.open_partition(OTHER, LogConfig(), 0)
        await append(other, b"0")
        async with trio.open_nursery() as nursery:
            readers = set(log.log_dir.disk.workers.readers)
            pool.held = readers
            nursery.start_soon(store.truncate_partition, ORDERS, 4)
            await trio.testing.wait_all_tasks_blocked()
            assert (await append(log, b"while it is looked at")).base_offset == 9
            assert (await append(other, b"1")).base_offset == 1
            pool.release()
            while log.log_end_offset > 4:
                await trio.lowlevel.checkpoint()
            pool.held = readers
            with pytest.raises(NotLeaderOrFollower, match="truncated"):
                await append(log, b"while it is cut")
            assert (await append(other, b"2")).base_offset == 2
            pool.release()
        assert (await append(log, b"after")).base_offset == 4
        assert await read_all(log) == values(4) | {4: b"after"}


async def test_a_log_that_ends_at_the_truncation_offset_keeps_records_appended_meanwhile() -> None:
    pool = HeldWorkers()
    async with running(SimulatedFileSystem(), options(), pool=pool) as store:
        log = await filled(store, 9, LogConfig())
        other = await store.open_partition(OTHER, LogConfig(), 0)
        await append(other, b"0")
        await append(other, b"1")
        async with trio.open_nursery() as nursery:
            pool.held = set(log.log_dir.disk.workers.readers)
            nursery.start_soon(store.truncate_partitions, {OTHER: 2, ORDERS: 4})
            await trio.testing.wait_all_tasks_blocked()
            await append(other, b"2")
            pool.release()
        assert (log.log_end_offset, other.log_end_offset) == (4, 3)


async def test_many_logs_share_a_frame_and_a_checkpoint() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await filled(store, 3)
        logs = {}
        for number in range(40):
            one = TopicIdPartition(bytes([number] * 16), f"topic{number}", 0)
            logs[one] = await store.open_partition(one, LogConfig(segment_size_bytes=200 + 10 * number), 0)
            for count in range(5):
                await append(logs[one], b"value %d" % count)
        await trio.sleep(70)
        before = len(filesystem.operations)
        assert await store.truncate_partitions(dict.fromkeys(logs, 2), below_sealed=True) == [None] * 40
        done = filesystem.operations[before:]
        assert sum(one.kind == "write" and one.path.endswith(".journal") for one in done) == 1
        assert sum(one.kind == "write" and one.path.endswith("/checkpoint.tmp") for one in done) == 1
        for log in logs.values():
            assert await read_all(log) == values(2)
    filesystem.crash()
    async with running(filesystem) as store:
        for one in logs:
            assert await read_all(await store.open_partition(one, LogConfig(), 1)) == values(2)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("kind", ["unlink", "truncate", "fdatasync", "sync_dir", "rename"])
async def test_j2_an_error_behind_the_barrier_of_a_truncation_refuses_later_appends(kind: str, code: int) -> None:
    """Otherwise a replay would truncate acknowledged records, or they would go into a file without a name."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 9)
        await trio.sleep(70)
        if kind == "fdatasync":
            filesystem.faults.append(Fault(kind, code, ".log"))
        else:
            filesystem.faults.append(Fault(kind, code))
        with pytest.raises(StorageError):
            await store.truncate_partition(ORDERS, 4, below_sealed=True)
        with pytest.raises(EngineError):
            await append(log, b"later")
    filesystem.crash()
    async with running(filesystem) as store:
        again = await open_orders(store, ROLLING, leader_epoch=1)
        assert await read_all(again) == values(4)
        assert (await append(again, b"value 4")).base_offset == 4


async def test_sealed_segments_are_truncated_only_on_demand() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await filled(store, 20)
        await trio.sleep(5)
        sealed_to = max(one.end_offset for one in log.log.segments if one.is_sealed)
        assert sealed_to < log.log_end_offset
        with pytest.raises(OffsetOutOfRange, match="sealed"):
            await store.truncate_partition(ORDERS, sealed_to - 1)
        assert log.log_end_offset == 20
        assert await store.truncate_partition(ORDERS, sealed_to) == sealed_to
        assert await store.truncate_partition(ORDERS, sealed_to - 1, below_sealed=True) == sealed_to - 1


@pytest.mark.parametrize("wrong_by", [-61, -1, 1, 61])
async def test_an_index_that_is_wrong_is_not_believed(wrong_by: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig())
        assert isinstance(log, Partition)
        for number in range(30):
            await append(log, b"%d" % number * 1000)
        index = log.log.active.index
        assert index is not None
        index._positions = array("q", [max(0, one + wrong_by) for one in index._positions])
        assert await store.truncate_partition(ORDERS, 20) == 20
        assert list(await read_all(log)) == list(range(20))
        assert (await append(log, b"after")).base_offset == 20


async def test_a_partition_that_cannot_be_truncated_does_not_stop_the_others() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 5, LogConfig())
        other = await store.open_partition(OTHER, LogConfig(), 0)
        for _ in range(5):
            await append(other, b"x")
        nobody = TopicIdPartition(bytes(16), "nobody", 0)
        path = log.log.path_of(0)
        filesystem.bad_sectors[path] = range(70, 80)
        errors = await store.truncate_partitions({ORDERS: 3, nobody: 0, OTHER: 2})
        assert [type(one) for one in errors] == [UnreadableMessage, UnknownPartition, type(None)]
        assert (log.log_end_offset, other.log_end_offset) == (5, 2)


async def test_a_sync_begun_before_a_truncation_does_not_count_for_later_records() -> None:
    filesystem, pool = SimulatedFileSystem(), SlowSyncs()
    config = LogConfig(flush_policy=FlushPolicy.ASYNC, segment_size_bytes=400)
    async with running(filesystem, pool=pool) as store, trio.open_nursery() as nursery:
        log = await filled(store, 9, config)
        pool.is_slow = True
        nursery.start_soon(log.log_dir.commit_log.flusher.flush, [log.log])
        await trio.testing.wait_all_tasks_blocked()
        pool.is_slow = False
        await store.truncate_partition(ORDERS, 2, below_sealed=True)
        assert (log.log.end.offset, log.log.flushed_offset) == (2, 2)
        for number in range(2, 12):
            await append(log, b"value %d" % number)
        flushed_offset = log.log.flushed_offset
        pool.started[0].report()
        await trio.testing.wait_all_tasks_blocked()
        assert log.log.flushed_offset == flushed_offset < log.log_end_offset


@pytest.mark.parametrize("config", [ROLLING, LogConfig()])
@pytest.mark.parametrize("offset", [1, 3, 9, 13, 17, 19])
async def test_producers_are_known_as_far_as_their_batches_are_there(config: LogConfig, offset: int) -> None:
    """A later open finds the same producers."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        assert isinstance(log, Partition)
        for number in range(20):
            producer_id = (7, 8, 7, 9)[number * 4 // 20]
            sequence = sum((7, 8, 7, 9)[one * 4 // 20] == producer_id for one in range(number))
            await send(log, producer_id, sequence)
        await store.truncate_partition(ORDERS, offset, below_sealed=True)
        now = dict(log.log.producers)
        await send(log, 7, sum((7, 8, 7, 9)[one * 4 // 20] == 7 for one in range(offset)))
        assert log.log_end_offset == offset + 1
    filesystem.crash()
    async with running(filesystem) as store:
        again = await open_orders(store, config, leader_epoch=1)
        assert isinstance(again, Partition)
        found = dict(again.log.producers)
        assert {one: found[one] for one in found if one != 7} == {one: now[one] for one in now if one != 7}
        assert found[7].batches[-1].last_offset == offset


async def send(log: Partition, producer_id: int, sequence: int) -> None:
    records = build_batch([Record(b"k", b"v", NOW_MS)], producer=(producer_id, 0, sequence))
    await log.append(memoryview(records), acks=-1).wait()


@pytest.mark.parametrize("offset", [0, 3, 6, 9, 50])
async def test_a_log_that_is_reset_goes_on_elsewhere(offset: int) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 9)
        await send(log, 7, 0)
        await log.delete_records(2)
        await store.reset_partition(ORDERS, offset)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset,) * 3
        assert await read_all(log) == {}
        assert not log.log.producers
        assert (await append(log, b"anew")).base_offset == offset
        assert (await log.offset_for_timestamp(NOW_MS, Isolation.READ_UNCOMMITTED)).offset == offset
        assert [one for one in filesystem.list_dir("/data/orders-0") if one.endswith(".log")] == [segment_name(offset)]
    filesystem.crash()
    async with running(filesystem) as store:
        again = await open_orders(store, ROLLING, leader_epoch=1)
        assert again.log_start_offset == offset
        assert await read_all(again) == {offset: b"anew"}


async def test_a_reset_without_room_in_the_journal_is_refused() -> None:
    """A replay has to repeat the reset; a checkpoint does not do that."""
    async with running(SimulatedFileSystem(), options(journal_slot_size_bytes=100)) as store:
        log = await filled(store, 3)
        with pytest.raises(StorageError, match="journal"):
            await store.reset_partition(ORDERS, 1)
        assert await read_all(log) == values(3)
        assert (await append(log, b"value 3")).base_offset == 3


async def test_a_reset_makes_no_slot_while_another_is_being_made() -> None:
    """Both slots would have the same name."""
    filesystem, pool = SimulatedFileSystem(), HeldWorkers()
    async with running(filesystem, pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        pool.held = set(log.log_dir.disk.workers.readers)
        await append(log, b"wants a slot")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(store.reset_partition, ORDERS, 7)
        await trio.testing.wait_all_tasks_blocked()
        before = log.log_start_offset
        pool.release()
        await trio.sleep(5)
        assert (before, log.log_start_offset) == (0, 7), "it waits for the one that is being made"
        made = [one.path for one in filesystem.operations if one.kind == "create" and ".journal" in one.path]
        assert made
        assert len(made) == len(set(made))


async def test_l6_the_index_forgets_truncated_records() -> None:
    """Later records have other timestamps at the same offsets: the index must not answer with the old ones."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig())
        for number in range(60):
            record = Record(b"k", bytes(500), NOW_MS + number)
            await log.append(memoryview(build_batch([record])), acks=-1).wait()
        await store.truncate_partition(ORDERS, 30, below_sealed=True)
        for number in range(30, 60):
            record = Record(b"k", bytes(500), NOW_MS + 1000 + number)
            await log.append(memoryview(build_batch([record])), acks=-1).wait()
        await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig(), leader_epoch=1)
        for time_ms, offset in ((NOW_MS + 29, 29), (NOW_MS + 30, 30), (NOW_MS + 1045, 45)):
            assert (await log.offset_for_timestamp(time_ms, Isolation.READ_UNCOMMITTED)).offset == offset


async def test_truncation_below_the_log_start_or_of_an_unknown_partition_is_refused() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await filled(store, 3)
        log.log.start_offset = 2
        with pytest.raises(OffsetOutOfRange):
            await store.truncate_partition(ORDERS, 1, below_sealed=True)
        with pytest.raises(UnknownPartition):
            await store.truncate_partition(TopicIdPartition(bytes(16), "nobody", 0), 0)
        assert await read_all(log) == {2: b"value 2"}


def test_j2_a_barrier_limits_the_checkpoint_entry_of_its_partition() -> None:
    key = (bytes(16), 3)
    point = PartitionCheckpoint
    epochs = EpochStart(0, 0), EpochStart(4, 50), EpochStart(7, 60)
    known = point(100, 10, 90, epochs, epochs_to=95, high_watermark=15)
    for barrier, expected in (
        (
            Barrier(*key, BarrierKind.TRUNCATED, 60),
            point(60, 10, 0, epochs[:2], epochs_to=60, high_watermark=15),
        ),
        (
            Barrier(*key, BarrierKind.TRUNCATED, 120),
            point(100, 10, 0, epochs, epochs_to=95, high_watermark=15),
        ),
        (Barrier(*key, BarrierKind.LOG_START, 20), known._replace(log_start_offset=20, high_watermark=20)),
        (
            Barrier(*key, BarrierKind.TRUNCATED, 12),
            point(12, 10, 0, epochs[:1], epochs_to=12, high_watermark=12),
        ),
        (Barrier(*key, BarrierKind.RESET, 70), point(70, 70, 70, epochs_to=70, high_watermark=70)),
        (Barrier(*key, BarrierKind.LOG_START, 5), known),
        (Barrier(*key, BarrierKind.DELETED), None),
    ):
        points = {key: known}
        apply_barrier(points, barrier)
        assert points.get(key) == expected
