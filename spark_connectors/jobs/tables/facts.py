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
    columns = {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name in schema.names:
            columns[name] = _column([metadata.row_group(one).column(index) for one in range(metadata.num_row_groups)])
    return NewFile(path, metadata.num_rows, size_bytes, schema, {name: one for name, one in columns.items() if one})


def _column(chunks: list[Any]) -> Column | None:
    """None: its nulls are not counted everywhere."""
    statistics = [chunk.statistics for chunk in chunks]
    if not all(one is not None and one.has_null_count for one in statistics):
        return None
    nulls = sum(one.null_count for one in statistics)
    filled = [one for one in statistics if one.num_values]
    if not filled or not all(one.has_min_max and _is_bound(one.min) and _is_bound(one.max) for one in filled):
        return Column(nulls)
    return Column(nulls, min(one.min for one in filled), max(one.max for one in filled))


def _is_bound(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _TEXT_MAX
    return isinstance(value, (int, date, datetime)) and not isinstance(value, bool)
