"""Planning on the driver: start of a query, end of its next batch, and the ranges of its tasks.

The rules are those of Spark's KafkaMicroBatchStream and KafkaBatch, including data loss, with one exception: a
recreated topic is an error for any `failOnDataLoss`. If it had as many records as before, the loss would not be
visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from spark_connectors.offsets import Offsets
from spark_connectors.source.admission import Delay, limited
from spark_connectors.source.bounds import LimitRefused, Places
from spark_connectors.source.errors import report_loss
from spark_connectors.source.filters import NO_FILTERS, Filters
from spark_connectors.source.options import AtOffsets, AtTimestamp, Edge, Limit, SourceOptions
from spark_connectors.source.ranges import Division, OffsetRange, divided
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock


class Limits(Protocol):
    """Partitions that a query selects, with their start and end offsets."""

    @property
    def knows_times(self) -> bool: ...
    def at(self, limit: Limit, *, is_starting: bool) -> Offsets:
        """Offset of a limit in each partition. Raises LimitRefused if the limit does not name exactly the existing
        partitions.
        """


def batch_ranges(
    options: SourceOptions, places: Limits, filters: Filters = NO_FILTERS, division: Division = divided
) -> list[OffsetRange]:
    """Ranges for the tasks of a batch query. Raises WireError, LimitRefused, TopicRecreated."""
    starts = places.at(options.starting, is_starting=True)
    ends = places.at(options.ending, is_starting=False)
    starts.check_ids(ends.ids)
    if starts.positions.keys() != ends.positions.keys():
        raise LimitRefused("partitions came or went while their offsets were looked up")
    ranges = [
        OffsetRange(place, ends.ids[place.topic], start, ends.positions[place], is_earliest(options.starting, place))
        for place, start in sorted(starts.positions.items())
    ]
    for one in ranges:
        if one.size < 0:
            raise LimitRefused(f"{one.place}: the start offset {one.start} is greater than the end offset {one.end}")
    ranges = [one for one in filters.planned(ranges) if one.size > 0]
    if ranges and places.knows_times and filters.since_ms is not None and filters.since_ms >= 0:
        ranges = _since(filters.since_ms, ranges, places, ends)
    return division(ranges, options.min_partitions, options.max_records_per_partition, filters.times)


def _since(timestamp_ms: int, ranges: list[OffsetRange], places: Limits, known: Offsets) -> list[OffsetRange]:
    """Ranges from their first record at or after a time on. Negative times have other meanings in ListOffsets.

    If the beginning of a range was deleted meanwhile, the range stays whole, so that its task reports the loss. So log
    start offsets are looked up after the offsets for the time.
    """
    firsts = places.at(AtTimestamp(timestamp_ms), is_starting=False)
    if all(one.is_earliest for one in ranges):
        log_starts = Offsets({}, firsts.ids)
    else:
        log_starts = places.at(Edge.EARLIEST, is_starting=True)
    known.check_ids(log_starts.ids)
    found = []
    for one in ranges:
        is_whole = one.is_earliest or log_starts.positions.get(one.place, one.start) <= one.start
        first = firsts.positions.get(one.place, one.start) if is_whole else one.start
        found.append(replace(one, start=max(one.start, first)))
    return found


def is_earliest(starting: Limit, place: TopicPartition) -> bool:
    """Whether a partition is read from its log start, wherever that is."""
    edge = starting.offsets[place] if isinstance(starting, AtOffsets) else starting
    return edge == Edge.EARLIEST


class StreamPlanner:
    """Planner of one run of a streaming query."""

    def __init__(
        self,
        options: SourceOptions,
        places: Places,
        clock: Clock | None = None,
        division: Division = divided,
    ) -> None:
        self.reported: Offsets | None = None  # the newest end offsets, for progress reports
        self._options = options
        self._places = places
        self._clock = clock or SystemClock()
        self._division = division
        self._delay = Delay(options.max_trigger_delay_s)
        self._has_target = False
        self._target: Offsets | None = None

    def initial(self) -> Offsets:
        """Start of a query without a checkpoint. Raises WireError, LimitRefused."""
        return self._places.at(self._options.starting, is_starting=True)

    def read_what_is_there(self) -> None:
        """Fix the end of the query at the next lookup: Trigger.AvailableNow."""
        self._has_target = True

    def latest(self, start: Offsets, max_offsets: int | None, min_offsets: int | None) -> Offsets:
        """End of the next batch; `start` itself if the batch waits for more. Raises WireError, TopicRecreated.

        With a fixed end there is no minimum: no further records count, so the query would wait forever.
        """
        newest = self._newest(start)
        start.check_ids(newest.ids)
        self.reported = newest
        if self._has_target:
            min_offsets = None
        if min_offsets is None and max_offsets is None:
            return newest
        starts = {**self._places.earliest(newest.positions.keys() - start.positions.keys()), **start.positions}
        if min_offsets is not None and self._delay.holds(starts, newest.positions, min_offsets, self._clock.now_s()):
            return start
        if max_offsets is None:
            return newest
        return Offsets(limited(starts, newest.positions, max_offsets), newest.ids)

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Ranges for the tasks of a batch. Raises WireError, DataLoss, TopicRecreated."""
        if start == end:
            return []
        start.check_ids(end.ids)
        starts = self._starts(start, end)
        ids = self._ids(end)
        ranges = [
            OffsetRange(place, ids[place.topic], starts[place], stop)
            for place, stop in sorted(end.positions.items())
            if place in starts and place.topic in ids
        ]
        for one in ranges:
            if one.size < 0:
                self._report(f"the offset of {one.place} went back from {one.start} to {one.end}")
        options = self._options
        return self._division(ranges, options.min_partitions, options.max_records_per_partition)

    def _newest(self, start: Offsets) -> Offsets:
        if not self._has_target:
            return self._places.latest(start)
        if self._target is None:
            self._target = self._places.latest(start)
        return self._target

    def _starts(self, start: Offsets, end: Offsets) -> Mapping[TopicPartition, int]:
        """Start offsets, with those of new partitions. A new partition starts at 0; otherwise its first records are
        lost.
        """
        new = end.positions.keys() - start.positions.keys()
        found = self._places.earliest(new)
        if new - found.keys():
            self._report(f"of the new partitions {_listed(new - found.keys())} are gone")
        for place, offset in sorted(found.items()):
            if offset != 0:
                self._report(f"the new partition {place} begins at {offset} instead of 0")
        gone = start.positions.keys() - end.positions.keys()
        if gone:
            self._report(f"the partitions {_listed(gone)} are gone")
        return {**start.positions, **found}

    def _ids(self, end: Offsets) -> Mapping[str, bytes]:
        """Topic ids. If the kafka source planned the batch, they are not known, and current ones are used."""
        unknown = {place.topic for place in end.positions} - end.ids.keys()
        if not unknown:
            return end.ids
        found = {**end.ids, **self._places.ids_of(unknown)}
        if unknown - found.keys():
            self._report(f"the topics {', '.join(sorted(unknown - found.keys()))} are gone")
        return found

    def _report(self, text: str) -> None:
        report_loss(text, fails=self._options.fails_on_data_loss)


def _listed(places: set[TopicPartition]) -> str:
    return ", ".join(str(place) for place in sorted(places))
