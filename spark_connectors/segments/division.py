"""How what a query reads is divided among its tasks, where sealed segments are read past the broker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from spark_connectors.segments.plan import SealedRange, counts, cut, narrowed, split
from spark_connectors.segments.sealed import Catalogue, CatalogueUnavailable, Sealed
from spark_connectors.source.ranges import ANY_TIME, OffsetRange, Times, divided, parts_of
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock

LOOKUPS_AT_A_TIME = 8
LOOK_AGAIN_S = 60.0  # at a partition of which a stream has read all that was sealed

_log = logging.getLogger(__name__)


class BySegments:
    """Of one query: implements `spark_connectors.source.ranges.Division`. `split_bytes`: the most that a task reads of
    segments."""

    def __init__(self, catalogue: Catalogue, split_bytes: int, clock: Clock | None = None) -> None:
        self._catalogue = catalogue
        self._split_bytes = split_bytes
        self._clock = clock or SystemClock()
        self._read_to: dict[TopicPartition, tuple[int, float]] = {}  # the sealed end, and until when it is believed

    def divided(
        self,
        ranges: Iterable[OffsetRange],
        min_partitions: int | None,
        max_records_per_partition: int | None,
        times: Times = ANY_TIME,
    ) -> list[OffsetRange]:
        """A range a task. What nobody can tell of is fetched."""
        wanted = [one for one in ranges if one.size > 0]
        looked_up = zip(wanted, self._looked_up(wanted), strict=True)
        cuts = [part for one, known in looked_up for part in _cut(one, known, times)]
        sealed = [one for one in cuts if isinstance(one, SealedRange)]
        rest = [one for one in cuts if not isinstance(one, SealedRange)]
        share = _share(min_partitions, sealed, rest)
        many = counts([one.size_bytes for one in sealed], self._split_bytes, share)
        tasks = [part for one, count in zip(sealed, many, strict=True) for part in split(one, count)]
        if max_records_per_partition is not None:
            tasks = [part for one in tasks for part in _at_most(one, max_records_per_partition)]
        left = None if min_partitions is None else max(min_partitions - len(tasks), 1)
        return [*tasks, *divided(rest, left, max_records_per_partition)]

    def _looked_up(self, ranges: Sequence[OffsetRange]) -> list[Sealed | None]:
        if not ranges:
            return []
        with ThreadPoolExecutor(LOOKUPS_AT_A_TIME) as threads:
            return list(threads.map(self._look_up, ranges))

    def _look_up(self, one: OffsetRange) -> Sealed | None:
        """A stream that has come to what is written now would ask for nothing each time."""
        read_to, until_s = self._read_to.get(one.place, (0, 0.0))
        if one.start >= read_to and self._clock.now_s() < until_s:
            return None
        try:
            found = self._catalogue.sealed(one.place, one.topic_id, one.start, one.end)
        except CatalogueUnavailable as error:
            _log.warning("%s is fetched: it cannot be told what is sealed: %s", one, error)
            found = None
        self._read_to[one.place] = found.end if found else 0, self._clock.now_s() + LOOK_AGAIN_S
        return found


def _cut(one: OffsetRange, sealed: Sealed | None, times: Times) -> list[OffsetRange]:
    return [one] if sealed is None else cut(one, sealed, times)


def _share(min_partitions: int | None, sealed: Sequence[OffsetRange], rest: Sequence[OffsetRange]) -> int:
    """Of the tasks that there are to be at least, those for what is sealed."""
    if not min_partitions or not sealed:
        return 0
    of_sealed = sum(one.size for one in sealed)
    return max(1, round(min_partitions * of_sealed / (of_sealed + sum(one.size for one in rest))))


def _at_most(one: SealedRange, records: int) -> Iterator[SealedRange]:
    for part in parts_of(one, -(-one.size // records)):
        yield narrowed(one, part.start, part.end)
