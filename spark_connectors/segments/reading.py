"""What a task does with sealed segments: reads its parts, checks them, and goes elsewhere for what is gone.

Nothing is passed over. What was planned may be gone when it is read, or be wrong: then it is asked once more what there
is, as the same records may be elsewhere now; and what still cannot be read is fetched. Only a broker says that
something is lost.
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
BATCH_MAX_BYTES: Final = 1 << 30  # more is not taken for a batch
BORDER_BYTES: Final = 64 << 10  # read where a part should be over, to see that it is

_log = logging.getLogger(__name__)


class SegmentGone(Exception):
    """It is not there any more, or not what it was."""


class SegmentBytes(Protocol):
    """An open segment."""

    def read(self, position: int, size_bytes: int) -> memoryview:
        """Exactly so many bytes. Raises SegmentGone, OSError."""

    def close(self) -> None: ...


class Stores(Protocol):
    """Where segments are."""

    def open(self, part: Part, store: str | None) -> SegmentBytes:
        """Its segment, of which this part will be read. Raises SegmentGone, OSError."""

    def aborted(self, segment: Segment, store: str | None) -> Aborted:
        """The aborted transactions that touch it. Raises likewise."""


_GONE: Final = (SegmentGone, MalformedBatch, OSError)


class SealedRead:
    """Of one task. `pieces` is iterated over once. `fetch`: reads a range by Fetch; None: there is no broker."""

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
        self._position = wanted.start  # of the next offset

    def pieces(self) -> Iterator[Piece]:
        """All that is in its parts, in order. The first batch may begin before the range, the last end behind it.

        Raises what `fetch` does; without one what is wrong with a segment.
        """
        try:
            yield from self._of_parts(self._wanted)
            return
        except _GONE as error:
            first = error
        _log.warning("%s: %s, looking again", self._rest_of(self._wanted), first)
        for one in self._looked_up():
            yield from self._once_more(one, first)

    def _once_more(self, one: OffsetRange, error: Exception) -> Iterator[Piece]:
        if isinstance(one, SealedRange):
            try:
                yield from self._of_parts(one)
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
        """What was not given out yet, wherever it lies."""
        return OffsetRange(one.place, one.topic_id, max(one.start, self._position), one.end, one.is_earliest)

    def _looked_up(self) -> list[OffsetRange]:
        """What is left of the range, as it is sealed now."""
        left = self._rest_of(self._wanted)
        try:
            sealed = self._catalogue.sealed(left.place, left.topic_id, left.start, left.end)
        except CatalogueUnavailable as error:
            _log.warning("%s: %s", left, error)
            sealed = None
        return [left] if sealed is None else cut(left, sealed)

    def _of_parts(self, one: SealedRange) -> Iterator[Piece]:
        for part in one.parts:
            self._position = max(self._position, part.segment.base)
            yield from self._of_part(part, one.store)

    def _of_part(self, part: Part, store: str | None) -> Iterator[Piece]:
        segment = part.segment
        aborted = self._aborted(segment, store)
        file = self._stores.open(part, store)
        try:
            for start, records, batches in PartRead(part, file, self._position, self._wanted.end).steps():
                yield Piece(start, records, batches, aborted)
                self._position = max(self._position, batches[-1].next_offset)
        finally:
            file.close()
        self._position = max(self._position, min(segment.end, self._wanted.end))

    def _aborted(self, segment: Segment, store: str | None) -> Aborted:
        if not self._is_committed_only:
            return ()
        return self._stores.aborted(segment, store) if segment.aborted is None else segment.aborted


class PartRead:
    """The batches of one part that hold offsets of [start, end)."""

    def __init__(self, part: Part, file: SegmentBytes, start: int, end: int) -> None:
        self._segment = part.segment
        self._file = file
        self._next = part.position
        self._border = part.end
        self._hint: int | None = part.offset if part.position else None
        self._start = start
        self._end = min(end, part.segment.end)

    def steps(self) -> Iterator[tuple[int, memoryview, list[Batch]]]:
        """From which offset on, the bytes, and the batches in them. Raises SegmentGone, MalformedBatch, OSError."""
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
        """Up to the border; where that was come to, or a batch lies over it, somewhat more."""
        left = self._segment.size_bytes - self._next
        before_border = self._border - self._next
        if size_bytes == CHUNK_BYTES and before_border > 0:
            return min(size_bytes, before_border)
        return min(left, size_bytes if before_border > 0 or size_bytes > CHUNK_BYTES else BORDER_BYTES)

    def _batches(self, records: memoryview) -> list[Batch] | None:
        """None: where a batch was said to begin there is another, or none; so from the start of the segment on."""
        try:
            batches = batches_of(records)
        except MalformedBatch:
            if self._hint is None:
                raise
            self._start_anew()
            return None
        if not batches:
            return batches
        hint, self._hint = self._hint, None
        if hint is not None and batches[0].base_offset != hint:
            self._start_anew()
            return None
        for one in (batches[0], batches[-1]):
            if one.base_offset < self._segment.base or one.next_offset > self._segment.end:
                raise MalformedBatch(
                    f"offset {one.base_offset} in the segment of {self._segment.base} to {self._segment.end}"
                )
        return batches

    def _larger(self, size_bytes: int, read_bytes: int) -> int:
        """How much to read instead of what had no whole batch."""
        if self._next + read_bytes < self._segment.size_bytes and size_bytes < BATCH_MAX_BYTES:
            return 2 * size_bytes
        if self._hint is None:
            raise MalformedBatch(f"no whole batch at position {self._next} of the segment at {self._segment.base}")
        self._start_anew()
        return CHUNK_BYTES

    def _start_anew(self) -> None:
        self._hint, self._next = None, 0
