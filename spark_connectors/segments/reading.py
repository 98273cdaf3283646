"""Reads of sealed segments by a task: it reads its parts, checks them, and reads missing parts elsewhere.

Nothing is skipped. If a planned segment is gone or wrong, the task asks the catalogue again, because other segments may
have the records now. If these cannot be read either, the records are fetched. Only a broker decides that records are
lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from spark_connectors.records.batches import Batch, batches_of
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.segments.plan import Part, SealedRange, cut
from spark_connectors.segments.sealed import Aborted, Catalogue, CatalogueUnavailable, Segment
from spark_connectors.source.fetching import Piece
from spark_connectors.source.ranges import OffsetRange

CHUNK_BYTES: Final = 8 << 20
BATCH_MAX_BYTES: Final = 1 << 30  # a larger length is wrong
BORDER_BYTES: Final = 64 << 10  # read behind the expected end of a part, to check it

_log = logging.getLogger(__name__)


class SegmentGone(Exception):
    """The segment is missing, or is another one."""


class SegmentBytes(Protocol):
    """An open segment."""

    def read(self, position: int, size_bytes: int) -> memoryview:
        """Exactly `size_bytes` bytes. Raises SegmentGone, OSError."""

    def close(self) -> None: ...


class Stores(Protocol):
    """Access to segments."""

    def open(self, part: Part, store: str | None) -> SegmentBytes:
        """Open the part's segment, to read this part. Raises SegmentGone, OSError."""

    def aborted(self, segment: Segment, store: str | None) -> Aborted:
        """Aborted transactions with offsets in the segment. Raises SegmentGone, OSError."""


_GONE: Final = (SegmentGone, MalformedBatch, OSError)


class SealedRead:
    """Read of one task. `pieces` can be iterated once. `fetch` reads a range by Fetch; None: there is no broker."""

    def __init__(
        self,
        wanted: SealedRange,
        catalogue: Catalogue,
        stores: Stores,
        fetch: Callable[[OffsetRange], Iterator[Piece]] | None,
        *,
        is_committed_only: bool,
    ) -> None:
        self._wanted = wanted
        self._catalogue = catalogue
        self._stores = stores
        self._fetch = fetch
        self._is_committed_only = is_committed_only
        self._position = wanted.start  # the next offset

    def pieces(self) -> Iterator[Piece]:
        """All batches of the parts, in order. The first one may begin before the range, the last one may end behind it.

        Raises the errors of `fetch`; without `fetch`, the error of the segment.
        """
        try:
            yield from self._read_parts(self._wanted)
            return
        except _GONE as error:
            first = error
        _log.warning("%s: %s, looking again", self._rest_of(self._wanted), first)
        for one in self._looked_up():
            yield from self._retried(one, first)

    def _retried(self, one: OffsetRange, error: Exception) -> Iterator[Piece]:
        if isinstance(one, SealedRange):
            try:
                yield from self._read_parts(one)
                return
            except _GONE as another:
                error = another
        _log.warning("%s: %s, fetching", one, error)
        if self._fetch is None:
            raise error
        for piece in self._fetch(self._rest_of(one)):
            yield piece
            self._position = max(self._position, piece.batches[-1].next_offset)
        self._position = max(self._position, one.end)

    def _rest_of(self, one: OffsetRange) -> OffsetRange:
        """The range without the offsets that were returned, to be read anywhere."""
        return OffsetRange(one.place, one.topic_id, max(one.start, self._position), one.end, one.is_earliest)

    def _looked_up(self) -> list[OffsetRange]:
        """The rest of the range, split by the sealed segments that exist now."""
        left = self._rest_of(self._wanted)
        try:
            sealed = self._catalogue.sealed(left.place, left.topic_id, left.start, left.end)
        except CatalogueUnavailable as error:
            _log.warning("%s: %s", left, error)
            sealed = None
        return [left] if sealed is None else cut(left, sealed)

    def _read_parts(self, one: SealedRange) -> Iterator[Piece]:
        for part in one.parts:
            self._position = max(self._position, part.segment.base)
            yield from self._read_part(part, one.store)

    def _read_part(self, part: Part, store: str | None) -> Iterator[Piece]:
        segment = part.segment
        aborted = self._aborted(segment, store)
        file = self._stores.open(part, store)
        try:
            for start, records, batches in PartRead(part, file, self._position, self._wanted.end).steps():
                yield Piece(start, records, batches, aborted)
                self._position = max(self._position, batches[-1].next_offset)
        except MalformedBatch as error:
            where = segment.key or segment.path or f"the segment at {segment.base}"
            raise MalformedBatch(f"{self._wanted.place} from offset {self._position} on, {where}: {error}") from error
        finally:
            file.close()
        self._position = max(self._position, min(segment.end, self._wanted.end))

    def _aborted(self, segment: Segment, store: str | None) -> Aborted:
        if not self._is_committed_only:
            return ()
        return self._stores.aborted(segment, store) if segment.aborted is None else segment.aborted


class PartRead:
    """Batches of one part with offsets in [start, end)."""

    def __init__(self, part: Part, file: SegmentBytes, start: int, end: int) -> None:
        self._segment = part.segment
        self._file = file
        self._next = part.position
        self._border = part.end
        self._hint: int | None = part.offset if part.position else None
        self._start = start
        self._end = min(end, part.segment.end)

    def steps(self) -> Iterator[tuple[int, memoryview, list[Batch]]]:
        """First offset, bytes and batches of each step. Raises SegmentGone, MalformedBatch, OSError."""
        size_bytes = CHUNK_BYTES
        while self._start < self._end and self._next < self._segment.size_bytes:
            records = self._file.read(self._next, self._chunk_bytes(size_bytes))
            batches = self._batches(records)
            if batches is None:
                continue
            if not batches:
                size_bytes = self._larger(size_bytes, len(records))
                continue
            size_bytes = CHUNK_BYTES
            self._next += batches[-1].end
            wanted = [one for one in batches if one.next_offset > self._start and one.base_offset < self._end]
            start, self._start = self._start, max(self._start, batches[-1].next_offset)
            if wanted:
                yield start, records, wanted

    def _chunk_bytes(self, size_bytes: int) -> int:
        """Bytes to read: up to the end of the part; more if it is reached, or if a batch continues behind it."""
        left = self._segment.size_bytes - self._next
        before_border = self._border - self._next
        if size_bytes == CHUNK_BYTES and before_border > 0:
            return min(size_bytes, before_border)
        return min(left, size_bytes if before_border > 0 or size_bytes > CHUNK_BYTES else BORDER_BYTES)

    def _batches(self, records: memoryview) -> list[Batch] | None:
        """Batches of the bytes. None: the position was wrong, and the read starts again at the beginning of the
        segment.
        """
        try:
            batches = batches_of(records)
        except MalformedBatch:
            if self._hint is None:
                raise
            self._restart()
            return None
        if not batches:
            return batches
        hint, self._hint = self._hint, None
        if hint is not None and batches[0].base_offset != hint:
            self._restart()
            return None
        for one in (batches[0], batches[-1]):
            if one.base_offset < self._segment.base or one.next_offset > self._segment.end:
                raise MalformedBatch(
                    f"offset {one.base_offset} in the segment of {self._segment.base} to {self._segment.end}"
                )
        return batches

    def _larger(self, size_bytes: int, read_bytes: int) -> int:
        """Bytes to read if there was no complete batch."""
        if self._next + read_bytes < self._segment.size_bytes and size_bytes < BATCH_MAX_BYTES:
            return 2 * size_bytes
        if self._hint is None:
            raise MalformedBatch(f"no whole batch at position {self._next} of the segment at {self._segment.base}")
        self._restart()
        return CHUNK_BYTES

    def _restart(self) -> None:
        self._hint, self._next = None, 0
