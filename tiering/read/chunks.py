"""The chunk cache: parts of objects in files without names, up to a maximal size.

A chunk is evicted when others come; its file stays while a reader references it. Concurrent requests for a chunk become
one request to the store. If one reader is cancelled, the others still get the chunk.

A store whose objects are files gives those: then nothing is copied, and the page cache keeps the bytes. Such a file is
closed when it was not used for a while, because a deleted object takes disk space as long as it is open.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from tiering.names import topic_id_of
from tiering.object_store import FilePart, StoreError, StoreUnavailable
from tiering.statistics import TopicCounters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engine.tier import File, FileSystem
    from tiering.object_store import ObjectStore, Workers

CHUNK_BYTES = 1024 * 1024
SEQUENTIAL_BYTES = 4 * CHUNK_BYTES  # read at once, and ahead, for a sequential reader
FLIGHTS_MAX = 20  # concurrent requests to the store
FLYING_MAX_BYTES = 32 * 1024 * 1024  # maximal size of parts that are being fetched, in memory
USED_WITHIN_S = 30.0  # a file of the store that was not used so long is closed
KEPT_MIN = 16  # of the newest chunks, whatever the size limit, so that a waiting reader can read them


class ChunkOf(NamedTuple):
    """The name of a chunk; all chunks of an object but the last have `CHUNK_BYTES`."""

    key: str
    number: int


class Extent(NamedTuple):
    """The wanted range of an object, from `position` to `end`. Nothing behind its first `size_bytes` is fetched."""

    key: str
    position: int
    end: int
    size_bytes: int

    @property
    def chunks(self) -> list[ChunkOf]:
        first, behind = self.position // CHUNK_BYTES, -(-min(self.end, self.size_bytes) // CHUNK_BYTES)
        return [ChunkOf(self.key, number) for number in range(first, behind)]


class Chunk:
    """A chunk in the cache, which begins at `position` of a file.

    `is_wrong`: damage was found, so it must not be used any more; `is_used`: used since the last check; `is_own`: the
    file belongs to the cache.
    """

    __slots__ = ("__weakref__", "file", "is_own", "is_used", "is_wrong", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int, *, is_own: bool) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.is_own = is_own
        self.is_used = True
        self.is_wrong = False

    def read_at(self, start: int, size_bytes: int) -> bytes:
        """Read bytes; may wait for a disk. Raises Unreadable."""
        return self.file.read_at(self.position + start, size_bytes)

    def read_cached(self, start: int, size_bytes: int) -> bytes | None:
        """Read bytes without waiting for the disk, as `engine.tier.File`."""
        return self.file.read_cached(self.position + start, size_bytes)

    def is_cached(self, start: int, size_bytes: int) -> bool:
        """Whether bytes are in the page cache, as `engine.tier.File`."""
        return self.file.is_cached(self.position + start, size_bytes)

    def cached_size(self, start: int, size_bytes: int) -> int:
        """How many bytes from `start` on are in the page cache, as `engine.tier.File`."""
        return self.file.cached_size(self.position + start, size_bytes)


class ChunkFiles:
    """Files without names in an existing directory. A file that a crash leaves has a name, and is removed at start."""

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._numbers = itertools.count()

    def clear(self) -> None:
        """Remove files that a crash has left, before any is made. Blocking: for a worker, as `make`."""
        for name in self._filesystem.list_dir(self._directory):
            self._filesystem.unlink(f"{self._directory}/{name}")

    def make(self, data: memoryview) -> Chunk:
        """Write a chunk into a new file. Raises OSError."""
        path = f"{self._directory}/{next(self._numbers)}"
        file = self._filesystem.open(path, create=True)
        self._filesystem.unlink(path)
        file.write_at([data], 0)
        return Chunk(file, 0, len(data), is_own=True)


@dataclass(slots=True)
class CacheStatistics:
    """Counts of the cache since the start of the broker."""

    requests: int = 0
    fetched_bytes: int = 0
    evicted: int = 0


class _Flight:
    """A request for consecutive chunks that is under way."""

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.error: StoreError | None = None
        self.brought: dict[ChunkOf, Chunk] = {}


class _Airspace:
    """A limit on the bytes that are being fetched, in order of arrival. A larger request passes alone."""

    def __init__(self, size_max_bytes: int) -> None:
        self._size_max_bytes = size_max_bytes
        self._taken_bytes = 0
        self._next = trio.Lock()
        self._released = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def of(self, size_bytes: int) -> AsyncIterator[None]:
        async with self._next:
            while self._taken_bytes and self._taken_bytes + size_bytes > self._size_max_bytes:
                await self._released.park()
            self._taken_bytes += size_bytes
        try:
            yield
        finally:
            self._taken_bytes -= size_bytes
            self._released.unpark()


class ChunkCache:
    """The chunk cache of a broker.

    `nursery` runs the requests, independent of the readers that wait; `topics` counts them.
    """

    def __init__(
        self,
        store: ObjectStore,
        files: ChunkFiles,
        workers: Workers,
        nursery: trio.Nursery,
        size_max_bytes: int,
        topics: TopicCounters | None = None,
    ) -> None:
        self.statistics = CacheStatistics()
        self.size_bytes = 0
        self._store = store
        self._files = files
        self._workers = workers
        self._nursery = nursery
        self._size_max_bytes = size_max_bytes
        self._topics = TopicCounters() if topics is None else topics
        self._chunks: OrderedDict[ChunkOf, Chunk] = OrderedDict()
        self._flying: dict[ChunkOf, _Flight] = {}
        self._flights = trio.CapacityLimiter(FLIGHTS_MAX)
        self._airspace = _Airspace(FLYING_MAX_BYTES)

    @property
    def file_count(self) -> int:
        return len(self._chunks)

    def find(self, key: str, number: int) -> Chunk | None:
        """The chunk, if it is in the cache. For any thread."""
        return self._chunks.get(ChunkOf(key, number))

    def touch(self, key: str, number: int) -> None:
        """Note that a chunk was used."""
        chunk = self._chunks.get(ChunkOf(key, number))
        if chunk is not None:
            chunk.is_used = True
            self._chunks.move_to_end(ChunkOf(key, number))

    async def leave_files(self) -> None:
        """Close files of the store that are not used, until cancelled."""
        while True:
            await trio.sleep(USED_WITHIN_S)
            for one, chunk in list(self._chunks.items()):
                if not chunk.is_own and not chunk.is_used:
                    self._remove(one)
                chunk.is_used = False

    async def fetch(self, extent: Extent) -> dict[ChunkOf, Chunk]:
        """Fetch chunks, and return them; they stay in the cache while there is room.

        Raises StoreError; StoreUnavailable also if there is no disk space at all.
        """
        self._begin(extent)
        found = {one: self._chunks[one] for one in extent.chunks if one in self._chunks}
        flights = {id(flight): flight for one in extent.chunks if (flight := self._flying.get(one)) is not None}
        for flight in flights.values():
            await flight.is_over.wait()
            if flight.error is not None:
                raise flight.error
            found |= flight.brought
        return found

    def read_ahead(self, extent: Extent) -> None:
        """Fetch chunks without waiting, if less than half of them are in the cache, or on their way."""
        chunks = extent.chunks
        if self._missing(chunks[: len(chunks) // 2 + 1]):
            self._begin(extent)

    def _begin(self, extent: Extent) -> None:
        for run in _consecutive(self._missing(extent.chunks)):
            flight = _Flight()
            self._flying.update(dict.fromkeys(run, flight))
            self._nursery.start_soon(self._fly, run, extent.size_bytes, flight)

    def _missing(self, wanted: list[ChunkOf]) -> list[ChunkOf]:
        """The chunks that are neither in the cache nor on their way."""
        return [one for one in wanted if one not in self._chunks and one not in self._flying]

    def forget(self, key: str) -> None:
        """Drop the chunks of an object, in which damage was found."""
        for one in [one for one in self._chunks if one.key == key]:
            self._remove(one).is_wrong = True

    def _remove(self, one: ChunkOf) -> Chunk:
        chunk = self._chunks.pop(one)
        self.size_bytes -= chunk.size_bytes
        return chunk

    async def _fly(self, run: list[ChunkOf], end: int, flight: _Flight) -> None:
        key, start = run[0].key, run[0].number * CHUNK_BYTES
        wanted_bytes = min(end, start + len(run) * CHUNK_BYTES) - start
        counted = self._topics.of(topic_id_of(key))
        try:
            async with self._flights, self._airspace.of(wanted_bytes):
                self.statistics.requests += 1
                counted.fetches += 1
                found = await self._store.get_part(key, start, wanted_bytes)
                self.statistics.fetched_bytes += len(found)
                counted.fetched_bytes += len(found)
                if len(found) != wanted_bytes:
                    raise StoreUnavailable(f"{key} came cut short")
                if isinstance(found, FilePart):
                    made = _chunks_in(found)
                else:
                    made = await self._workers.run(partial(self._make, found))
            flight.brought = dict(zip(run, made, strict=True))
            self._keep(flight.brought)
        except StoreError as error:
            flight.error = error
        except OSError as error:
            flight.error = StoreUnavailable(f"no room for the read bytes: {error.strerror}")
        except Exception as error:  # a bug of a store must not end the broker
            flight.error = StoreUnavailable(f"{key}: {error!r}")
        finally:
            counted.fetch_errors += flight.error is not None
            for one in run:
                del self._flying[one]
            flight.is_over.set()

    def _make(self, data: bytes | bytearray) -> list[Chunk]:
        """Write chunks into files, on a worker."""
        view = memoryview(data)
        return [self._files.make(view[start : start + CHUNK_BYTES]) for start in range(0, len(view), CHUNK_BYTES)]

    def _keep(self, chunks: dict[ChunkOf, Chunk]) -> None:
        for one, chunk in chunks.items():
            self._chunks[one] = chunk
            self.size_bytes += chunk.size_bytes
        while self.size_bytes > self._size_max_bytes and len(self._chunks) > max(KEPT_MIN, len(chunks)):
            self._remove(next(iter(self._chunks)))
            self.statistics.evicted += 1


def _chunks_in(part: FilePart) -> list[Chunk]:
    return [
        Chunk(part.file, part.position + start, min(CHUNK_BYTES, len(part) - start), is_own=False)
        for start in range(0, len(part), CHUNK_BYTES)
    ]


def _consecutive(wanted: list[ChunkOf]) -> list[list[ChunkOf]]:
    runs: list[list[ChunkOf]] = []
    for one in wanted:
        if runs and runs[-1][-1].number + 1 == one.number:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs
