"""Record validation and recompression of a produced batch, which need its records and not only its header. Pure.

As in Kafka's LogValidator, each record of a compacted topic needs a key (validateKey, processRecordErrors), and a batch
in another codec than its topic's is recompressed (buildRecordsAndAssignOffsets). The records themselves do not change.
A header whose maximum timestamp is below the base timestamp gets that of the records, as there (assignOffsets). The
output is bounded: the decompressed size by the codec, the new batch by the topic's limits, and the number of errors.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from engine.api import Origin, TopicIdPartition
from engine.batches.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE_BYTES,
    BatchHeader,
    Codec,
    stamp_max_timestamp,
)
from engine.batches.codecs import compress, decompress, unreadable_for_java
from engine.batches.keyed import keys_of, resealed
from engine.batches.produce_checks import ProduceLimits, check_segment_size, check_times
from engine.batches.timestamps import newest_timestamp_ms
from engine.errors import (
    CorruptMessage,
    DecompressedTooLarge,
    InvalidRecord,
    MessageTooLarge,
    RecordError,
    RecordsRefused,
)
from engine.log_config import CompressionType, LogConfig

ERRORS_MAX = 1000  # of one batch
ERRORS_SHOWN = 3  # in the error message
VALIDATED_AT_ONCE_MAX = 32  # records: some 20 us, less than the cost of a trip to a worker

# Raises the error of a refused batch, or returns the batch to store instead; None: store the batch as it is.
Validation = Callable[[], memoryview | None]

_CODECS = {
    CompressionType.PRODUCER: None,
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


class RecordRules(NamedTuple):
    """Rules of a topic for records. `codec`: of every stored batch; None: as the producer sent it."""

    name: str
    requires_keys: bool
    reads_keys: bool  # the key index needs the keys of every batch: a wrong record would end the index there
    codec: Codec | None
    level: int | None
    limits: ProduceLimits
    has_gaps: bool = False  # batches may have gaps, after compaction

    @classmethod
    def of(cls, partition: TopicIdPartition, config: LogConfig) -> "RecordRules":
        """The rules of a topic."""
        codec = _CODECS[config.compression_type]
        levels = {Codec.GZIP: config.gzip_level, Codec.LZ4: config.lz4_level, Codec.ZSTD: config.zstd_level}
        level = None if codec is None else levels.get(codec)
        name = f"{partition.topic}-{partition.partition}"
        reads_keys = config.requires_keys or config.index_keys
        return cls(name, config.requires_keys, reads_keys, codec, level, ProduceLimits.of(config))

    @property
    def apply_to_all(self) -> bool:
        """Whether each batch may need a job; else only one with a wrong maximum timestamp."""
        return self.reads_keys or self.codec is not None

    @property
    def for_append_at_offset(self) -> "RecordRules":
        """The rules for appends at offset, which keep their codec."""
        return self._replace(codec=None, has_gaps=True)

    def validation(
        self, batch: memoryview, header: BatchHeader, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> Validation | None:
        """The job for a worker; None: no job is needed. A few records are validated at once, which may raise."""
        if header.is_control:
            return None
        is_changed = self._new_codec(header) is not None or self._has_wrong_time(header)
        if not is_changed and (origin is not Origin.CLIENT or not self.reads_keys):
            return None
        validate = partial(self._validate, batch, header, now_ms)
        if is_changed or header.codec_id or header.record_count > VALIDATED_AT_ONCE_MAX:
            return validate
        validate()
        return None

    def _new_codec(self, header: BatchHeader) -> Codec | None:
        """The codec to recompress a batch with; None: it keeps its own."""
        return self.codec if header.codec_id != self.codec else None

    def _has_wrong_time(self, header: BatchHeader) -> bool:
        return header.has_wrong_max_timestamp and not self.limits.is_log_append_time

    def _validate(self, batch: memoryview, header: BatchHeader, now_ms: int) -> memoryview | None:
        body = _decompressed(batch, header)
        if self.reads_keys:
            self._check_keys(body, header)
        new_codec, newest_ms = self._new_codec(header), header.max_timestamp_ms
        if self._has_wrong_time(header) or (new_codec is not None and not self.reads_keys):
            newest_ms = self._newest_ms(body, header, now_ms)  # which needs each record, so that none gets lost
        if new_codec is not None:
            return self._recompressed(body, header, new_codec, newest_ms)
        if newest_ms == header.max_timestamp_ms:
            return None
        stamp_max_timestamp(batch, header, newest_ms)
        return batch

    def _newest_ms(self, body: bytes, header: BatchHeader, now_ms: int) -> int:
        """The greatest timestamp of the records. Raises InvalidRecord, InvalidTimestamp."""
        try:
            newest_ms = newest_timestamp_ms(header, body)
        except CorruptMessage as error:
            raise InvalidRecord(str(error)) from error
        check_times([newest_ms], self.limits, now_ms)
        return newest_ms

    def _recompressed(self, body: bytes, header: BatchHeader, codec: Codec, newest_ms: int) -> memoryview:
        """Recompress the batch, and check its new size, as UnifiedLog.append does. Raises MessageTooLarge,
        RecordListTooLarge."""
        packed = compress(codec, body, self.level)
        size_bytes, max_size_bytes = HEADER_SIZE_BYTES + len(packed), self.limits.max_message_size_bytes
        if size_bytes > max_size_bytes:
            batch = f"batch of {size_bytes} bytes once it is {codec.name.lower()}"
            raise MessageTooLarge(f"{batch}, at most {max_size_bytes} allowed")
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT) | codec
        timestamps_ms = header.base_timestamp_ms, newest_ms
        recompressed = memoryview(resealed(header, packed, header.record_count, attributes, timestamps_ms))
        check_segment_size(recompressed, self.limits)
        return recompressed

    def _check_keys(self, body: bytes, header: BatchHeader) -> None:
        try:
            records = keys_of(body, header.record_count)
        except CorruptMessage as error:
            raise InvalidRecord(str(error)) from error
        if not self.requires_keys:
            return
        text = f"Compacted topic cannot accept message without key in topic partition {self.name}"
        errors, least, most = [], 0, header.last_offset_delta
        for index, (delta, key, _, _, _) in enumerate(records):
            if not (least <= delta <= most if self.has_gaps else delta == index):
                errors.append(RecordError(index, f"Record {index} of the batch has offset delta {delta}"))
            elif key is None:
                errors.append(RecordError(index, text))
            least = delta + 1
        if errors:
            raise _refusal(errors)


def _decompressed(batch: memoryview, header: BatchHeader) -> bytes:
    """The uncompressed records section. Raises MessageTooLarge, InvalidRecord: no client repeats such a batch."""
    packed = batch[HEADER_SIZE_BYTES:]
    try:
        body = bytes(decompress(header.codec_id, packed))
    except DecompressedTooLarge as error:
        raise MessageTooLarge(str(error)) from error
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from error
    unreadable = unreadable_for_java(header.codec_id, packed)
    if unreadable is not None:
        raise InvalidRecord(unreadable)
    return body


def _refusal(errors: Sequence[RecordError]) -> RecordsRefused:
    shown = ", ".join(f"RecordError(batchIndex={one.number}, message='{one.message}')" for one in errors[:ERRORS_SHOWN])
    return RecordsRefused(
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors[:ERRORS_MAX],
    )
