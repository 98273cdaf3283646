"""Encoding of Arrow columns as record batches, without a Python object for each record.

The lengths of records, and so their positions, follow from the columns: numpy computes them for all records, and writes
lengths and deltas. One join of Arrow copies keys, values and headers between them. The batches have no producer until
`stamp` sets one. Layout: Kafka's DefaultRecordBatch and DefaultRecord.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from spark_connectors.records.batches import (
    ATTRIBUTES_POSITION,
    HEADER_FORMAT,
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_SIZE_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from spark_connectors.records.codecs import Codec, compress
from spark_connectors.records.errors import RecordTooLarge
from spark_connectors.records.varints import sizes_of, zigzag, zigzag_varints

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

BATCH_MAX_BYTES: Final = 1_000_000  # below the default limit of brokers, a little over a million (max.message.bytes)
RECORD_MAX_BYTES: Final = 1 << 20  # max.request.size of Kafka's producer, which includes the header of the batch
NONE_ID: Final = -1

_CRC_POSITION: Final = 17
_PRODUCER_FORMAT: Final = ">qhi"
_PRODUCER_POSITION: Final = 43
_ATTRIBUTES_BYTES: Final = 1


class Rows(NamedTuple):
    """Columns of records: Arrow arrays of the same length, and times in ms.

    `keys` and `values` are binary, `headers` are lists of structs of a string and a binary value; each may be null.
    """

    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    timestamps_ms: Integers


class Encoded(NamedTuple):
    """A batch, with rows of one group."""

    group: int
    records: int
    batch: bytearray


def encode(
    rows: Rows,
    *,
    codec: Codec = Codec.NONE,
    bytes_max: int = BATCH_MAX_BYTES,
    record_bytes_max: int = RECORD_MAX_BYTES,
    groups: Sequence[int] = (),
) -> list[Encoded]:
    """Batches of these rows, in order, each as large as possible below `bytes_max` before compression. A larger record
    has a batch of its own. `groups` are the rows at which the groups after the first one begin.

    Raises RecordTooLarge for a record above `record_bytes_max`, ValueError for a header that is null or has no key.
    """
    count = len(rows.keys)
    if not count:
        return []
    fields = _Fields(rows)
    times_ms = rows.timestamps_ms
    span_ms = int(times_ms.max()) - int(times_ms.min())
    most_bytes = fields.sizes + int(sizes_of(zigzag(np.array([span_ms, count]))).sum())
    most_bytes += sizes_of(zigzag(most_bytes))
    _check_sizes(most_bytes, record_bytes_max)
    starts = _starts(most_bytes, bytes_max, [0, *groups, count])
    firsts = np.array([first for _, first in starts])
    counts = np.diff(firsts, append=count)
    deltas = np.arange(count) - np.repeat(firsts, counts)
    base_times_ms = times_ms[firsts]
    body, ends = fields.joined(times_ms - np.repeat(base_times_ms, counts), deltas)
    edges = [0, *ends[firsts[1:] - 1].tolist(), int(ends[-1])]
    latest_ms = np.maximum.reduceat(times_ms, firsts)
    found = []
    for place, (group, _) in enumerate(starts):
        records = compress(codec, bytes(body[edges[place] : edges[place + 1]]))
        times = int(base_times_ms[place]), int(latest_ms[place])
        found.append(Encoded(group, int(counts[place]), _sealed(records, codec, int(counts[place]), times)))
    return found


def stamp(
    batch: bytes | bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool,
) -> bytearray:
    """A copy of the batch with this producer, epoch and sequence, and a new CRC."""
    stamped = bytearray(batch)
    struct.pack_into(_PRODUCER_FORMAT, stamped, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    (attributes,) = struct.unpack_from(">h", stamped, ATTRIBUTES_POSITION)
    attributes = attributes | TRANSACTIONAL_BIT if is_transactional else attributes & ~TRANSACTIONAL_BIT
    struct.pack_into(">h", stamped, ATTRIBUTES_POSITION, attributes)
    put_crc(stamped)
    return stamped


class _Fields:
    """Fields of records that do not depend on their batch."""

    def __init__(self, rows: Rows) -> None:
        self._key_lengths = _lengths(rows.keys)
        self._value_lengths = _lengths(rows.values)
        self._keys = rows.keys.fill_null(b"")
        self._values = rows.values.fill_null(b"")
        self._headers, header_sizes = _encoded_headers(rows.headers)
        self.sizes = _ATTRIBUTES_BYTES + header_sizes
        for lengths in (self._key_lengths, self._value_lengths):
            self.sizes += sizes_of(zigzag(lengths)) + np.maximum(lengths, 0)

    def joined(self, time_deltas_ms: Integers, offset_deltas: Integers) -> tuple[memoryview, Integers]:
        """All records, one after the other, and the position behind each."""
        sizes = self.sizes + sizes_of(zigzag(time_deltas_ms)) + sizes_of(zigzag(offset_deltas))
        attributes = np.zeros(len(sizes), np.int64)
        front = zigzag_varints(sizes, attributes, time_deltas_ms, offset_deltas, self._key_lengths)
        between = zigzag_varints(self._value_lengths)
        joined = pc.binary_join_element_wise(front, self._keys, between, self._values, self._headers, b"")
        _, offsets, data = joined.buffers()
        ends = np.frombuffer(offsets, np.int32, len(sizes) + 1)[1:].astype(np.int64)
        assert int(ends[-1]) == int((sizes + sizes_of(zigzag(sizes))).sum())
        return memoryview(data), ends


def _lengths(column: pa.Array) -> Integers:
    """Length of each value; -1 for null, as in records."""
    lengths: Integers = pc.binary_length(column).fill_null(-1).to_numpy().astype(np.int64)
    return lengths


def _encoded_headers(headers: pa.Array) -> tuple[pa.Array, Integers]:
    """Number and content of each record's headers, and their size."""
    counts = headers.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    every = headers.flatten()
    if not len(every):
        return pa.scalar(b"\0", pa.binary()), np.ones(len(headers), np.int64)
    keys, values = every.flatten()
    if keys.null_count:
        raise ValueError("a header of a record is null, or has no key")
    keys, plain = keys.cast(pa.binary()), values.fill_null(b"")
    each = pc.binary_join_element_wise(
        zigzag_varints(_lengths(keys)), keys, zigzag_varints(_lengths(values)), plain, b""
    )
    _, offsets, data = each.buffers()
    firsts = np.concatenate([[0], np.cumsum(counts)])
    edges = np.frombuffer(offsets, np.int32, len(every) + 1)[firsts]
    by_record = pa.Array.from_buffers(pa.binary(), len(headers), [None, pa.py_buffer(edges), data])
    return (
        pc.binary_join_element_wise(zigzag_varints(counts), by_record, b""),
        sizes_of(zigzag(counts)) + np.diff(edges),
    )


def _check_sizes(sizes: Integers, record_bytes_max: int) -> None:
    largest = HEADER_SIZE_BYTES + int(sizes.max())
    if largest > record_bytes_max:
        raise RecordTooLarge(largest, record_bytes_max)


def _starts(sizes: Integers, bytes_max: int, edges: Sequence[int]) -> list[tuple[int, int]]:
    """Group and first row of each batch; `edges` are the first rows of the groups, and the end."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    room = bytes_max - HEADER_SIZE_BYTES
    found = []
    for group, (start, end) in enumerate(pairwise(edges)):
        first = start
        while first < end:
            found.append((group, first))
            if ends[end] - ends[first] <= room:
                break
            first = max(first + 1, int(np.searchsorted(ends, ends[first] + room, "right")) - 1)
    return found


def _sealed(records: bytes, codec: Codec, count: int, times_ms: tuple[int, int]) -> bytearray:
    batch = bytearray(HEADER_SIZE_BYTES)
    batch += records
    length = len(batch) - LENGTH_PREFIX_SIZE_BYTES
    producer = (NONE_ID, NONE_ID, NONE_ID)
    fields = (0, length, NONE_ID, MAGIC, 0, int(codec), count - 1, *times_ms, *producer, count)
    struct.pack_into(HEADER_FORMAT, batch, 0, *fields)
    put_crc(batch)
    return batch


def put_crc(batch: bytearray) -> None:
    """Set the CRC for the current content of the batch."""
    with memoryview(batch) as view:
        struct.pack_into(">I", batch, _CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))
