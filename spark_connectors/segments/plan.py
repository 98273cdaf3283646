"""Plan of the bytes of sealed segments that each task reads: pure.

A range of offsets is split at the sealed end: the rest is fetched. The sealed part is split at known positions of
batches, so that each task has about the same number of bytes, and no batch is split. Offsets decide which rows a task
returns; positions are only hints where to read. A wrong position neither loses nor doubles a row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from spark_connectors.segments.sealed import Sealed, Segment
from spark_connectors.source.ranges import ANY_TIME, OffsetRange, Times


class Part(NamedTuple):
    """Part of a segment to read: from `position`, where the batch with `offset` should begin, up to `end`."""

    segment: Segment
    offset: int
    position: int
    end: int


@dataclass(frozen=True)
class SealedRange(OffsetRange):
    """A range with the parts of segments in `store` that have all its records, ascending."""

    parts: tuple[Part, ...] = ()
    store: str | None = None

    @property
    def size_bytes(self) -> int:
        return sum(part.end - part.position for part in self.parts)


class _Place(NamedTuple):
    """Offset of a batch, and the bytes of segments before it."""

    offset: int
    bytes_before: int


def cut(whole: OffsetRange, sealed: Sealed, times: Times = ANY_TIME) -> list[OffsetRange]:
    """Split a range, in order: offsets before the sealed segments, in them, and behind them.

    Segments that are known to have no record of these times are left out.
    """
    start, end = max(whole.start, sealed.log_start), min(whole.end, sealed.end)
    if sealed.topic_id != whole.topic_id or start >= end:
        return [whole]
    middle = replace(whole, start=start, end=end)
    parts = [part for part in _parts(middle, sealed.segments) if _may_have(part.segment, times)]
    found = [replace(whole, end=start)] if whole.start < start else []
    if parts:
        found.append(sealed_range(middle, parts, sealed.store))
    if end < whole.end:
        found.append(replace(whole, start=end))
    return found


def sealed_range(one: OffsetRange, parts: Sequence[Part], store: str | None) -> SealedRange:
    """The range, to be read from these parts."""
    return SealedRange(one.place, one.topic_id, one.start, one.end, one.is_earliest, tuple(parts), store)


def _may_have(segment: Segment, times: Times) -> bool:
    """Whether the segment may have records of these times. Timestamps of producers have no order: if the minimum is
    unknown, any early time is possible. If the maximum is unknown (-1), any late time is.
    """
    if times.since_ms is not None and 0 <= segment.max_timestamp_ms < times.since_ms:
        return False
    return times.before_ms is None or segment.min_timestamp_ms < times.before_ms


def _parts(range_: OffsetRange, segments: Sequence[Segment]) -> Iterator[Part]:
    for segment in segments:
        if segment.base < range_.end and segment.end > range_.start:
            places = [(segment.base, 0), *segment.positions]
            first = bisect_right(places, range_.start, key=_offset) - 1
            next_place = bisect_left(places, range_.end, key=_offset)
            end = places[next_place][1] if next_place < len(places) else segment.size_bytes
            yield Part(segment, *places[max(first, 0)], end)


def _offset(place: tuple[int, int]) -> int:
    return place[0]


def narrowed(wide: SealedRange, start: int, end: int) -> SealedRange:
    """The offsets [start, end) of a range."""
    narrow = replace(wide, start=start, end=end, parts=())
    return replace(narrow, parts=tuple(_parts(narrow, [part.segment for part in wide.parts])))


def split(wide: SealedRange, most_bytes: float) -> list[SealedRange]:
    """Consecutive ranges of up to `most_bytes`, none empty. A range is larger if no closer positions of batches are
    known.
    """
    places = [one for one in _places(wide.parts) if wide.start < one.offset < wide.end]
    borders = [wide.start, *_chosen([*places, _Place(wide.end, wide.size_bytes)], most_bytes), wide.end]
    return [narrowed(wide, start, end) for start, end in pairwise(borders)]


def _places(parts: Sequence[Part]) -> Iterator[_Place]:
    """Possible places for a split, with the bytes before them."""
    bytes_before = 0
    for part in parts:
        yield _Place(part.segment.base, bytes_before)
        for offset, position in part.segment.positions:
            if part.position < position < part.end:
                yield _Place(offset, bytes_before + position - part.position)
        bytes_before += part.end - part.position


def _chosen(places: Sequence[_Place], most_bytes: float) -> Iterator[int]:
    """Offsets of the splits."""
    start_bytes = 0
    for place, following in pairwise(places):
        if following.bytes_before - start_bytes > most_bytes and place.bytes_before > start_bytes:
            yield place.offset
            start_bytes = place.bytes_before
