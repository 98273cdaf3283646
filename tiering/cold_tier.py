"""How a broker reads what is in the tier only: implements `engine.tier.SegmentTier`.

A job is run on a worker, over what is here; when it needs what is not, that is fetched, and the job run again. So no
thread waits for a store, whoever waits may leave, and what is fetched is there for others.
"""

from __future__ import annotations

from collections import OrderedDict
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakValueDictionary

from engine.errors import CorruptMessage, StorageError
from tiering.chunks import CHUNK_BYTES, Extent
from tiering.cold_file import Absent, ColdFile
from tiering.errors import TierError
from tiering.object_store import ObjectMissing, StoreError
from tiering.segment_object import read_trailer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from engine.api import TopicPartition
    from tiering.chunks import Chunk, ChunkCache
    from tiering.manifest import Entry
    from tiering.object_store import ObjectStore, Workers

T = TypeVar("T")

SEEK_BYTES = CHUNK_BYTES + 128 * 1024  # fetched at least, where a job begins: a step of reading, and the way to it
SEQUENTIAL_BYTES = 4 * CHUNK_BYTES  # when it goes on; and ahead of whoever reads on
RUNS_MAX = 600  # of one job: it has read two GiB of a segment then
ABORTED_KEPT_MAX = 256
PARTITIONS_KEPT_MAX = 256


class Catalogue(Protocol):
    """Says what is in the tier, by the newest manifests."""

    def key_of(self, partition: TopicPartition, entry: Entry) -> str: ...
    async def entries(self, partition: TopicPartition) -> Mapping[int, Entry]:
        """By base offset. Raises what a store does, TierDamaged and OtherVersion."""


class _Unknown(Exception):
    """What the tier has of a partition is not known here (any more)."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        self.partition = partition


class _AbortedWanted(Exception):
    """The aborted index of an object."""

    def __init__(self, key: str, entry: Entry) -> None:
        super().__init__(key, entry)
        self.key = key
        self.entry = entry


class _Run:
    """A job under way: what it has read, what will be read next, and what was fetched for it and stays till the end."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.ahead: Extent | None = None
        self.fetched: list[Chunk] = []
        self.looked_up: set[TopicPartition] = set()
        self.has_fetched_again = False
        self.count = 0


_current: ContextVar[_Run] = ContextVar("a run of a job")


class ColdTier:
    """Of one broker."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue, cache: ChunkCache, workers: Workers) -> None:
        self._store = store
        self._catalogue = catalogue
        self._cache = cache
        self._workers = workers
        self._known: OrderedDict[TopicPartition, Mapping[int, Entry]] = OrderedDict()
        self._files: WeakValueDictionary[str, ColdFile] = WeakValueDictionary()
        self._aborted: OrderedDict[str, bytes] = OrderedDict()

    def open(self, partition: TopicPartition, base_offset: int) -> ColdFile:
        entry = self._entry(partition, base_offset)
        key = self._catalogue.key_of(partition, entry)
        file = self._files.get(key)
        if file is None:
            file = ColdFile(self._cache, key, entry.size_bytes, _note_read, _note_ahead)
            self._files[key] = file
        return file

    def aborted(self, partition: TopicPartition, base_offset: int) -> bytes:
        entry = self._entry(partition, base_offset)
        if not entry.has_aborted:
            return b""
        key = self._catalogue.key_of(partition, entry)
        _note_read(key)
        found = self._aborted.get(key)
        if found is None:
            raise _AbortedWanted(key, entry)
        return found

    async def run(self, job: Callable[[], T]) -> T:
        run = _Run()
        while True:
            try:
                found = await self._workers.run(partial(_perform, job, run))
            except (Absent, _Unknown, _AbortedWanted) as wanted:
                await self._told(self._provide(run, wanted))
            except FileNotFoundError:
                raise
            except (CorruptMessage, OSError) as error:
                self._forget(run, error)
            else:
                if run.ahead is not None:
                    self._cache.read_ahead(run.ahead)
                return found

    async def _provide(self, run: _Run, wanted: Absent | _Unknown | _AbortedWanted) -> None:
        if isinstance(wanted, Absent):
            await self._fetch(run, wanted.extent)
        elif isinstance(wanted, _Unknown):
            await self._look_up(run, wanted.partition)
        else:
            await self._fetch_aborted(wanted)

    def _forget(self, run: _Run, error: CorruptMessage | OSError) -> None:
        """What was read is to come anew, once: it may have come wrong, or become so here."""
        if run.has_fetched_again:
            if isinstance(error, OSError):
                raise StorageError(f"the cache of the remote tier: {error}") from error
            raise error
        run.has_fetched_again = True
        run.fetched.clear()
        for key in run.keys:
            self._cache.forget(key)
            self._aborted.pop(key, None)

    def forget(self, partition: TopicPartition) -> None:
        """What the tier has of it has changed."""
        self._known.pop(partition, None)

    def _entry(self, partition: TopicPartition, base_offset: int) -> Entry:
        """Raises _Unknown, and FileNotFoundError: there is none, by what was looked up for this very run."""
        entry = self._known.get(partition, {}).get(base_offset)
        if entry is not None:
            return entry
        if partition in _current.get().looked_up:
            raise FileNotFoundError
        raise _Unknown(partition)

    async def _told(self, work: Awaitable[None]) -> None:
        """In the engine's words."""
        try:
            await work
        except ObjectMissing as error:
            self._known.clear()  # whoever asks again is told by the newest manifests
            raise StorageError(f"the remote tier lacks {error}") from error
        except (StoreError, TierError) as error:
            raise StorageError(f"the remote tier: {error}") from error

    async def _fetch(self, run: _Run, extent: Extent) -> None:
        run.count += 1
        if run.count > RUNS_MAX:
            raise StorageError("too much of a segment is needed at once")
        least_bytes = SEEK_BYTES if run.count == 1 else SEQUENTIAL_BYTES
        run.fetched += await self._cache.fetch(extent._replace(end=max(extent.end, extent.position + least_bytes)))

    async def _look_up(self, run: _Run, partition: TopicPartition) -> None:
        run.looked_up.add(partition)
        self._known[partition] = await self._catalogue.entries(partition)
        self._known.move_to_end(partition)
        if len(self._known) > PARTITIONS_KEPT_MAX:
            self._known.popitem(last=False)

    async def _fetch_aborted(self, wanted: _AbortedWanted) -> None:
        key, entry = wanted.key, wanted.entry
        behind = await self._store.get(key, entry.size_bytes, entry.object_size_bytes - entry.size_bytes)
        self._aborted[key] = read_trailer(behind, key).aborted
        if len(self._aborted) > ABORTED_KEPT_MAX:
            self._aborted.popitem(last=False)


def _perform(job: Callable[[], T], run: _Run) -> T:
    """On a worker, which knows for whom while it does."""
    before = _current.set(run)
    try:
        return job()
    finally:
        _current.reset(before)


def _note_read(key: str) -> None:
    _current.get().keys.add(key)


def _note_ahead(extent: Extent) -> None:
    _current.get().ahead = extent._replace(end=extent.position + SEQUENTIAL_BYTES)
