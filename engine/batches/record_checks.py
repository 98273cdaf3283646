"""Record validation and recompression of a produced batch, which need its records and not only its header. Pure.

As in Kafka's LogValidator, each record of a compacted topic needs a key (validateKey, processRecordErrors), and a batch
in another codec than its topic's is recompressed (buildRecordsAndAssignOffsets). The records themselves do not change.
The output is bounded: the decompressed size by the codec, the new batch by the topic's limits, and the number of
errors.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from engine.api import Origin, TopicIdPartition
from engine.batches.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE_BYTES,
    RECORD_SIZE_MIN_BYTES,
    BatchHeader,
    Codec,
)
from engine.batches.codecs import compress, decompress
from engine.batches.keyed import keys_of, resealed
from engine.errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    RecordError,
    RecordListTooLarge,
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
    message_size_max_bytes: int
    segment_size_bytes: int
    has_gaps: bool = False  # batches may have gaps, after compaction

    @classmethod
    def of(cls, partition: TopicIdPartition, config: LogConfig) -> "RecordRules | None":
        """The rules of a topic; None: its records need no validation and no recompression."""
        codec = _CODECS[config.compression_type]
        if codec is None and not config.requires_keys and not config.index_keys:
            return None
        levels = {Codec.GZIP: config.gzip_level, Codec.LZ4: config.lz4_level, Codec.ZSTD: config.zstd_level}
        level = None if codec is None else levels.get(codec)
        name = f"{partition.topic}-{partition.partition}"
        sizes = config.max_message_size_bytes, config.segment_size_bytes
        return cls(name, config.requires_keys, config.requires_keys or config.index_keys, codec, level, *sizes)

    @property
    def for_append_at_offset(self) -> "RecordRules":
        """The rules for appends at offset, which store batches unchanged or refuse them."""
        return self._replace(codec=None, has_gaps=True)

    def validation(self, batch: memoryview, header: BatchHeader, origin: Origin = Origin.CLIENT) -> Validation | None:
        """The job for a worker; None: no job is needed. A few records are validated at once, which may raise."""
        if header.is_control:
            return None
        has_other_codec = self.codec is not None and header.codec_id != self.codec
        if not has_other_codec and (origin is not Origin.CLIENT or not self.reads_keys):
            return None
        validate = partial(self._validate, batch, header)
        if has_other_codec or header.codec_id or header.record_count > VALIDATED_AT_ONCE_MAX:
            return validate
        validate()
        return None

    def _validate(self, batch: memoryview, header: BatchHeader) -> memoryview | None:
        body = bytes(decompress(header.codec_id, batch[HEADER_SIZE_BYTES:]))
        if self.reads_keys:
            self._check_keys(body, header)
        if self.codec is None or header.codec_id == self.codec:
            return None
        return self._recompressed(body, header, self.codec)

    def _recompressed(self, body: bytes, header: BatchHeader, codec: Codec) -> memoryview:
        """Recompress the batch, and check its new size, as UnifiedLog.append does. Raises InvalidRecord,
        MessageTooLarge, RecordListTooLarge."""
        if header.record_count * RECORD_SIZE_MIN_BYTES > len(body):
            raise InvalidRecord(f"{header.record_count} records in {len(body)} bytes")
        packed = compress(codec, body, self.level)
        size_bytes = HEADER_SIZE_BYTES + len(packed)
        if size_bytes > self.message_size_max_bytes:
            batch = f"batch of {size_bytes} bytes once it is {codec.name.lower()}"
            raise MessageTooLarge(f"{batch}, at most {self.message_size_max_bytes} allowed")
        if size_bytes > self.segment_size_bytes:
            raise RecordListTooLarge(f"batch of {size_bytes} bytes in segments of {self.segment_size_bytes}")
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT) | codec
        timestamps_ms = header.base_timestamp_ms, header.max_timestamp_ms
        return memoryview(resealed(header, packed, header.record_count, attributes, timestamps_ms))

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


def _refusal(errors: Sequence[RecordError]) -> RecordsRefused:
    shown = ", ".join(f"RecordError(batchIndex={one.number}, message='{one.message}')" for one in errors[:ERRORS_SHOWN])
    return RecordsRefused(
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors[:ERRORS_MAX],
    )
