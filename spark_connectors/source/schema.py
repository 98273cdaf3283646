"""The kafka source's columns: as Spark declares them and as Arrow carries them, which must be exactly the same."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
_SPARK = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """What a task gives out."""
    return pa.schema([pa.field(name, _ARROW[name]) for name in columns])


def declared(columns: Iterable[str]) -> str:
    """As Spark reads it from a data source: DDL."""
    return ", ".join(f"`{name}` {_SPARK[name]}" for name in columns)
