"""Records become rows: all that they can have, in every codec, and nothing of what is not one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import (
    HEADER_SIZE_BYTES,
    Codec,
    Record,
    RecordHeader,
    build_batch,
    parse_header,
    seal_batch,
)
from engine.batches.codecs import compress
from spark_connectors.records.batches import LOG_APPEND_TIME_BIT, batches_of
from spark_connectors.records.decode import decode
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.source.options import COLUMNS, HEADERS
from spark_connectors.source.schema import arrow_schema

SCHEMA = arrow_schema((*COLUMNS, HEADERS))
BYTES = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(
        Record,
        BYTES,
        BYTES,
        st.integers(-(2**40), 2**40),
        st.lists(st.builds(RecordHeader, st.text(max_size=5).map(str.encode), BYTES), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def sealed(codec: int, records: list[Record], *, base_offset: int = 0, attributes: int = 0) -> bytearray:
    header = parse_header(memoryview(build_batch(records)))
    body = bytes(build_batch(records)[HEADER_SIZE_BYTES:])
    return seal_batch(
        compress(Codec(codec), body) if codec else body,
        record_count=len(records),
        base_offset=base_offset,
        leader_epoch=0,
        attributes=codec | attributes,
        timestamps_ms=(header.base_timestamp_ms, header.max_timestamp_ms),
        producer=(-1, -1, -1),
    )


def rows(
    data: bytes | bytearray, start: int = 0, end: int = 2**62, schema: pa.Schema = SCHEMA
) -> list[dict[str, object]]:
    batches = batches_of(data)
    found = decode(memoryview(data), batches, topic="t", partition=7, start=start, end=end, schema=schema)
    slices = list(found)
    assert all(one.schema.equals(schema) for one in slices)
    return [row for one in slices for row in one.cast(plain(schema)).to_pylist()]


def plain(schema: pa.Schema) -> pa.Schema:
    """With timestamps as numbers: those of Kafka are beyond what Python's dates can be."""
    return pa.schema([pa.field(one.name, pa.int64() if one.name == "timestamp" else one.type) for one in schema])


@given(RECORDS, st.integers(0, 4), st.integers(0, 2**60), st.booleans())
def test_a_record_becomes_a_row(records: list[Record], codec: int, base_offset: int, is_append_time: bool) -> None:
    attributes = LOG_APPEND_TIME_BIT if is_append_time else 0
    latest_ms = max(record.timestamp_ms for record in records)
    expected = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 7,
            "offset": base_offset + number,
            "timestamp": (latest_ms if is_append_time else record.timestamp_ms) * 1000,
            "timestampType": int(is_append_time),
            "headers": [{"key": key.decode(), "value": value} for key, value in record.headers] or None,
        }
        for number, record in enumerate(records)
    ]
    assert rows(sealed(codec, records, base_offset=base_offset, attributes=attributes)) == expected


def test_a_part_of_some_batches_and_some_columns() -> None:
    data = b"".join(sealed(0, [Record(value=b"v")] * 10, base_offset=base) for base in (0, 10, 30))
    schema = arrow_schema(["value", "offset"])
    assert [row["offset"] for row in rows(data, 5, 33, schema)] == [*range(5, 20), 30, 31, 32]
    assert rows(data, 20, 30, schema) == []


@given(RECORDS, st.data())
def test_a_lie_is_a_malformed_batch(records: list[Record], data: st.DataObject) -> None:
    body = build_batch(records)[HEADER_SIZE_BYTES:]
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    batch = seal_batch(
        body[: data.draw(st.integers(0, len(body)))],
        record_count=len(records),
        base_offset=0,
        leader_epoch=0,
        attributes=0,
        timestamps_ms=(0, 0),
        producer=(-1, -1, -1),
    )
    try:
        rows(batch)
    except MalformedBatch:
        return


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bytes_of_no_codec(codec: int) -> None:
    batch = seal_batch(
        b"this is none",
        record_count=1,
        base_offset=0,
        leader_epoch=0,
        attributes=codec,
        timestamps_ms=(0, 0),
        producer=(-1, -1, -1),
    )
    with pytest.raises(MalformedBatch):
        rows(batch)
