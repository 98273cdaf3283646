"""What tasks tell of the files that they have written, as far as formats want to know. Pure.

A Parquet file's metadata has all of it, and a task that has written one has that at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from spark_connectors.jobs.tables.errors import FileRefused

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.parquet")  # nothing to escape anywhere, nothing to be hidden
_TEXT_MAX: Final = 64  # characters of a bound; longer ones are of no use to readers


class Column(NamedTuple):
    """What is known of a column in all of a file; bounds are left out, as None, where they are not known."""

    nulls: int
    least: Any = None  # as Python has it
    greatest: Any = None


@dataclass(frozen=True)
class NewFile:
    path: str  # a name, in the table's data location
    rows: int
    size_bytes: int
    schema: pa.Schema
    columns: Mapping[str, Column] = field(default_factory=dict)  # those that hold no others


def new_file(path: str, metadata: Any, size_bytes: int) -> NewFile:
    """Of pyarrow's metadata of a Parquet file. Raises FileRefused for a name that is not a plain one."""
    if not _NAME.fullmatch(path):
        raise FileRefused(f"no name for a data file: {path!r}")
    schema = metadata.schema.to_arrow_schema()
    row_groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = {}
    leaf = 0
    for one in schema:
        if not types.is_nested(one.type):
            columns[one.name] = _column([row_group.column(leaf) for row_group in row_groups])
        leaf += _leaves(one.type)
    return NewFile(path, metadata.num_rows, size_bytes, schema, {name: one for name, one in columns.items() if one})


def _leaves(kind: pa.DataType) -> int:
    """How many columns of Parquet there are for one of a table: names do not tell, as `a.b` may be either's."""
    if types.is_nested(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _column(chunks: list[Any]) -> Column | None:
    """None: its nulls are not counted everywhere."""
    statistics = [chunk.statistics for chunk in chunks]
    if not all(one is not None and one.has_null_count for one in statistics):
        return None
    nulls = sum(one.null_count for one in statistics)
    filled = [one for one in statistics if one.num_values]
    if not filled or not all(one.has_min_max for one in filled):
        return Column(nulls)
    try:
        bounds = [(one.min, one.max) for one in filled]
    except OverflowError:  # Python has no year after 9999
        return Column(nulls)
    if not all(_is_bound(one) for pair in bounds for one in pair):
        return Column(nulls)
    return Column(nulls, min(least for least, _ in bounds), max(greatest for _, greatest in bounds))


def _is_bound(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _TEXT_MAX
    return isinstance(value, (int, date, datetime)) and not isinstance(value, bool)
