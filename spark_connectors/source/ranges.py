"""Ranges of offsets, and their division among tasks: pure, with the rules of Spark's KafkaOffsetRangeCalculator.

Offsets are counted, because the number of records between two offsets is known only after a read.
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
    """The offsets [start, end) of one partition of the topic with this id.

    `is_earliest`: the range begins at the log start, so offsets that retention deletes meanwhile are no loss.
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
    """A period in ms: from `since_ms` on, before `before_ms`; None: no bound."""

    since_ms: int | None = None
    before_ms: int | None = None


ANY_TIME: Final = Times()


class Division(Protocol):
    """Division of a query's ranges among its tasks."""

    def __call__(
        self,
        ranges: Iterable[OffsetRange],
        min_partitions: int | None,
        max_records_per_partition: int | None,
        times: Times = ANY_TIME,
    ) -> list[OffsetRange]:
        """Ranges, one for each task: none empty, none longer than the maximum, and about as many as the minimum.
        Records of other times are not wanted.
        """


def divided(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None,
    max_records_per_partition: int | None,
    times: Times = ANY_TIME,
) -> list[OffsetRange]:
    """A Division by numbers of offsets alone; it ignores times."""
    found = [one for one in ranges if one.size > 0]
    if max_records_per_partition is not None:
        limit = max_records_per_partition
        found = [part for one in found for part in parts_of(one, -(-one.size // limit))]
    if min_partitions is not None and min_partitions > len(found):
        found = _enough(found, min_partitions)
    return found


def _enough(ranges: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Split ranges to reach the minimum. Ranges that are too small to split do not count for the size of the others."""
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
    """Number of parts of a range, rounded half up as by Java's Math.round."""
    return max(math.floor(size / total * count + 0.5), 1)


def parts_of(whole: Range, count: int) -> list[Range]:
    """Consecutive parts of about the same size, at most `count`, none empty."""
    parts = []
    start = whole.start
    for left in range(count, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            parts.append(replace(whole, start=start, end=end))
        start = end
    return parts
