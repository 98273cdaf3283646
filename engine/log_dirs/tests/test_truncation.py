"""What was truncated stays away, what was kept stays, and offsets go on from the new end (RULES J2)."""

import errno
import random

import pytest
import trio

from engine.api import Isolation, LogConfig, TopicPartition
from engine.batches.batch import Record, build_batch
from engine.commit.journal_format import Barrier, BarrierKind
from engine.commit.replay import end_by
from engine.errors import EngineError, OffsetOutOfRange, StorageError, UnknownPartition
from engine.files.twin import Fault, MemoryFileSystem
from engine.logs.checkpoints import PartitionCheckpoint
from engine.logs.epochs import EpochStart
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.tests.helpers import MAX_BYTES, NOW_MS, ORDERS, append, batch, open_orders, options, read_all, running

ROLLING = LogConfig(segment_size_bytes=400)


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
    filesystem = MemoryFileSystem()
    kept = min(offset, 20)
    async with running(filesystem) as store:
        log = await filled(store, 20, config)
        assert await store.truncate_partition(ORDERS, offset) == kept
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
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store)
        for _ in range(3):
            await append(log, b"a", b"b", b"c", b"d")
        assert await store.truncate_partition(ORDERS, 6) == 4
        assert await store.truncate_partition(ORDERS, 4) == 4


async def test_epochs_are_cut_and_the_present_one_begins_at_the_new_end() -> None:
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        for epoch in range(3):
            log = await open_orders(store, ROLLING, leader_epoch=epoch)
            await append(log, b"value", b"value")
        assert isinstance(log, Partition)
        await store.truncate_partition(ORDERS, 2)
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
    """What was kept is always there; what was appended afterwards is never cut by a replay."""
    filesystem = MemoryFileSystem()
    store_options = options(journal_slot_size_bytes=64 * 1024 if has_slot else 100)
    done = list[int]()
    async with running(filesystem, store_options) as store:
        log = await filled(store, 9)
        begun = len(filesystem.operations)
        assert await store.truncate_partition(ORDERS, 4) == 4
        done.append(len(filesystem.operations))
        for value in (b"new 4", b"new 5"):
            await append(log, value)
            done.append(len(filesystem.operations))
        await store.close()
    operations = list(filesystem.operations)
    for count in range(begun, len(operations) + 1):
        image = MemoryFileSystem.replayed(operations[:count])
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


async def test_j2_nothing_behind_a_synced_barrier_comes_back() -> None:
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 9)
        filesystem.faults.append(Fault("unlink", errno.EIO, ".log"))
        with pytest.raises(StorageError):
            await store.truncate_partition(ORDERS, 4)
        with pytest.raises(EngineError):
            log.append(memoryview(batch(b"offline")), acks=-1)
    filesystem.crash()
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, ROLLING, leader_epoch=1)) == values(4)


async def test_j2_without_a_checkpoint_behind_the_barrier_nothing_is_appended() -> None:
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, 9)
        filesystem.faults.append(Fault("write", errno.ENOSPC, "/checkpoint.tmp"))
        with pytest.raises(StorageError, match="ENOSPC"):
            await store.truncate_partition(ORDERS, 4)
        with pytest.raises(StorageError, match="wait for a checkpoint"):
            log.append(memoryview(batch(b"later")), acks=-1)
    async with running(filesystem) as store:
        again = await open_orders(store, ROLLING, leader_epoch=1)
        assert await read_all(again) == values(4)
        await append(again, b"value 4")


async def test_appends_that_wait_go_behind_the_new_end() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await filled(store, 9)
        results = list[int]()

        async def produce(number: int) -> None:
            results.append((await append(log, b"during %d" % number)).base_offset)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(produce, number)
            nursery.start_soon(store.truncate_partition, ORDERS, 2)
            for number in range(4, 8):
                nursery.start_soon(produce, number)
        found = await read_all(log)
        assert list(found) == list(range(log.log_end_offset))
        assert len(found) <= 2 + 8


async def test_l6_the_index_forgets_what_was_cut() -> None:
    """Other timestamps at the same offsets afterwards: the index must not answer with the old ones."""
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig())
        for number in range(60):
            record = Record(b"k", bytes(500), NOW_MS + number)
            await log.append(memoryview(build_batch([record])), acks=-1).wait()
        await store.truncate_partition(ORDERS, 30)
        for number in range(30, 60):
            record = Record(b"k", bytes(500), NOW_MS + 1000 + number)
            await log.append(memoryview(build_batch([record])), acks=-1).wait()
        await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, LogConfig(), leader_epoch=1)
        for time_ms, offset in ((NOW_MS + 29, 29), (NOW_MS + 30, 30), (NOW_MS + 1045, 45)):
            assert (await log.offset_for_timestamp(time_ms, Isolation.READ_UNCOMMITTED)).offset == offset


async def test_what_cannot_be_truncated() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await filled(store, 3)
        log.log.start_offset = 2
        with pytest.raises(OffsetOutOfRange):
            await store.truncate_partition(ORDERS, 1)
        with pytest.raises(UnknownPartition):
            await store.truncate_partition(TopicPartition(bytes(16), "nobody", 0), 0)
        assert await read_all(log) == {2: b"value 2"}


def test_j2_what_is_known_of_a_partition_behind_a_barrier() -> None:
    key = (bytes(16), 3)
    known = PartitionCheckpoint(100, 10, 90, (EpochStart(0, 0), EpochStart(4, 50), EpochStart(7, 60)))
    for barrier, expected in (
        (Barrier(*key, BarrierKind.TRUNCATED, 60), PartitionCheckpoint(60, 10, 0, known.epochs[:2])),
        (Barrier(*key, BarrierKind.TRUNCATED, 120), PartitionCheckpoint(100, 10, 0, known.epochs)),
        (Barrier(*key, BarrierKind.LOG_START, 20), known._replace(log_start_offset=20)),
        (Barrier(*key, BarrierKind.LOG_START, 5), known),
        (Barrier(*key, BarrierKind.DELETED), None),
    ):
        points = {key: known}
        end_by(points, barrier)
        assert points.get(key) == expected
