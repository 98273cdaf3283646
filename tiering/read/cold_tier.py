"""Reads of cold segments: implements `engine.tier.SegmentTier`.

A job runs on a worker, with the chunks that are cached. If it needs others, these are fetched, and the job runs again.
So no thread waits for a store, a waiting reader can be cancelled, and fetched chunks serve other readers.
"""

from __future__ import annotations

from collections import OrderedDict
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from engine.errors import CorruptMessage, StorageError, TierUnreachable
from tiering.errors import TierError
from tiering.object_store import ObjectMissing, StoreError, StoreRefused, StoreUnavailable
from tiering.read.chunks import CHUNK_BYTES, SEQUENTIAL_BYTES, ChunkOf, Extent
from tiering.read.cold_file import Absent, ColdFile
from tiering.segment_object import fetch_trailer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.api import TopicIdPartition
    from tiering.manifest.manifest import SegmentEntry
    from tiering.object_store import ObjectStore, Workers
    from tiering.read.chunks import Chunk, ChunkCache
    from tiering.segment_object import Trailer

T = TypeVar("T")

SEEK_BYTES = CHUNK_BYTES + 128 * 1024  # bytes that the first read of a job fetches at least
RUNS_MAX = 128  # runs of one job: by then it has read half a GiB of a segment
ABORTED_KEPT_MAX = 256
PARTITIONS_KEPT_MAX = 256


class Catalogue(Protocol):
    """A look-up in the newest manifests."""

    def key_of(self, partition: TopicIdPartition, entry: SegmentEntry) -> str: ...
    async def entries(self, partition: TopicIdPartition) -> Mapping[int, SegmentEntry]:
        """The copied segments of a partition, by base offset. Raises StoreError, TierDamaged and OtherVersion."""


class _ManifestMissing(Exception):
    """The manifest of a partition is not in memory."""

    def __init__(self, partition: TopicIdPartition) -> None:
        super().__init__(partition)
        self.partition = partition


class _TrailerMissing(Exception):
    """The trailer of an object is not in memory."""

    def __init__(self, key: str, entry: SegmentEntry) -> None:
        super().__init__(key, entry)
        self.key = key
        self.entry = entry


_Missing = Absent | _ManifestMissing | _TrailerMissing


class _Records(NamedTuple):
    """The records of a segment, in whichever object they are."""

    partition: TopicIdPartition
    base_offset: int
    digest: str


class _Run:
    """A job under way: its chunks, which stay until it ends, and the range to read ahead."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.read: set[Chunk] = set()
        self.ahead: Extent | None = None
        self.fetched: dict[ChunkOf, Chunk] = {}
        self.trailers: dict[str, Trailer] = {}
        self.looked_up: dict[TopicIdPartition, Mapping[int, SegmentEntry]] = {}  # others may drop it meanwhile
        self.has_reloaded_manifests = False
        self.has_fetched_again = False
        self.count = 0


_current: ContextVar[_Run] = ContextVar("a run of a job")


class _RunLookup:
    """A look-up for the running job, with the chunks that were fetched for it.

    A small cache may have evicted them before the job runs again. The job would fetch them again, and so evict others
    that it needs.
    """

    def __init__(self, cache: ChunkCache) -> None:
        self._cache = cache
        self.touch = cache.touch

    def find(self, key: str, number: int) -> Chunk | None:
        chunk = _current.get().fetched.get(ChunkOf(key, number))
        return self._cache.find(key, number) if chunk is None or chunk.is_wrong else chunk


class ColdTier:
    """The reads of cold segments of one broker."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue, cache: ChunkCache, workers: Workers) -> None:
        self._store = store
        self._catalogue = catalogue
        self._cache = cache
        self._here = _RunLookup(cache)
        self._workers = workers
        self._known: OrderedDict[TopicIdPartition, Mapping[int, SegmentEntry]] = OrderedDict()
        self._files: WeakValueDictionary[_Records, ColdFile] = WeakValueDictionary()
        self._aborted: OrderedDict[str, bytes] = OrderedDict()

    def open(self, partition: TopicIdPartition, base_offset: int) -> ColdFile:
        entry = self._entry(partition, base_offset)
        records = _Records(partition, base_offset, entry.records_digest)
        file = self._files.get(records)
        if file is None:
            key = self._catalogue.key_of(partition, entry)
            file = ColdFile(self._here, key, entry.size_bytes, _note_chunk, _note_ahead, _has_waited)
            self._files[records] = file
        return file

    def aborted(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        entry = self._entry(partition, base_offset)
        if not entry.has_aborted:
            return b""
        key = self._catalogue.key_of(partition, entry)
        found = self._aborted.get(key)
        if found is None:
            found = self._aborted[key] = _trailer(key, entry).aborted
            if len(self._aborted) > ABORTED_KEPT_MAX:
                self._aborted.popitem(last=False)
        return found

    def index_rows(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        entry = self._entry(partition, base_offset)
        return _trailer(self._catalogue.key_of(partition, entry), entry).index_rows

    async def run(self, job: Callable[[], T]) -> T:
        run = _Run()
        while True:
            try:
                found = await self._workers.run(partial(_perform, job, run))
            except (Absent, _ManifestMissing, _TrailerMissing) as missing:
                await self._provide(run, missing)
            except FileNotFoundError:
                raise
            except (CorruptMessage, OSError) as error:
                self._forget(run, error)
            else:
                if run.ahead is not None:
                    self._cache.read_ahead(run.ahead)
                return found

    async def _provide(self, run: _Run, missing: _Missing) -> None:
        """Provide what a job lacks. Raises StorageError and its subclasses."""
        run.count += 1
        if run.count > RUNS_MAX:
            raise StorageError("too much of a segment is needed at once")
        try:
            try:
                await self._load(run, missing)
            except ObjectMissing as error:
                if run.has_reloaded_manifests:
                    raise StorageError(f"the remote tier lacks {error}") from error
                run.has_reloaded_manifests = True
                await self._reload_manifests(run, error)
        except (StoreUnavailable, StoreRefused) as error:  # an operator may have to act, but nothing is lost
            raise TierUnreachable(f"the remote tier: {error}") from error
        except (StoreError, TierError) as error:
            raise StorageError(f"the remote tier: {error}") from error

    async def _load(self, run: _Run, missing: _Missing) -> None:
        if isinstance(missing, _ManifestMissing):
            await self._look_up(run, missing.partition)
        elif isinstance(missing, _TrailerMissing):
            run.trailers[missing.key] = await fetch_trailer(self._store, missing.key, missing.entry)
        else:
            least_bytes = SEQUENTIAL_BYTES if run.fetched else SEEK_BYTES
            extent = missing.extent
            run.keys.add(extent.key)
            wanted_end = max(extent.end, extent.position + least_bytes)
            run.fetched |= await self._cache.fetch(extent._replace(end=wanted_end))

    def _forget(self, run: _Run, error: CorruptMessage | OSError) -> None:
        """Drop all that the job has read, once, to fetch it again: it may be damaged by the transfer, or in the
        cache."""
        if run.has_fetched_again:
            if isinstance(error, OSError):
                raise StorageError(f"the cache of the remote tier: {error}") from error
            raise error
        run.has_fetched_again = True
        run.read.clear()
        run.fetched.clear()
        run.trailers.clear()
        for key in run.keys:
            self._cache.forget(key)
            self._aborted.pop(key, None)
        for file in list(self._files.values()):
            if file.key in run.keys:
                file.distrust()

    def _entry(self, partition: TopicIdPartition, base_offset: int) -> SegmentEntry:
        """The manifest entry of a segment. Raises _ManifestMissing, or FileNotFoundError if the manifest of this run
        does not have it."""
        looked_up = _current.get().looked_up.get(partition)
        entry = (self._known.get(partition, {}) if looked_up is None else looked_up).get(base_offset)
        if entry is not None:
            return entry
        if looked_up is not None:
            raise FileNotFoundError
        raise _ManifestMissing(partition)

    async def _reload_manifests(self, run: _Run, missing: ObjectMissing) -> None:
        """Read the newest manifests again: the same records may be in another object now."""
        run.looked_up.clear()
        self._known.clear()
        for records, file in list(self._files.items()):
            if file.key in run.keys:
                await self._look_up(run, records.partition)
                entry = self._known[records.partition].get(records.base_offset)
                if entry is None or entry.records_digest != records.digest:
                    raise StorageError(f"the remote tier lacks {missing}")
                file.key = self._catalogue.key_of(records.partition, entry)

    async def _look_up(self, run: _Run, partition: TopicIdPartition) -> None:
        run.looked_up[partition] = self._known[partition] = await self._catalogue.entries(partition)
        self._known.move_to_end(partition)
        if len(self._known) > PARTITIONS_KEPT_MAX:
            self._known.popitem(last=False)


def _perform(job: Callable[[], T], run: _Run) -> T:
    """Run a job on a worker, with `run` as the current one."""
    before = _current.set(run)
    try:
        return job()
    finally:
        _current.reset(before)


def _trailer(key: str, entry: SegmentEntry) -> Trailer:
    """The trailer of an object. Raises _TrailerMissing."""
    _note_read(key)
    found = _current.get().trailers.get(key)
    if found is None:
        raise _TrailerMissing(key, entry)
    return found


def _note_read(key: str) -> None:
    _current.get().keys.add(key)


def _note_chunk(key: str, chunk: Chunk) -> None:
    _note_read(key)
    _current.get().read.add(chunk)


def _has_waited() -> bool:
    return bool(_current.get().fetched)


def _note_ahead(extent: Extent) -> None:
    _current.get().ahead = extent._replace(end=max(extent.end, extent.position + SEQUENTIAL_BYTES))
