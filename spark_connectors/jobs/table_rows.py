"""Rows of the kafka source as rows of a table, in one of two forms.

Raw: every row, with the columns of the source. JSON: the declared columns of the value, and the origin of the row. A
value that cannot be decoded makes a dead letter. A null value makes a dead letter too, or is skipped. Each row is in
the table, is a dead letter, or is skipped. A dead letter has all columns of the raw form, and the reason.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from spark_connectors.jobs.declared import Declared
from spark_connectors.jobs.digest import LOG_COLUMNS
from spark_connectors.jobs.json_values import NULL_VALUE, decode
from spark_connectors.records.columns import COLUMNS

_RAW_NAMES: Final = {"timestampType": "timestamp_type"}  # columns that are renamed
_RAW: Final = [(_RAW_NAMES.get(name, name), kind) for name, kind in COLUMNS.items()]
_ORIGIN: Final = {"_topic": "topic", "_partition": "partition", "_offset": "offset", "_timestamp": "timestamp"}
REASON: Final = "reason"
DEAD_LETTERS: Final = pa.schema([*_RAW, (REASON, pa.string())])
ORIGIN_COLUMNS: Final = tuple(_ORIGIN)  # names that no declared column may have


class Tombstones(StrEnum):
    """Treatment of rows without a value."""

    DEAD = "dead"
    SKIP = "skip"


class TableRows(NamedTuple):
    """Result of a batch: rows of the table, dead letters with the schema DEAD_LETTERS (None: there are none), and the
    number of skipped rows.
    """

    rows: pa.RecordBatch
    dead: pa.RecordBatch | None = None
    skipped: int = 0


class Form(Protocol):
    """Form of a table. `digested`: the columns that make the digest of its rows, in this order."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def digested(self) -> tuple[str, ...]: ...

    def table_rows(self, batch: pa.RecordBatch) -> TableRows:
        """Convert rows with all columns of the kafka source."""
        ...


class RawForm:
    """Raw rows. Their digest is that of the rows of the log."""

    schema: Final = pa.schema(_RAW)
    digested: Final = tuple(_RAW_NAMES.get(name, name) for name in LOG_COLUMNS)

    def table_rows(self, batch: pa.RecordBatch) -> TableRows:
        """Rename the columns. No row is left out."""
        return TableRows(pa.RecordBatch.from_arrays(_raw(batch), schema=self.schema))


class JsonForm:
    """Declared columns of JSON values. The digest is that of the table's rows, because JSON can write equal values in
    different ways.
    """

    def __init__(self, columns: Declared, tombstones: Tombstones = Tombstones.DEAD) -> None:
        """No column may have a name of ORIGIN_COLUMNS."""
        self._columns = columns
        self._is_skipping = tombstones is Tombstones.SKIP
        origin = [(name, COLUMNS[source]) for name, source in _ORIGIN.items()]
        self.schema: Final = pa.schema([*columns.table, *pa.schema(origin)])
        self.digested: Final = tuple(self.schema.names)

    def table_rows(self, batch: pa.RecordBatch) -> TableRows:
        """Decode the values. Dead letters are in the order of the batch."""
        decoded = decode(batch.column("value"), self._columns)
        origin = batch.select(list(_ORIGIN.values()))
        kept = origin if len(decoded.kept) == batch.num_rows else origin.take(pa.array(decoded.kept, pa.int64()))
        reasons = decoded.reasons
        if self._is_skipping:
            reasons = {index: reason for index, reason in reasons.items() if reason != NULL_VALUE}
        return TableRows(
            pa.RecordBatch.from_arrays([*decoded.rows.columns, *kept.columns], schema=self.schema),
            _dead(batch, reasons) if reasons else None,
            len(decoded.reasons) - len(reasons),
        )


def _dead(batch: pa.RecordBatch, reasons: dict[int, str]) -> pa.RecordBatch:
    indices = sorted(reasons)
    texts = pa.array([reasons[index] for index in indices], pa.string())
    rows = batch.take(pa.array(indices, pa.int64()))
    return pa.RecordBatch.from_arrays([*_raw(rows), texts], schema=DEAD_LETTERS)


def _raw(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in COLUMNS]
