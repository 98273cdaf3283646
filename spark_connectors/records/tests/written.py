"""Batches and rows of the engine, which the decoder's results are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from engine.batches.batch import Record, RecordHeader, build_batch, parse_header, seal_batch, walk_records
from engine.batches.codecs import compress, decompress
from engine.batches.keyed import keys_of
from spark_connectors.records.batches import batches_of
from spark_connectors.records.columns import COLUMNS, schema_of
from spark_connectors.records.decode import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.batches.batch import Codec

NOW_MS = 1_700_000_000_000
ALL = schema_of(COLUMNS)
EVERYTHING = 2**63 - 1
LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
DELETE_HORIZON = 1 << 6


class Row(NamedTuple):
    """A record as any decoder returns it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[RecordHeader, ...]


def batch(
    *records: Record,
    codec: Codec | int = 0,
    base_offset: int = 0,
    attributes: int = 0,
    kept: Sequence[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    max_timestamp_ms: int | None = None,
) -> bytes:
    """A batch; `kept` are the records that compaction has not removed."""
    plain = build_batch(records)
    header, body, left = parse_header(plain), bytes(plain[61:]), len(records)
    if kept is not None:
        found = keys_of(body, len(records))
        body, left = b"".join(body[found[index][3] : found[index][4]] for index in kept), len(kept)
    return sealed(
        body,
        left,
        codec=codec,
        base_offset=base_offset,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        timestamps_ms=(
            header.base_timestamp_ms,
            header.max_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        ),
        producer=producer,
    )


def sealed(
    body: bytes,
    count: int,
    *,
    codec: Codec | int = 0,
    base_offset: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    timestamps_ms: tuple[int, int] = (NOW_MS, NOW_MS),
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of any records section, with a right CRC."""
    return bytes(
        seal_batch(
            compress(codec, body) if codec else body,  # type: ignore[arg-type]
            record_count=count,
            base_offset=base_offset,
            leader_epoch=0,
            attributes=attributes | codec,
            timestamps_ms=timestamps_ms,
            producer=producer,
            last_offset_delta=last_offset_delta,
        )
    )


def rows_by_the_engine(buffer: bytes) -> list[Row]:
    """Rows of complete batches. Raises CorruptMessage."""
    rows = []
    position = 0
    while position < len(buffer):
        header = parse_header(buffer, position)
        body = decompress(header.codec_id, buffer[position + 61 : position + header.size_bytes])
        rows += [
            Row(header.base_offset + delta, key, value, timestamp_ms, int(header.is_log_append_time), headers)
            for key, value, timestamp_ms, headers, delta in walk_records(header, body)
        ]
        position += header.size_bytes
    return rows


def record_batches(
    buffer: bytes, *, start: int = 0, end: int = EVERYTHING, schema: pa.Schema = ALL
) -> list[pa.RecordBatch]:
    found = list(decode(buffer, batches_of(buffer), topic="orders", partition=7, start=start, end=end, schema=schema))
    for each in found:
        each.validate(full=True)
        assert each.num_rows > 0
    return found


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Rows of Arrow batches. A null timestamp does not fit into Spark's microseconds, and becomes 0."""
    return [row_of(each) for one in batches for each in with_plain_timestamps(one).to_pylist()]


def with_plain_timestamps(one: pa.RecordBatch) -> pa.RecordBatch:
    place = one.schema.get_field_index("timestamp")
    return one.set_column(place, "timestamp", one.column(place).cast(pa.int64()))


def row_of(columns: dict[str, Any]) -> Row:
    assert (columns["topic"], columns["partition"]) == ("orders", 7)
    headers = tuple(RecordHeader(each["key"].encode(), each["value"]) for each in columns["headers"] or ())
    assert columns["headers"] != []
    timestamp_us = columns["timestamp"] or 0
    assert timestamp_us % 1000 == 0
    return Row(
        columns["offset"],
        columns["key"],
        columns["value"],
        timestamp_us // 1000,
        columns["timestampType"],
        headers,
    )


def decoded(buffer: bytes, *, start: int = 0, end: int = EVERYTHING) -> list[Row]:
    return rows_of(record_batches(buffer, start=start, end=end))
