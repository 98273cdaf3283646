"""Search for records that match a filter, in bounded steps: by key with the key index, by time with the timestamps of
segments and their indexes.

The result is that of a scan of the whole log: the records at the index's positions are checked, and the part that it
does not cover is read. So a search for a key in a topic without `index.keys` reads the whole log.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from engine.api import AbortedTransaction, FoundRecord, FoundRecords, ReadableFile, RecordFilter
from engine.batches.batch import HEADER_SIZE_BYTES, BatchHeader, Record, decode_record, get_varint, parse_header, varint
from engine.errors import CorruptMessage
from engine.index.keys import hash_of
from engine.index.stored_index import StoredIndex
from engine.logs.recovery.loading import Part, body_of, may_reach, position_of, records_of
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import BatchAt, Segment, find_batch, walk_headers
from engine.reading.reader import LogReader

STEP_BYTES = 4 * 1024 * 1024  # of batches read, and of records found
PLACES_MAX = 256  # of one key, verified in one step


class _SegmentSearch(NamedTuple):
    """A search of one segment, for a worker: records from `offset` up to `end_offset`, without those of `aborted`
    transactions."""

    wanted: RecordFilter
    offset: int
    count_max: int
    end_offset: int
    aborted: Sequence[AbortedTransaction] = ()

    def has_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        producer_id, offset = header.producer_id, header.base_offset
        return any(
            one.producer_id == producer_id and one.first_offset <= offset < one.last_offset for one in self.aborted
        )


class _IndexIsWrong(Exception):
    """The index has a position at which no such batch begins."""


async def find_records(
    index: StoredIndex, reader: LogReader, wanted: RecordFilter, offset: int, count_max: int, limit: LogPosition
) -> FoundRecords:
    """Do one step of a search from `offset` on, below the last stable position `limit`. Raises CorruptMessage if a part
    that has to be read is damaged."""
    log = reader.log
    if log.damaged_from is not None:
        raise CorruptMessage(f"the log is damaged from offset {log.damaged_from} on")
    offset = max(offset, log.start_offset)
    for segment in log.below(limit):
        end_offset = min(segment.end_offset, limit.offset)
        if end_offset > offset and await reader.may_hold(segment, wanted.from_ms):
            from_offset = max(offset, segment.base_offset)
            aborted = await reader.aborted_between(segment, from_offset, end_offset)
            ask = _SegmentSearch(wanted, from_offset, count_max, end_offset, aborted)
            return await _find_in(index, reader, segment, ask, limit)
    return FoundRecords([], max(offset, limit.offset))


async def _find_in(
    index: StoredIndex, reader: LogReader, segment: Segment, ask: _SegmentSearch, limit: LogPosition
) -> FoundRecords:
    part = await reader.part_from(segment, ask.offset, limit)
    covered_to, places = await _places(index, reader, segment, ask, part)
    if covered_to > ask.offset:
        job = partial(_verify, part, places, ask._replace(end_offset=covered_to))
    else:
        late = None if segment.index is None else segment.index.before_timestamp(ask.wanted.from_ms)
        job = partial(_scan, part, late, ask)
    try:
        found = await reader.run(segment, job)
    except _IndexIsWrong:
        if await reader.is_there(segment):
            await reader.distrust_index(segment)
        found = None
    return found or FoundRecords([], ask.offset)  # the next step goes on, after a deletion or a wrong index


async def _places(
    index: StoredIndex, reader: LogReader, segment: Segment, ask: _SegmentSearch, part: Part
) -> tuple[int, list[tuple[int, int]]]:
    """The offset up to which the key index covers the segment, and (offset, position) of the batches below it that may
    have the key."""
    if ask.wanted.key is None:
        return 0, []
    after = -1 if part.start is None else max(-1, part.start[0] - 1)
    key_hash = hash_of(ask.wanted.key)
    covered_to, places = await index.key_places(reader.index_key, segment.base_offset, key_hash, after, PLACES_MAX)
    covered_to = min(covered_to, ask.end_offset)
    if len(places) == PLACES_MAX:
        last_offset, _ = places.pop()
        covered_to = min(covered_to, last_offset)
    return covered_to, [place for place in places if place[0] < covered_to]


def _verify(part: Part, places: Sequence[tuple[int, int]], ask: _SegmentSearch) -> FoundRecords:
    """Search only the batches at these positions."""
    file = part.opened()
    return _collect(file, _batches_at(file, part, places), ask)


def _scan(part: Part, late: tuple[int, int] | None, ask: _SegmentSearch) -> FoundRecords:
    """Search every batch. `late`: (offset, position) before which no record is late enough, None: not known."""
    file = part.opened()
    position = position_of(file, part, ask.offset)
    if late is not None and late[1] > position:
        with suppress(CorruptMessage):  # if the index is wrong, the scan starts earlier
            position = find_batch(file.read_at, late, part.end, late[0], part.compacted_to).position
    return _collect(file, walk_headers(file, position, part.end), ask)


def _batches_at(file: ReadableFile, part: Part, places: Sequence[tuple[int, int]]) -> Iterator[BatchAt]:
    for offset, position in places:
        stored = file.read_at(position, min(HEADER_SIZE_BYTES, part.end - position)) if position < part.end else b""
        at = BatchAt(position, parse_header(stored)) if len(stored) == HEADER_SIZE_BYTES else None
        if at is None or at.header.base_offset != offset:
            raise _IndexIsWrong
        yield at


def _collect(file: ReadableFile, batches: Iterator[BatchAt], ask: _SegmentSearch) -> FoundRecords:
    """Collect matching records, until there are enough, or enough bytes were read."""
    found: list[FoundRecord] = []
    read_bytes = found_bytes = 0
    for at in batches:
        header = at.header
        read_bytes += HEADER_SIZE_BYTES
        is_wanted = header.next_offset > ask.offset and may_reach(header, ask.wanted.from_ms)
        if is_wanted and not header.is_control and not ask.has_aborted(header):
            read_bytes += header.size_bytes
            for record in _records(file, at, ask.wanted.key):
                if record.offset >= ask.offset and ask.wanted.fits(record):
                    found.append(record)
                    found_bytes += record.size_bytes
                    if len(found) == ask.count_max or found_bytes >= STEP_BYTES:
                        return FoundRecords(found, record.offset + 1)
        if read_bytes >= STEP_BYTES:
            return FoundRecords(found, header.next_offset)
    return FoundRecords(found, ask.end_offset)


def _records(file: ReadableFile, at: BatchAt, key: bytes | None) -> Iterator[FoundRecord]:
    """The records of a batch whose CRC is checked; with a key only its records, and the others are not decoded."""
    header = at.header
    records = records_of(file, at) if key is None else _with_key(header, bytes(body_of(file, at)), key)
    for one in records:
        offset = header.base_offset + one.offset_delta
        yield FoundRecord(offset, one.timestamp_ms, header.is_log_append_time, one.key, one.value, one.headers)


def _with_key(header: BatchHeader, body: bytes, key: bytes) -> Iterator[Record]:
    """The records with that key in an uncompressed records section.

    It searches for the bytes of the key field, and skips records without them by their lengths: a search by key spends
    most of its time here.
    """
    wanted = varint(len(key)) + key
    place, position = body.find(wanted), 0
    try:
        while place >= 0:
            while position <= place:
                start, length = position, body[position]
                position += 1
                if length > 0x7F:
                    size_bytes, position = get_varint(body, start)
                    length = size_bytes << 1
                position += length >> 1
                if position <= start or length & 1:
                    raise CorruptMessage("a record has a size that cannot be")
            record = decode_record(header, body, start, position)
            if record.key == key:
                yield record
            place = body.find(wanted, position)
    except IndexError:
        raise CorruptMessage("a record ends within a field") from None
