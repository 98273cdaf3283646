"""What is only seen by looking at the records of a produced batch: that each of a compacted topic has a key. Pure.

As LogValidator.validateKey and processRecordErrors have it. Output is bounded: of what a batch unpacks to by the codec,
of errors by their number.
"""

from collections.abc import Callable, Sequence
from functools import partial

from engine.api import TopicPartition
from engine.batch import HEADER_SIZE_BYTES, BatchHeader
from engine.codecs import decompress
from engine.compaction import keys_of
from engine.errors import CorruptMessage, EngineError, InvalidRecord, RecordError, RecordsRefused

ERRORS_MAX = 1000  # told of one batch
ERRORS_SHOWN = 3  # in its message
LOOKED_AT_ONCE_MAX = 32  # records: some 20 us, less than a hand-over to a worker costs


def key_check(
    partition: TopicPartition, batch: memoryview, header: BatchHeader
) -> Callable[[], EngineError | None] | None:
    """What a worker is to find out about a batch: why it is refused. Few records are looked at right now (raises)."""
    check = partial(_look, f"{partition.topic}-{partition.partition}", batch, header)
    if header.codec_id or header.record_count > LOOKED_AT_ONCE_MAX:
        return check
    error = check()
    if error is not None:
        raise error
    return None


def _look(name: str, batch: memoryview, header: BatchHeader) -> EngineError | None:
    try:
        body = bytes(decompress(header.codec_id, batch[HEADER_SIZE_BYTES:]))
    except CorruptMessage as error:
        return error
    try:
        records = keys_of(body, header.record_count)
    except CorruptMessage as error:
        return InvalidRecord(str(error))
    errors = []
    for index, (delta, key, _, _, _) in enumerate(records):
        if delta != index:
            errors.append(RecordError(index, f"Record {index} of the batch has offset delta {delta}"))
        elif key is None:
            errors.append(
                RecordError(index, f"Compacted topic cannot accept message without key in topic partition {name}")
            )
    return _refusal(errors) if errors else None


def _refusal(errors: Sequence[RecordError]) -> RecordsRefused:
    shown = ", ".join(f"RecordError(batchIndex={one.number}, message='{one.message}')" for one in errors[:ERRORS_SHOWN])
    return RecordsRefused(
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors[:ERRORS_MAX],
    )
