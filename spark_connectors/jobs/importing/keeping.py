"""Import of one partition whose offsets stay: a task.

The end of the target is the only progress. After an interruption, the task looks it up, checks that the records before
it are those of the source, and continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

from spark_connectors.jobs.importing.door import Door
from spark_connectors.jobs.importing.errors import Interrupted
from spark_connectors.jobs.importing.requests import Plain, Request, plain_of, requests_of
from spark_connectors.jobs.importing.sides import Row, Span, check_own, tail_of
from spark_connectors.jobs.importing.topics import cluster_of
from spark_connectors.records.columns import schema_of
from spark_connectors.records.plain import without_records
from spark_connectors.source.bounds import Places
from spark_connectors.source.fetching import Piece, RangeFetch
from spark_connectors.source.options import Edge, SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.reading import read_range
from spark_connectors.wire import Cluster, TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock

TAIL_OFFSETS: Final = 64  # compared at the end of the target
COMPACTED_TAIL_OFFSETS: Final = 1000  # the same, for compacted topics, where few offsets have a record
PATIENCE_S: Final = 120.0  # without progress
PAUSE_S: Final = 0.5
_COMPARED: Final = ("key", "value", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class Filling:
    """Task of an import: a range of the source, the partition of the target, and the URL of a broker."""

    source: SourceOptions
    target: SourceOptions
    wanted: OffsetRange
    place: TopicPartition
    topic_id: bytes
    url: str
    is_compacted: bool


@dataclass
class Filled:
    """Result of a task, with the current end of the partition."""

    partition: int
    end: int
    records: int = 0
    batches: int = 0
    size_bytes: int = 0

    def took(self, request: Request) -> None:
        self.end = request.end
        self.records += request.records
        self.batches += request.batches
        self.size_bytes += len(request.body)


def fill(asked: Filling) -> Filled:
    """Fill a partition until it ends where the source ends. Raises ImportRefused, the errors of reading, and
    Interrupted after too long without progress.
    """
    with cluster_of(asked.source) as source, cluster_of(asked.target) as target, Door(asked.url) as door:
        return Filler(asked.wanted, asked.place.partition, BothEnds(asked, source, target, door)).run()


class Ends(Protocol):
    """A partition of the source, and its partition of the target."""

    def span(self) -> Span:
        """Current span of the target."""

    def check(self, span: Span) -> None:
        """Raises ImportRefused if the target has other records than the source."""

    def pieces(self, start: int, *, is_earliest: bool) -> Iterable[Piece]:
        """Batches of the source from an offset on."""

    def append(self, log_end: int, body: bytes) -> int:
        """Append to the target, as `Door.append` does."""


class Filler:
    """Import of one partition, with retries."""

    def __init__(self, wanted: OffsetRange, partition: int, ends: Ends, clock: Clock | None = None) -> None:
        self._wanted = wanted
        self._ends = ends
        self._clock = clock or SystemClock()
        self._filled = Filled(partition, 0)

    def run(self) -> Filled:
        """See `fill`."""
        reached, since_s = -1, self._clock.now_s()
        while True:
            try:
                self._go_on()
                return self._filled
            except Interrupted:
                if self._filled.end > reached:
                    reached, since_s = self._filled.end, self._clock.now_s()
                if self._clock.now_s() - since_s > PATIENCE_S:
                    raise
            self._clock.sleep(PAUSE_S)

    def _go_on(self) -> None:
        """Continue from the end of the target. Raises Interrupted."""
        span = self._ends.span()
        self._filled.end = span.end
        if not span.is_empty:
            self._ends.check(span)
        for request in requests_of(self._plain(span)):
            end = self._ends.append(self._filled.end, request.body)
            if end != request.end:
                raise Interrupted(f"the target ends at {end}, not at {request.end}: another client writes to it")
            self._filled.took(request)

    def _plain(self, span: Span) -> Iterator[Plain]:
        end, begins = span.end, span.is_empty
        start = self._wanted.start if begins else end
        if start < self._wanted.end:
            for piece in self._ends.pieces(start, is_earliest=begins):
                for one in plain_of(piece, end, begins=begins):
                    end = one.end
                    yield one
                begins = False
        if end < self._wanted.end:  # no record is left, but groups may have committed offsets up to the end
            yield Plain(without_records(self._wanted.end - 1, self._wanted.end), 0, self._wanted.end)


@dataclass(frozen=True)
class BothEnds:
    """Both partitions, over their clusters. Implements Ends."""

    asked: Filling
    source: Cluster
    target: Cluster
    door: Door

    def span(self) -> Span:
        """See Ends. Raises WireError."""
        return span_of(self.target, self.asked.target, self.asked.place)

    def check(self, span: Span) -> None:
        """See Ends."""
        check_tail(self.asked, self.source, self.target, span)

    def pieces(self, start: int, *, is_earliest: bool) -> Iterable[Piece]:
        """See Ends. Raises the errors of RangeFetch."""
        wanted = replace(self.asked.wanted, start=start, is_earliest=is_earliest)
        return RangeFetch(self.source, self.asked.source, wanted).pieces()

    def append(self, log_end: int, body: bytes) -> int:
        """See Ends."""
        return self.door.append(self.asked.place, self.asked.topic_id, log_end, body)


def check_tail(asked: Filling, source: Cluster, target: Cluster, span: Span) -> bool:
    """Whether the target, with this span, has offsets in common with the source. Raises ImportRefused if their records
    differ.
    """
    theirs = span_of(source, asked.source, asked.wanted.place)
    tail = tail_of(theirs, span, COMPACTED_TAIL_OFFSETS if asked.is_compacted else TAIL_OFFSETS)
    if tail.is_empty:
        return False
    read = _rows(source, asked.source, asked.wanted.place, asked.wanted.topic_id, tail)
    found = _rows(target, asked.target, asked.place, asked.topic_id, tail)
    return check_own(str(asked.place), read, found, is_compacted=asked.is_compacted) > 0


def _rows(cluster: Cluster, options: SourceOptions, place: TopicPartition, topic_id: bytes, span: Span) -> list[Row]:
    wanted = OffsetRange(place, topic_id, span.start, span.end)
    batches = read_range(options, wanted, schema_of(_COMPARED), cluster=cluster)
    return [row for batch in batches for row in batch.to_pylist()]


def span_of(cluster: Cluster, options: SourceOptions, place: TopicPartition) -> Span:
    """Current span of one partition. Raises WireError."""
    places = Places(cluster, options)
    start = places.list_offsets({place: Edge.EARLIEST})[place]
    return Span(start, places.list_offsets({place: Edge.LATEST})[place])
