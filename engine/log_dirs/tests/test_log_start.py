"""DeleteRecords: records below the log start are gone for good, whatever happens in between."""

import random
from dataclasses import replace

import pytest
import trio

from engine.api import Isolation, OffsetSpec, PartitionLog, TopicIdPartition
from engine.errors import OffsetOutOfRange, StorageError
from engine.files.disk import DiskWorkers
from engine.log_config import FlushPolicy, LogConfig
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import (
    MAX_BYTES,
    NO_JOURNAL,
    NOW_MS,
    HeldWorkers,
    append,
    batch,
    bytes_of,
    open_orders,
    options,
    read_all,
    running,
)

ROLLING = LogConfig(segment_size_bytes=300)
DIRECTORY = "/data/orders-0"


async def filled(log: PartitionLog, count: int) -> None:
    for number in range(count):
        await append(log, b"value %d" % number)


def files(filesystem: SimulatedFileSystem, suffix: str) -> list[int]:
    return [int(name.split(".")[0]) for name in filesystem.list_dir(DIRECTORY) if name.endswith(suffix)]


async def test_records_below_the_log_start_are_out_of_range_and_their_files_go_later() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await filled(log, 20)
        segments = files(filesystem, ".log")
        held = log.read(0, MAX_BYTES, Isolation.READ_UNCOMMITTED, at_least_one=True)
        cut = segments[3] + 1
        assert await log.delete_records(cut) == cut
        assert log.log_start_offset == cut
        for offset in (0, cut - 1):
            with pytest.raises(OffsetOutOfRange):
                log.read(offset, MAX_BYTES, Isolation.READ_UNCOMMITTED, at_least_one=True)
        assert min(await read_all(log)) == cut
        earliest = await log.offset_for_timestamp(OffsetSpec.EARLIEST, Isolation.READ_UNCOMMITTED)
        assert earliest.offset == cut
        assert (await log.offset_for_timestamp(0, Isolation.READ_UNCOMMITTED)).offset == cut
        assert files(filesystem, ".log") == segments[3:]
        assert files(filesystem, ".deleted") == segments[:3]
        assert bytes_of(held.records), "a reader in flight goes on"
        await trio.sleep(62)
        assert files(filesystem, ".deleted") == []


async def test_a_log_that_starts_within_a_batch_is_read_from_there() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await append(log, b"0", b"1", b"2")
        assert await log.delete_records(1) == 1
        await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=1)
        assert await log.delete_records(2) == 2
        assert (await read_all(log))[2] == b"2"


async def test_bounds() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, ROLLING)
        await filled(log, 5)
        for offset in (-2, 6):
            with pytest.raises(OffsetOutOfRange):
                await log.delete_records(offset)
        assert await log.delete_records(3) == 3
        assert await log.delete_records(1) == 3, "it never goes back"
        assert await log.delete_records(-1) == 5
        assert await read_all(log) == {}
        assert (await append(log, b"next")).base_offset == 5


@pytest.mark.parametrize("slot_size_bytes", [NO_JOURNAL, 16 * 1024])
@pytest.mark.parametrize("how", ["kill", "power cut", "clean stop"])
async def test_the_log_start_survives_kills_power_cuts_and_clean_stops(how: str, slot_size_bytes: int) -> None:
    filesystem = SimulatedFileSystem()
    for life in range(4):
        async with running(filesystem, options(journal_slot_size_bytes=slot_size_bytes)) as store:
            log = await open_orders(store, ROLLING, life)
            assert log.log_start_offset == life * 7
            await filled(log, 10)
            await trio.sleep(life)
            await log.delete_records(life * 7 + 7)
            if how == "clean stop":
                await store.close()
        if how == "power cut":
            filesystem.crash(random.Random(life))
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING, 4)
        assert (log.log_start_offset, log.log_end_offset) == (28, 40)
        assert files(filesystem, ".deleted") == []
        assert files(filesystem, ".log")[1] > 28


async def test_without_the_disk_nothing_is_deleted() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await filled(log, 10)
        await trio.sleep(2)
        filesystem.faults.append(Fault("fdatasync", 5, ".journal"))
        with pytest.raises(StorageError):
            await log.delete_records(9)
        assert files(filesystem, ".deleted") == []
    async with running(filesystem) as store:
        assert (await open_orders(store, ROLLING, 1)).log_start_offset in (0, 9)


async def test_the_journal_brings_nothing_back() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await filled(log, 5)
        await trio.sleep(5)
        await filled(log, 10)
        await log.delete_records(14)
    filesystem.crash()
    problems = list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, ROLLING, 1)
        assert (log.log_start_offset, log.log_end_offset) == (14, 15)
        assert (await append(log, b"next")).base_offset == 15
    assert problems == []


async def test_a_log_start_within_a_segment_of_several_epochs_is_served_after_a_restart() -> None:
    filesystem = SimulatedFileSystem()
    for epoch in range(3):
        async with running(filesystem) as store:
            log = await open_orders(store, leader_epoch=epoch)
            await filled(log, 4)
            if epoch == 2:
                await log.delete_records(9)
            await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=3)
        assert sorted(await read_all(log)) == [9, 10, 11]


async def test_max_timestamp_is_looked_up_only_in_records_above_the_log_start() -> None:
    async with running(SimulatedFileSystem()) as store:
        for number, config in enumerate((ROLLING, LogConfig())):
            log = await store.open_partition(TopicIdPartition(bytes(16), "many", number), config, 0)
            times_ms = [NOW_MS + later_ms for later_ms in (900, 100, 800, 200, 700, 300, 600, 400, 500)]
            for first in range(0, 9, 3):
                records = batch(b"a", b"b", b"c", timestamps_ms=times_ms[first : first + 3])
                await log.append(memoryview(records), acks=-1).wait()
            for start in range(10):
                await log.delete_records(start)
                found = await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, Isolation.READ_UNCOMMITTED)
                expected = max(times_ms[start:], default=-1)
                assert found.timestamp_ms == expected
                assert found.offset == (times_ms.index(expected) if start < 9 else -1)


async def test_appends_do_not_wait_while_segments_are_synced_for_a_log_start() -> None:
    """A topic that is not synced with each append may have much to sync."""
    pool = HeldWorkers()
    other = TopicIdPartition(bytes(16), "payments", 0)
    async with running(SimulatedFileSystem(), pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store, replace(ROLLING, flush_policy=FlushPolicy.ASYNC))
        await filled(log, 5)
        asynchronous = await store.open_partition(other, LogConfig(flush_policy=FlushPolicy.ASYNC), 0)
        pool.held |= {*DiskWorkers.of(0, 1).readers, DiskWorkers.of(0, 1).flushes}
        nursery.start_soon(log.delete_records, 5)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            await append(asynchronous, b"x")
        assert log.log_start_offset == 0
        pool.release()
        await trio.testing.wait_all_tasks_blocked()
        assert log.log_start_offset == 5
