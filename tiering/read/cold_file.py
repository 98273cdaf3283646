"""A segment in the tier as a file: reads use cached chunks, and raise `Absent` with the range to fetch otherwise.

The knowledge that bytes are sound belongs to a particular chunk. If a chunk is fetched again, it has to be read and
checked again, before `is_cached` says yes.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NoReturn, Protocol
from weakref import ref

from engine.api import FileRange
from engine.errors import NotLoaded
from tiering.read.chunks import CHUNK_BYTES, SEQUENTIAL_BYTES, Extent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tiering.read.chunks import Chunk

CheckedRanges = tuple["ref[Chunk]", tuple[tuple[int, int], ...]]  # a chunk, with its positions that were checked


class Absent(Exception):
    """A chunk is not in the cache; `extent` is to be fetched."""

    def __init__(self, extent: Extent) -> None:
        super().__init__(extent)
        self.extent = extent


class Here(Protocol):
    """A look-up of chunks in the cache, for any thread."""

    def find(self, key: str, number: int) -> Chunk | None: ...
    def touch(self, key: str, number: int) -> None:
        """Note that a chunk was used."""


class ColdFile:
    """A segment in the tier; implements `engine.tier.ColdFile`.

    `on_read` gets, on the reading thread, each chunk that is read, and keeps it until the job is done; `on_read_ahead`
    gets the range that will be read. `has_waited` says whether the job was run again.
    """

    def __init__(
        self,
        here: Here,
        key: str,
        size_bytes: int,
        on_read: Callable[[str, Chunk], None],
        on_read_ahead: Callable[[Extent], None],
        has_waited: Callable[[], bool] = lambda: False,
    ) -> None:
        self.has_waited = has_waited
        self.key = key
        self._here = here
        self._size_bytes = size_bytes
        self._on_read = on_read
        self._on_read_ahead = on_read_ahead
        self._read: dict[int, ref[Chunk]] = {}
        self._checked: dict[int, CheckedRanges] = {}

    def fileno(self) -> None:
        return None

    def size(self) -> int:
        return self._size_bytes

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read bytes from cached chunks. Raises Absent."""
        end = min(position + size_bytes, self._size_bytes)
        found: list[bytes] = []
        for number, start, stop in _parts(position, end):
            chunk = self._alive(number) or self._here.find(self.key, number)
            if chunk is None:
                raise Absent(self._extent(number * CHUNK_BYTES + start, end))
            self._on_read(self.key, chunk)
            found.append(chunk.read_at(start, stop - start))
            self._read[number] = ref(chunk)
        return found[0] if len(found) == 1 else b"".join(found)

    def here_until(self, position: int) -> int:
        """The position up to which all chunks from `position` on are cached.

        A chunk may be evicted right after: then the reader waits for it, as for any other.
        """
        end = min(position + SEQUENTIAL_BYTES, self._size_bytes)
        for number, start, _ in _parts(position, end):
            if self._alive(number) is None and self._here.find(self.key, number) is None:
                return number * CHUNK_BYTES + start
        return end

    def hold(self, position: int, end: int) -> object:
        """Hold the chunks that were read. Raises Absent if damage was found in one."""
        held = []
        for number, start, _ in _parts(position, end):
            chunk = self._alive(number)
            if chunk is None:
                raise Absent(self._extent(number * CHUNK_BYTES + start, end))
            held.append(chunk)
        return held

    def read_cached(self, position: int, size_bytes: int) -> bytes | None:
        end = min(position + size_bytes, self._size_bytes)
        found = []
        for number, start, stop in _parts(position, end):
            chunk = self._alive(number)
            data = None if chunk is None else chunk.read_cached(start, stop - start)
            if data is None:
                return None
            found.append(data)
        return b"".join(found)

    def is_cached(self, position: int, size_bytes: int) -> bool:
        end = min(position + size_bytes, self._size_bytes)
        return all(self._was_checked(*part) for part in _parts(position, end))

    def cached_size(self, position: int, size_bytes: int) -> int:
        """Number of leading bytes in memory, see `engine.tier.File`; only checked bytes count."""
        found = 0
        for number, start, stop in _parts(position, min(position + size_bytes, self._size_bytes)):
            chunk, checked_to = self._alive(number), self._checked_to(number, start, stop)
            if chunk is None or checked_to == start:
                break
            size_bytes = chunk.cached_size(start, checked_to - start)
            found += size_bytes
            if size_bytes < stop - start:
                break
        return found

    def note_checked(self, position: int, end: int) -> None:
        for number, start, stop in _parts(position, end):
            chunk = self._alive(number)
            if chunk is not None:
                self._note(number, chunk, start, stop)

    def parts(self, position: int, size_bytes: int) -> list[FileRange]:
        found = []
        for number, start, stop in _parts(position, position + size_bytes):
            chunk = self._alive(number)
            if chunk is None:
                raise NotLoaded
            self._here.touch(self.key, number)
            found.append(FileRange(chunk.file, chunk.position + start, stop - start))
        return found

    def read_ahead(self, position: int, size_bytes: int) -> None:
        self._on_read_ahead(self._extent(position, position + size_bytes))

    def _extent(self, position: int, end: int) -> Extent:
        return Extent(self.key, position, min(end, self._size_bytes), self._size_bytes)

    def distrust(self) -> None:
        """Mark all chunks that were read as wrong, for every reader."""
        for known in list(self._read.values()):
            chunk = known()
            if chunk is not None:
                chunk.is_wrong = True

    def _alive(self, number: int) -> Chunk | None:
        """The chunk that was read, if it still exists and is not wrong."""
        known = self._read.get(number)
        chunk = None if known is None else known()
        return None if chunk is None or chunk.is_wrong else chunk

    def _was_checked(self, number: int, start: int, stop: int) -> bool:
        chunk = self._alive(number)
        if chunk is None or self._checked_to(number, start, stop) < stop:
            return False
        return chunk.is_cached(start, stop - start)  # a send must not wait for a disk

    def _checked_to(self, number: int, start: int, stop: int) -> int:
        """The position up to which the chunk was checked from `start` on, at most `stop`."""
        checked = self._checked.get(number)
        if checked is None or checked[0]() is not self._alive(number):
            return start
        return max((min(last, stop) for first, last in checked[1] if first <= start <= last), default=start)

    def _note(self, number: int, chunk: Chunk, start: int, stop: int) -> None:
        checked = self._checked.get(number)
        ranges = checked[1] if checked is not None and checked[0]() is chunk else ()
        for one in ranges:
            if start <= one[1] and one[0] <= stop:
                start, stop = min(start, one[0]), max(stop, one[1])
        kept = tuple(one for one in ranges if one[0] > stop or one[1] < start)
        self._checked[number] = ref(chunk), (*kept, (start, stop))

    # Operations of writable files, which fail

    def write_at(self, buffers: Sequence[memoryview | bytes | bytearray], position: int) -> NoReturn:
        raise _read_only()

    def truncate(self, size_bytes: int) -> NoReturn:
        raise _read_only()

    def allocate(self, size_bytes: int) -> NoReturn:
        raise _read_only()

    def fdatasync(self) -> NoReturn:
        raise _read_only()

    def sync_and_forget(self) -> NoReturn:
        raise _read_only()

    def trim(self) -> NoReturn:
        raise _read_only()


def _read_only() -> OSError:
    return OSError(errno.EBADF, "a segment in the tier is read only")


def _parts(position: int, end: int) -> list[tuple[int, int, int]]:
    """The chunks between two positions: (number, start in the chunk, end in the chunk)."""
    found = []
    while position < end:
        number, start = divmod(position, CHUNK_BYTES)
        stop = min(CHUNK_BYTES, start + end - position)
        found.append((number, start, stop))
        position += stop - start
    return found
