"""Rows of the kafka source as rows of a table, in one of two forms.

Raw: every row, with the source's columns by names as tables have them. JSON: the value's declared columns, and where
the row comes from. Of these rows some are not in the table: those that cannot be decoded, each of which is a dead
letter, and those without a value, which are dead letters as well or are skipped. No row is in two of the three, or in
none. A dead letter has all that the raw form has, and why it is one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from spark_connectors.jobs.declared import Declared
from spark_connectors.jobs.digest import LOG_COLUMNS
from spark_connectors.jobs.json_values import NULL_VALUE, decode
from spark_connectors.records.columns import COLUMNS

_RAW_NAMES: Final = {"timestampType": "timestamp_type"}  # of columns that do not keep theirs
_RAW: Final = [(_RAW_NAMES.get(name, name), kind) for name, kind in COLUMNS.items()]
_ORIGIN: Final = {"_topic": "topic", "_partition": "partition", "_offset": "offset", "_timestamp": "timestamp"}
REASON: Final = "reason"
DEAD_LETTERS: Final = pa.schema([*_RAW, (REASON, pa.string())])
ORIGIN_COLUMNS: Final = tuple(_ORIGIN)  # which no declared column may be called


class Tombstones(StrEnum):
    """What becomes of rows without a value."""

    DEAD = "dead"
    SKIP = "skip"


class TableRows(NamedTuple):
    """What became of the rows of a batch: rows of the table; dead letters, of the schema DEAD_LETTERS, None: there are
    none; `skipped` says of how many nothing did."""

    rows: pa.RecordBatch
    dead: pa.RecordBatch | None = None
    skipped: int = 0


class Form(Protocol):
    """`schema` is the table's; `digested` says which of its columns make the digest of its rows, in which order."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def digested(self) -> tuple[str, ...]: ...

    def table_rows(self, batch: pa.RecordBatch) -> TableRows:
        """Of rows with all columns of the kafka source."""
        ...


class RawForm:
    """Its digest is that of the rows of the log."""

    schema: Final = pa.schema(_RAW)
    digested: Final = tuple(_RAW_NAMES.get(name, name) for name in LOG_COLUMNS)

    def table_rows(self, batch: pa.RecordBatch) -> TableRows:
        """None is left out."""
        return TableRows(pa.RecordBatch.from_arrays(_raw(batch), schema=self.schema))


class JsonForm:
    """Its digest is that of the table's rows alone: what it was made of can say otherwise that which is the same."""

    def __init__(self, columns: Declared, tombstones: Tombstones = Tombstones.DEAD) -> None:
        """None of the columns has a name of ORIGIN_COLUMNS."""
        self._columns = columns
        self._is_skipping = tombstones is Tombstones.SKIP
        origin = [(name, COLUMNS[source]) for name, source in _ORIGIN.items()]
        self.schema: Final = pa.schema([*columns.table, *pa.schema(origin)])
        self.digested: Final = tuple(self.schema.names)

    def table_rows(self, batch: pa.RecordBatch) -> TableRows:
        """Those that are left out are in the order of the batch."""
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
