"""Facts about a file are those of its metadata, and no others."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_connectors.jobs.tables.errors import FileRefused
from spark_connectors.jobs.tables.facts import Column, NewFile, new_file

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("on", pa.date32()),
        ("text", pa.string()),
        ("value", pa.binary()),
        ("many", pa.list_(pa.int64())),
        ("empty", pa.int64()),
    ]
)


def file_of(rows: list[dict[str, Any]], **options: Any) -> NewFile:
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), out, **options)
    data = out.getvalue()
    return new_file("a.parquet", pq.read_metadata(pa.BufferReader(data)), data.size)


def row(number: int, **changed: Any) -> dict[str, Any]:
    return {"offset": number, "at": number, "on": number, "text": f"t{number}", "value": b"v", "many": [1], **changed}


def test_columns_over_all_row_groups() -> None:
    file = file_of([row(number) for number in (5, 9, 7, 1, 3)], row_group_size=2)
    assert file.rows == 5
    assert file.schema == SCHEMA
    assert file.columns["offset"] == Column(0, 1, 9)
    assert file.columns["text"] == Column(0, "t1", "t9")
    assert file.columns["on"] == Column(0, date(1970, 1, 2), date(1970, 1, 10))
    assert file.columns["empty"] == Column(5)
    at = file.columns["at"]
    assert (at.least, at.greatest) == (datetime.fromtimestamp(1e-6, UTC), datetime.fromtimestamp(9e-6, UTC))


def test_nulls_and_row_groups_of_nothing_else() -> None:
    file = file_of([row(1), row(2, offset=None), row(3, offset=None), row(4, offset=None)], row_group_size=2)
    assert file.columns["offset"] == Column(3, 1, 1)


def test_bounds_of_bytes_and_of_long_texts_are_not_told() -> None:
    file = file_of([row(1, text="x" * 1000)])
    assert file.columns["text"] == Column(0)
    assert file.columns["value"] == Column(0)
    assert "many" not in file.columns


def test_days_for_which_python_has_none_are_no_bounds() -> None:
    assert file_of([row(1), row(2, on=2**31 - 1)]).columns["on"] == Column(0)


def test_a_file_without_statistics_or_rows() -> None:
    assert file_of([row(1)], write_statistics=False).columns == {}
    assert file_of([]).rows == 0


@pytest.mark.parametrize("name", ["", "a", "../a.parquet", "b/a.parquet", "_a.parquet", ".a.parquet", "a b.parquet"])
def test_names_that_are_none(name: str) -> None:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), out)
    with pytest.raises(FileRefused, match="no name for a data file"):
        new_file(name, pq.read_metadata(pa.BufferReader(out.getvalue())), 1)
