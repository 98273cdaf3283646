"""Division of a query's ranges among tasks, if sealed segments are read past the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from spark_connectors.segments.lookups import each
from spark_connectors.segments.plan import SealedRange, cut, narrowed, split
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.sealed import Catalogue, CatalogueUnavailable, Sealed, Segment
from spark_connectors.source.ranges import ANY_TIME, OffsetRange, Times, divided, parts_of
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock

LOOK_AGAIN_S = 60.0  # at a partition whose sealed segments a stream has read

WithTrailer = Callable[[Segment, str | None], Segment]  # a segment, and the location of objects; SegmentGone, OSError

_log = logging.getLogger(__name__)


class BySegments:
    """Division for one query; `divided` is a `spark_connectors.source.ranges.Division`. `split_bytes`: maximum for a
    task. `with_trailer` finds positions of batches in a larger segment, if the catalogue has none.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        split_bytes: int,
        with_trailer: WithTrailer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._with_trailer = with_trailer
        self._split_bytes = split_bytes
        self._clock = clock or SystemClock()
        self._read_to: dict[TopicPartition, tuple[int, float]] = {}  # the sealed end, and how long it is trusted

    def divided(
        self,
        ranges: Iterable[OffsetRange],
        min_partitions: int | None,
        max_records_per_partition: int | None,
        times: Times = ANY_TIME,
    ) -> list[OffsetRange]:
        """Ranges, one for each task. If the catalogue does not answer, the range is fetched."""
        wanted = [one for one in ranges if one.size > 0]
        looked_up = zip(wanted, each(self._look_up, wanted), strict=True)
        cuts = [part for one, known in looked_up for part in _cut(one, known, times)]
        sealed = [one for one in cuts if isinstance(one, SealedRange)]
        rest = [one for one in cuts if not isinstance(one, SealedRange)]
        most_bytes = self._most_bytes(sealed, _share(min_partitions, sealed, rest))
        tasks = [part for one in sealed for part in split(one, most_bytes)]
        if max_records_per_partition is not None:
            tasks = [part for one in tasks for part in _at_most(one, max_records_per_partition)]
        left = None if min_partitions is None else max(min_partitions - len(tasks), 1)
        return [*tasks, *divided(rest, left, max_records_per_partition)]

    def _most_bytes(self, sealed: Sequence[SealedRange], tasks_min: int) -> float:
        """Maximum bytes of a task."""
        return min(self._split_bytes, _size_bytes(sealed) / tasks_min) if tasks_min else self._split_bytes

    def _look_up(self, one: OffsetRange) -> Sealed | None:
        """Look up the sealed segments of a range. A stream that has reached the active segment does not ask again each
        time.
        """
        read_to, until_s = self._read_to.get(one.place, (0, 0.0))
        if one.start >= read_to and self._clock.now_s() < until_s:
            return None
        try:
            found = self._catalogue.sealed(one.place, one.topic_id, one.start, one.end)
        except CatalogueUnavailable as error:
            _log.warning("%s is fetched: catalogue unavailable: %s", one, error)
            found = None
        self._read_to[one.place] = found.end if found else 0, self._clock.now_s() + LOOK_AGAIN_S
        if found is None:
            return None
        return replace(found, segments=tuple(self._with_positions(one, found.store) for one in found.segments))

    def _with_positions(self, segment: Segment, store: str | None) -> Segment:
        is_known = segment.key is None or segment.positions or segment.size_bytes <= self._split_bytes
        if self._with_trailer is None or is_known:
            return segment
        try:
            return self._with_trailer(segment, store)
        except (SegmentGone, OSError) as error:
            _log.warning("the segment at %d is not split: %s", segment.base, error)
            return segment


def _cut(one: OffsetRange, sealed: Sealed | None, times: Times) -> list[OffsetRange]:
    return [one] if sealed is None else cut(one, sealed, times)


def _share(min_partitions: int | None, sealed: Sequence[OffsetRange], rest: Sequence[OffsetRange]) -> int:
    """The part of the minimal number of tasks that sealed ranges get."""
    if not min_partitions or not sealed:
        return 0
    of_sealed = sum(one.size for one in sealed)
    return max(1, round(min_partitions * of_sealed / (of_sealed + sum(one.size for one in rest))))


def _size_bytes(ranges: Sequence[SealedRange]) -> int:
    return sum(one.size_bytes for one in ranges)


def _at_most(one: SealedRange, records: int) -> Iterator[SealedRange]:
    for part in parts_of(one, -(-one.size // records)):
        yield narrowed(one, part.start, part.end)
