"""The slow half of reading, for a worker: open, find, check, and bring into memory what the loop will then serve.

Everything that comes from a disk is checked here by its CRC before it is served (RULES L5: wrong bytes never are); a
read by the loop then finds it in the page cache. Plain values in and out; the owner of the log decides what to keep.
An index that was wrong is told, and its answer not used.
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
from engine.errors import CorruptMessage
from engine.files.filesystem import File
from engine.logs.epochs import EpochHistory, EpochStart
from engine.logs.segment import BatchAt, Segment, find_batch, may_follow, walk_headers
from engine.logs.sparse_index import START, Entry

FIRST_BATCH_ONLY = 1  # byte
READ_AHEAD_BYTES = 1024 * 1024  # at least so much of a disk is checked at once, and as much again announced to it
WINDOW_BYTES = 256 * 1024  # of a file in memory to be checked, if batches are not larger: processors keep that near


class Part(NamedTuple):
    """A segment up to `end`, behind which readers see nothing, and a batch to start from: (offset or -1, position).
    Without one the whole of it has to be walked. `epochs` are those of its batches; below `compacted_to` there may be
    gaps between them. `open` is for a worker, where no file is given."""

    open: Callable[[], File]
    file: File | None
    base_offset: int
    end: int
    start: tuple[int, int] | None
    epochs: Sequence[EpochStart] = ()
    compacted_to: int = 0

    def opened(self) -> File:
        """FileNotFoundError: it was deleted meanwhile."""
        return self.file or self.open()


class Loaded(NamedTuple):
    """A batch that holds the offset, with right batches behind it up to `end_offset` at `end`; `is_cut_short` when
    the next one is wrong.

    `walked` are the entries of the segment as a walk over its headers found them, where there was no (right) index.
    """

    file: File
    position: int
    end: int
    end_offset: int
    is_cut_short: bool
    walked: list[Entry] | None
    is_index_wrong: bool


def load(part: Part, offset: int, size_bytes: int) -> Loaded:
    """CorruptMessage: the batch is not (any more) what it was. FileNotFoundError: the segment was deleted meanwhile."""
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
    """With the right ones of the batches behind it that end at `end` at the latest. A wrong one is for whoever comes
    to it. FileNotFoundError as above."""
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
    """The entries of a segment, as far as its headers make sense: whoever needs what is behind will meet it."""
    segment, entries = Segment(part.base_offset), []
    try:
        for at in walk_headers(file, 0, part.end):
            entry = segment.add(at.header)
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
    """(Position, offset) behind the last of the batches from position `first` on, over `size_bytes` or more, that are
    all right. `behind` is where the batch before ends, if that is known.

    The CRC does not cover all of a header: the rest has to fit to what is known. CorruptMessage when the first batch is
    not right. `note` is told of the others.
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
            break  # asked of its last record: the epochs of a log that starts within the batch begin there
        position += batch_size_bytes
        end_offset = header.next_offset
        note(header)
    if position == first:
        raise CorruptMessage(f"the batch at position {position} is not what was written")
    return position, end_offset


class TimestampFound(NamedTuple):
    """A record that answers a search by timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Searched(NamedTuple):
    """The outcome in one segment."""

    found: TimestampFound | None
    is_index_wrong: bool


def search_timestamp(part: Part, timestamp_ms: int, start_offset: int) -> Searched:
    """First record from `start_offset` on with such a timestamp or a later one (FileRecords.searchForTimestamp).

    CorruptMessage and FileNotFoundError as above.
    """
    file, start = part.opened(), part.start or START
    is_index_wrong = False
    if start != START:
        try:
            find_batch(file.read_at, start, part.end, start[0], part.compacted_to)
        except CorruptMessage:
            start, is_index_wrong = START, True
    for at in walk_headers(file, start[1], part.end):
        if at.header.max_timestamp_ms >= timestamp_ms and at.header.next_offset > start_offset:
            found = _search_batch(file, at, timestamp_ms, start_offset)
            if found is not None:
                return Searched(found, is_index_wrong)
    return Searched(None, is_index_wrong)


def greatest_timestamp(part: Part, start_offset: int) -> int:
    """Of the records from `start_offset` on; -1 without any. CorruptMessage and FileNotFoundError as above."""
    file, greatest_ms = part.opened(), NO_TIMESTAMP_MS
    for at in walk_headers(file, 0, part.end):
        header = at.header
        if not header.record_count:
            continue
        if header.base_offset >= start_offset:
            greatest_ms = max(greatest_ms, header.max_timestamp_ms)
        elif header.next_offset > start_offset:
            records = [one for one in records_of(file, at) if header.base_offset + one.offset_delta >= start_offset]
            greatest_ms = max(greatest_ms, *(one.timestamp_ms for one in records), NO_TIMESTAMP_MS)
    return greatest_ms


def position_of(file: ReadableFile, part: Part, offset: int) -> int:
    """Of the batch that holds `offset`, whether or not the index is right. CorruptMessage."""
    try:
        return find_batch(file.read_at, part.start or START, part.end, offset, part.compacted_to).position
    except CorruptMessage:
        return find_batch(file.read_at, START, part.end, offset, part.compacted_to).position


def records_of(file: ReadableFile, at: BatchAt) -> Iterator[Record]:
    """The records of a batch, checked and decompressed. CorruptMessage."""
    return walk_records(at.header, body_of(file, at))


def body_of(file: ReadableFile, at: BatchAt) -> bytes | memoryview:
    """The records section of a batch, checked and decompressed. CorruptMessage."""
    return decompress(at.header.codec_id, stored_batch(file, at)[HEADER_SIZE_BYTES:])


def stored_batch(file: ReadableFile, at: BatchAt) -> memoryview:
    """A batch as it was stored. CorruptMessage if it is so no more."""
    header = at.header
    stored = memoryview(file.read_at(at.position, header.size_bytes))
    if len(stored) < header.size_bytes or not has_right_crc(stored, header):
        raise CorruptMessage(f"the batch at position {at.position} does not match its CRC")
    return stored


def _search_batch(file: ReadableFile, at: BatchAt, timestamp_ms: int, start_offset: int) -> TimestampFound | None:
    header = at.header
    for record in records_of(file, at):
        offset = header.base_offset + record.offset_delta
        if record.timestamp_ms >= timestamp_ms and offset >= start_offset:
            return TimestampFound(offset, record.timestamp_ms, header.leader_epoch)
    return None
