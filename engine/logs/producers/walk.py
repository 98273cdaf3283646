"""Scans of segment files for the batches and markers of producers. Blocking: called on a worker."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.api import NO_TIMESTAMP_MS, Marker
from engine.batches.batch import BatchHeader
from engine.batches.markers import parse_marker
from engine.errors import CorruptMessage
from engine.files.filesystem import File, FileSystem, Unreadable
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import BatchAt, Segment, find_batch, segment_name, walk_headers
from engine.logs.segments.sparse_index import START

Produced = tuple[BatchHeader, Marker | None]  # a batch, and its content if it is a marker


class Extent(NamedTuple):
    """A segment as the event loop knows it. `file` is None if it is not open; `start` as `Segment.start_for_offset`."""

    base_offset: int
    size_bytes: int
    file: File | None
    first_timestamp_ms: int = NO_TIMESTAMP_MS
    start: tuple[int, int] = START

    @classmethod
    def of(cls, segment: Segment) -> "Extent":
        return cls(segment.base_offset, segment.size_bytes, segment.file, segment.first_timestamp_ms)

    def opened(self, filesystem: FileSystem, directory: str) -> File:
        return self.file or filesystem.open(f"{directory}/{segment_name(self.base_offset)}")


def produced(
    filesystem: FileSystem,
    directory: str,
    segments: Sequence[Extent],
    from_offset: int,
    end_offset: int,
    on_damage: Callable[[Extent, Exception], None],
) -> Iterator[Produced]:
    """Batches from `from_offset` on, of segments that end at `end_offset`; markers with their content.

    `on_damage` is called for a segment that can be read in part only, and may raise.
    """
    ends = [*(one.base_offset for one in segments[1:]), end_offset]
    for segment, end in zip(segments, ends, strict=True):
        if end <= from_offset:
            continue
        file = segment.opened(filesystem, directory)
        try:
            for at in walk_headers(file, segment.start[1], segment.size_bytes):
                if at.header.base_offset >= from_offset:
                    yield at.header, marker_at(file, at)
        except (CorruptMessage, Unreadable) as damage:
            on_damage(segment, damage)


def marker_at(file: File, at: BatchAt) -> Marker | None:
    """The content of a batch if it is a transaction marker, else None. Raises CorruptMessage."""
    if not at.header.is_control:
        return None
    stored = file.read_at(at.position, at.header.size_bytes)
    if len(stored) < at.header.size_bytes:
        raise CorruptMessage(f"the batch at position {at.position} is cut off")
    return parse_marker(at.header, stored)


def places_of(
    filesystem: FileSystem,
    directory: str,
    segments: Sequence[Extent],
    offsets: Iterable[int],
    compacted_to: int,
    on_damage: Callable[[Extent, Exception], None],
) -> dict[int, LogPosition]:
    """The positions where the batches with these offsets begin.

    An offset before the first segment gets the beginning of that segment: its batch was deleted, or is in the remote
    tier, where all transactions were decided, even if a truncation removed the marker later. The positions have no
    timestamps.

    `on_damage` is called for a segment in which an offset is not found, and may raise. Otherwise the beginning of the
    segment counts, so that no undecided record is shown. Each segment is walked once.
    """
    bases = [one.base_offset for one in segments]
    found = {}
    within, start = segments[0], START
    for offset in sorted(offsets):
        segment = segments[max(0, bisect_right(bases, offset) - 1)]
        if segment is not within:
            within, start = segment, START
        found[offset] = LogPosition(segment.base_offset, segment.base_offset, 0, NO_TIMESTAMP_MS)
        if offset >= segment.base_offset:
            try:
                read = segment.opened(filesystem, directory).read_at
                position = find_batch(read, start, segment.size_bytes, offset, compacted_to).position
            except (CorruptMessage, Unreadable) as damage:
                on_damage(segment, damage)
                continue
            start = offset, position
            found[offset] = LogPosition(offset, segment.base_offset, position, NO_TIMESTAMP_MS)
    return found
