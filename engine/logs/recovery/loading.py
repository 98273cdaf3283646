"""The blocking half of reads, for a worker: open a segment, find batches, check them, load them into the page cache.

All bytes from a disk are checked by their CRC here before they are served (RULES L5); the event loop then reads them
from the page cache. Arguments and results are plain values, which the log's owner may keep. A wrong index is reported,
and its answer is not used.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.api import NO_TIMESTAMP_MS, ReadableFile
from engine.batches.batch import (
    HEADER_SIZE_BYTES,
    MAGIC,
    BatchHeader,
    Record,
    has_right_crc,
    parse_header,
    walk_records,
)
from engine.batches.codecs import decompress
from engine.errors import CorruptMessage, DecompressedTooLarge
from engine.files.filesystem import File
from engine.logs.recovery.epochs import EpochHistory, EpochStart
from engine.logs.segments.segment import BatchAt, Segment, find_batch, may_follow, newest_ms_at, walk_headers
from engine.logs.segments.sparse_index import START, Entry

FIRST_BATCH_ONLY = 1  # with a size of 1 byte, only the first batch
READ_AHEAD_BYTES = 1024 * 1024  # at least so much is checked at once, and the disk is told to read as much ahead
WINDOW_BYTES = 256 * 1024  # of a file are in memory for the check, or one batch: the processor caches that much


class Part(NamedTuple):
    """A segment up to position `end`, behind which readers see nothing, and a batch to start from: (offset or -1,
    position).

    If `start` is None, all of the segment has to be walked. `epochs` are those of its batches; below `compacted_to`
    there may be gaps between batches. A worker calls `open` if `file` is None.
    """

    open: Callable[[], File]
    file: File | None
    base_offset: int
    end: int
    start: tuple[int, int] | None
    epochs: Sequence[EpochStart] = ()
    compacted_to: int = 0

    def opened(self) -> File:
        """The open file. Raises FileNotFoundError if it was deleted meanwhile."""
        return self.file or self.open()


class Loaded(NamedTuple):
    """A batch that holds the offset, and sound batches behind it, up to `end_offset` at position `end`.

    `is_cut_short`: the next batch is damaged. `walked`: the index entries found by a walk over the headers of the
    segment, if its index was missing or wrong.
    """

    file: File
    position: int
    end: int
    end_offset: int
    is_cut_short: bool
    walked: list[Entry] | None
    is_index_wrong: bool


def load(part: Part, offset: int, size_bytes: int) -> Loaded:
    """Find and check the batch that holds `offset`, and the batches behind it, over `size_bytes` or more.

    Raises CorruptMessage if the batch is damaged, FileNotFoundError if the segment was deleted meanwhile.
    """
    file = part.opened()
    walked, is_index_wrong, found = None, False, None
    if part.start is not None:
        try:
            found = find_batch(file.read_at, part.start, part.end, offset, part.compacted_to)
        except CorruptMessage:
            is_index_wrong = part.start != START
    if found is None:
        walked = walk(file, part)
        found = find_batch(file.read_at, START, part.end, offset, part.compacted_to)
    end, end_offset = check(file, found.position, part, size_bytes)
    is_cut_short = end < min(found.position + size_bytes, part.end)
    if end < part.end:
        file.read_ahead(end, READ_AHEAD_BYTES)
    return Loaded(file, found.position, end, end_offset, is_cut_short, walked, is_index_wrong)


def go_on(loaded: Loaded, part: Part, end: int) -> Loaded:
    """Check the next batches too, up to position `end`, and return the longer range.

    A damaged batch ends the range without an error: the read that comes to it fails. Raises FileNotFoundError.
    """
    end = min(end, part.end)
    if loaded.is_cut_short or end - loaded.end < HEADER_SIZE_BYTES:
        return loaded
    known, size_bytes = part._replace(end=end), end - loaded.end
    try:
        checked_end, end_offset = check(loaded.file, loaded.end, known, size_bytes, behind=loaded.end_offset)
    except CorruptMessage:
        return loaded
    if checked_end < part.end:
        loaded.file.read_ahead(checked_end, 2 * (checked_end - loaded.position))
    return loaded._replace(end=checked_end, end_offset=end_offset)


def walk(file: ReadableFile, part: Part) -> list[Entry]:
    """Index entries of a segment, up to the first header that makes no sense; a read behind it will meet the damage."""
    segment, entries = Segment(part.base_offset), []
    try:
        for at in walk_headers(file, 0, part.end):
            entry = segment.add(at.header, newest_ms_at(file, at))
            if entry is not None:
                entries.append(entry)
    except CorruptMessage:
        return entries
    return entries


def check(
    file: ReadableFile,
    first: int,
    part: Part,
    size_bytes: int,
    note: Callable[[BatchHeader], None] = lambda _header: None,
    *,
    behind: int = -1,
) -> tuple[int, int]:
    """Check batches from position `first` on, over `size_bytes` or more; returns (position, offset) behind the last
    sound one.

    `behind` is the end offset of the batch before, if it is known. The CRC does not cover all of a header: the other
    fields are compared with the known epochs and offsets. `note` is called for each sound batch. Raises CorruptMessage
    if the first batch is not sound.
    """
    position, end_offset, limit = first, behind, part.end
    wanted_end = min(first + size_bytes, limit)
    epochs = EpochHistory(part.epochs)
    window, window_start = memoryview(b""), position
    while position < wanted_end and limit - position >= HEADER_SIZE_BYTES:
        at = position - window_start
        if at + HEADER_SIZE_BYTES > len(window):
            count = min(WINDOW_BYTES, max(wanted_end - position, HEADER_SIZE_BYTES))
            window, window_start, at = memoryview(file.read_at(position, count)), position, 0
            if len(window) < HEADER_SIZE_BYTES:
                break
        header = parse_header(window, at)
        batch_size_bytes = header.size_bytes
        if not HEADER_SIZE_BYTES <= batch_size_bytes <= limit - position:
            break
        if at + batch_size_bytes > len(window):
            count = max(batch_size_bytes, min(WINDOW_BYTES, wanted_end - position))
            window, window_start, at = memoryview(file.read_at(position, count)), position, 0
        batch = window[at : at + batch_size_bytes]
        if len(batch) < batch_size_bytes or not has_right_crc(batch, header):
            break
        if header.magic != MAGIC or not may_follow(header.base_offset, end_offset, part.compacted_to):
            break
        if header.leader_epoch != epochs.epoch_of(header.next_offset - 1):
            break  # the epoch of its last record: if the log starts within the batch, the known epochs begin there
        position += batch_size_bytes
        end_offset = header.next_offset
        note(header)
    if position == first:
        raise CorruptMessage(f"the batch at position {position} is damaged")
    return position, end_offset


class TimestampFound(NamedTuple):
    """The record that a search by timestamp found."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Searched(NamedTuple):
    """The outcome of a search by timestamp in one segment."""

    found: TimestampFound | None
    is_index_wrong: bool


def search_timestamp(part: Part, timestamp_ms: int, start_offset: int) -> Searched:
    """Find the first record, from `start_offset` on, whose timestamp is `timestamp_ms` or later.

    As FileRecords.searchForTimestamp. Raises CorruptMessage, FileNotFoundError.
    """
    file, start = part.opened(), part.start or START
    is_index_wrong = False
    if start != START:
        try:
            find_batch(file.read_at, start, part.end, start[0], part.compacted_to)
        except CorruptMessage:
            start, is_index_wrong = START, True
    for at in walk_headers(file, start[1], part.end):
        if may_reach(at.header, timestamp_ms) and at.header.next_offset > start_offset:
            found = _search_batch(file, at, timestamp_ms, start_offset)
            if found is not None:
                return Searched(found, is_index_wrong)
    return Searched(None, is_index_wrong)


def greatest_timestamp(part: Part, start_offset: int) -> int:
    """The greatest timestamp (ms) of the records from `start_offset` on; -1 without records.

    Raises CorruptMessage, FileNotFoundError.
    """
    file, greatest_ms = part.opened(), NO_TIMESTAMP_MS
    for at in walk_headers(file, 0, part.end):
        header = at.header
        if not header.record_count:
            continue
        if header.base_offset >= start_offset:
            greatest_ms = max(greatest_ms, newest_ms_at(file, at))
        elif header.next_offset > start_offset:
            records = [one for one in records_of(file, at) if header.base_offset + one.offset_delta >= start_offset]
            greatest_ms = max(greatest_ms, *(one.timestamp_ms for one in records), NO_TIMESTAMP_MS)
    return greatest_ms


class Timestamps(NamedTuple):
    """The greatest timestamps (ms) of a segment's first batch, and of all its records; -1 without any."""

    first_ms: int
    newest_ms: int


def timestamps_of(part: Part) -> Timestamps:
    """Find the timestamps of a segment in its headers, or in the records where these are wrong. Raises CorruptMessage,
    FileNotFoundError."""
    file, first_ms, newest_ms = part.opened(), NO_TIMESTAMP_MS, NO_TIMESTAMP_MS
    for at in walk_headers(file, 0, part.end):
        batch_ms = newest_ms_at(file, at) if at.header.record_count else NO_TIMESTAMP_MS
        first_ms = first_ms if at.position else batch_ms
        newest_ms = max(newest_ms, batch_ms)
    return Timestamps(first_ms, newest_ms)


def may_reach(header: BatchHeader, timestamp_ms: int) -> bool:
    """Whether a batch may have a record with that timestamp, or a later one."""
    return header.max_timestamp_ms >= timestamp_ms or header.has_wrong_max_timestamp


def position_of(file: ReadableFile, part: Part, offset: int) -> int:
    """The position of the batch that holds `offset`, even if the index is wrong. Raises CorruptMessage."""
    try:
        return find_batch(file.read_at, part.start or START, part.end, offset, part.compacted_to).position
    except CorruptMessage:
        return find_batch(file.read_at, START, part.end, offset, part.compacted_to).position


def records_of(file: ReadableFile, at: BatchAt) -> Iterator[Record]:
    """The records of a batch, checked and decompressed. Raises CorruptMessage."""
    return walk_records(at.header, body_of(file, at))


def body_of(file: ReadableFile, at: BatchAt) -> bytes | memoryview:
    """The records section of a batch, checked and decompressed. Raises CorruptMessage."""
    return decompress(at.header.codec_id, stored_batch(file, at)[HEADER_SIZE_BYTES:])


def stored_batch(file: ReadableFile, at: BatchAt) -> memoryview:
    """A batch as it was stored. Raises CorruptMessage if its CRC does not match."""
    header = at.header
    stored = memoryview(file.read_at(at.position, header.size_bytes))
    if len(stored) < header.size_bytes or not has_right_crc(stored, header):
        raise CorruptMessage(f"the batch at position {at.position} does not match its CRC")
    return stored


def _search_batch(file: ReadableFile, at: BatchAt, timestamp_ms: int, start_offset: int) -> TimestampFound | None:
    header = at.header
    try:
        records = records_of(file, at)
    except DecompressedTooLarge:  # its beginning is at or before the record
        return TimestampFound(max(header.base_offset, start_offset), header.max_timestamp_ms, header.leader_epoch)
    for record in records:
        offset = header.base_offset + record.offset_delta
        if record.timestamp_ms >= timestamp_ms and offset >= start_offset:
            return TimestampFound(offset, record.timestamp_ms, header.leader_epoch)
    return None
