"""Types of the kafka source's columns for Spark. They match those of the Arrow batches (`records.columns`)."""

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
    """DDL of these columns."""
    return ", ".join(f"`{name}` {_SPARK[name]}" for name in columns)
