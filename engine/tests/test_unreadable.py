"""A sector that the disk cannot read is damage at that position: log dir and broker stay online."""

import errno
from dataclasses import replace

import pytest
import trio

from engine.api import Isolation, OffsetSpec, PartitionLog, RecordFilter, TopicIdPartition
from engine.commit.journal_format import PAGE_SIZE_BYTES
from engine.errors import CorruptMessage, StorageError
from engine.log_config import LogConfig
from engine.log_dirs.layout import PARTITION_METADATA
from engine.logs.log import Log
from engine.logs.segments.segment import segment_name
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.tests.test_store import refused
from engine.upkeep.sealing import SealingOptions
from testkit.logs import append, batch, open_orders, options, read, read_all, running

OTHER = TopicIdPartition(bytes(16), "payments", 0)
ROLLING = LogConfig(segment_size_bytes=3 * len(batch(b"x")))
DIRECTORY = "/data/orders-0"
SCRUBBED = replace(options(), sealing=SealingOptions(scrub_interval_ms=60_000))


def unreadable(suffix: str) -> Fault:
    return Fault("read", errno.EIO, suffix, is_lasting=True)


async def fill(log: PartitionLog, count: int = 7) -> None:
    for number in range(count):
        await append(log, b"%d" % number)


def log_of(log: PartitionLog) -> Log:
    assert isinstance(log, Partition)
    return log.log


async def test_an_unreadable_segment_fails_only_its_own_reads_and_stays_damaged() -> None:
    filesystem, fatal, problems = SimulatedFileSystem(), list[str](), list[str]()
    async with running(filesystem, fatal=fatal, problems=problems) as store:
        log, other = await open_orders(store, ROLLING), await store.open_partition(OTHER, LogConfig(), 0)
        await fill(log)
        filesystem.drop_cache()
        fault = unreadable(segment_name(0))
        filesystem.faults.append(fault)
        for _ in range(2):
            with pytest.raises(CorruptMessage):
                await read(log, 1)
        filesystem.faults.remove(fault)
        with pytest.raises(CorruptMessage, match="was found damaged"):
            await read(log, 1)
        await log.delete_records(3)
        assert list((await read_all(log)).values()) == [b"3", b"4", b"5", b"6"]
        assert (await append(log, b"x")).base_offset == 7
        assert (await append(other, b"x")).base_offset == 0
    assert fatal == []
    assert len(problems) == 1


async def test_searches_answer_as_reads_do() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await fill(log)
        filesystem.faults.append(unreadable(segment_name(0)))
        with pytest.raises(CorruptMessage):
            await log.find_records(RecordFilter(b"k"), 0, 10)
        with pytest.raises(CorruptMessage):
            await log.offset_for_timestamp(0, Isolation.READ_UNCOMMITTED)
        assert (await log.offset_for_timestamp(OffsetSpec.LATEST, Isolation.READ_UNCOMMITTED)).offset == 7


async def test_the_active_segment_goes_on() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await fill(log)
        filesystem.drop_cache()
        filesystem.faults.append(Fault("read", errno.EIO, segment_name(0)))
        with pytest.raises(CorruptMessage):
            await read(log, 0)
        assert len(await read_all(log)) == 7, "that sector was written anew, or could be read after all"


@pytest.mark.parametrize("suffix", [segment_name(0), ".footer"])
async def test_the_scrubber_tells_and_goes_on(suffix: str) -> None:
    filesystem, fatal, problems = SimulatedFileSystem(), list[str](), list[str]()
    async with running(filesystem, SCRUBBED, fatal=fatal, problems=problems) as store:
        log = await open_orders(store, ROLLING)
        await fill(log)
        await trio.sleep(1)
        filesystem.faults.append(unreadable(suffix))
        await trio.sleep(100)
        assert store.stats.damage_found >= 1
        assert [segment.is_condemned for segment in log_of(log).segments][:2] == [suffix != ".footer", False]
        assert (await append(log, b"x")).base_offset == 7
    assert fatal == []
    assert problems


@pytest.mark.parametrize("how", ["clean stop", "kill", "power cut"])
async def test_a_start_goes_on_with_an_unreadable_segment(how: str) -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        await fill(await open_orders(store, ROLLING))
        await append(await store.open_partition(OTHER, LogConfig(), 0), b"x")
        await store.close()
    for epoch in (1, 2):
        async with running(filesystem, fatal=fatal) as store:
            filesystem.faults = [unreadable(f"{DIRECTORY}/{segment_name(0)}")]
            log = await open_orders(store, ROLLING, epoch)
            other = await store.open_partition(OTHER, LogConfig(), epoch)
            with pytest.raises(CorruptMessage):
                await read(log, 0)
            assert (await append(other, b"x")).base_offset == epoch
            if how == "clean stop":
                await store.close()
        if how == "power cut":
            filesystem.crash()
    assert fatal == []


async def test_a_tail_that_cannot_be_read_is_not_cut_as_torn() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        await fill(await open_orders(store))
    filesystem.crash()
    filesystem.faults = [unreadable(".log")]
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        with pytest.raises(StorageError, match="damaged"):
            log.append(memoryview(batch(b"x")), acks=1)
        with pytest.raises(CorruptMessage):
            await read(log, 0)
    assert problems
    filesystem.faults = []
    async with running(filesystem) as store:
        assert len(await read_all(await open_orders(store, leader_epoch=2))) == 7


async def test_a_start_is_refused_while_partition_metadata_for_the_replay_are_unreadable() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await fill(await open_orders(store))
    filesystem.crash()
    filesystem.faults = [Fault("read", errno.EIO, f"{DIRECTORY}/{PARTITION_METADATA}")]
    assert f"{DIRECTORY}/{PARTITION_METADATA}" in await refused(filesystem)
    async with running(filesystem) as store:
        assert len(await read_all(await open_orders(store, leader_epoch=1))) == 7


@pytest.mark.parametrize(("page", "left"), [(0, 3), (2, 0), (4, 2)])
async def test_an_unreadable_journal_page_costs_only_records_from_that_page_on(page: int, left: int) -> None:
    """Other frames are replayed, and a log that may lack records is not truncated."""
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await open_orders(store)
        for _ in range(2):  # makes them make a slot
            await append(log, b"x")
            await trio.sleep(5)
        await fill(log, 3)
    filesystem.crash()
    slot = "/data/journal/0.journal"
    filesystem.bad_sectors[slot] = range(page * PAGE_SIZE_BYTES, (page + 1) * PAGE_SIZE_BYTES)
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        assert log.log_end_offset == 2 + left
        if page:
            assert any("cannot read" in problem for problem in problems)
