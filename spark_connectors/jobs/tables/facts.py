"""What tasks tell of the files that they have written, as far as formats want to know. Pure.

A Parquet file's metadata has all of it, and a task that has written one has that at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from spark_connectors.jobs.tables.errors import FileRefused

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.parquet")  # nothing to escape anywhere, nothing to be hidden
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
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
            columns[one.name] = _column(one.type, [row_group.column(leaf) for row_group in row_groups])
        leaf += _leaves(one.type)
    return NewFile(path, metadata.num_rows, size_bytes, schema, {name: one for name, one in columns.items() if one})


def _leaves(kind: pa.DataType) -> int:
    """How many columns of Parquet there are for one of a table: names do not tell, as `a.b` may be either's."""
    if types.is_nested(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _column(kind: pa.DataType, chunks: list[Any]) -> Column | None:
    """None: its nulls are not counted everywhere."""
    statistics = [chunk.statistics for chunk in chunks]
    if not all(one is not None and one.has_null_count for one in statistics):
        return None
    nulls = sum(one.null_count for one in statistics)
    filled = [one for one in statistics if one.num_values]
    if not filled or not all(one.has_min_max for one in filled):
        return Column(nulls)
    least, greatest = min(one.min_raw for one in filled), max(one.max_raw for one in filled)
    bounds = _bound(kind, least), _bound(kind, greatest)
    return Column(nulls) if None in bounds else Column(nulls, *bounds)


def _bound(kind: pa.DataType, raw: Any) -> Any:
    """As Python has it, of how Parquet has it; pyarrow would import pandas for that. None: nobody is told."""
    try:
        if types.is_signed_integer(kind):
            return raw
        if types.is_string(kind):
            text = raw.decode()
            return text if len(text) <= _TEXT_MAX else None
        if types.is_date32(kind):
            return _EPOCH.date() + timedelta(days=raw)
        if kind == _TIMESTAMP:
            return _EPOCH + timedelta(microseconds=raw)
    except OverflowError:  # Python has no year after 9999
        return None
    return None
