"""Fills one partition so that offsets stay as they are: a task of an import.

Where the target ends is all that is known of how far it is, so whatever interrupts it, it looks there, makes sure that
what is there is its own, and goes on.
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
from spark_connectors.source.fetching import Piece, RangeFetch
from spark_connectors.source.options import Edge, SourceOptions
from spark_connectors.source.places import Places
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.reading import read_range
from spark_connectors.wire import Cluster, TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock

TAIL_OFFSETS: Final = 64  # that are compared
COMPACTED_TAIL_OFFSETS: Final = 1000  # of which hardly any may have a record
PATIENCE_S: Final = 120.0  # without getting any further
PAUSE_S: Final = 0.5
_COMPARED: Final = ("key", "value", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class Filling:
    """What a task is given: which offsets of the source, and the partition that they go to, by way of which broker."""

    source: SourceOptions
    target: SourceOptions
    wanted: OffsetRange
    place: TopicPartition
    topic_id: bytes
    url: str
    is_compacted: bool


@dataclass
class Filled:
    """What it has done, and where the partition ends by now."""

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
    """Returns when the target ends where the source does. Raises ImportRefused, and what reading raises; Interrupted if
    it did not get any further for too long."""
    with cluster_of(asked.source) as source, cluster_of(asked.target) as target, Door(asked.url) as door:
        return Filler(asked.wanted, asked.place.partition, BothEnds(asked, source, target, door)).run()


class Ends(Protocol):
    """A partition of the source, and the one that it goes to."""

    def span(self) -> Span:
        """Of the target, now."""

    def check(self, span: Span) -> None:
        """Raises ImportRefused: what it has there is not the source's."""

    def pieces(self, start: int, *, is_earliest: bool) -> Iterable[Piece]:
        """What the source has from there on."""

    def append(self, log_end: int, body: bytes) -> int:
        """As `Door.append`."""


class Filler:
    """Of one partition."""

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
        """From where the target ends. Raises Interrupted."""
        span = self._ends.span()
        self._filled.end = span.end
        if not span.is_empty:
            self._ends.check(span)
        for request in requests_of(self._plain(span)):
            end = self._ends.append(self._filled.end, request.body)
            if end != request.end:
                raise Interrupted(f"the target ends at {end}, not at {request.end}: somebody else writes there")
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
        if end < self._wanted.end:  # nothing is there, and its end is still where groups may have committed
            yield Plain(without_records(self._wanted.end - 1, self._wanted.end), 0, self._wanted.end)


@dataclass(frozen=True)
class BothEnds:
    """Implements Ends."""

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
        """See Ends. Raises as RangeFetch does."""
        wanted = replace(self.asked.wanted, start=start, is_earliest=is_earliest)
        return RangeFetch(self.source, self.asked.source, wanted).pieces()

    def append(self, log_end: int, body: bytes) -> int:
        """See Ends."""
        return self.door.append(self.asked.place, self.asked.topic_id, log_end, body)


def check_tail(asked: Filling, source: Cluster, target: Cluster, span: Span) -> bool:
    """Whether there was something in common with a target that has this span. Raises ImportRefused: it is not what an
    import has left."""
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
    """Of one partition, now. Raises WireError."""
    places = Places(cluster, options)
    start = places.list_offsets({place: Edge.EARLIEST})[place]
    return Span(start, places.list_offsets({place: Edge.LATEST})[place])
