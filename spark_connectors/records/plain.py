"""Batches of another log as plain batches, without transaction and producer.

Most batches are copied, with new header fields and a new CRC, so compressed records stay compressed. If that is not
possible, their records are put into new batches without gaps.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_connectors.records.batches import (
    ATTRIBUTES_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_FORMAT,
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from spark_connectors.records.columns import schema_of
from spark_connectors.records.decode import decode
from spark_connectors.records.encode import BATCH_MAX_BYTES, NONE_ID, Rows, encode, put_crc
from spark_connectors.records.errors import MalformedBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connectors.records.batches import Batch

DELTA_MAX: Final = 2**31 - 2  # of the last offset, so that the batch fits into a segment of any log
_NO_TIME: Final = -1
_ANY_SIZE: Final = 2**31 - 1  # of a record: another broker accepted it
_LAST_DELTA_POSITION: Final = 23
_PRODUCER_POSITION: Final = 43
_SCHEMA: Final = ("key", "value", "offset", "timestamp", "headers")


class Dense(NamedTuple):
    """A batch without gaps, and the original offset of its first record."""

    first_offset: int
    records: int
    batch: bytearray


def is_dense(batch: Batch) -> bool:
    """Whether a producer can send the batch like this: it has no gaps, and no broker has set its time."""
    others = batch.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
    return batch.records == batch.last_offset_delta + 1 and not others


def reach(batch: Batch, end: int | None) -> int:
    """The offset up to which the batch can cover the offsets behind it: `end`, or only its own end."""
    if end is not None and batch.next_offset < end <= batch.base_offset + DELTA_MAX:
        return end
    return batch.next_offset


def as_plain(view: memoryview, batch: Batch, end: int | None = None) -> bytearray:
    """A copy of the batch as a plain one, with its offsets. It also covers the offsets up to its `reach` of `end`."""
    copied = bytearray(view[batch.position : batch.end])
    struct.pack_into(">h", copied, ATTRIBUTES_POSITION, batch.attributes & ~TRANSACTIONAL_BIT)
    struct.pack_into(">qhi", copied, _PRODUCER_POSITION, NONE_ID, NONE_ID, NONE_ID)
    struct.pack_into(">i", copied, _LAST_DELTA_POSITION, reach(batch, end) - 1 - batch.base_offset)
    put_crc(copied)
    return copied


def without_records(start: int, end: int) -> bytearray:
    """A batch without records that covers the offsets; only the last ones if they are very many."""
    start = max(start, end - DELTA_MAX)
    length = HEADER_SIZE_BYTES - LENGTH_PREFIX_SIZE_BYTES
    fields = (0, end - 1 - start, _NO_TIME, _NO_TIME, NONE_ID, NONE_ID, NONE_ID, 0)
    made = bytearray(struct.pack(HEADER_FORMAT, start, length, NONE_ID, MAGIC, 0, *fields))
    put_crc(made)
    return made


def rebuilt(view: memoryview, batch: Batch, start: int, *, keeps_time_type: bool) -> Iterator[Dense]:
    """Records of a batch from `start` on, in batches without gaps, with the same codec. Timestamps stay; the timestamp
    type stays if `keeps_time_type`. Raises MalformedBatch.
    """
    for rows in decode(
        view, [batch], topic="", partition=0, start=start, end=batch.next_offset, schema=schema_of(_SCHEMA)
    ):
        offsets = rows["offset"].to_numpy()
        breaks = (np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()
        first = 0
        for one in encode(
            _records(rows), codec=batch.codec, bytes_max=BATCH_MAX_BYTES, record_bytes_max=_ANY_SIZE, groups=breaks
        ):
            made = one.batch
            struct.pack_into(">q", made, 0, int(offsets[first]))
            if keeps_time_type and batch.is_log_append_time:
                struct.pack_into(">h", made, ATTRIBUTES_POSITION, int(batch.codec) | LOG_APPEND_TIME_BIT)
                put_crc(made)
            yield Dense(int(offsets[first]), one.records, made)
            first += one.records


def _records(rows: pa.RecordBatch) -> Rows:
    times = rows["timestamp"]
    if times.null_count:
        raise MalformedBatch("a time that does not fit into microseconds")
    timestamps_ms = times.cast(pa.int64()).to_numpy() // 1000
    return Rows(rows["key"], rows["value"], rows["headers"], timestamps_ms)
