"""Which columns of a Parquet file have a dictionary, by the rows that come first. Pure.

Where values repeat, it makes a file smaller. Where they do not, it costs a tenth of the CPU of an export, and a larger
file: a writer gives up a dictionary when it is full, and all that was in it stays in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_LOOKED_AT: Final = 16 << 10  # rows
_DISTINCT_MAX: Final = (
    0.9  # of their values: of 80,000 that are equally frequent, which fill any dictionary, it is that
)


def with_dictionary(rows: pa.Table) -> list[str]:
    """Paths of columns as Parquet has them. Those in lists and structs keep theirs, and are not looked at."""
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
