"""Rows fit a table if names, types and nullability are the same, in any layout of Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_connectors.jobs.tables.errors import SchemaRefused
from spark_connectors.jobs.tables.schemas import check_fits, with_microseconds


def test_how_values_are_laid_out_does_not_matter() -> None:
    small = pa.schema(
        [("text", pa.string()), ("bytes", pa.binary()), ("many", pa.list_(pa.struct([("text", pa.string())])))]
    )
    large = pa.schema(
        [
            ("many", pa.large_list(pa.field("item", pa.struct([("text", pa.large_string())])))),
            ("bytes", pa.large_binary()),
            ("text", pa.large_string()),
        ]
    )
    check_fits(small, large)
    check_fits(large, small)


def test_schema_refusal_lists_every_mismatch() -> None:
    rows = pa.schema([("a", pa.int32()), ("b", pa.struct([("c", pa.list_(pa.int8()))])), ("d", pa.string())])
    table = pa.schema(
        [("a", pa.int64()), ("b", pa.struct([("c", pa.list_(pa.int16()))])), pa.field("e", pa.string(), nullable=False)]
    )
    with pytest.raises(SchemaRefused) as caught:
        check_fits(rows, table)
    assert str(caught.value).partition(": ")[2].split("; ") == [
        "the table has no column d",
        "column a is int32, and has to be int64",
        "column b.c.element is int8, and has to be int16",
        "column e is missing",
    ]


def test_times_have_one_unit_and_one_name_of_their_zone() -> None:
    made = with_microseconds(
        pa.schema(
            [
                pa.field("at", pa.timestamp("ms", "+00:00"), nullable=False),
                ("many", pa.list_(pa.timestamp("ns"))),
                ("one", pa.struct([("text", pa.large_string())])),
            ]
        )
    )
    assert made == pa.schema(
        [
            pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
            ("many", pa.list_(pa.field("element", pa.timestamp("us")))),
            ("one", pa.struct([("text", pa.string())])),
        ]
    )
    check_fits(pa.schema([("at", pa.timestamp("us", "Etc/UTC"))]), pa.schema([("at", pa.timestamp("us", "UTC"))]))
    with pytest.raises(SchemaRefused, match=r"column at is timestamp\[us\], and has to be timestamp\[us, tz=UTC\]"):
        check_fits(pa.schema([("at", pa.timestamp("us"))]), pa.schema([("at", pa.timestamp("us", "UTC"))]))
