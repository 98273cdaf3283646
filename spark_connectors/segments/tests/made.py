"""Logs with sealed segments in memory, and their catalogue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from engine.batches.batch import parse_header
from spark_connectors.records.batches import batches_of
from spark_connectors.records.columns import schema_of
from spark_connectors.segments.plan import Part, SealedRange, cut, split
from spark_connectors.segments.reading import SealedRead, SegmentGone
from spark_connectors.segments.sealed import Aborted, CatalogueUnavailable, Sealed, Segment
from spark_connectors.source.fetching import Piece
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.reading import rows_of
from spark_connectors.source.tests.world import Log
from spark_connectors.wire import TopicPartition

PLACE = TopicPartition("orders", 0)
ID = bytes(range(16))
STORE = "s3://bucket"
COLUMNS = ("key", "value", "offset")


def whole(log: Log) -> OffsetRange:
    return OffsetRange(PLACE, ID, log.start, log.end)


def sealed_of(log: Log, batches_each: Sequence[int], *, tells_aborted: bool = True) -> tuple[Sealed, dict[str, bytes]]:
    """Sealed segments with these numbers of batches, and their bytes by key. The remaining batches are not sealed."""
    segments, objects = list[Segment](), dict[str, bytes]()
    batches = list(log.batches)
    base = parse_header(memoryview(batches[0])).base_offset if batches else log.start
    for count in batches_each:
        some, batches = batches[:count], batches[count:]
        if not some:
            break
        content = b"".join(some)
        end = parse_header(memoryview(batches[0])).base_offset if batches else log.end
        segment = _segment(log, base, end, content, objects, tells_aborted=tells_aborted)
        segments.append(segment)
        base = end
    return Sealed(PLACE, ID, log.start, base, tuple(segments), STORE), objects


def _segment(
    log: Log, base: int, end: int, content: bytes, objects: dict[str, bytes], *, tells_aborted: bool
) -> Segment:
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    key = f"{base}-{digest[:8]}"
    objects[key] = content
    headers = batches_of(content)
    newest_ms = max((one.max_timestamp_ms for one in headers if one.records), default=-1)
    aborted = tuple(one for one in log.aborted if one[1] < end and one[2] >= base)
    places = tuple((one.base_offset, one.position) for one in headers if one.position)
    return Segment(base, end, len(content), newest_ms, digest, aborted if tells_aborted else None, places, key)


@dataclass
class Opened:
    """Implements SegmentBytes."""

    content: bytes
    reads: list[tuple[int, int]]
    is_closed: bool = False

    def read(self, position: int, size_bytes: int) -> memoryview:
        self.reads.append((position, size_bytes))
        if position + size_bytes > len(self.content):
            raise SegmentGone("it has become shorter")
        return memoryview(self.content)[position : position + size_bytes]

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Memory:
    """Implements Stores, and Catalogue."""

    objects: dict[str, bytes]
    known: Sealed | None = None
    aborted_by_key: dict[str, Aborted] = field(default_factory=dict)
    reads: list[tuple[int, int]] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    is_away: bool = False

    def open(self, part: Part, store: str | None) -> Opened:
        segment = part.segment
        assert store == STORE
        if segment.key not in self.objects:
            raise SegmentGone(f"{segment.key} is gone")
        found = Opened(self.objects[segment.key], self.reads)
        self.opened.append(found)
        return found

    def aborted(self, segment: Segment, store: str | None) -> Aborted:
        assert store == STORE
        assert segment.key is not None
        return self.aborted_by_key[segment.key]

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        assert (place, topic_id) == (PLACE, ID)
        self.asked.append((start, end))
        if self.is_away:
            raise CatalogueUnavailable("away")
        if self.known is None:
            return None
        some = tuple(one for one in self.known.segments if one.base < end and one.end > start)
        return replace(self.known, segments=some)


def fetch_of(log: Log) -> tuple[list[OffsetRange], object]:
    """Ranges that were fetched, and the function that fetches."""
    fetched: list[OffsetRange] = []

    def fetch(one: OffsetRange) -> Iterator[Piece]:
        fetched.append(one)
        content = log.read(one.start, 1 << 30, one.end)
        batches = [each for each in batches_of(content) if each.base_offset < one.end]
        if batches:
            yield Piece(one.start, memoryview(content), batches, list(log.aborted))

    return fetched, fetch


def rows(pieces: Iterator[Piece], options: SourceOptions, wanted: OffsetRange) -> list[tuple[int, bytes, bytes]]:
    """Offset, key and value of each row."""
    found = []
    for batch in rows_of(pieces, options, wanted, schema_of(COLUMNS)):
        table = pa.Table.from_batches([batch]).to_pydict()
        found += list(zip(table["offset"], table["key"], table["value"], strict=True))
    return found


def tasks_of(log: Log, sealed: Sealed, count: int) -> list[OffsetRange]:
    """Tasks: the sealed part in about `count` ranges, and the rest in one more."""
    found: list[OffsetRange] = []
    for one in cut(whole(log), sealed):
        found += split(one, one.size_bytes / count) if isinstance(one, SealedRange) else [one]
    return found


def read_of(wanted: SealedRange, memory: Memory, fetch: object, *, is_committed_only: bool) -> SealedRead:
    return SealedRead(wanted, memory, memory, fetch, is_committed_only=is_committed_only)  # type: ignore[arg-type]
