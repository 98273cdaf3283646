"""Reads from disk: only checked bytes are served, the loop does not wait for a disk, and the limits hold."""

import dataclasses
import errno
import gc
import os
import random
from pathlib import Path

import pytest
import trio

from engine.api import Isolation, Leadership, TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.errors import CorruptMessage, NotLoaded, OffsetOutOfRange
from engine.files.filesystem import PosixFileSystem
from engine.index.rows import ENTRY, entry_pair, following, partition_key, read_entry
from engine.index.stored_index import StoredIndex
from engine.log_config import LogConfig
from engine.logs.log import FRESH_BYTES
from engine.logs.segments.sparse_index import Entry
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.testing.simulated_index import SimulatedIndexStore
from testkit.logs import (
    MAX_BYTES,
    ORDERS,
    append,
    batch,
    batches_in,
    bytes_of,
    open_orders,
    options,
    read,
    read_all,
    running,
)

EVERYTHING = Isolation.READ_UNCOMMITTED
LOG_FILE = "/data/orders-0/00000000000000000000.log"
KEY = partition_key(ORDERS.topic_id, ORDERS.partition)
ROLLING = LogConfig(segment_size_bytes=20_000)


async def filled(filesystem: SimulatedFileSystem, count: int, config: LogConfig | None = None) -> None:
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for number in range(count):
            await append(log, b"value %d" % number)
        await store.close()


async def test_a_log_opens_after_a_clean_stop_without_reading_its_segments() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 500, ROLLING)
    filesystem.faults.append(Fault("read", errno.EIO, ".log", is_lasting=True))
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING, leader_epoch=1)
        assert (log.high_watermark, log.log_start_offset) == (500, 0)
        assert (await append(log, b"next")).base_offset == 500


async def test_reads_wait_for_no_disk() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 500, ROLLING)
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING, leader_epoch=1)
        for _ in range(2):
            filesystem.drop_cache()
            with pytest.raises(NotLoaded):
                log.read(3, MAX_BYTES, EVERYTHING, at_least_one=True)
            assert log.read(3, 0, EVERYTHING, at_least_one=False).size_bytes == 0
            assert batches_in(bytes_of((await read(log, 3)).records))[0][0].base_offset == 3
        assert len(await read_all(log)) == 500


@pytest.mark.parametrize("seed", range(10))
async def test_records_with_a_page_missing_in_memory_are_not_sent(seed: int) -> None:
    """The missing page may be anywhere: first and last page of the range may be in memory."""
    rng = random.Random(seed)
    filesystem, config = SimulatedFileSystem(), LogConfig(segment_size_bytes=FRESH_BYTES * 3)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for _ in range(20):
            await append(log, rng.randbytes(1_000_000))
        size_bytes = len(filesystem.content(LOG_FILE))
        for _ in range(20):
            start = rng.randrange(size_bytes - FRESH_BYTES)
            hole = range(start, start + rng.choice([1, 4096, 100_000]))
            filesystem.evict(LOG_FILE, hole)
            offset, wanted_bytes = rng.randrange(10), rng.randrange(1, 5_000_000)
            try:
                found = log.read(offset, wanted_bytes, EVERYTHING, at_least_one=True).records[0]
            except NotLoaded:
                found = (await read(log, offset, wanted_bytes)).records[0]
                begin, end = found.position, found.position + found.size_bytes
                assert begin < hole.stop, "what is missing is elsewhere"
                assert hole.start < end, "what is missing is elsewhere"
            else:
                begin, end = found.position, found.position + found.size_bytes
                assert end <= hole.start or hole.stop <= begin


@pytest.mark.parametrize("seed", range(5))
async def test_a_read_after_a_load_returns_whole_batches_up_to_the_first_page_that_is_missing(seed: int) -> None:
    """The kernel may drop loaded pages before they are read. A read that wants all or nothing would never end."""
    rng = random.Random(seed)
    filesystem, config = SimulatedFileSystem(), LogConfig(segment_size_bytes=FRESH_BYTES * 3)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for _ in range(20):
            await append(log, rng.randbytes(100_000))
        for _ in range(9):
            await append(log, bytes(1_000_000))
        first_bytes = (await read(log, 0, 1)).size_bytes
        for _ in range(20):
            start = rng.randrange(20 * 100_000)
            hole = range(start, start + rng.choice([1, 4096, 100_000]))
            await log.load(0, MAX_BYTES)
            filesystem.evict(LOG_FILE, hole)
            if hole.start >= MAX_BYTES:
                assert log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True).size_bytes == MAX_BYTES
                continue
            with pytest.raises(NotLoaded):
                log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True)
            if hole.start < first_bytes:
                with pytest.raises(NotLoaded):
                    log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True, is_loaded=True)
                continue
            found = log.read(0, MAX_BYTES, EVERYTHING, at_least_one=True, is_loaded=True)
            assert first_bytes <= found.size_bytes <= hole.start


async def test_a_segment_that_is_deleted_while_it_is_looked_up_is_not_taken_for_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    await filled(filesystem, 500, ROLLING)
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, ROLLING, leader_epoch=1)
        assert isinstance(log, Partition)
        await append(log, b"of another epoch")
        entries = StoredIndex.entries

        async def slow_entries(keeper: StoredIndex, key: bytes, base_offset: int) -> list[Entry]:
            log.log.drop_below(501)  # the middle of a deletion: the file is still where it was
            return await entries(keeper, key, base_offset)

        monkeypatch.setattr(StoredIndex, "entries", slow_entries)
        await log.load(3, MAX_BYTES)
        with pytest.raises(OffsetOutOfRange):
            log.read(3, MAX_BYTES, EVERYTHING, at_least_one=True)
        assert problems == []


@pytest.mark.parametrize("field", [0, 7, 10, 12, 15, 16, 17, 21, 26, 40, 50, 60, 61, 70])
async def test_l5_a_flipped_bit_after_a_clean_stop_is_neither_served_nor_in_the_way_of_others(field: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    await filled(filesystem, 10)
    size_bytes = len(filesystem.content(LOG_FILE)) // 10
    flipped = filesystem.content(LOG_FILE)[4 * size_bytes + field] ^ 0x10
    filesystem.damage(LOG_FILE, 4 * size_bytes + field, bytes([flipped]))
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        values: dict[int, bytes | None] = {}
        for _ in range(2):
            with pytest.raises(CorruptMessage):
                await read_all(log, values)
            assert values == {n: b"value %d" % n for n in range(4)}
        assert len(problems) == 1
        assert "is damaged" in problems[0]
        assert (await append(log, b"next")).base_offset == 10
        assert batches_in(bytes_of((await read(log, 10)).records))[0][1][0].value == b"next"


async def test_an_entry_that_points_elsewhere_is_not_believed_and_the_index_replaced() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    config = LogConfig()
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for _ in range(5):
            times = [*range(1000)]
            await log.append(memoryview(build_batch([Record(None, bytes(10), time) for time in times])), acks=-1).wait()
        await store.close()
    index = SimulatedIndexStore(filesystem, "/data/index")
    right = read_entry(*index.scan(ENTRY + KEY, following(ENTRY + KEY))[3])
    index.write([entry_pair(KEY, 0, right._replace(position=right.position + 77))])
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, config, 1)
        assert batches_in(bytes_of((await read(log, 3500)).records))[0][0].base_offset == 3000
        assert len(problems) == 1
        assert "was wrong" in problems[0]
        assert (await log.offset_for_timestamp(999, EVERYTHING)).offset == 999
        assert len(await read_all(log)) == 5000
        await store.close()
    found = SimulatedIndexStore(filesystem, "/data/index").scan(ENTRY + KEY, following(ENTRY + KEY))
    assert len(found) == 5


async def test_a_wrong_entry_does_not_hide_a_timestamp() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    await filled(filesystem, 100)
    SimulatedIndexStore(filesystem, "/data/index").write([entry_pair(KEY, 0, Entry(90, 5000, 0))])
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, None, 1)
        assert (await log.offset_for_timestamp(1, EVERYTHING)).offset == 0
        assert len(problems) == 1


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(bytes(16), "many", number)


def open_segments(path: Path) -> int:
    links = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{entry}"))
        except FileNotFoundError:  # the listing's own
            continue
    return sum(one.startswith(f"{path}/many-") and one.endswith(".log") for one in links)


async def test_open_files_are_bounded_for_any_number_of_partitions(tmp_path: Path) -> None:
    bounded = dataclasses.replace(options(str(tmp_path)), open_files_max=8)
    async with running(PosixFileSystem(), bounded) as store:
        logs = [await store.open_partition(partition(number), LogConfig(), 0) for number in range(40)]
        for value in (b"a", b"b"):
            for log in logs:
                await append(log, value)
            assert open_segments(tmp_path) <= 8 + 1  # one more for the last read
        for log in logs:
            assert await read_all(log) == {0: b"a", 1: b"b"}
        assert open_segments(tmp_path) <= 8 + 1  # one more for the last read
        await store.close()
    del store, log, logs
    gc.collect()
    async with running(PosixFileSystem(), bounded) as store:
        logs = [await store.open_partition(partition(number), LogConfig(), 1) for number in range(40)]
        assert open_segments(tmp_path) == 0
        for log in logs:
            assert await read_all(log) == {0: b"a", 1: b"b"}
        assert open_segments(tmp_path) <= 8 + 1  # one more for the last read


async def test_files_of_new_partitions_and_of_recovered_ones_are_bounded_before_anything_is_written(
    tmp_path: Path,
) -> None:
    bounded = dataclasses.replace(options(str(tmp_path)), open_files_max=8)
    wanted = [Leadership(partition(number), LogConfig(), 0) for number in range(40)]
    async with running(PosixFileSystem(), bounded) as store:
        await store.open_partitions(wanted)
        assert open_segments(tmp_path) <= 8
    del store
    gc.collect()
    async with running(PosixFileSystem(), bounded) as store:
        await store.open_partitions([one._replace(leader_epoch=1) for one in wanted])
        assert open_segments(tmp_path) <= 8


async def test_open_files_are_bounded_although_the_journal_would_let_them_wait_for_their_flush(tmp_path: Path) -> None:
    bounded = dataclasses.replace(options(str(tmp_path)), open_files_max=8)
    async with running(PosixFileSystem(), bounded) as store:
        logs = [await store.open_partition(partition(number), LogConfig(), 0) for number in range(40)]
        await append(logs[0], b"there will be a journal")
        await trio.sleep(5)
        for value in (b"a", b"b", b"c"):
            pending = [log.append(memoryview(batch(value)), acks=-1) for log in logs]
            for one in pending:
                await one.wait()
        for log in logs[:10]:
            await append(log, b"d")
        assert open_segments(tmp_path) <= 8 + 10
        assert await read_all(logs[30]) == {0: b"a", 1: b"b", 2: b"c"}


async def test_a_file_with_bytes_that_are_not_durable_stays_open_until_they_are() -> None:
    filesystem = SimulatedFileSystem()
    bounded = dataclasses.replace(options(), open_files_max=1)
    async with running(filesystem, bounded) as store:
        one, other = [await store.open_partition(partition(number), LogConfig(), 0) for number in range(2)]
        await append(one, b"a")
        appending = one.append(memoryview(batch(b"b")), acks=-1)
        await append(other, b"c")
        await appending.wait()
        assert await read_all(one) == {0: b"a", 1: b"b"}
        assert await read_all(other) == {0: b"c"}


async def test_a_vanished_segment_is_logged_and_its_log_dir_stays_online() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    await filled(filesystem, 500, ROLLING)
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, ROLLING, leader_epoch=1)
        filesystem.unlink(LOG_FILE)
        for _ in range(2):
            with pytest.raises(CorruptMessage, match="gone"):
                await read(log, 0)
        assert len(problems) == 1
        assert (await append(log, b"next")).base_offset == 500


async def test_few_indexes_are_dense_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.logs.segments.sparse_index.THIN_ENTRIES_MAX", 4)
    bounds = dataclasses.replace(options(), dense_indexes_max=2, loaded_indexes_max=2)
    config = LogConfig(segment_size_bytes=60_000)
    async with running(SimulatedFileSystem(), bounds) as store:
        logs = []
        for number in range(4):
            log = await store.open_partition(TopicIdPartition(ORDERS.topic_id, "orders", number), config, 0)
            assert isinstance(log, Partition)
            logs.append(log)
        for _ in range(20):
            for log in logs:
                await append(log, b"x" * 5_000)
        indexes = [segment.index for log in logs for segment in log.log.segments]
        assert sum(index is not None and index.is_dense for index in indexes) == 2
        assert [len(log.log.segments) for log in logs] == [2] * 4
        assert indexes.count(None) == 2
        await logs[0].delete_records(15)
        for log in logs:
            assert sorted(await read_all(log)) == list(range(log.log_start_offset, 20))


async def test_an_index_that_comes_for_a_deleted_partition_is_not_kept() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, ROLLING)
        assert isinstance(log, Partition)
        await append(log, b"a")
        [segment] = log.log.segments
        await store.delete_partition(ORDERS)
        log._state.reader._complete(segment, [Entry(0, 0, 0)])
        assert segment.index is None


async def test_open_files_are_bounded_when_a_round_begins_many_segments() -> None:
    async with running(SimulatedFileSystem(), dataclasses.replace(options(), open_files_max=2)) as store:
        log = await open_orders(store, LogConfig(segment_size_bytes=150))
        assert isinstance(log, Partition)
        pending = [log.append(memoryview(batch(b"x" * 50)), acks=-1) for _ in range(10)]
        for one in pending:
            await one.wait()
        assert len(log.log.segments) == 10
        assert sum(segment.file is not None for segment in log.log.segments) == 2
