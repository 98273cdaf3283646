"""Reads of cold segments."""

from __future__ import annotations

import errno
import gc
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio
from msgspec.structs import replace

from engine.api import FileRange, Isolation, Marker, Outcome
from engine.batches.batch import Record, build_batch
from engine.errors import CorruptMessage, NotLoaded, StorageError, TierUnreachable
from engine.index.rows import partition_key
from engine.logs.segments import segment, sparse_index
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.cold_logs import everything_of
from testkit.logs import NOW_MS, bytes_of, read_committed
from testkit.tiered_logs import Tiered, copy_all
from tiering.manifest.manifest_log import Change
from tiering.names import Place
from tiering.object_store import Content, StoreUnavailable
from tiering.read import chunks, cold_file, cold_tier
from tiering.read.chunks import ChunkCache, ChunkFiles, Extent
from tiering.read.cold_file import ColdFile
from tiering.read.cold_tier import ColdTier
from tiering.statistics import TopicCounters
from tiering.stores.memory import HEALTHY, Fault, Operation
from tiering.stores.tests.test_directory import Inline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from engine.api import TopicIdPartition
    from engine.partitions.partition import Partition
    from tiering.manifest.manifest import Manifest, SegmentEntry

T = TypeVar("T")

EVERYTHING = Isolation.READ_UNCOMMITTED
CHUNK_BYTES = 100
SIZE_MAX_BYTES = 10**6
TOPIC_ID = bytes(15) + b"t"
KEY = Place("lake/", "cluster", TOPIC_ID, 0).prefix + "a"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (chunks, cold_file, cold_tier):
        monkeypatch.setattr(module, "CHUNK_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(cold_tier, "SEEK_BYTES", CHUNK_BYTES)
    for module in (cold_file, cold_tier):
        monkeypatch.setattr(module, "SEQUENTIAL_BYTES", 4 * CHUNK_BYTES)


class Manifests:
    """A catalogue of one partition."""

    def __init__(self, tiered: Tiered) -> None:
        self._tiered = tiered
        self.looks = 0

    def key_of(self, _partition: TopicIdPartition, entry: SegmentEntry) -> str:
        return self._tiered.place.segment(entry)

    async def entries(self, _partition: TopicIdPartition) -> Mapping[int, SegmentEntry]:
        self.looks += 1
        return {one.base: one for one in (await self._tiered.manifest()).entries}


class Reading:
    """A broker whose older segments are in the tier only, and its tier, cache and counters."""

    def __init__(self, nursery: trio.Nursery, size_max_bytes: int = SIZE_MAX_BYTES) -> None:
        self.tiered = Tiered()
        self.filesystem = SimulatedFileSystem()
        self.filesystem.make_dir("/cache")
        files = ChunkFiles(self.filesystem, "/cache")
        self.topics = TopicCounters()
        self.cache = ChunkCache(self.tiered.store, files, Inline(), nursery, size_max_bytes, self.topics)
        self.catalogue = Manifests(self.tiered)
        self.tier = ColdTier(self.tiered.store, self.catalogue, self.cache, Inline())
        self.tiered.broker.tier = self.tier  # type: ignore[assignment]

    async def copy_and_drop(self) -> None:
        await copy_all(self.tiered.tier)
        tiered_to = self.tiered.log.tiered_to
        assert tiered_to is not None
        await self.tiered.log.drop_local(tiered_to)

    @property
    def gets(self) -> int:
        return self.tiered.store.requests[Operation.GET]

    def forget(self) -> None:
        """Empty the cache."""
        for key in self.tiered.segments():
            self.cache.forget(key)
        gc.collect()


@asynccontextmanager
async def cold(size_max_bytes: int = SIZE_MAX_BYTES) -> AsyncIterator[tuple[Reading, Partition]]:
    """A broker whose finished segments are in the tier only."""
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery, size_max_bytes)
        async with reading.tiered.life():
            await reading.copy_and_drop()
            yield reading, reading.tiered.broker.log


async def test_cold_reads_return_the_same_records_as_local_reads() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        async with reading.tiered.life():
            log = reading.tiered.broker.log
            before = await everything_of(log)
            await reading.copy_and_drop()
            assert log.log.has_cold
            assert await everything_of(log) == before
            reading.forget()
            assert await everything_of(log) == before


@pytest.mark.parametrize("size_max_bytes", [0, 3 * CHUNK_BYTES])
async def test_a_tiny_cache_makes_progress(size_max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KEPT_MIN", 4)
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery, size_max_bytes)
        async with reading.tiered.life():
            log = reading.tiered.broker.log
            before = await everything_of(log)
            await reading.copy_and_drop()
            assert await everything_of(log) == before
            assert reading.cache.statistics.evicted > 10


async def test_files_of_a_store_are_read_in_place_and_closed_when_unused() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        reading.tiered.store.has_files = True
        async with reading.tiered.life():
            log = reading.tiered.broker.log
            before = await everything_of(log)
            await reading.copy_and_drop()
            assert await everything_of(log) == before
            assert reading.cache.file_count
            assert not reading.filesystem.list_dir("/cache")
            nursery.start_soon(reading.cache.leave_files)
            await trio.sleep(2.5 * chunks.USED_WITHIN_S)
            assert reading.cache.file_count == reading.cache.size_bytes == 0
            assert await everything_of(log) == before
        nursery.cancel_scope.cancel()


async def test_a_cache_that_keeps_less_than_a_job_needs_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that were fetched for a job are there when it runs again, even if the cache has evicted them."""
    monkeypatch.setattr(chunks, "KEPT_MIN", 1)
    async with cold(0) as (reading, log):
        largest = max((await reading.tiered.manifest()).entries, key=lambda entry: entry.size_bytes)
        assert largest.size_bytes > 2 * CHUNK_BYTES

        def read() -> int:
            file = reading.tier.open(log.partition, largest.base)
            return sum(len(file.read_at(number * CHUNK_BYTES, 1)) for number in (2, 0, 1))

        assert await reading.tier.run(read) == 3
        assert reading.cache.statistics.requests <= 3


async def test_held_chunks_stay_loaded_until_their_reader_drops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KEPT_MIN", 1)
    async with cold(0) as (reading, log):
        held = await log.load(0, 1000, EVERYTHING)
        for offset in (5, 10, 15):
            await log.load(offset, 1000, EVERYTHING)
        gc.collect()
        gets = reading.gets
        assert log.read(0, 200, EVERYTHING, at_least_one=True).size_bytes
        assert reading.gets == gets
        del held
        gc.collect()
        with pytest.raises(NotLoaded):
            log.read(0, 200, EVERYTHING, at_least_one=True)


@pytest.mark.parametrize("seed", range(5))
async def test_cached_size_ends_at_the_first_byte_that_is_not_in_memory(seed: int) -> None:
    rng = random.Random(seed)
    async with cold() as (reading, log):
        await log.load(0, 1000, EVERYTHING)
        file: Any = log.log.segment_of(0).file
        found_some = 0
        for _ in range(50):
            chunk: Any = rng.choice(list(reading.cache._chunks.values()))
            start = rng.randrange(chunk.size_bytes)
            chunk.file._inode.cold = range(start, start + rng.randrange(1, 50))
            position = rng.randrange(file.size())
            wanted = rng.randrange(1, file.size() - position + 1)
            found = file.cached_size(position, wanted)
            assert file.is_cached(position, found)
            assert found == wanted or not file.is_cached(position, found + 1)
            found_some += 0 < found < wanted
        assert found_some


async def test_evicted_chunk_in_flight_sends_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "KEPT_MIN", 4)
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery, 0)
        async with reading.tiered.life():
            log = reading.tiered.broker.log
            await log.load(0, 1000, EVERYTHING)
            before = bytes_of(log.read(0, 200, EVERYTHING, at_least_one=True).records)
            await reading.copy_and_drop()
            await log.load(0, 1000, EVERYTHING)
            ranges = log.read(0, 200, EVERYTHING, at_least_one=True).records
            assert len(ranges) > 1
            evicted = reading.cache.statistics.evicted
            for offset in (5, 10, 15):
                await log.load(offset, 1000, EVERYTHING)
            assert reading.cache.statistics.evicted > evicted
            assert bytes_of(ranges) == before
            reading.forget()
            assert bytes_of(ranges) == before
            with pytest.raises(NotLoaded):
                log.read(0, 200, EVERYTHING, at_least_one=True)
            del ranges
            assert not reading.filesystem.list_dir("/cache")


async def test_chunk_that_is_fetched_again_is_checked_again() -> None:
    """The knowledge that an evicted chunk was sound does not count for the chunk that is fetched now."""
    async with cold() as (reading, log):
        await log.load(0, 1000, EVERYTHING)
        reading.forget()
        key = reading.tiered.segments()[0]
        data, moment_ms = reading.tiered.store.objects[key]
        reading.tiered.store.objects[key] = data[:70] + bytes([data[70] ^ 1]) + data[71:], moment_ms
        with pytest.raises(NotLoaded):
            log.read(0, 1000, EVERYTHING, at_least_one=True)
        with pytest.raises(CorruptMessage):
            await log.load(0, 1000, EVERYTHING)


async def test_chunk_from_a_timestamp_search_is_not_served_unchecked() -> None:
    """A search reads headers; the bytes between them are not checked."""
    async with cold() as (reading, log):
        await log.load(0, 1000, EVERYTHING)
        reading.forget()
        key = reading.tiered.segments()[0]
        data, moment_ms = reading.tiered.store.objects[key]
        reading.tiered.store.objects[key] = data[:70] + bytes([data[70] ^ 1]) + data[71:], moment_ms
        await log.offset_for_timestamp(NOW_MS + 35, EVERYTHING)
        with pytest.raises(NotLoaded):
            log.read(0, 1000, EVERYTHING, at_least_one=True)


@pytest.mark.parametrize("fault", [Fault(is_flipped=True), Fault(is_short=True)], ids=["flipped", "short"])
async def test_wrong_bytes_are_fetched_again(fault: Fault) -> None:
    async with cold() as (reading, log):
        left = [fault]

        def once(operation: Operation, key: str) -> Fault:
            is_object = operation is Operation.GET and key in reading.tiered.segments()
            return left.pop() if is_object and left else HEALTHY

        reading.tiered.store.fault = once
        if fault.is_short:
            with pytest.raises(StorageError, match="cut short"):
                await log.load(0, 1000, EVERYTHING)
        await log.load(0, 1000, EVERYTHING)
        assert log.read(0, 1000, EVERYTHING, at_least_one=True).size_bytes > 0
        reading.forget()
        assert not reading.tiered.broker.problems


@pytest.mark.parametrize("fault", [Fault(is_lost=True), Fault(is_refused=True)])
async def test_a_store_that_is_away_keeps_the_log_dir_online(fault: Fault) -> None:
    async with cold() as (reading, log):
        reading.tiered.store.fault = lambda _operation, _key: fault
        with pytest.raises(TierUnreachable, match="the remote tier"):
            await log.load(0, 1000, EVERYTHING)
        assert log.log_dir.disk.offline_reason is None
        assert log.read(log.log_end_offset - 1, 1000, EVERYTHING, at_least_one=True).size_bytes > 0
        reading.tiered.store.fault = lambda _operation, _key: HEALTHY
        await log.load(0, 1000, EVERYTHING)


async def test_a_full_cache_keeps_the_log_dir_online(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)

        def full(_files: ChunkFiles, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, "no space")

        async with reading.tiered.life():
            log = reading.tiered.broker.log
            await reading.copy_and_drop()
            with monkeypatch.context() as patched:
                patched.setattr(ChunkFiles, "make", full)
                with pytest.raises(TierUnreachable, match="no room"):
                    await log.load(0, 1000, EVERYTHING)
            assert log.log_dir.disk.offline_reason is None
            await log.load(0, 1000, EVERYTHING)


async def test_missing_object_raises_storage_error() -> None:
    async with cold() as (reading, log):
        del reading.tiered.store.objects[reading.tiered.segments()[0]]
        with pytest.raises(StorageError, match="lacks") as caught:
            await log.load(0, 1000, EVERYTHING)
        assert caught.type is StorageError


async def test_replaced_object_is_found_by_its_manifest() -> None:
    async with cold() as (reading, log):
        await log.load(0, 1000, EVERYTHING)
        before = await everything_of(log)
        reading.forget()
        first = (await reading.tiered.manifest()).entries[0]
        later = replace(first, generation=first.generation + 7)
        objects, place = reading.tiered.store.objects, reading.tiered.place
        objects[place.segment(later)] = objects.pop(place.segment(first))

        async def swap(one: Manifest) -> Change:
            return Change(replace(one, entries=(later, *one.entries[1:])))

        await reading.tiered.tier.manifests.change(swap)
        looks = reading.catalogue.looks
        assert await everything_of(log) == before
        assert reading.catalogue.looks == looks + 1


async def test_damaged_chunk_that_a_reader_holds_is_fetched_again_for_other_readers() -> None:
    async with cold() as (reading, log):
        [key, *_] = reading.tiered.segments()
        right = reading.tiered.store.objects[key]
        flipped: list[str] = []

        def flip(operation: Operation, asked: str) -> Fault:
            is_first = operation is Operation.GET and asked == key and not flipped
            flipped.extend([asked] if is_first else [])
            return Fault(is_flipped=is_first)

        reading.tiered.store.fault = flip
        held = await reading.cache.fetch(Extent(key, 0, 4 * CHUNK_BYTES, len(right[0])))
        await log.load(2, 1000, EVERYTHING)
        assert flipped
        assert all(one.is_wrong for one in held.values())
        assert bytes_of(log.read(2, 200, EVERYTHING, at_least_one=True).records) in right[0]


async def test_without_an_index_one_part_is_enough_to_find_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (segment, sparse_index):
        monkeypatch.setattr(module, "INTERVAL_BYTES", 50)
        monkeypatch.setattr(module, "INTERVAL_RECORDS", 1)
    async with cold() as (reading, log):
        index = log.log_dir.index
        last = (await reading.tiered.manifest()).entries[-1]
        await index.forget(partition_key(log.partition.topic_id, 0), [last.base])
        for one in log.log.cold.segments:
            one.index = None
        before = reading.cache.statistics.fetched_bytes
        await log.load(last.end - 1, 1000, EVERYTHING)
        assert reading.cache.statistics.fetched_bytes - before <= 2 * CHUNK_BYTES < last.size_bytes


async def test_many_readers_of_one_part_are_one_request() -> None:
    async with cold() as (reading, log):
        await reading.catalogue.entries(log.partition)
        reading.tiered.store.fault = lambda _operation, _key: Fault(wait_s=1.0)
        before = reading.cache.statistics.requests
        async with trio.open_nursery() as readers:
            for _ in range(20):
                readers.start_soon(log.load, 0, 10, EVERYTHING)
        each = reading.cache.statistics.requests - before
        reading.forget()
        await log.load(0, 10, EVERYTHING)
        assert each <= reading.cache.statistics.requests - before - each + 1


async def test_fetch_of_a_cancelled_reader_completes_for_later_readers() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        await reading.tiered.store.put(KEY, Content.of(b"x" * 250))
        reading.tiered.store.fault = lambda _operation, _key: Fault(wait_s=10.0)
        with trio.move_on_after(1):
            await reading.cache.fetch(Extent(KEY, 0, 250, 250))
        assert reading.cache.find(KEY, 0) is None
        assert [one.size_bytes for one in (await reading.cache.fetch(Extent(KEY, 0, 250, 250))).values()] == [
            100,
            100,
            50,
        ]
        assert trio.current_time() == pytest.approx(10.0)
        assert reading.gets == 1
        counted = reading.topics.of(TOPIC_ID)
        assert (counted.fetches, counted.fetched_bytes, counted.fetch_errors) == (1, 250, 0)


async def test_bytes_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is in bytes; a larger request passes alone."""
    monkeypatch.setattr(chunks, "FLYING_MAX_BYTES", 300)
    landed: dict[str, float] = {}
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        reading.tiered.store.fault = lambda _operation, _key: Fault(wait_s=1.0)

        async def fetch(key: str, size_bytes: int) -> None:
            await reading.cache.fetch(Extent(f"{reading.tiered.place.prefix}{key}", 0, size_bytes, size_bytes))
            landed[key] = trio.current_time()

        began_s = trio.current_time()
        wanted = {"a": 100, "b": 100, "c": 100, "d": 400, "e": 200, "f": 50}
        for key, size_bytes in wanted.items():
            reading.tiered.store.objects[f"{reading.tiered.place.prefix}{key}"] = bytes(size_bytes), 0
        async with trio.open_nursery() as readers:
            for key, size_bytes in wanted.items():
                readers.start_soon(fetch, key, size_bytes)
                await trio.testing.wait_all_tasks_blocked()
    assert {key: landed[key] - began_s for key in wanted} == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 3, "f": 3}


async def test_read_ahead_fetches_the_next_chunks_once() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        await reading.tiered.store.put(KEY, Content.of(b"x" * 2_000))
        reading.cache.read_ahead(Extent(KEY, 0, 400, 2_000))
        reading.cache.read_ahead(Extent(KEY, 100, 500, 2_000))  # it is on its way
        await trio.testing.wait_all_tasks_blocked()
        assert reading.gets == 1
        assert [reading.cache.find(KEY, number) is not None for number in range(5)] == [True] * 4 + [False]
        reading.cache.read_ahead(Extent(KEY, 200, 600, 2_000))
        await trio.testing.wait_all_tasks_blocked()
        assert reading.gets == 2
        assert reading.cache.find(KEY, 5) is not None


async def test_here_until_returns_the_end_of_the_cached_chunks() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        await reading.tiered.store.put(KEY, Content.of(b"x" * 950))
        file = ColdFile(reading.cache, KEY, 950, lambda _key, _chunk: None, lambda _extent: None)
        assert file.here_until(120) == 120
        await reading.cache.fetch(Extent(KEY, 0, 300, 950))
        assert [file.here_until(position) for position in (0, 250, 300, 320)] == [300, 300, 300, 320]
        await reading.cache.fetch(Extent(KEY, 300, 950, 950))
        assert [file.here_until(position) for position in (0, 250, 600, 950)] == [400, 650, 950, 950]
        file.read_at(0, 950)
        reading.cache.find(KEY, 2).is_wrong = True  # type: ignore[union-attr]
        assert file.here_until(0) == 400  # it was not dropped yet: the next reader finds out, once
        reading.cache.forget(KEY)
        assert file.here_until(0) == 0


async def test_failed_fetch_fails_all_waiting_readers() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        reading.tiered.store.fault = lambda _operation, _key: Fault(wait_s=1.0, is_lost=True)
        failed = []

        async def fetch() -> None:
            with pytest.raises(StoreUnavailable):
                await reading.cache.fetch(Extent(KEY, 0, 10, 10))
            failed.append(1)

        async with trio.open_nursery() as readers:
            readers.start_soon(fetch)
            readers.start_soon(fetch)
        assert len(failed) == 2
        assert reading.gets == 1
        counted = reading.topics.of(TOPIC_ID)
        assert (counted.fetches, counted.fetched_bytes, counted.fetch_errors) == (1, 0, 1)


async def test_aborted_transactions_are_left_out() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        async with reading.tiered.life():
            log = reading.tiered.broker.log
            for number in range(8):
                batch = build_batch([Record(b"k", b"x" * 80, NOW_MS)], producer=(99, 0, number), attributes=0x10)
                await log.append(memoryview(batch), acks=-1).wait()
                outcome = Outcome.ABORT if number % 2 else Outcome.COMMIT
                await log.end_transaction(Marker(99, 0, 0, outcome)).wait()
            await trio.sleep(1)
            before = {offset: await read_committed(log, offset) for offset in range(log.log_end_offset)}
            await reading.copy_and_drop()
            assert any(one.has_aborted for one in (await reading.tiered.manifest()).entries)
            assert {offset: await read_committed(log, offset) for offset in range(log.log_end_offset)} == before


async def test_open_of_a_segment_in_no_manifest_raises_file_not_found() -> None:
    async with trio.open_nursery() as nursery:
        reading = Reading(nursery)
        async with reading.tiered.life():
            partition = reading.tiered.broker.log.partition
            with pytest.raises(FileNotFoundError):
                await reading.tier.run(lambda: reading.tier.open(partition, 777))
            assert reading.catalogue.looks == 1


def test_a_cold_file_is_read_only() -> None:
    file = ColdFile(None, "a", 10, lambda _key, _chunk: None, lambda _extent: None)  # type: ignore[arg-type]
    for change in (file.fdatasync, file.sync_and_forget, file.trim):
        with pytest.raises(OSError, match="read only"):
            change()
    for sized in (file.truncate, file.allocate):
        with pytest.raises(OSError, match="read only"):
            sized(3)
    with pytest.raises(OSError, match="read only"):
        file.write_at([b"x"], 0)
    assert FileRange(file, 0, 10).size_bytes == file.size()
