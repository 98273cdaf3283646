"""Which offsets a task reads, and how what is to be read is cut for many: pure, as Spark's KafkaOffsetRangeCalculator.

Offsets are what is counted, as nobody knows how many records lie between two of them before they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, TypeVar

from spark_connectors.wire import TopicPartition

Range = TypeVar("Range", bound="OffsetRange")


@dataclass(frozen=True)
class OffsetRange:
    """The offsets from `start` to `end`, which does not belong to it, of one partition of the topic with this id.

    `is_earliest` says that it belongs to what begins wherever the log does: what retention takes meanwhile is no loss.
    """

    place: TopicPartition
    topic_id: bytes
    start: int
    end: int
    is_earliest: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end} of {self.place}"


class Times(NamedTuple):
    """In ms: from one on, and up to another, which does not belong to it; None: any."""

    since_ms: int | None = None
    before_ms: int | None = None


ANY_TIME: Final = Times()


class Division(Protocol):
    """Divides what a query reads among its tasks."""

    def __call__(
        self,
        ranges: Iterable[OffsetRange],
        min_partitions: int | None,
        max_records_per_partition: int | None,
        times: Times = ANY_TIME,
    ) -> list[OffsetRange]:
        """A range a task: none empty, none longer than the maximum, and about as many as the minimum. Records of other
        times are not wanted."""


def divided(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None,
    max_records_per_partition: int | None,
    times: Times = ANY_TIME,
) -> list[OffsetRange]:
    """A Division by sizes alone: nobody knows of offsets which times their records have."""
    found = [one for one in ranges if one.size > 0]
    if max_records_per_partition is not None:
        limit = max_records_per_partition
        found = [part for one in found for part in parts_of(one, -(-one.size // limit))]
    if min_partitions is not None and min_partitions > len(found):
        found = _enough(found, min_partitions)
    return found


def _enough(ranges: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Those that are too small to be cut do not count where the others are."""
    total = sum(one.size for one in ranges)
    is_cut = [_share(one.size, total, min_partitions) > 1 for one in ranges]
    cut_total = sum(one.size for one, cut in zip(ranges, is_cut, strict=True) if cut)
    cut_min = max(min_partitions - is_cut.count(False), 1)
    return [
        part
        for one, cut in zip(ranges, is_cut, strict=True)
        for part in (parts_of(one, _share(one.size, cut_total, cut_min)) if cut else [one])
    ]


def _share(size: int, total: int, count: int) -> int:
    """Rounded half up, as Java's Math.round does."""
    return max(math.floor(size / total * count + 0.5), 1)


def parts_of(whole: Range, count: int) -> list[Range]:
    """So many of about the same size, none empty, that follow one another."""
    parts = []
    start = whole.start
    for left in range(count, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            parts.append(replace(whole, start=start, end=end))
        start = end
    return parts
