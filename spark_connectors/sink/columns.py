"""Columns of a row that make its record: those of Spark's kafka sink, with its names, types and messages.

`value` is required, and `topic` too unless an option gives it; `key`, `headers` and `partition` are optional. Other
columns are ignored, so rows of one topic can be written to another as they are (KafkaWriter, KafkaRowWriter).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.records.columns import COLUMNS
from spark_connectors.sink.errors import ColumnsRefused, RowRefused

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
}
PIECE_BYTES: Final = 16 << 20  # of rows that are encoded together


class SinkRows(NamedTuple):
    """Arrow arrays of the same length: text; binary (keys); binary (values); lists of structs of text and binary;
    int32.
    """

    topics: pa.Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    partitions: pa.Array


def check_columns(types: Mapping[str, str], topic: str | None) -> None:
    """Check the columns. `types` are Spark's simple strings by column, `topic` is the value of the option. Raises
    ColumnsRefused.
    """
    if topic is None and "topic" not in types:
        raise ColumnsRefused(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise ColumnsRefused("Required attribute 'value' not found")
    for name, allowed in _TYPES.items():
        if name not in types or (name == "topic" and topic is not None):
            continue
        found = types[name]
        if found.partition(" ")[0] not in allowed:  # the type of a string may be followed by its collation
            raise ColumnsRefused(
                f"{name} attribute unsupported type {found}. {name} must be a(n) {' or '.join(allowed)}"
            )


def rows_of(batch: pa.RecordBatch, topic: str | None) -> SinkRows:
    """Columns of the rows. Raises RowRefused for a row without a topic."""
    count = batch.num_rows
    if topic is not None:
        topics = pa.repeat(pa.scalar(topic, pa.string()), count)
    else:
        topics = batch.column("topic").cast(pa.string())
        if topics.null_count:
            raise RowRefused("null topic present in the data. Use the `topic` option for setting a topic.")
    return SinkRows(
        topics,
        *(_column(batch, name) for name in ("key", "value", "headers", "partition")),
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column in the type of the kafka source; nulls if it is missing."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, COLUMNS[name])
    return batch.column(name).cast(COLUMNS[name])


def in_pieces(batches: Iterator[pa.RecordBatch], piece_bytes: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Regroup the rows to pieces of about `piece_bytes`: small batches are joined, a large one is split."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        for part in _split(batch, piece_bytes):
            waiting.append(part)
            waiting_bytes += part.nbytes
            if waiting_bytes >= piece_bytes:
                yield pa.concat_batches(waiting)
                waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _split(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or batch.nbytes <= piece_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half), piece_bytes)
    yield from _split(batch.slice(half), piece_bytes)


def byte_sizes(rows: SinkRows) -> pa.Array:
    """Size of key and value of each row, in bytes; null counts 0."""
    lengths = [pc.fill_null(pc.binary_length(column), 0).cast(pa.int64()) for column in (rows.keys, rows.values)]
    return pc.add(*lengths)
