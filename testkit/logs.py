"""Helpers of the engine's tests: a store on the simulated disk, batches, and pools that hold jobs back."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

import outcome
import trio

from engine.api import (
    AppendResult,
    FileRange,
    FoundRecord,
    Isolation,
    PartitionLog,
    ReadResult,
    RecordFilter,
    TopicIdPartition,
)
from engine.batches.batch import BatchHeader, Codec, Record, build_batch, parse_header, seal_batch, walk_records
from engine.batches.codecs import compress, decompress
from engine.errors import NotLoaded
from engine.files.filesystem import File, FileSystem
from engine.files.io_workers import LoopPool, WorkerPool, sync_all
from engine.index.store import LevelDbStore
from engine.log_config import LogConfig
from engine.log_dirs.strays import Fate, FateOf
from engine.logs.log import Log
from engine.options import StoreDeps, StoreOptions
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem, SimulatedPool, begin_sync
from engine.testing.simulated_index import SimulatedIndexStore
from engine.tier import NoTier, SegmentTier

T = TypeVar("T")


def fates(is_named: Callable[[bytes, int], bool], otherwise: Fate = Fate.DELETED) -> FateOf:
    """A fake answer of the metadata: these partitions are named, the others have the fate `otherwise`."""
    return lambda topic_id, number: Fate.NAMED if is_named(topic_id, number) else otherwise


NOW_MS = 1_700_000_000_000
ORDERS = TopicIdPartition(bytes(range(16)), "orders", 0)
MAX_BYTES = 1 << 20
NO_JOURNAL = 64  # a slot of this size holds no frame


@dataclass
class HeldPool:
    """A loop pool whose jobs wait for `release` while `is_holding`."""

    is_holding: bool = False
    release: trio.Event = field(default_factory=trio.Event)
    inner: LoopPool = field(default_factory=LoopPool)
    waiting: int = 0

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        if self.is_holding:
            self.waiting += 1
            await self.release.wait()
            self.waiting -= 1
        return await self.inner.run(worker, job)

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await self.run(worker, partial(sync_all, files))

    def close(self) -> None:
        self.inner.close()


class Dead(BaseException):
    """Exception that ends a job of a killed process, also a swap, which cannot be cancelled."""


class MortalPool(HeldPool):
    """A held pool that can be killed: then none of the held jobs is done."""

    is_dead = False

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        if self.is_holding:
            await self.release.wait()
        if self.is_dead:
            raise Dead
        return await self.inner.run(worker, job)

    def die(self) -> None:
        self.is_dead = True
        self.release.set()


class StartedSync:
    """A sync whose end, and the report of its end, are triggered by the test."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files
        self._end = begin_sync(files)
        self._outcome: outcome.Outcome[None] | None = None
        self._reported = trio.Event()

    def end(self) -> None:
        self._outcome = outcome.capture(self._end)

    def report(self) -> None:
        if self._outcome is None:
            self.end()
        self._reported.set()

    async def wait(self) -> None:
        await self._reported.wait()
        assert self._outcome is not None
        self._outcome.unwrap()


@dataclass
class SlowSyncs(SimulatedPool):
    """A pool of the simulated disk whose syncs wait for the test while `is_slow`."""

    started: list[StartedSync] = field(default_factory=list)
    is_slow: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        if self.is_slow:
            self.started.append(StartedSync(files))
            await self.started[-1].wait()
        else:
            begin_sync(files)()


@dataclass
class HeldWorkers(LoopPool):
    """A loop pool in which the jobs of the workers in `held` wait until `release`."""

    held: set[int] = field(default_factory=set)
    started: list[int] = field(default_factory=list)
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def __post_init__(self) -> None:
        super().__init__()

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        self.started.append(worker)
        while worker in self.held:
            await self._changed.park()
        return await super().run(worker, job)

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await self.run(worker, lambda: sync_all(files))

    def release(self) -> None:
        self.held.clear()
        self._changed.unpark_all()


def options(
    *log_dirs: str,
    cluster_id: str = "cluster",
    broker_id: int = 1,
    queue_max_bytes: int = 1 << 26,
    journal_slot_size_bytes: int = 64 * 1024,
) -> StoreOptions:
    return StoreOptions(
        log_dirs or ("/data",),
        cluster_id,
        broker_id,
        queue_max_bytes=queue_max_bytes,
        journal_slot_size_bytes=journal_slot_size_bytes,
    )


def _pool_for(filesystem: FileSystem) -> WorkerPool:
    return SimulatedPool() if isinstance(filesystem, SimulatedFileSystem) else LoopPool()


@asynccontextmanager
async def running(
    filesystem: FileSystem,
    store_options: StoreOptions | None = None,
    *,
    pool: WorkerPool | None = None,
    fatal: list[str] | None = None,
    problems: list[str] | None = None,
    clock: Callable[[], int] = lambda: NOW_MS,
    tier: SegmentTier | None = None,
) -> AsyncIterator[SegmentStore]:
    """A store that serves within the block; leaving it without `close` is a crash of the process."""
    fatal = [] if fatal is None else fatal
    problems = [] if problems is None else problems
    random = Random(1)
    index = partial(SimulatedIndexStore, filesystem) if isinstance(filesystem, SimulatedFileSystem) else LevelDbStore
    pool, tier = pool or _pool_for(filesystem), tier or NoTier()
    world = StoreDeps(filesystem, index, pool, random, clock, fatal.append, problems.append, tier)
    store = SegmentStore(store_options or options(), world)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        try:
            yield store
        finally:
            nursery.cancel_scope.cancel()
            if isinstance(filesystem, SimulatedFileSystem):
                filesystem.end_process()


def log_bytes(disk: SimulatedFileSystem, log: Log) -> bytes:
    """The written bytes of all segments of a log, synced or not."""
    return b"".join(disk.content(log.path_of(one.base_offset))[: one.size_bytes] for one in log.segments)


def batch(*values: bytes, timestamps_ms: Sequence[int] | None = None) -> bytearray:
    times = timestamps_ms or [NOW_MS] * len(values)
    return build_batch([Record(b"k", value, time) for value, time in zip(values, times, strict=True)])


def keyed_batch(
    *records: tuple[bytes | None, bytes | None],
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamps_ms: Sequence[int] | None = None,
) -> bytearray:
    """A batch of these keys and values."""
    times = timestamps_ms or [NOW_MS] * len(records)
    made = [Record(key, value, time) for (key, value), time in zip(records, times, strict=True)]
    return compressed_batch(codec, made, producer)


def compressed_batch(
    codec: Codec, records: Sequence[Record], producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytearray:
    plain = build_batch(records)
    header = parse_header(plain)
    return seal_batch(
        compress(codec, bytes(plain[61:])),
        record_count=len(records),
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        timestamps_ms=(header.base_timestamp_ms, header.max_timestamp_ms),
        producer=producer,
    )


async def append(log: PartitionLog, *values: bytes) -> AppendResult:
    return await log.append(memoryview(batch(*values)), acks=-1).wait()


def bytes_of(ranges: list[FileRange]) -> bytes:
    return b"".join(part.file.read_at(part.position, part.size_bytes) for part in ranges)


def batches_in(data: bytes) -> list[tuple[BatchHeader, list[Record]]]:
    """Parse the complete batches of a Fetch, as a client does."""
    found = []
    position = 0
    while position + 61 <= len(data):
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            break
        body = data[position + 61 : position + header.size_bytes]
        found.append((header, list(walk_records(header, decompress(header.codec_id, body)))))
        position += header.size_bytes
    return found


async def read(log: PartitionLog, offset: int, max_size_bytes: int = MAX_BYTES) -> ReadResult:
    """Read as a Fetch does: load first if that is needed."""
    while True:
        try:
            return log.read(offset, max_size_bytes, Isolation.READ_UNCOMMITTED, at_least_one=True)
        except NotLoaded:
            await log.load(offset, max_size_bytes)


async def read_committed(log: PartitionLog, offset: int, max_size_bytes: int = MAX_BYTES) -> dict[int, Record]:
    """Records by offset that Kafka's read_committed consumer gets from an offset on, up to the LSO (CompletedFetch)."""
    found: dict[int, Record] = {}
    while True:
        try:
            result = log.read(offset, max_size_bytes, Isolation.READ_COMMITTED, at_least_one=True)
        except NotLoaded:
            await log.load(offset, max_size_bytes, Isolation.READ_COMMITTED)
            continue
        batches = batches_in(bytes_of(result.records))
        if not batches:
            assert offset == max(offset, result.last_stable_offset), "a consumer would wait for ever"
            return found
        assert result.aborted is not None
        to_come, aborted = sorted(result.aborted, key=lambda one: one.first_offset), set[int]()
        for header, records in batches:
            while to_come and to_come[0].first_offset < header.next_offset:
                aborted.add(to_come.pop(0).producer_id)
            if header.is_control:
                if records and records[0].key == b"\0\0\0\0":
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found |= {header.base_offset + one.offset_delta: one for one in records}
            offset = header.next_offset


async def read_all(log: PartitionLog, values: dict[int, bytes | None] | None = None) -> dict[int, bytes | None]:
    """Values by offset of all records that a consumer can read. `values`: filled on the way, for reads that end with an
    error."""
    values = {} if values is None else values
    position = log.log_start_offset
    while True:
        result = await read(log, position)
        found = batches_in(bytes_of(result.records))
        if not found:
            return values
        for header, records in found:
            for record in records:
                values[header.base_offset + record.offset_delta] = record.value
            position = header.next_offset


async def records_in(log: PartitionLog) -> dict[int, Record]:
    """All records that a consumer can read, by offset; checks that batches come in order."""
    found: dict[int, Record] = {}
    position = log.log_start_offset
    while position < log.high_watermark:
        for header, records in batches_in(bytes_of((await read(log, position)).records)):
            assert header.next_offset > position
            found |= {header.base_offset + one.offset_delta: one for one in records}
            position = header.next_offset
    return {offset: one for offset, one in found.items() if offset >= log.log_start_offset}


async def open_orders(store: SegmentStore, config: LogConfig | None = None, leader_epoch: int = 0) -> PartitionLog:
    return await store.open_partition(ORDERS, config or LogConfig(), leader_epoch)


async def found(log: PartitionLog, wanted: RecordFilter, count_max: int = 1000) -> list[FoundRecord]:
    """Search step by step, and return all found records."""
    records: list[FoundRecord] = []
    offset = 0
    while offset < log.last_stable_offset and len(records) < count_max:
        step = await log.find_records(wanted, offset, count_max - len(records))
        records += step.records
        offset = step.next_offset
    return records


async def offsets_for_key(log: PartitionLog, key: bytes, count_max: int = 1000) -> list[int]:
    return [record.offset for record in await found(log, RecordFilter(key), count_max)]
