"""Values in JSON as declared columns, and the values that cannot be decoded.

`pyarrow.json` reads thousands of values at once, and fails for all of them if one is wrong. Then halves are tried, down
to single wrong values. So the result of a value does not depend on its neighbours.

This must hold although values are written one after the other, with a line feed between them. Each tried value begins
and ends with a brace, so that:
- no object continues in the next value: in JSON no `{` follows `}` and a line feed, and text has no line feed in it;
- each value has at least one object. If there are as many objects as values, each value has exactly one.

In fields that are not declared, more than JSON is accepted, as by rapidjson: `NaN` and the like. A declared field must
not occur twice in an object. Wrong UTF-8 anywhere in a value, and a byte 0, make the value wrong.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyarrow import types

from spark_connectors.jobs.declared import Declared

NULL_VALUE: Final = "null value"
NO_OBJECT: Final = "no JSON object"
_BLANKS: Final = " \t\r\n"
_TOGETHER_MAX_BYTES: Final = 8 << 20
_REASON_MAX_CHARACTERS: Final = 200
_IN_ROW: Final = " in row {}"
_NAMED_ROW: Final = re.compile(_IN_ROW.format(r"(\d+)$"))
_NAMED_MAX_ROWS: Final = 1024


class Decoded(NamedTuple):
    """Decoded values. `rows` are those of the indices `kept`, in order. `reasons` has the problem of each other value,
    by index.
    """

    rows: pa.RecordBatch
    kept: list[int]
    reasons: dict[int, str]


def decode(values: pa.Array, columns: Declared) -> Decoded:
    """Decode binary values to the columns of `columns.table`."""
    text = pc.ascii_trim(values.view(pa.string()), characters=_BLANKS)
    is_object = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    reasons = dict.fromkeys(_indices(values.is_null()), NULL_VALUE)
    reasons |= dict.fromkeys(_indices(pc.invert(is_object)), NO_OBJECT)
    tried = _indices(is_object)
    found, wrong = _decode(text.take(pa.array(tried, pa.int64())), columns)
    reasons |= {tried[index]: reason for index, reason in wrong.items()}
    kept = [index for index in tried if index not in reasons]
    return Decoded(pa.concat_batches([pa.RecordBatch.from_pylist([], columns.table), *found]), kept, reasons)


def _indices(mask: pa.Array) -> list[int]:
    found: list[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return found


def _decode(text: pa.Array, columns: Declared) -> tuple[list[pa.RecordBatch], dict[int, str]]:
    """Decoded rows in order, and the problem of each wrong value, by index."""
    found, wrong = [], {}
    untried = [(0, len(text))] if len(text) else []
    while untried:
        begin, end = untried.pop()
        part = text[begin:end]
        if len(part) > 1 and part.nbytes > _TOGETHER_MAX_BYTES:
            untried += _later_first(begin, (begin + end) // 2, end)
            continue
        try:
            found.append(_decoded(part, columns))
        except ValueError as error:
            if len(part) == 1:
                reason = str(error).removesuffix(_IN_ROW.format(0))
                wrong[begin] = f"{_column_of(part, columns, reason)}{reason}"[:_REASON_MAX_CHARACTERS]
            else:
                untried += _later_first(begin, *_cuts(begin, end, str(error)), end)
    return found, wrong


def _column_of(value: pa.Array, columns: Declared, reason: str) -> str:
    """The declared column that an error of pyarrow means, as the beginning of a reason; empty: it is not clear, or is
    named already. Errors have the text of the value, and not the name of the column; the longest text that they have is
    taken for that.
    """
    with suppress(ValueError, RecursionError):
        values = json.loads(value[0].as_py(), parse_int=str, parse_float=str)
        texts = {field.name: str(values.get(field.name)) for field in columns.read}
        quoted = sorted((len(text), name) for name, text in texts.items() if text and text in reason)
        if quoted and quoted[-1][1] not in reason:
            return f"{quoted[-1][1]}: "
    return ""


def _cuts(begin: int, end: int, reason: str) -> tuple[int, ...]:
    """Where to split values that failed: in the middle, or around the value that the error names.

    This saves most of the attempts, each of which takes a few hundred µs.
    """
    named = _NAMED_ROW.search(reason)
    if named is not None and int(named[1]) < end - begin <= _NAMED_MAX_ROWS:
        return begin + int(named[1]), begin + int(named[1]) + 1
    return ((begin + end) // 2,)


def _later_first(*edges: int) -> list[tuple[int, int]]:
    return [(first, last) for first, last in pairwise(edges) if first < last][::-1]


def _decoded(text: pa.Array, columns: Declared) -> pa.RecordBatch:
    """Decode values at once. Raises ValueError (ArrowInvalid is one) if at least one value is wrong."""
    text.validate(full=True)  # checks UTF-8
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text), "\n")[0].as_buffer()
    if b"\0" in memoryview(lines).tobytes():
        raise ValueError("a byte 0")
    table = arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=columns.read, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(text):
        raise ValueError("more than one JSON document")
    arrays = [_column(table.column(field.name).combine_chunks(), field) for field in columns.table]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.table)


def _column(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.null_count and not field.nullable:
        first = pc.index(array.is_null(), True).as_py()
        raise ValueError(f"{field.name} is null, or is not there{_IN_ROW.format(first)}")
    try:
        return _converted(array, field.type)
    except ValueError as error:
        raise ValueError(f"{field.name}: {error}") from error


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column from the type that was read to the type of the table. Raises ValueError."""
    if types.is_list(kind):
        elements = _converted(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, elements, type=kind, mask=array.is_null())
    if types.is_struct(kind):
        parts = [_converted(array.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if types.is_floating(kind) and not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise ValueError("a number that is not finite")
    if types.is_decimal(kind):
        array.validate(full=True)  # read_json checks the digits before it shifts them to the scale
    if types.is_binary(kind):
        return pa.array([None if one is None else b64decode(one, validate=True) for one in array.to_pylist()], kind)
    if types.is_timestamp(kind) and types.is_integer(array.type):
        array = array.cast(pa.timestamp("ms", kind.tz))
    return array.cast(kind)
