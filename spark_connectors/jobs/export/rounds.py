"""Choice of the next offsets to export, and of their tasks, so that files get the requested size. Pure.

A round is committed as a whole, and the next one begins at its end. The round before shows how many bytes of a file
come from an offset, or from a byte of a sealed segment. In the first round this is unknown: a task reads until one file
is full, and the rest is left to the next round.
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

TASKS_PER_WORKER: Final = 8  # in a round: at its end, workers wait for each other
_LEAST: Final = 0.5  # of a file's size: a smaller rest goes into the file before it


@dataclass(frozen=True)
class Stretch:
    """Offsets that a task reads: of one partition, without gaps. An open stretch ends when a file is full."""

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
    """Result of a stretch: bytes of files from the offsets before `end`."""

    stretch: Stretch
    end: int
    file_bytes: int


@dataclass(frozen=True)
class Density:
    """Bytes of files for each offset, and for each byte of a sealed segment; None: unknown."""

    per_offset: float | None = None
    per_log_byte: float | None = None

    def after(self, yields: Sequence[Yield]) -> Density:
        """Density as this round shows it."""
        offsets = sum(one.end - one.stretch.start for one in yields)
        sealed = [one for one in yields if all(isinstance(part, SealedRange) for part in one.stretch.ranges)]
        log_bytes = sum(_log_bytes(part) for one in sealed for part in left_of(one.stretch.ranges, until=one.end))
        return Density(
            _ratio(sum(one.file_bytes for one in yields), offsets) or self.per_offset,
            _ratio(sum(one.file_bytes for one in sealed), log_bytes) or self.per_log_byte,
        )

    def expected_bytes(self, one: OffsetRange) -> float:
        """Expected bytes of files. `per_offset` has to be known."""
        if self.per_log_byte is not None and isinstance(one, SealedRange):
            return _log_bytes(one) * self.per_log_byte
        assert self.per_offset is not None, "rounds are open until one has shown something"
        return one.size * self.per_offset


def round_of(ranges: Sequence[OffsetRange], density: Density, file_bytes: int, tasks_max: int) -> list[Stretch]:
    """The next stretches, of each partition in turn. `ranges` are in the order of partitions and offsets."""
    partitions = [tuple(of_one) for _, of_one in groupby(ranges, key=lambda one: one.place)]
    if density.per_offset is None:
        return [Stretch(of_one, is_open=True) for of_one in partitions[:tasks_max]]
    every = (stretches(of_one, density, file_bytes) for of_one in partitions)
    in_turn = (one for row in zip_longest(*every) for one in row if one is not None)
    return list(islice(in_turn, tasks_max))


def stretches(ranges: Iterable[OffsetRange], density: Density, file_bytes: int) -> Iterator[Stretch]:
    """All stretches of one partition, one for each file. If the rest would be a small file, the last stretch includes
    it.
    """
    waiting = deque(ranges)
    while waiting:
        left_bytes = math.fsum(map(density.expected_bytes, waiting))
        is_cut = is_worth_a_file(left_bytes - file_bytes, file_bytes)
        yield Stretch(tuple(_taken(waiting, density, file_bytes if is_cut else math.inf)))


def is_worth_a_file(left_bytes: float, file_bytes: int) -> bool:
    """Whether the rest is large enough for a file of its own."""
    return left_bytes >= _LEAST * file_bytes


def _taken(waiting: deque[OffsetRange], density: Density, room_bytes: float) -> Iterator[OffsetRange]:
    """Take ranges from the left for `room_bytes`, at least one offset."""
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
    """Parts of the ranges from the reached offset of their partition on, and before `until`."""
    found = []
    for one in ranges:
        start = max(one.start, (reached or {}).get(one.place.partition, one.start))
        end = one.end if until is None else min(one.end, until)
        if start < end:
            found.append(within(one, start, end))
    return found


def within(one: OffsetRange, start: int, end: int) -> OffsetRange:
    """The offsets [start, end) of a range."""
    if (start, end) == (one.start, one.end):
        return one
    return narrowed(one, start, end) if isinstance(one, SealedRange) else replace(one, start=start, end=end)


def _log_bytes(one: OffsetRange) -> float:
    """Bytes of a range in its segments, if all their offsets had the same size; 0 if it is not sealed."""
    if not isinstance(one, SealedRange):
        return 0
    segments = [part.segment for part in one.parts]
    return math.fsum(
        each.size_bytes * (min(one.end, each.end) - max(one.start, each.base)) / (each.end - each.base)
        for each in segments
    )


def _ratio(file_bytes: int, by: float) -> float | None:
    """Bytes for each unit; None if that is unknown."""
    return file_bytes / by if file_bytes and by else None
