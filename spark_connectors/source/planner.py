"""What the driver decides: where a query starts, how far its next batch goes, and which offsets its tasks read.

As Spark's KafkaMicroBatchStream and KafkaBatch decide, loss of data included, but that a topic that was created again
is an error, whatever `failOnDataLoss` says: with as many records as before nothing would seem to be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from spark_connectors.offsets import Offsets
from spark_connectors.source.admission import Delay, limited
from spark_connectors.source.errors import report_loss
from spark_connectors.source.filters import NO_FILTERS, Filters
from spark_connectors.source.options import AtOffsets, AtTimestamp, Edge, Limit, SourceOptions
from spark_connectors.source.places import LimitRefused, Places
from spark_connectors.source.ranges import Division, OffsetRange, divided
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock


class Limits(Protocol):
    """Which partitions there are of what a query selects, and where they begin and end."""

    @property
    def knows_times(self) -> bool: ...
    def at(self, limit: Limit, *, is_starting: bool) -> Offsets:
        """Where a limit is in each. Raises LimitRefused where it does not name exactly what there is."""


def batch_ranges(
    options: SourceOptions, places: Limits, filters: Filters = NO_FILTERS, division: Division = divided
) -> list[OffsetRange]:
    """What the tasks of a batch query read, of what is wanted. Raises WireError, LimitRefused, TopicRecreated."""
    starts = places.at(options.starting, is_starting=True)
    ends = places.at(options.ending, is_starting=False)
    starts.check_ids(ends.ids)
    if starts.positions.keys() != ends.positions.keys():
        raise LimitRefused("partitions came or went while their offsets were looked up")
    ranges = [
        OffsetRange(place, ends.ids[place.topic], start, ends.positions[place], is_earliest(options.starting, place))
        for place, start in sorted(starts.positions.items())
    ]
    ranges = [one for one in filters.planned(ranges) if one.size > 0]
    if ranges and places.knows_times and filters.since_ms is not None and filters.since_ms >= 0:
        ranges = _since(filters.since_ms, ranges, places, ends)
    return division(ranges, options.min_partitions, options.max_records_per_partition, filters.times)


def _since(timestamp_ms: int, ranges: list[OffsetRange], places: Limits, known: Offsets) -> list[OffsetRange]:
    """Each from its first record of this time or a later one on; below zero ListOffsets means other things by times.

    What was lost of a range in the meantime might have been wanted, so that one stays whole, for its task to report it;
    the log starts are asked for afterwards, when they tell of all that the times were looked up in.
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
    """Whether a partition is read from wherever it begins."""
    edge = starting.offsets[place] if isinstance(starting, AtOffsets) else starting
    return edge == Edge.EARLIEST


class StreamPlanner:
    """Of one run of a streaming query."""

    def __init__(
        self,
        options: SourceOptions,
        places: Places,
        clock: Clock | None = None,
        division: Division = divided,
    ) -> None:
        self.reported: Offsets | None = None  # the newest offsets there are, for progress reports
        self._options = options
        self._places = places
        self._clock = clock or SystemClock()
        self._division = division
        self._delay = Delay(options.max_trigger_delay_s)
        self._has_target = False
        self._target: Offsets | None = None

    def initial(self) -> Offsets:
        """Where a query without a checkpoint starts. Raises WireError, LimitRefused."""
        return self._places.at(self._options.starting, is_starting=True)

    def read_what_is_there(self) -> None:
        """From now on nothing that comes later than the next look: Trigger.AvailableNow."""
        self._has_target = True

    def latest(self, start: Offsets, max_offsets: int | None, min_offsets: int | None) -> Offsets:
        """The end of the next batch; `start` itself where it is to wait for more. Raises WireError, TopicRecreated.

        What waits for more would wait for ever where nothing that comes counts: then there is no minimum.
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
        """What the tasks of a batch read. Raises WireError, DataLoss, TopicRecreated."""
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
        """With where new partitions begin, which is at 0 unless something of them is gone already."""
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
        """Of a batch that the kafka source had planned they are not known, so they are today's."""
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
