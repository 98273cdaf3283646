"""Columns of a Parquet file that get a dictionary, by the first rows. Pure.

If values repeat, a dictionary makes a file smaller. Otherwise it costs a tenth of the CPU of an export, and a larger
file: a writer gives up a dictionary when it is full, and its content stays in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_LOOKED_AT: Final = 16 << 10  # first rows that are examined
_DISTINCT_MAX: Final = 0.9  # of the values: 80,000 equally frequent values, which fill any dictionary, have this share


def with_dictionary(rows: pa.Table) -> list[str]:
    """Parquet paths of the columns with a dictionary. Columns within lists and structs always have one."""
    first = rows.slice(0, _LOOKED_AT)
    return [
        path
        for field, column in zip(first.schema, first.columns, strict=True)
        if types.is_nested(field.type) or _repeats(column)
        for path in _paths(field.name, field.type)
    ]


def _repeats(values: pa.ChunkedArray) -> bool:
    return len(pc.unique(values)) <= _DISTINCT_MAX * len(values)


def _paths(name: str, kind: pa.DataType) -> Iterator[str]:
    if types.is_struct(kind):
        for field in kind:
            yield from _paths(f"{name}.{field.name}", field.type)
    elif types.is_list(kind):
        yield from _paths(f"{name}.list.element", kind.value_type)
    else:
        yield name
