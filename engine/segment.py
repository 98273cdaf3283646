"""One segment file of a partition: Kafka's `.log`, a run of record batches, and its sparse index.

A segment knows the bytes up to `size_bytes` and nothing of durability or visibility; it is changed by its log only,
on the loop. The walks below take plain values and may run on a worker.
"""

from collections.abc import Iterator
from typing import NamedTuple

from engine.api import ReadableFile
from engine.batch import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    MAGIC,
    NO_TIMESTAMP_MS,
    BatchHeader,
    parse_header,
    walk_records,
)
from engine.codecs import decompress
from engine.errors import CorruptMessage
from engine.filesystem import File, FileSystem
from engine.index import INTERVAL_BYTES, INTERVAL_RECORDS, START, Entry, SparseIndex, Summary

_WINDOW_BYTES = INTERVAL_BYTES + HEADER_SIZE_BYTES
SUFFIX = ".log"


def segment_name(base_offset: int) -> str:
    """Twenty digits, as Kafka names it."""
    return f"{base_offset:020d}{SUFFIX}"


def segment_bases(filesystem: FileSystem, directory: str) -> list[int]:
    """Base offsets of the segments in a partition's directory, ascending."""
    names = [name.removesuffix(SUFFIX) for name in filesystem.list_dir(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


class BatchAt(NamedTuple):
    """A batch found in a segment."""

    position: int
    header: BatchHeader


class Cut(NamedTuple):
    """Where a log is to end: before the batch at `position` of that segment, which begins at `offset`."""

    offset: int
    segment_base_offset: int
    position: int


def cut_off(filesystem: FileSystem, directory: str, cut: Cut) -> None:
    """Remove, durably, what a partition has behind `cut`, also of files that are named by an offset as segments are.

    The last one first, so that a crash leaves no gap; it may be done again. The segment of `cut` exists.
    """
    for name in reversed(filesystem.list_dir(directory)):
        offset, _, suffix = name.partition(".")
        end = cut.segment_base_offset if f".{suffix}" == SUFFIX else cut.offset
        if offset.isdigit() and int(offset) > end:
            filesystem.unlink(f"{directory}/{name}")
    filesystem.sync_dir(directory)
    file = filesystem.open(f"{directory}/{segment_name(cut.segment_base_offset)}")
    if file.size() > cut.position:
        file.truncate(cut.position)
    file.fdatasync()


class Segment:
    """A segment file with what is known of its content. `index` is None while no part of it is in memory."""

    __slots__ = (
        "_next_entry_offset",
        "_next_entry_position",
        "base_offset",
        "end_offset",
        "file",
        "first_timestamp_ms",
        "index",
        "max_timestamp_ms",
        "size_bytes",
        "summarised_size_bytes",
    )

    def __init__(self, base_offset: int, file: File) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.file = file
        self.size_bytes = 0
        self.first_timestamp_ms = NO_TIMESTAMP_MS  # the greatest of the first batch
        self.max_timestamp_ms = NO_TIMESTAMP_MS
        self.index: SparseIndex | None = SparseIndex()
        self.summarised_size_bytes = 0  # as the stored index knows it
        self._next_entry_offset = self._next_entry_position = 0

    def adopt(self, summary: Summary) -> None:
        """Believe the stored index instead of walking the file."""
        self.size_bytes = self.summarised_size_bytes = summary.size_bytes
        self.end_offset = summary.end_offset
        self.first_timestamp_ms = summary.first_timestamp_ms
        self.max_timestamp_ms = summary.max_timestamp_ms
        self.index = SparseIndex(summary.size_bytes)

    @property
    def summary(self) -> Summary:
        return Summary(self.size_bytes, self.end_offset, self.first_timestamp_ms, self.max_timestamp_ms)

    def add(self, header: BatchHeader) -> Entry | None:
        """The batch of `header` (base offset assigned) now stands at the end; returns what is to be stored of it."""
        position, offset = self.size_bytes, header.base_offset
        if not position:
            self.first_timestamp_ms = header.max_timestamp_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp_ms)
        if self.index is None:
            self.index = SparseIndex(position)
        if position >= self.index.next_position:
            self.index.add(offset, position, self.max_timestamp_ms)
        self.size_bytes = position + header.size_bytes
        self.end_offset = header.next_offset
        if offset < self._next_entry_offset or position < self._next_entry_position:
            return None
        self._next_entry_offset = offset + INTERVAL_RECORDS
        self._next_entry_position = position + INTERVAL_BYTES
        return Entry(offset, position, self.max_timestamp_ms)

    def locate(self, offset: int) -> BatchAt:
        """The batch that holds `offset`, which lies within this segment."""
        _, position = (self.index and self.index.before_offset(offset)) or START
        for found in walk_headers(self.file, position, self.size_bytes):
            if found.header.next_offset > offset:
                return found
        raise CorruptMessage(f"no batch holds offset {offset} of segment {segment_name(self.base_offset)}")


def walk_headers(file: ReadableFile, position: int, end: int) -> Iterator[BatchAt]:
    """Headers of the batches from `position` on; raises CorruptMessage at bytes that cannot be a complete batch."""
    window = b""
    window_start = 0
    while position < end:
        if position + HEADER_SIZE_BYTES > window_start + len(window):
            window = file.read_at(position, min(_WINDOW_BYTES, end - position))
            window_start = position
            if len(window) < HEADER_SIZE_BYTES:
                raise CorruptMessage(f"{end - position} bytes at position {position} are no batch")
        header = parse_header(window, position - window_start)
        size_bytes = header.batch_length + LENGTH_PREFIX_SIZE_BYTES
        if header.magic != MAGIC or size_bytes < HEADER_SIZE_BYTES or position + size_bytes > end:
            raise CorruptMessage(f"the batch at position {position} has magic {header.magic}, {size_bytes} bytes")
        yield BatchAt(position, header)
        position += size_bytes


def find_cut(file: ReadableFile, base_offset: int, size_bytes: int, offset: int) -> Cut:
    """Before the batch that holds `offset`, which lies within this segment. For a worker."""
    for at in walk_headers(file, 0, size_bytes):
        if at.header.next_offset > offset:
            return Cut(at.header.base_offset, base_offset, at.position)
    raise CorruptMessage(f"no batch holds offset {offset} of segment {segment_name(base_offset)}")


class TimestampFound(NamedTuple):
    """A record that answers a search by timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class SearchRange(NamedTuple):
    """Part of a segment file to search; `start_offset` is the first offset that counts."""

    file: ReadableFile
    position: int
    end: int
    start_offset: int


def search_timestamp(ranges: list[SearchRange], timestamp_ms: int) -> TimestampFound | None:
    """First record with a timestamp >= `timestamp_ms` (Kafka's FileRecords.searchForTimestamp). For a worker."""
    for part in ranges:
        for at in walk_headers(part.file, part.position, part.end):
            if at.header.max_timestamp_ms >= timestamp_ms and at.header.next_offset > part.start_offset:
                found = _search_batch(part, at, timestamp_ms)
                if found is not None:
                    return found
    return None


def _search_batch(part: SearchRange, at: BatchAt, timestamp_ms: int) -> TimestampFound | None:
    header = at.header
    stored = part.file.read_at(at.position + HEADER_SIZE_BYTES, header.size_bytes - HEADER_SIZE_BYTES)
    for record in walk_records(header, decompress(header.codec_id, stored)):
        offset = header.base_offset + record.offset_delta
        if record.timestamp_ms >= timestamp_ms and offset >= part.start_offset:
            return TimestampFound(offset, record.timestamp_ms, header.leader_epoch)
    return None
