"""Rows as Arrow arrays: the columns of Spark's kafka source, by name and type.

Bytes are copied once, by a `take`: a BinaryArray covers the raw bytes, and its offsets make every other element a
wanted value, with the bytes between as the other elements. Nulls are those of the kafka source: keys, values, and
`headers` if there are none (KafkaRecordToRowConverter). Two cases differ, because they stop Spark's own source or
cannot be expressed in Arrow:

- a timestamp that does not fit into Spark's microseconds is null;
- a header key that is not UTF-8 is decoded as by Java's String, with U+FFFD for wrong bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_connectors.records.text import as_java_decodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from spark_connectors.records.fields import Spans
    from spark_connectors.records.headers import Headers
    from spark_connectors.records.rows import Rows
    from spark_connectors.records.starts import Integers

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
COLUMNS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}
_TIMESTAMP_MAX_MS: Final = (2**63 - 1) // 1000


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Schema of these columns, exactly as PySpark requires it. Raises KeyError for a column that the kafka source
    lacks.
    """
    return pa.schema([(name, COLUMNS[name]) for name in columns])


def record_batch(rows: Rows, part: slice, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """A part of the rows of a partition, with the columns of the schema."""
    data = pa.py_buffer(rows.raw)
    count = part.stop - part.start

    def array(name: str) -> pa.Array:
        match name:
            case "key":
                return _gathered(data, rows.keys, part)
            case "value":
                return _gathered(data, rows.values, part)
            case "topic":
                return _repeated(topic, count)
            case "partition":
                return _numbers(pa.int32(), np.full(count, partition, np.int32))
            case "offset":
                return _numbers(pa.int64(), rows.offsets[part])
            case "timestamp":
                return _timestamps(rows.timestamps_ms[part])
            case "timestampType":
                return _numbers(pa.int32(), rows.timestamp_types[part])
        assert rows.headers is not None
        return _headers(data, rows.headers, part)

    return pa.RecordBatch.from_arrays([array(name) for name in schema.names], schema=schema)


def _headers(data: pa.Buffer, headers: Headers, part: slice) -> pa.Array:
    firsts = headers.firsts[part.start : part.stop + 1]
    begin, end = int(firsts[0]), int(firsts[-1])
    if begin == end:
        return pa.nulls(part.stop - part.start, _HEADERS)
    keys = _text(_gathered(data, headers.keys, slice(begin, end)))
    values = _gathered(data, headers.values, slice(begin, end))
    pairs = pa.Array.from_buffers(_HEADER, end - begin, [None], children=[keys, values])
    offsets = pa.py_buffer((firsts - begin).astype(np.int32))
    validity = _validity(firsts[1:] > firsts[:-1])
    return pa.Array.from_buffers(_HEADERS, len(firsts) - 1, [validity, offsets], children=[pairs])


def _gathered(data: pa.Buffer, spans: Spans, part: slice) -> pa.Array:
    starts, lengths = spans.starts[part], spans.lengths[part]
    count = len(starts)
    edges = np.empty((count, 2), np.int32)
    edges[:, 0] = starts
    np.add(starts, np.maximum(lengths, 0), out=edges[:, 1], casting="unsafe")
    laid_over = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), data])
    wanted = laid_over.take(_numbers(pa.int64(), np.arange(0, 2 * count, 2)))
    if lengths.min() >= 0:
        return wanted
    _, offsets, octets = wanted.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [_validity(lengths >= 0), offsets, octets])


def _repeated(text: str, count: int) -> pa.Array:
    """Array of one text. It avoids pyarrow scalars: the first one in a process imports pandas, if that is installed."""
    octets = text.encode()
    edges = np.arange(count + 1, dtype=np.int32) * np.int32(len(octets))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(octets * count)])


def _numbers(kind: pa.DataType, numbers: npt.NDArray[Any], validity: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])


def _timestamps(timestamps_ms: Integers) -> pa.Array:
    fits = None
    if timestamps_ms.max() > _TIMESTAMP_MAX_MS or timestamps_ms.min() < -_TIMESTAMP_MAX_MS:
        is_fitting = (timestamps_ms <= _TIMESTAMP_MAX_MS) & (timestamps_ms >= -_TIMESTAMP_MAX_MS)
        fits, timestamps_ms = _validity(is_fitting), np.where(is_fitting, timestamps_ms, 0)
    return _numbers(_TIMESTAMP, timestamps_ms * 1000, fits)


def _validity(is_there: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(is_there, bitorder="little"))


def _text(octets: pa.Array) -> pa.Array:
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:  # some of them are not UTF-8
        return pa.array([as_java_decodes(each) for each in octets.to_pylist()], pa.string())
