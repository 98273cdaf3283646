"""Facts about written files, from tasks, for the formats of tables. Pure.

All of them are in the metadata of a Parquet file, which its writer has at hand.
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

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.parquet")  # no character to escape, and not hidden
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_TEXT_MAX: Final = 64  # characters of a bound; readers cannot use longer ones


class Column(NamedTuple):
    """Facts about a column in a whole file. Unknown bounds are None."""

    nulls: int
    least: Any = None  # a Python value
    greatest: Any = None


@dataclass(frozen=True)
class NewFile:
    path: str  # a file name in the table's data location
    rows: int
    size_bytes: int
    schema: pa.Schema
    columns: Mapping[str, Column] = field(default_factory=dict)  # columns without nested columns


def new_file(path: str, metadata: Any, size_bytes: int) -> NewFile:
    """Facts from pyarrow's metadata of a Parquet file. Raises FileRefused for a name that needs escapes."""
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
    """Number of Parquet columns of a table's column. Names do not show it, because `a.b` may be a name or a path."""
    if types.is_nested(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _column(kind: pa.DataType, chunks: list[Any]) -> Column | None:
    """Facts about a column; None if a row group does not count its nulls."""
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
    """A bound as a Python value, from Parquet's statistics; pyarrow would import pandas to convert it. None: it is left
    out.
    """
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
