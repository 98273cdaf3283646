from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark_connectors.jobs.dictionaries import with_dictionary
from spark_connectors.jobs.files import FileWriter

ROWS: Final = 10_000
NESTED: Final = pa.struct([("at.home", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))])


def table_of(values: list[object], kind: pa.DataType) -> pa.Table:
    return pa.table({"column": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("values", "repeats"),
    [
        ([7] * ROWS, True),
        ([None] * ROWS, True),
        ([number % 1000 for number in range(ROWS)], True),
        (list(range(ROWS)), False),
        ([*range(ROWS - 100), *range(100)], False),
    ],
    ids=["one", "null", "a thousand", "all different", "nearly all different"],
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_values_that_repeat_have_a_dictionary(values: list[object], kind: pa.DataType, repeats: bool) -> None:
    if kind == pa.string():
        values = [None if one is None else str(one) for one in values]
    assert with_dictionary(table_of(values, kind)) == (["column"] if repeats else [])


def test_only_the_first_rows_are_looked_at() -> None:
    values: list[object] = [*[1] * 16_384, *range(50_000)]
    assert with_dictionary(table_of(values, pa.int64())) == ["column"]


def test_parts_of_lists_and_structs_have_one_by_the_names_that_parquet_has(tmp_path: Path) -> None:
    rows = pa.table({"a.b": [{"at.home": [{"key": "k", "value": b"v"}]}] * 3}, pa.schema([("a.b", NESTED)]))
    writer = FileWriter(rows.schema, str(tmp_path), lambda _: "one.parquet")
    writer.add(rows.to_batches()[0])
    writer.finish()
    row_group = parquet.read_metadata(tmp_path / "one.parquet").row_group(0)
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    assert with_dictionary(rows) == [one.path_in_schema for one in columns]
    assert all("RLE_DICTIONARY" in one.encodings for one in columns)
