"""Kafka's RecordBatch, format v2: the header as a value, patching, building, walking.

Pure. Stored batches are opaque bytes: most code reads only the 61-byte header. Only code that needs records (a search
by timestamp, tests, tools) walks them, through `engine.batches.codecs`. Layout: docs/formats/segment.md; behaviour:
Kafka's DefaultRecordBatch.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from engine.errors import CorruptMessage

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE_BYTES = HEADER.size
LENGTH_PREFIX_SIZE_BYTES = 12  # base offset and length, which batch_length does not count
MAGIC = 2
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP_MS = -1
TIMESTAMP_MAX_MS = 2**63 - 1
RECORD_OVERHEAD_MAX_BYTES = 23  # of a record without headers in a batch with one timestamp: three bytes, four varints

CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_LENGTH = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
CODEC_MASK = 0b111
RECORD_SIZE_MIN_BYTES = 7  # length, attributes, two deltas, no key, no value, no headers: a byte each
LOG_APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
CONTROL_BIT = 1 << 5
DELETE_HORIZON_BIT = 1 << 6


class Codec(IntEnum):
    """Compression of the records of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in file order. `batch_length`: number of the bytes behind that field."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def placed(self, base_offset: int, leader_epoch: int) -> "BatchHeader":
        """The header after `stamp`. (`_replace` costs four times as much.)"""
        return header_of((base_offset, self[1], leader_epoch, *self[3:]))

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_SIZE_BYTES

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def has_wrong_max_timestamp(self) -> bool:
        """Whether the maximum timestamp is below that of the first record: some clients leave it at -1.

        A LogAppendTime batch has the maximum alone, and a delete horizon replaces the base timestamp.
        """
        is_below = self.max_timestamp_ms < self.base_timestamp_ms and self.record_count > 0
        return is_below and not self.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_sequence(self) -> bool:
        """Whether the batch has a sequence of its producer: not for a marker."""
        return self.producer_id >= 0 <= self.base_sequence and not self.is_control

    @property
    def delete_horizon_ms(self) -> int | None:
        """Delete horizon of its tombstones (KIP-534), None if there is none; it replaces the base timestamp."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else None


header_of: Callable[[Sequence[int]], BatchHeader] = partial(tuple.__new__, BatchHeader)  # spares a call for each batch


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Parse the header at `position`, which must have 61 bytes. The values are not checked."""
    return header_of(HEADER.unpack_from(buffer, position))


def has_right_crc(batch: memoryview, header: BatchHeader) -> bool:
    """Whether the CRC of exactly one batch is right."""
    return bool(crc32c(batch[ATTRIBUTES_POSITION:]) == header.crc)


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    _INT64.pack_into(batch, 0, base_offset)
    _LENGTH.pack_into(batch, LENGTH_PREFIX_SIZE_BYTES, leader_epoch)


def stamp_log_append_time(batch: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Set timestamp type and max timestamp and recompute the CRC over both (RULES W5)."""
    return _with_times(batch, header, header.attributes | LOG_APPEND_TIME_BIT, now_ms)


def clear_log_append_time(batch: memoryview, header: BatchHeader) -> BatchHeader:
    """Clear the LogAppendTime bit that a client has set, as DefaultRecordBatch.setMaxTimestamp does."""
    return _with_times(batch, header, header.attributes & ~LOG_APPEND_TIME_BIT, header.max_timestamp_ms)


def stamp_max_timestamp(batch: memoryview, header: BatchHeader, max_timestamp_ms: int) -> BatchHeader:
    """Set the max timestamp and recompute the CRC over it."""
    return _with_times(batch, header, header.attributes, max_timestamp_ms)


def _with_times(batch: memoryview, header: BatchHeader, attributes: int, max_timestamp_ms: int) -> BatchHeader:
    _INT16.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    crc = crc32c(batch[ATTRIBUTES_POSITION:])
    _UINT32.pack_into(batch, CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp_ms=max_timestamp_ms, crc=crc)


class RecordHeader(NamedTuple):
    """A record's header; Kafka allows keys to repeat."""

    key: bytes
    value: bytes | None


class Record(NamedTuple):
    """A record. `offset_delta`: relative to the batch's base offset."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int = 0
    headers: tuple[RecordHeader, ...] = ()
    offset_delta: int = 0


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer: tuple[int, int, int] = (NO_PRODUCER_ID, -1, -1),
) -> bytearray:
    """Build a valid uncompressed batch with consecutive offset deltas. `producer`: (id, epoch, first sequence)."""
    base_timestamp_ms = records[0].timestamp_ms
    body = b"".join(
        [
            _encode_record(record, offset_delta, record.timestamp_ms - base_timestamp_ms)
            for offset_delta, record in enumerate(records)
        ]
    )
    return seal_batch(
        body,
        record_count=len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        timestamps_ms=(base_timestamp_ms, max(record.timestamp_ms for record in records)),
        producer=producer,
    )


def seal_batch(
    body: bytes | bytearray,
    *,
    record_count: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    timestamps_ms: tuple[int, int],
    producer: tuple[int, int, int],
    last_offset_delta: int | None = None,
) -> bytearray:
    """Put a header with the right CRC before a records section, which may be compressed and may have gaps."""
    batch = bytearray(HEADER_SIZE_BYTES)
    batch += body
    length = len(batch) - LENGTH_PREFIX_SIZE_BYTES
    last_delta = record_count - 1 if last_offset_delta is None else last_offset_delta
    fields = (attributes, last_delta, *timestamps_ms, *producer, record_count)
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch


def _encode_record(record: Record, offset_delta: int, timestamp_delta_ms: int) -> bytes:
    """Encode a record, with its length in front."""
    key, value, _, headers, _ = record
    times = varint(timestamp_delta_ms), varint(offset_delta)
    parts = [b"\0", *times, _sized(key), _sized(value), varint(len(headers))]  # attributes first: unused
    for header in headers:
        parts += map(_sized, header)
    encoded = b"".join(parts)
    return varint(len(encoded)) + encoded


def _sized(data: bytes | None) -> bytes:
    return _NULL_LENGTH if data is None else varint(len(data)) + data


def _long_varint(value: int) -> bytes:
    """Encode zigzag, with seven bits in each byte, as in protocol buffers."""
    out = bytearray()
    rest = (value << 1) if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Varints(dict[int, bytes]):
    """Cache of small varints, which most lengths and deltas are."""

    def __missing__(self, value: int) -> bytes:
        return _long_varint(value)


varint: Callable[[int], bytes] = _Varints({small: _long_varint(small) for small in range(-1, 1024)}).__getitem__
_NULL_LENGTH = varint(-1)


def walk_records(header: BatchHeader, body: bytes | memoryview) -> Iterator[Record]:
    """The records of an uncompressed records section, one at a time. Raises CorruptMessage if sizes are wrong."""
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = get_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise CorruptMessage("a record reaches beyond its batch")
            yield _decode_record(header, body[position:end])
            position = end
    except IndexError:
        raise CorruptMessage("a record ends within a field") from None
    if position != len(body):
        raise CorruptMessage("bytes after the last record of the batch")


def decode_record(header: BatchHeader, body: bytes, start: int, end: int) -> Record:
    """Decode the record, with its length in front, at [start, end) of an uncompressed records section."""
    _, position = get_varint(body, start)
    return _decode_record(header, body[position:end])


def _decode_record(header: BatchHeader, body: bytes | memoryview) -> Record:
    timestamp_delta_ms, position = get_varint(body, 1)
    offset_delta, position = get_varint(body, position)
    key, position = _get_bytes(body, position)
    value, position = _get_bytes(body, position)
    count, position = get_varint(body, position)
    headers = []
    for _ in range(count):
        header_key, position = _get_bytes(body, position)
        header_value, position = _get_bytes(body, position)
        headers.append(RecordHeader(header_key or b"", header_value))
    if position != len(body):
        raise CorruptMessage("a record is longer than its fields")
    timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else timestamp_of(header, timestamp_delta_ms)
    return Record(key, value, timestamp_ms, tuple(headers), offset_delta)


def timestamp_of(header: BatchHeader, delta_ms: int) -> int:
    """The timestamp (ms) of a record, by its delta, bounded to 64 bits: a client's varint may lead beyond them."""
    return max(-TIMESTAMP_MAX_MS, min(header.base_timestamp_ms + delta_ms, TIMESTAMP_MAX_MS))


def _get_bytes(body: bytes | memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = get_varint(body, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(body):
        raise CorruptMessage("a field reaches beyond its record")
    return bytes(body[position:end]), end


def get_varint(body: bytes | memoryview, position: int) -> tuple[int, int]:
    """Decode a varint; returns it, and the position behind it. Raises IndexError if the bytes end before,
    CorruptMessage if it is too long."""
    raw = shift = 0
    while True:
        byte = body[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift > 63:
            raise CorruptMessage("a varint of more than ten bytes")
