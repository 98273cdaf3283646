"""Checks of a produced batch before it is queued: its header and its CRC. The records are not decoded.

Pure. After Kafka's LogValidator and ProduceRequest.validateRecords.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from engine.api import Origin
from engine.batches.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    MAGIC,
    NO_TIMESTAMP_MS,
    RECORD_SIZE_MIN_BYTES,
    BatchHeader,
    Codec,
    has_right_crc,
    header_of,
    parse_header,
)
from engine.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from engine.log_config import LogConfig, TimestampType

_ANY_CODEC = int(Codec.ZSTD)
_NO_ZSTD = int(Codec.LZ4)
_LENGTH = struct.Struct(">i")
_SIZE_MIN_BYTES = LENGTH_PREFIX_SIZE_BYTES + 14  # Records.LOG_OVERHEAD + LegacyRecord.RECORD_OVERHEAD_V0


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """Limits of a topic for produced batches."""

    max_message_size_bytes: int
    segment_size_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_log_append_time: bool

    @classmethod
    def of(cls, config: LogConfig) -> "ProduceLimits":
        """The limits that a topic's configuration sets."""
        return cls(
            max_message_size_bytes=config.max_message_size_bytes,
            segment_size_bytes=config.segment_size_bytes,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            is_log_append_time=config.timestamp_type is TimestampType.LOG_APPEND_TIME,
        )


def check_produced(
    records: memoryview, limits: ProduceLimits, now_ms: int, *, allow_zstd: bool, origin: Origin = Origin.CLIENT
) -> BatchHeader:
    """Do the stateless checks of a batch (RULES W4), in Kafka's order; returns its header, raises `engine.errors`."""
    header = _usual_header(records, limits, now_ms, _ANY_CODEC if allow_zstd else _NO_ZSTD)
    if header is not None:
        return header
    return _checked(records, limits, now_ms, allow_zstd=allow_zstd, is_client=origin is Origin.CLIENT)


def _usual_header(records: memoryview, limits: ProduceLimits, now_ms: int, codec_id_max: int) -> BatchHeader | None:
    """The header of a usual batch that passes all checks at once; None: do the checks one by one."""
    size_bytes = len(records)
    if size_bytes < HEADER_SIZE_BYTES or size_bytes > limits.max_message_size_bytes:
        return None
    header = header_of(HEADER.unpack_from(records))
    base_offset, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, _, sequence, count = (
        header
    )
    if (
        length + LENGTH_PREFIX_SIZE_BYTES != size_bytes
        or size_bytes > limits.segment_size_bytes
        or base_offset
        or magic != MAGIC
        or not 0 <= attributes <= codec_id_max  # and nothing but a codec
        or not 0 < count == last_delta + 1
        or (not attributes and count * RECORD_SIZE_MIN_BYTES > size_bytes - HEADER_SIZE_BYTES)
        or producer_id >= 0 > sequence
        or max_ms < base_ms
        or crc32c(records[ATTRIBUTES_POSITION:]) != crc
    ):
        return None
    earliest_ms, latest_ms = now_ms - limits.timestamp_before_max_ms, now_ms + limits.timestamp_after_max_ms
    is_in_time = earliest_ms <= base_ms <= latest_ms and earliest_ms <= max_ms <= latest_ms
    return header if is_in_time or limits.is_log_append_time else None


def _checked(
    records: memoryview, limits: ProduceLimits, now_ms: int, *, allow_zstd: bool, is_client: bool
) -> BatchHeader:
    header = single_batch(records)
    codec_id = header.attributes & CODEC_MASK
    if codec_id > Codec.ZSTD:
        raise InvalidRecord(f"unknown compression codec {codec_id}")
    if codec_id == Codec.ZSTD and not allow_zstd:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or later")
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch is {header.base_offset}, not 0")
    if is_client:  # decisions of a coordinator have to be written in any case
        check_message_size(records, limits)
    if not has_right_crc(records, header):
        raise CorruptMessage("CRC of the batch does not match")
    check_segment_size(records, limits)
    _check_counts(header)
    _check_meaning(header, is_client=is_client)
    check_header_times(header, limits, now_ms)
    return header


def single_batch(records: memoryview) -> BatchHeader:
    """Check that there is exactly one complete batch of magic 2, as Produce requires since version 3; returns its
    header.

    The order is that of ByteBufferLogInputStream, so that a broken batch gets the same error as in Kafka.
    """
    available = len(records)
    if available < LENGTH_PREFIX_SIZE_BYTES:
        raise InvalidRecord("no complete record batch")
    size_bytes = _LENGTH.unpack_from(records, 8)[0] + LENGTH_PREFIX_SIZE_BYTES
    if size_bytes < _SIZE_MIN_BYTES:
        raise CorruptMessage(f"batch of {size_bytes} bytes")
    if available < CRC_POSITION:
        raise InvalidRecord("no complete record batch")
    magic = records[CRC_POSITION - 1]
    if magic > MAGIC:
        raise CorruptMessage(f"batch of magic {magic}")
    if size_bytes > available:
        raise InvalidRecord("no complete record batch")
    if magic < MAGIC:
        raise InvalidRecord(f"magic {magic}; record batches of magic 2 are required")
    if size_bytes < HEADER_SIZE_BYTES:
        raise CorruptMessage(f"batch of {size_bytes} bytes is smaller than its header")
    header = parse_header(records)
    if size_bytes < available:
        if not has_right_crc(records[:size_bytes], header):
            raise CorruptMessage("CRC of the first batch does not match")
        raise InvalidRecord("more than one record batch for a partition")
    return header


def _check_counts(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")
    if not header.codec_id and header.record_count * RECORD_SIZE_MIN_BYTES > header.size_bytes - HEADER_SIZE_BYTES:
        raise InvalidRecord(f"{header.record_count} records do not fit into a batch of {header.size_bytes} bytes")


def _check_meaning(header: BatchHeader, *, is_client: bool) -> None:
    if header.is_control:
        if is_client:
            raise InvalidRecord("control batches are written by the broker alone")
        return
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"sequence {header.base_sequence} of producer {header.producer_id}")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidTxnState("a transactional batch without a producer")


def check_message_size(records: memoryview, limits: ProduceLimits) -> None:
    """Raise MessageTooLarge if the batch is larger than max.message.bytes."""
    if len(records) > limits.max_message_size_bytes:
        raise MessageTooLarge(f"batch of {len(records)} bytes, at most {limits.max_message_size_bytes} allowed")


def check_segment_size(records: memoryview, limits: ProduceLimits) -> None:
    """Raise RecordListTooLarge if the batch is larger than a segment."""
    if len(records) > limits.segment_size_bytes:
        raise RecordListTooLarge(f"batch of {len(records)} bytes in segments of {limits.segment_size_bytes}")


def check_header_times(header: BatchHeader, limits: ProduceLimits, now_ms: int) -> None:
    """Raise InvalidTimestamp if a timestamp of the header is outside of the topic's limits.

    A wrong maximum does not count: the records are checked instead (`record_checks`). With a delete horizon, the base
    timestamp is the horizon, and not that of a record (KIP-534).
    """
    first_ms, newest_ms = header.base_timestamp_ms, header.max_timestamp_ms
    if header.delete_horizon_ms is not None:
        first_ms = newest_ms
    elif header.has_wrong_max_timestamp:
        newest_ms = first_ms
    check_times((first_ms, newest_ms), limits, now_ms)


def check_times(timestamps_ms: Sequence[int], limits: ProduceLimits, now_ms: int) -> None:
    """Raise InvalidTimestamp if a timestamp is outside of the topic's limits; no check with LogAppendTime."""
    if limits.is_log_append_time:
        return
    earliest_ms = now_ms - limits.timestamp_before_max_ms
    latest_ms = now_ms + limits.timestamp_after_max_ms
    for timestamp_ms in timestamps_ms:
        if timestamp_ms != NO_TIMESTAMP_MS and not earliest_ms <= timestamp_ms <= latest_ms:
            raise InvalidTimestamp(f"timestamp {timestamp_ms} is not within [{earliest_ms}, {latest_ms}]")
