"""Check whether rows of one schema fit another. Pure.

Names and types have to be equal. Arrow's layouts of a type do not count, and no Parquet file has them: a string is a
string, and a list is a list, whether its offsets have 32 or 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_connectors.jobs.tables.errors import SchemaRefused


def check_fits(rows: pa.Schema, table: pa.Schema) -> None:
    """Raises SchemaRefused with all differences."""
    wrong = list(_misfits(rows, table, ""))
    if wrong:
        raise SchemaRefused(f"rows do not fit the table: {'; '.join(wrong)}")


def plain(kind: pa.DataType) -> pa.DataType:
    """The type in its plain layout, which is the same for all types with the same values."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz in ("+00:00", "Etc/UTC"):
        return pa.timestamp(kind.unit, "UTC")
    return kind


def with_microseconds(schema: pa.Schema) -> pa.Schema:
    """The schema with plain types and times in microseconds, which is the unit of the tables' formats."""
    return pa.schema([pa.field(one.name, _in_microseconds(one.type), one.nullable) for one in schema])


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    kind = plain(kind)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _in_microseconds(one.type), one.nullable) for one in _children(kind)])
    if _is_list(kind):
        inner = kind.value_field
        return pa.list_(pa.field("element", _in_microseconds(inner.type), inner.nullable))
    return kind


def _misfits(rows: Iterable[pa.Field], table: Iterable[pa.Field], within: str) -> Iterator[str]:
    offered = {one.name: one for one in rows}
    wanted = {one.name: one for one in table}
    for name in sorted(offered.keys() - wanted.keys()):
        yield f"the table has no column {within}{name}"
    for name, field in wanted.items():
        if name not in offered:
            if not field.nullable:
                yield f"column {within}{name} is missing"
        else:
            yield from _misfit(offered[name], field, f"{within}{name}")


def _misfit(offered: pa.Field, wanted: pa.Field, name: str) -> Iterator[str]:
    ours, theirs = plain(offered.type), plain(wanted.type)
    if offered.nullable and not wanted.nullable:
        yield f"column {name} may be null, and must not be"
    if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
        yield from _misfits(_children(ours), _children(theirs), f"{name}.")
    elif _is_list(ours) and _is_list(theirs):
        yield from _misfit(ours.value_field, theirs.value_field, f"{name}.element")
    elif ours != theirs:
        yield f"column {name} is {ours}, and has to be {theirs}"


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
