"""Columns of Spark's kafka sink, and pieces of rows of a useful size."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.sink.columns import HEADERS_TYPE, byte_sizes, check_columns, in_pieces, rows_of
from spark_connectors.sink.errors import ColumnsRefused, RowRefused

ALL = {"topic": "string", "key": "binary", "value": "string", "headers": HEADERS_TYPE, "partition": "int"}


def test_columns_that_are_taken() -> None:
    check_columns(ALL, None)
    check_columns({"value": "binary"}, "t")
    check_columns({"value": "string collate UTF8_LCASE", "key": "string", "more": "double"}, "t")
    check_columns(ALL | {"topic": "int"}, "t")  # the option has the topic, so the column is ignored


@pytest.mark.parametrize(
    ("types", "topic", "message"),
    [
        ({"value": "string"}, None, "topic option required when no 'topic' attribute is present."),
        ({"key": "string"}, "t", "Required attribute 'value' not found"),
        ({"Value": "string"}, "t", "Required attribute 'value' not found"),
        (ALL | {"value": "int"}, None, "value attribute unsupported type int. value must be a(n) string or binary"),
        (ALL | {"key": "bigint"}, None, "key attribute unsupported type bigint. key must be a(n) string or binary"),
        (ALL | {"topic": "binary"}, None, "topic attribute unsupported type binary. topic must be a(n) string"),
        (
            ALL | {"partition": "bigint"},
            None,
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (ALL | {"headers": "array<string>"}, None, f"headers must be a(n) {HEADERS_TYPE}"),
    ],
)
def test_columns_that_are_refused(types: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(ColumnsRefused, match=re.escape(message)):
        check_columns(types, topic)


def test_rows_of_text_and_of_bytes_are_the_same() -> None:
    headers = [[{"key": "h", "value": b"1"}], None]
    data = {"topic": ["a", "b"], "key": ["k", None], "value": ["v", "ü"], "partition": [None, 3], "headers": headers}
    rows = rows_of(pa.RecordBatch.from_pydict(data), None)
    assert rows.topics.to_pylist() == ["a", "b"]
    assert rows.keys.to_pylist() == [b"k", None]
    assert rows.values.to_pylist() == [b"v", "ü".encode()]
    assert rows.partitions.to_pylist() == [None, 3]
    assert rows.headers.to_pylist() == headers
    large = pa.array(["v", "ü"], pa.large_string())
    assert rows_of(pa.RecordBatch.from_arrays([large], ["value"]), "t").values.equals(rows.values)
    binary = pa.array([b"v", "ü".encode()], pa.large_binary())
    assert rows_of(pa.RecordBatch.from_arrays([binary], ["value"]), "t").values.equals(rows.values)


def test_columns_that_are_not_there_are_null() -> None:
    rows = rows_of(pa.RecordBatch.from_pydict({"value": [b"v"], "timestamp": [1]}), "t")
    assert [column.to_pylist() for column in rows] == [["t"], [None], [b"v"], [None], [None]]


def test_a_null_topic() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"v", b"w"], "topic": ["t", None]})
    with pytest.raises(RowRefused, match="null topic present in the data"):
        rows_of(batch, None)
    assert rows_of(batch, "u").topics.to_pylist() == ["u", "u"]


def test_byte_sizes() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["1234", None, ""], "key": [None, "12", "345"]})
    assert byte_sizes(rows_of(batch, "t")).to_pylist() == [4, 2, 3]


@given(st.lists(st.lists(st.integers(0, 50), max_size=8), max_size=8), st.integers(1, 200))
def test_pieces_have_the_same_rows(sizes: list[list[int]], piece_bytes: int) -> None:
    schema = pa.schema([("value", pa.binary())])
    batches = [pa.RecordBatch.from_arrays([pa.array([b"v" * one for one in some], pa.binary())], schema=schema)
               for some in sizes]  # fmt: skip
    pieces = list(in_pieces(iter(batches), piece_bytes))
    assert [len(value) for piece in pieces for value in piece.column(0).to_pylist()] == [
        one for some in sizes for one in some
    ]
    for piece in pieces[:-1]:
        assert piece.nbytes >= piece_bytes / 2
    for piece in pieces:
        assert piece.num_rows == 1 or piece.nbytes < 2 * piece_bytes + 60
