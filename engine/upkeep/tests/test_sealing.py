"""Sealing and scrubbing: every finished segment gets a footer, and later damage is found and not served."""

import dataclasses
import random

import pytest
import trio

from engine.api import PartitionLog
from engine.errors import CorruptMessage
from engine.files.filesystem import replace_small
from engine.log_config import LogConfig
from engine.logs.segments.footer import Footer, encode, footer_name, read_footer
from engine.offline.inspection import SegmentFile, partitions, segment_files, verify
from engine.options import StoreOptions
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.upkeep.sealing import SealingOptions
from testkit.logs import ORDERS, append, open_orders, options, read, running

ROLLING = LogConfig(segment_size_bytes=300, file_delete_delay_ms=1000)
DIRECTORY = "/data/orders-0"
SCRUB_S = 100


def scrubbing(**fields: int) -> StoreOptions:
    sealing = SealingOptions(scrub_interval_ms=SCRUB_S * 1000)
    return dataclasses.replace(options(), sealing=dataclasses.replace(sealing, **fields))


async def filled(log: PartitionLog, count: int = 10) -> None:
    for number in range(count):
        await append(log, b"value %d" % number * 3)
    await trio.sleep(1)


def bases(filesystem: SimulatedFileSystem, suffix: str) -> list[int]:
    return [int(name.split(".")[0]) for name in filesystem.list_dir(DIRECTORY) if name.endswith(suffix)]


def footers(filesystem: SimulatedFileSystem) -> list[Footer]:
    return [read_footer(filesystem, DIRECTORY, base) for base in bases(filesystem, ".footer")]


def check_footers(filesystem: SimulatedFileSystem) -> list[SegmentFile]:
    """Assert by an independent look at the files that all segments but the last are sealed, and sound."""
    [partition] = partitions(filesystem, "/data")
    found = segment_files(filesystem, DIRECTORY)
    assert [one.footer is not None for one in found] == [True] * (len(found) - 1) + [False]
    assert [verify(filesystem, partition, one).problem for one in found] == [None] * len(found)
    return found


async def test_a_finished_segment_is_sealed_without_being_read() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        filesystem.faults.append(Fault("read", 5, ".log", is_lasting=True))
        await filled(log)
        filesystem.faults.clear()
        assert len(check_footers(filesystem)) > 3
        assert store.stats.sealed_segments == len(footers(filesystem))
        assert store.stats.scrubbed_bytes == 0


@pytest.mark.parametrize("how", ["kill", "power cut", "clean stop"])
async def test_missing_footers_of_an_earlier_process_are_rebuilt_after_a_start(how: str) -> None:
    filesystem, expected = SimulatedFileSystem(), list[Footer]()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await filled(log)
        expected = footers(filesystem)
        if how == "clean stop":
            await store.close()
    if how == "power cut":
        filesystem.crash(random.Random(1))
    for base in bases(filesystem, ".footer"):
        filesystem.unlink(f"{DIRECTORY}/{footer_name(base)}")
    async with running(filesystem) as store:
        await open_orders(store, ROLLING, 1)
        await trio.sleep(10)
        assert footers(filesystem) == expected


async def test_reading_to_seal_keeps_to_a_rate() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await filled(await open_orders(store, ROLLING))
        await store.close()
    for base in bases(filesystem, ".footer"):
        filesystem.unlink(f"{DIRECTORY}/{footer_name(base)}")
    async with running(filesystem, scrubbing(scrub_bytes_per_s=10)) as store:
        await open_orders(store, ROLLING, 1)
        await trio.sleep(20)
        assert bases(filesystem, ".footer") == []
        await trio.sleep(200)
        check_footers(filesystem)


async def test_removal_and_truncation_of_segments_delete_their_footers() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await filled(log, 20)
        segments = bases(filesystem, ".log")
        await log.delete_records(segments[2])
        assert bases(filesystem, ".footer") == segments[2:-1]
        await store.truncate_partition(ORDERS, segments[4] + 1, below_sealed=True)
        assert bases(filesystem, ".log") == segments[2:5]
        assert bases(filesystem, ".footer") == segments[2:4]
        await filled(log)
        check_footers(filesystem)
        await log.delete_records(-1)
        await trio.sleep(5)
        assert bases(filesystem, ".footer") == []
        await store.close()
    async with running(filesystem) as store:
        await filled(await open_orders(store, ROLLING, 1))
        check_footers(filesystem)


async def test_a_full_disk_delays_a_footer() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, ROLLING)
        filesystem.faults.append(Fault("create", 28, ".footer.tmp"))
        await filled(log, 5)
        await filled(log, 5)
        check_footers(filesystem)
        assert problems == []


@pytest.mark.parametrize("where", [0, 8, 13, 17, 30, 63])
async def test_a_scrub_finds_a_flipped_bit_and_the_damaged_batch_is_not_served(where: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, scrubbing(), problems=problems) as store:
        log = await open_orders(store, ROLLING)
        await filled(log)
        base = bases(filesystem, ".log")[1]
        path = f"{DIRECTORY}/{base:020d}.log"
        filesystem.damage(path, where, bytes([filesystem.content(path)[where] ^ 4]))
        await trio.sleep(SCRUB_S + 60)
        assert (len(problems), store.stats.damage_found) == (1, 1)
        assert problems[0].startswith(f"{path} is damaged: ")
        with pytest.raises(CorruptMessage):
            await read(log, base)
        for before in range(base):
            await read(log, before)
        await read(log, bases(filesystem, ".log")[2])
        await append(log, b"on it goes")


async def test_a_segment_that_is_another_one_is_not_served() -> None:
    """Each of its batches is sound by itself."""
    filesystem, problems = SimulatedFileSystem(), list[str]()
    other = SimulatedFileSystem()
    for one, value in ((filesystem, b"ours"), (other, b"his ")):
        async with running(one) as store:
            log = await open_orders(store, ROLLING)
            for _ in range(10):
                await append(log, value * 5)
            await trio.sleep(1)
            await store.close()
    base = bases(filesystem, ".log")[1]
    path = f"{DIRECTORY}/{base:020d}.log"
    async with running(filesystem, scrubbing(), problems=problems) as store:
        log = await open_orders(store, ROLLING, 1)
        filesystem.damage(path, 0, other.content(path))
        await trio.sleep(SCRUB_S + 60)
        assert problems == [f"{path} is damaged: its content differs from its footer"]
        with pytest.raises(CorruptMessage, match="was found damaged"):
            await read(log, base)


@pytest.mark.parametrize("where", [3, 40, -3])
async def test_a_damaged_footer_is_logged_and_written_again(where: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, scrubbing(), problems=problems) as store:
        await filled(await open_orders(store, ROLLING))
        expected = footers(filesystem)
        path = f"{DIRECTORY}/{footer_name(bases(filesystem, '.footer')[1])}"
        content = bytearray(filesystem.content(path))
        content[where] ^= 1
        filesystem.damage(path, 0, bytes(content))
        await trio.sleep(SCRUB_S + 60)
        assert footers(filesystem) == expected
        [problem] = problems
        assert path in problem


async def test_scrubbing_can_be_switched_off() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, scrubbing(scrub_bytes_per_s=0)) as store:
        await filled(await open_orders(store, ROLLING))
        await trio.sleep(10 * SCRUB_S)
        assert store.stats.scrubbed_bytes == 0
        check_footers(filesystem)


async def test_a_footer_beside_the_last_segment() -> None:
    """A crash came after a truncation, and before the footer was deleted; or the segment is smaller than its footer
    says."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await filled(await open_orders(store, ROLLING))
        await store.close()
    last = bases(filesystem, ".log")[-1]
    [partition] = partitions(filesystem, "/data")
    segment = segment_files(filesystem, DIRECTORY)[-1]
    footer = verify(filesystem, partition, segment).tally.footer(ORDERS, last, segment.size_bytes)
    for size_bytes, is_sound in ((segment.size_bytes, True), (segment.size_bytes + 100, False)):
        copy = SimulatedFileSystem.replayed(filesystem.operations)

        replace_small(copy, DIRECTORY, footer_name(last), encode(footer._replace(size_bytes=size_bytes)))
        copy.end_process()
        async with running(copy) as store:
            log = await open_orders(store, ROLLING, 1)
            assert (last in bases(copy, ".footer")) is not is_sound
            if is_sound:
                await append(log, b"on it goes")
            else:
                with pytest.raises(CorruptMessage):
                    await read(log, log.log_end_offset)
