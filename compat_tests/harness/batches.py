"""Record batches of magic 2 built by hand, so that a test can build invalid ones too; and batches of a reply, split.

Written from the format's description and independent of the engine's own builder: a mistake there must not be repeated
here. Every header field can be overridden; the CRC is right unless it is given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

BytesT = TypeVar("BytesT", bytes, memoryview)

# baseOffset, batchLength, partitionLeaderEpoch, magic, crc
PREFIX = struct.Struct(">qiibI")
# attributes, lastOffsetDelta, baseTimestamp, maxTimestamp, producerId, producerEpoch, baseSequence, count
CHECKED = struct.Struct(">hiqqqhii")
LENGTH_COVERS_FROM = 12
LENGTH_PREFIX = struct.Struct(">qi")  # base offset, size of the rest
LAST_OFFSET_DELTA_POSITION = 23
FIRST_MS = 1_700_000_000_000


def varint(value: int) -> bytes:
    """A zigzag varint, as the fields of a record use it."""
    unsigned = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while unsigned > 0x7F:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass(frozen=True)
class Record:
    """A record; its offset in the batch is its position unless `offset_delta` says otherwise."""

    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_delta_ms: int = 0
    offset_delta: int | None = None

    def encode(self, position: int) -> bytes:
        delta = position if self.offset_delta is None else self.offset_delta
        body = b"\x00" + varint(self.timestamp_delta_ms) + varint(delta) + sized(self.key) + sized(self.value)
        body += varint(len(self.headers))
        for name, value in self.headers:
            body += sized(name.encode()) + sized(value)
        return varint(len(body)) + body


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A record batch. A field that is None gets its value from the records."""

    records: tuple[Record, ...] = (Record(),)
    base_offset: int = 0
    batch_length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp_ms: int = FIRST_MS
    max_timestamp_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    body: bytes | None = None  # instead of the encoded records, say compressed ones

    def encode(self) -> bytes:
        encoded = b"".join(record.encode(position) for position, record in enumerate(self.records))
        body = encoded if self.body is None else self.body
        latest_ms = self.base_timestamp_ms + max((record.timestamp_delta_ms for record in self.records), default=0)
        checked = CHECKED.pack(
            self.attributes,
            len(self.records) - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp_ms,
            latest_ms if self.max_timestamp_ms is None else self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records) if self.count is None else self.count,
        )
        checked += body
        length = PREFIX.size - LENGTH_COVERS_FROM + len(checked) if self.batch_length is None else self.batch_length
        crc = crc32c.crc32c(checked) if self.crc is None else self.crc
        return PREFIX.pack(self.base_offset, length, self.leader_epoch, self.magic, crc) + checked


def split(records: BytesT) -> Iterator[BytesT]:
    """The whole batches of a reply, without a last one that is incomplete."""
    position = 0
    while position + LENGTH_PREFIX.size <= len(records):
        _, size_bytes = LENGTH_PREFIX.unpack_from(records, position)
        end = position + LENGTH_PREFIX.size + size_bytes
        if end > len(records):
            return
        yield records[position:end]
        position = end


def next_offset(batch: bytes | memoryview) -> int:
    base_offset, _ = LENGTH_PREFIX.unpack_from(batch)
    (delta,) = struct.unpack_from(">i", batch, LAST_OFFSET_DELTA_POSITION)
    return int(base_offset + delta + 1)
