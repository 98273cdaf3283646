"""Headers of record batches: their positions and fields, with a check of the CRC.

There is one Python object for each batch, none for a record. Each field is checked before it can cause a large
allocation or a read beyond the bytes. Layout: Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from spark_connectors.records.codecs import Codec, decompress
from spark_connectors.records.errors import MalformedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    Bytes: TypeAlias = bytes | bytearray | memoryview

HEADER_FORMAT: Final = ">qiibIhiqqqhii"  # for functions of struct: a Struct object cannot be pickled to executors
HEADER_SIZE_BYTES: Final = 61
LENGTH_PREFIX_SIZE_BYTES: Final = 12  # base offset and length, which the length does not include
ATTRIBUTES_POSITION: Final = 21  # the CRC covers the bytes from here on
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
RECORD_SIZE_MIN_BYTES: Final = 7  # length, attributes, two deltas, no key, no value, no headers: one byte each
CODEC_MASK: Final = 0b111
LOG_APPEND_TIME_BIT: Final = 1 << 3
TRANSACTIONAL_BIT: Final = 1 << 4
CONTROL_BIT: Final = 1 << 5
DELETE_HORIZON_BIT: Final = 1 << 6

_OFFSET_MAX: Final = 2**63 - 1
_CODEC_MAX: Final = int(Codec.ZSTD)
_CONTROL_RECORD_MAX_BYTES: Final = 4096  # a marker has about thirty
_CONTROL_KEY_BYTES: Final = 4
_ABORT: Final = b"\x00\x00"  # the type in the key of a control record (ControlRecordType), after the version


class Batch(NamedTuple):
    """Position of a batch in its buffer, its header fields in file order, and whether it is an abort marker."""

    position: int
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    is_abort_marker: bool = False

    @property
    def size_bytes(self) -> int:
        return self.length + LENGTH_PREFIX_SIZE_BYTES

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.length + LENGTH_PREFIX_SIZE_BYTES

    @property
    def next_offset(self) -> int:
        """The first offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def has_wrong_max_timestamp(self) -> bool:
        """Whether the maximum timestamp is below that of the first record, as some clients leave it: version 0.1 of
        kafkawire stored that.
        """
        is_known = self.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
        return not is_known and self.max_timestamp_ms < self.base_timestamp_ms

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is a delete horizon. Timestamps of records are relative to it all the same
        (KIP-534).
        """
        return bool(self.attributes & DELETE_HORIZON_BIT)


def batches_of(buffer: Bytes) -> list[Batch]:
    """The complete batches of a buffer, in order. An incomplete batch at the end is left out, as a Fetch may return
    one.

    Raises MalformedBatch for another format than v2, a wrong CRC, an inconsistent header, and offsets that go back.
    """
    view = memoryview(buffer)
    unpack_header = struct.Struct(HEADER_FORMAT).unpack_from
    found: list[Batch] = []
    position = next_offset = 0
    while position + HEADER_SIZE_BYTES <= len(view):
        header = unpack_header(view, position)
        base_offset, length, _, magic, crc, attributes, last_delta, _, _, _, _, _, records = header
        end = position + LENGTH_PREFIX_SIZE_BYTES + length
        if magic != MAGIC:
            raise MalformedBatch(f"format v{magic} at {position}: only v2 is read, which Kafka has since 0.11")
        if length < HEADER_SIZE_BYTES - LENGTH_PREFIX_SIZE_BYTES:
            raise MalformedBatch(f"a batch of {length} bytes at {position}")
        if end > len(view):
            break
        if crc32c(view[position + ATTRIBUTES_POSITION : end]) != crc:
            raise MalformedBatch(f"the CRC of the batch at {position} (offset {base_offset}) is wrong")
        batch = _batch_of((position, *header, False))
        if not (
            next_offset <= base_offset < _OFFSET_MAX - last_delta
            and 0 <= records <= last_delta + 1
            and last_delta >= 0
            and attributes & CODEC_MASK <= _CODEC_MAX
        ):
            raise MalformedBatch(_what_is_wrong(batch, next_offset))
        found.append(_with_marker(batch, view) if attributes & CONTROL_BIT else batch)
        position, next_offset = end, base_offset + last_delta + 1
    return found


_batch_of: Callable[[Sequence[int]], Batch] = partial(tuple.__new__, Batch)  # saves a call for each batch


def _what_is_wrong(batch: Batch, offset_min: int) -> str:
    if batch.base_offset < offset_min:
        return f"the batch at {batch.position} begins at offset {batch.base_offset}, below {offset_min}"
    if not 0 <= batch.last_offset_delta < _OFFSET_MAX - batch.base_offset:
        return f"a batch from offset {batch.base_offset} to {batch.last_offset_delta} behind it"
    if not 0 <= batch.records <= batch.last_offset_delta + 1:
        return f"{batch.records} records in {batch.last_offset_delta + 1} offsets from {batch.base_offset} on"
    return f"no codec has the number {batch.attributes & CODEC_MASK}"


def body_of(view: memoryview, batch: Batch) -> Bytes:
    """Records section of a batch, decompressed; if it is not compressed, a part of the view."""
    body = view[batch.position + HEADER_SIZE_BYTES : batch.end]
    codec = batch.attributes & CODEC_MASK
    return decompress(codec, body) if codec else body


def _with_marker(batch: Batch, view: memoryview) -> Batch:
    """The control batch with `is_abort_marker` set from its record's key, which has version and type. Compaction may
    have removed the record.
    """
    if not batch.records:
        return batch
    body = body_of(view, batch)[:_CONTROL_RECORD_MAX_BYTES]
    position = _behind_varint(body, 0) + 1  # the length, and attributes
    position = _behind_varint(body, _behind_varint(body, position))  # two deltas
    key = bytes(body[position + 1 : position + 1 + _CONTROL_KEY_BYTES])  # after its length
    if len(key) < _CONTROL_KEY_BYTES or body[position] < _CONTROL_KEY_BYTES * 2 or body[position] & 1:
        raise MalformedBatch(f"a control batch at offset {batch.base_offset} has no valid type")
    return batch._replace(is_abort_marker=key[2:] == _ABORT)


def _behind_varint(body: Bytes, position: int) -> int:
    while position < len(body) and body[position] >= 0x80:
        position += 1
    return position + 1
