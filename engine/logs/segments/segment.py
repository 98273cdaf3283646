"""A segment file of a partition: Kafka's `.log`, a sequence of record batches, and its sparse index.

A segment knows the bytes up to `size_bytes`, but neither durability nor visibility. Only its log changes it, on the
event loop. The functions below take plain values and may run on a worker.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.api import ReadableFile
from engine.batches.batch import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    MAGIC,
    NO_TIMESTAMP_MS,
    BatchHeader,
    parse_header,
)
from engine.batches.timestamps import newest_of_stored
from engine.errors import CorruptMessage, NotLoaded
from engine.files.filesystem import File, FileSystem
from engine.logs.segments.footer import SUFFIX as FOOTER_SUFFIX
from engine.logs.segments.footer import Tally
from engine.logs.segments.sparse_index import INTERVAL_BYTES, INTERVAL_RECORDS, Entry, SparseIndex, Summary
from engine.logs.transactions.aborted import SUFFIX as ABORTED_SUFFIX

MARKS_MAX = 16
CHECKED_MAX = 8
_WINDOW_BYTES = INTERVAL_BYTES + HEADER_SIZE_BYTES
_GLANCE_WINDOW_BYTES = 1024
_FIRST_WINDOW_BYTES = 8 * 1024  # usual distance of the entries of a dense index
_WALK_WINDOW_BYTES = 32 * 1024
_SMALL_BATCH_BYTES = 4 * 1024  # several such batches fit into one window
_GLANCE = struct.Struct(">qi4xb6xi")  # of a header: base offset, length, magic, last offset delta
SUFFIX = ".log"
DELETED_SUFFIX = ".deleted"
QUARANTINED_SUFFIX = ".quarantined"  # removed from the log by an operator, and kept


def segment_name(base_offset: int) -> str:
    """The file name of a segment: twenty digits, as in Kafka."""
    return f"{base_offset:020d}{SUFFIX}"


def segment_bases(filesystem: FileSystem, directory: str) -> list[int]:
    """Base offsets of the segments in a partition's directory, ascending."""
    names = [name.removesuffix(SUFFIX) for name in filesystem.list_dir(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


class BatchAt(NamedTuple):
    """A batch found in a segment."""

    position: int
    header: BatchHeader


class TruncationPoint(NamedTuple):
    """Where a truncation ends the log: before the batch at `position` of a segment, which begins at `offset`."""

    offset: int
    segment_base_offset: int
    position: int


def truncate_segments(filesystem: FileSystem, directory: str, point: TruncationPoint) -> None:
    """Truncate a partition's files durably at `point`, whose segment exists. It may be repeated after a crash."""
    unlink_behind(filesystem, directory, point)
    filesystem.sync_dir(directory)
    file = filesystem.open(f"{directory}/{segment_name(point.segment_base_offset)}")
    if file.size() > point.position:
        file.truncate(point.position)
    file.fdatasync()


def unlink_behind(filesystem: FileSystem, directory: str, point: TruncationPoint) -> bool:
    """Remove the files behind `point`, also other files named by an offset; returns whether there were any.

    The last one goes first, so that a crash leaves no gap. The footer and the aborted index of the truncated segment
    go, too.
    """
    base_offset, found = point.segment_base_offset, False
    first_gone = {SUFFIX: base_offset + 1, FOOTER_SUFFIX: base_offset, ABORTED_SUFFIX: base_offset}
    for name in reversed(filesystem.list_dir(directory)):
        offset, _, suffix = name.partition(".")
        is_gone = offset.isdigit() and int(offset) >= first_gone.get(f".{suffix}", point.offset + 1)
        if is_gone and not name.endswith(QUARANTINED_SUFFIX):
            filesystem.unlink(f"{directory}/{name}")
            found = True
    return found


class Segment:
    """The state of a segment file. `file` and `index` are None while they are not needed.

    Bytes that this process wrote, or read and checked, are right. All others are checked before they are served,
    because disks rot.
    """

    __slots__ = (
        "_next_entry_offset",
        "_next_entry_position",
        "base_offset",
        "checked",
        "checked_from",
        "end_offset",
        "entries",
        "file",
        "first_timestamp_ms",
        "has_searched_timestamps",
        "index",
        "is_cold",
        "is_condemned",
        "is_damaged",
        "is_sealed",
        "marks",
        "max_timestamp_ms",
        "size_bytes",
        "started_ms",
        "summarised_size_bytes",
        "tally",
    )

    def __init__(self, base_offset: int, file: File | None = None) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.file = file
        self.size_bytes = 0
        self.first_timestamp_ms = NO_TIMESTAMP_MS  # the greatest timestamp of the first batch
        self.max_timestamp_ms = NO_TIMESTAMP_MS
        self.has_searched_timestamps = False  # its records were searched, since its headers had none
        self.index: SparseIndex | None = SparseIndex()
        self.marks: dict[int, int] = {}
        self.checked_from = 0
        self.checked: list[tuple[int, int]] = []
        self.started_ms = NO_TIMESTAMP_MS  # when this process first appended to it
        self.entries = 0  # index entries given to the stored index
        self.summarised_size_bytes = 0  # the size in the stored summary
        self.tally: Tally | None = None  # of all its batches, while a footer may need it
        self.is_sealed = False  # it has a footer
        self.is_cold = False  # it has no file in the log dir any more
        self.is_damaged = False  # a full scan found damage
        self.is_condemned = False  # after a failed write or sync, its content is unknown
        self._next_entry_offset = self._next_entry_position = 0

    def believe(self, summary: Summary) -> None:
        """Take over the stored summary instead of walking the file."""
        self.size_bytes = self.summarised_size_bytes = summary.size_bytes
        self.end_offset = summary.end_offset
        self.first_timestamp_ms = summary.first_timestamp_ms
        self.max_timestamp_ms = summary.max_timestamp_ms
        self.index = None
        self.entries = min(
            summary.size_bytes // INTERVAL_BYTES, (summary.end_offset - self.base_offset) // INTERVAL_RECORDS
        )
        self.checked_from = summary.size_bytes

    def begin_at(self, index: SparseIndex, last: Entry, first_timestamp_ms: int) -> None:
        """Take over everything before `last`, the last entry of `index`; its batch is added next. There is no tally
        then."""
        self.size_bytes, self.end_offset = last.position, last.offset
        self.first_timestamp_ms, self.max_timestamp_ms = first_timestamp_ms, last.max_timestamp_ms
        self.index = index
        self.entries = len(index)

    def summary(self, leader_epoch: int) -> Summary:
        """The summary of the segment. `leader_epoch` is that of its last batch."""
        return Summary(self.size_bytes, self.end_offset, self.first_timestamp_ms, self.max_timestamp_ms, leader_epoch)

    def add(self, header: BatchHeader, newest_ms: int) -> Entry | None:
        """Add the batch of `header`, with its final base offset, at the end; returns an index entry to store, or None.

        `newest_ms`: the greatest timestamp of its records, which is that of the header unless this is wrong.
        """
        position, offset = self.size_bytes, header.base_offset
        if not position:
            self.first_timestamp_ms = newest_ms
            self.tally = Tally()
        if self.tally is not None:
            self.tally.add(header)
        if newest_ms > self.max_timestamp_ms and header.record_count:  # compaction may have emptied it
            self.max_timestamp_ms = newest_ms
        if self.index is None:
            self.index = SparseIndex(position)
        if position >= self.index.next_position:
            self.index.add(offset, position, self.max_timestamp_ms)
        self.size_bytes = position + header.size_bytes
        self.end_offset = header.next_offset
        if offset < self._next_entry_offset or position < self._next_entry_position:
            return None
        self.entries += 1
        self._next_entry_offset = offset + INTERVAL_RECORDS
        self._next_entry_position = position + INTERVAL_BYTES
        return Entry(offset, position, self.max_timestamp_ms)

    @property
    def lacks_timestamps(self) -> bool:
        """Whether no header has told a timestamp; the records may have some, in logs of version 0.1."""
        return self.max_timestamp_ms == NO_TIMESTAMP_MS and self.size_bytes > 0 and not self.has_searched_timestamps

    def learn_timestamps(self, first_ms: int, newest_ms: int) -> None:
        """Take over the greatest timestamps of the first batch and of all records, -1 without any."""
        self.has_searched_timestamps = True
        self.first_timestamp_ms = max(self.first_timestamp_ms, first_ms)
        self.max_timestamp_ms = max(self.max_timestamp_ms, newest_ms)

    # Where batches begin

    def mark(self, offset: int, position: int) -> None:
        """Remember that the batch at `position` holds `offset`, which a consumer is likely to fetch next."""
        marks = self.marks
        marks[offset] = position
        if len(marks) > MARKS_MAX:
            del marks[next(iter(marks))]  # the oldest

    def start_for_offset(self, offset: int) -> tuple[int, int] | None:
        """(Offset or -1, position) of a batch at or before the one that holds `offset`; None: read the stored index."""
        position = self.marks.get(offset)
        if position is not None:
            return -1, position
        return None if self.index is None else self.index.before_offset(offset)

    # Which bytes are known to be sound

    def note_checked(self, position: int, end: int) -> None:
        """Note that the CRCs of all batches from position `position` to `end` are right."""
        for one in self.checked:
            if position <= one[1] and one[0] <= end:
                position, end = min(position, one[0]), max(end, one[1])
        self.checked = [one for one in self.checked if one[0] > end or one[1] < position][1 - CHECKED_MAX :]
        self.checked.append((position, end))

    def doubt(self) -> None:
        """Forget which bytes were sound, after damage was found."""
        self.checked_from = self.size_bytes
        self.checked = []

    def checked_end(self, position: int) -> int:
        """The position up to which everything from `position` on is known to be sound."""
        if position >= self.checked_from:
            return self.size_bytes
        return max((end for start, end in self.checked if start <= position), default=position)


class Located(NamedTuple):
    """The place of a batch that holds an offset."""

    position: int
    size_bytes: int


def may_follow(base_offset: int, end_offset: int, compacted_to: int) -> bool:
    """Whether a batch may begin at `base_offset` behind one that ended at `end_offset` (-1: not known)."""
    return end_offset in (base_offset, -1) or end_offset < base_offset < compacted_to


def find_batch(
    read: Callable[[int, int], bytes],
    start: tuple[int, int],
    end: int,
    offset: int,
    compacted_to: int = 0,
    headers_max: int = 2**63 - 1,
) -> Located:
    """Walk from `start` to the batch that holds `offset`, or to the next one if the offset is in a gap.

    Each step costs a fraction of a full header. Raises NotLoaded after `headers_max` other batches, and CorruptMessage
    at bytes that are not the expected batch.
    """
    expected_offset, position = start
    gaps_to = 0  # the first batch must have exactly the known offset
    window, window_start = b"", position
    wanted_bytes = _GLANCE_WINDOW_BYTES if expected_offset in (offset, -1) else _FIRST_WINDOW_BYTES
    while position < end:
        at = position - window_start
        if at + _GLANCE.size > len(window):
            window, window_start, at = read(position, min(wanted_bytes, end - position)), position, 0
            if len(window) < _GLANCE.size:
                break
        base_offset, length, magic, last_delta = _GLANCE.unpack_from(window, at)
        size_bytes = length + LENGTH_PREFIX_SIZE_BYTES
        if magic != MAGIC or size_bytes < HEADER_SIZE_BYTES or position + size_bytes > end:
            break
        if expected_offset != base_offset and not may_follow(base_offset, expected_offset, gaps_to):
            break
        if base_offset > offset >= compacted_to:
            break
        if base_offset + last_delta >= offset:
            return Located(position, size_bytes)
        if not headers_max:
            raise NotLoaded
        headers_max -= 1
        expected_offset, gaps_to = base_offset + last_delta + 1, compacted_to
        position += size_bytes
        wanted_bytes = _WALK_WINDOW_BYTES if size_bytes <= _SMALL_BATCH_BYTES else _GLANCE_WINDOW_BYTES
    raise CorruptMessage(f"the batch at position {position} is not the one on the way to offset {offset}")


def walk_headers(file: ReadableFile, position: int, end: int) -> Iterator[BatchAt]:
    """Headers of the batches from `position` on. Raises CorruptMessage at bytes that cannot be a complete batch."""
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


def newest_ms_at(file: ReadableFile, at: BatchAt) -> int:
    """The greatest timestamp of a stored batch: that of its header, or of its records if the header is wrong."""
    if not at.header.has_wrong_max_timestamp:
        return at.header.max_timestamp_ms
    return newest_of_stored(memoryview(file.read_at(at.position, at.header.size_bytes)), at.header)


def in_memory(file: File) -> Callable[[int, int], bytes]:
    """A reader for `find_batch` that never blocks; raises NotLoaded if less than a header is in the page cache."""

    def read(position: int, size_bytes: int) -> bytes:
        data = file.read_cached(position, size_bytes)
        if data is None or len(data) < min(size_bytes, HEADER_SIZE_BYTES):
            raise NotLoaded
        return data

    return read
