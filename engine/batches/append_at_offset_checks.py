"""Checks of a batch for an append at offset: those of a produced batch, and that it is a plain batch.

Pure. The batch may have gaps, or no record at all, after compaction; docs/formats/append-at-offset.md has the rules.
"""

from engine.batches.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    LOG_APPEND_TIME_BIT,
    RECORD_SIZE_MIN_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    has_right_crc,
    parse_header,
)
from engine.batches.produce_checks import (
    ProduceLimits,
    check_header_times,
    check_message_size,
    check_segment_size,
    single_batch,
)
from engine.errors import CorruptMessage, InvalidRecord

OFFSET_MAX = 2**63 - 1
TOGETHER_MAX = 2000  # batches of one request: they take the loop some 10 ms
_KNOWN_BITS = CODEC_MASK | LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT


def split(records: memoryview) -> list[memoryview]:
    """Split consecutive batches, at least one. The last one may be incomplete. Raises InvalidRecord."""
    found: list[memoryview] = []
    position = 0
    while len(records) - position >= HEADER_SIZE_BYTES:
        size_bytes = max(parse_header(records, position).size_bytes, LENGTH_PREFIX_SIZE_BYTES)
        found.append(records[position : position + size_bytes])
        position += size_bytes
        if len(found) > TOGETHER_MAX:
            raise InvalidRecord(f"more than {TOGETHER_MAX} batches")
    if position < len(records) or not found:
        raise InvalidRecord("no complete record batch")
    return found


def check_kept(records: memoryview, limits: ProduceLimits, now_ms: int) -> BatchHeader:
    """Check a batch and return its header. Raises the errors of a produced batch."""
    header = single_batch(records)
    if header.codec_id > Codec.ZSTD:
        raise InvalidRecord(f"unknown compression codec {header.codec_id}")
    _check_is_plain(header)
    check_message_size(records, limits)
    check_segment_size(records, limits)
    if not has_right_crc(records, header):
        raise CorruptMessage("CRC of the batch does not match")
    _check_counts(header)
    if header.record_count:
        check_header_times(header, limits, now_ms)
    return header


def _check_is_plain(header: BatchHeader) -> None:
    if header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
        raise InvalidRecord("a batch that keeps its offsets is no part of a transaction, and ends none")
    if header.attributes & ~_KNOWN_BITS:
        raise InvalidRecord(f"unknown attributes {header.attributes}")
    if (header.producer_id, header.producer_epoch, header.base_sequence) != (-1, -1, -1):
        raise InvalidRecord(f"a batch that keeps its offsets has no producer, not {header.producer_id}")


def _check_counts(header: BatchHeader) -> None:
    base_offset, last_delta, count = header.base_offset, header.last_offset_delta, header.record_count
    if not (last_delta >= 0 and 0 <= base_offset < OFFSET_MAX - last_delta):
        raise InvalidRecord(f"a batch from offset {base_offset} to {last_delta} behind it")
    if not 0 <= count <= last_delta + 1:
        raise InvalidRecord(f"{count} records with a last offset delta of {last_delta}")
    room_bytes = header.size_bytes - HEADER_SIZE_BYTES
    if (not count and (room_bytes or header.codec_id)) or (
        not header.codec_id and count * RECORD_SIZE_MIN_BYTES > room_bytes
    ):
        raise InvalidRecord(f"{count} records do not fit into a batch of {header.size_bytes} bytes")
