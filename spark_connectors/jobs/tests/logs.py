"""Rows of the kafka source for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from spark_connectors.records.columns import COLUMNS, schema_of

_TIME = datetime(2026, 11, 26, tzinfo=UTC)


def log_row(offset: int = 0, **columns: Any) -> dict[str, Any]:
    """A row by column, with default values."""
    row = {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 1,
        "offset": offset,
        "timestamp": _TIME + timedelta(milliseconds=offset),
        "timestampType": 0,
        "headers": None,
    }
    return row | columns


def log_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema_of(COLUMNS))


def batch_of_values(values: Sequence[bytes | None]) -> pa.RecordBatch:
    """A batch with one row for each value, from offset 0 on."""
    return log_batch([log_row(offset, value=value) for offset, value in enumerate(values)])
