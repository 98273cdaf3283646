"""The kafka source's columns as Spark is told of them; what Arrow carries is exactly that (`records.columns`)."""

from __future__ import annotations

from collections.abc import Iterable

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


def declared(columns: Iterable[str]) -> str:
    """As Spark reads it from a data source: DDL."""
    return ", ".join(f"`{name}` {_SPARK[name]}" for name in columns)
