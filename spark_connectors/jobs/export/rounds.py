"""Which offsets are exported next, and in which tasks, so that files get the size that they should have. Pure.

A round is committed as a whole, and the next one begins where it has ended. How many bytes of a file come of an offset,
or of a byte of a sealed segment, is what the round before has shown. In the first one nobody knows: a task reads until
it has filled one file, and what lies behind is left to the next round.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, zip_longest
from typing import Final, NamedTuple

from spark_connectors.segments.plan import SealedRange, narrowed
from spark_connectors.source.ranges import OffsetRange

TASKS_PER_WORKER: Final = 8  # of a round, at the end of which workers wait for each other
_LEAST: Final = 0.5  # of a file that is worth to be one of its own


@dataclass(frozen=True)
class Stretch:
    """What a task reads: offsets of one partition without a gap between them. One that is open ends where a file is
    full."""

    ranges: tuple[OffsetRange, ...]
    is_open: bool = False

    @property
    def partition(self) -> int:
        return self.ranges[0].place.partition

    @property
    def start(self) -> int:
        return self.ranges[0].start

    @property
    def end(self) -> int:
        return self.ranges[-1].end


class Yield(NamedTuple):
    """What came of a stretch: so many bytes in files, of the offsets before `end`."""

    stretch: Stretch
    end: int
    file_bytes: int


@dataclass(frozen=True)
class Density:
    """Bytes of files for an offset, and for a byte of a sealed segment; None: nobody knows."""

    per_offset: float | None = None
    per_log_byte: float | None = None

    def after(self, yields: Sequence[Yield]) -> Density:
        """As this round has shown it."""
        offsets = sum(one.end - one.stretch.start for one in yields)
        sealed = [one for one in yields if all(isinstance(part, SealedRange) for part in one.stretch.ranges)]
        log_bytes = sum(_log_bytes(part) for one in sealed for part in left_of(one.stretch.ranges, until=one.end))
        return Density(
            _ratio(sum(one.file_bytes for one in yields), offsets) or self.per_offset,
            _ratio(sum(one.file_bytes for one in sealed), log_bytes) or self.per_log_byte,
        )

    def expected_bytes(self, one: OffsetRange) -> float:
        """In files. `per_offset` is known."""
        if self.per_log_byte is not None and isinstance(one, SealedRange):
            return _log_bytes(one) * self.per_log_byte
        assert self.per_offset is not None, "rounds are open until one has shown something"
        return one.size * self.per_offset


def round_of(ranges: Sequence[OffsetRange], density: Density, file_bytes: int, tasks_max: int) -> list[Stretch]:
    """The first stretches of each partition, in turn, of ranges in the order of partitions and offsets."""
    partitions = [tuple(of_one) for _, of_one in groupby(ranges, key=lambda one: one.place)]
    if density.per_offset is None:
        return [Stretch(of_one, is_open=True) for of_one in partitions[:tasks_max]]
    every = (stretches(of_one, density, file_bytes) for of_one in partitions)
    in_turn = (one for row in zip_longest(*every) for one in row if one is not None)
    return list(islice(in_turn, tasks_max))


def stretches(ranges: Iterable[OffsetRange], density: Density, file_bytes: int) -> Iterator[Stretch]:
    """Of one partition, all of it. Each becomes one file; the last one is larger rather than that there is a small one
    behind it."""
    waiting = deque(ranges)
    while waiting:
        left_bytes = math.fsum(map(density.expected_bytes, waiting))
        is_cut = is_worth_a_file(left_bytes - file_bytes, file_bytes)
        yield Stretch(tuple(_taken(waiting, density, file_bytes if is_cut else math.inf)))


def is_worth_a_file(left_bytes: float, file_bytes: int) -> bool:
    """Whether so much is left that it should not go into the file before it."""
    return left_bytes >= _LEAST * file_bytes


def _taken(waiting: deque[OffsetRange], density: Density, room_bytes: float) -> Iterator[OffsetRange]:
    """From the left, at least one offset."""
    is_first = True
    while waiting and (is_first or room_bytes >= 1):
        one = waiting.popleft()
        expected_bytes = density.expected_bytes(one)
        border = one.end
        if expected_bytes > room_bytes:
            border = one.start + max(int(one.size * room_bytes / expected_bytes), 1)
        if border < one.end:
            waiting.appendleft(within(one, border, one.end))
            one, expected_bytes = within(one, one.start, border), room_bytes
        yield one
        room_bytes -= expected_bytes
        is_first = False


def left_of(
    ranges: Iterable[OffsetRange], reached: Mapping[int, int] | None = None, until: int | None = None
) -> list[OffsetRange]:
    """What lies behind where the job is in a partition, as far as it is known, and before an offset."""
    found = []
    for one in ranges:
        start = max(one.start, (reached or {}).get(one.place.partition, one.start))
        end = one.end if until is None else min(one.end, until)
        if start < end:
            found.append(within(one, start, end))
    return found


def within(one: OffsetRange, start: int, end: int) -> OffsetRange:
    """Of it the offsets in [start, end)."""
    if (start, end) == (one.start, one.end):
        return one
    return narrowed(one, start, end) if isinstance(one, SealedRange) else replace(one, start=start, end=end)


def _log_bytes(one: OffsetRange) -> float:
    """Of its segments, as if all their offsets were alike."""
    if not isinstance(one, SealedRange):
        return 0
    segments = [part.segment for part in one.parts]
    return math.fsum(
        each.size_bytes * (min(one.end, each.end) - max(one.start, each.base)) / (each.end - each.base)
        for each in segments
    )


def _ratio(file_bytes: int, by: float) -> float | None:
    """None: it says nothing."""
    return file_bytes / by if file_bytes and by else None
