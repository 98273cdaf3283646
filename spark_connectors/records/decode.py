"""Decoding of record batches: from the bytes of a partition to Arrow RecordBatches of its rows.

Batches are decoded in groups of about 8 MiB or 64 Ki records, and returned in slices of 1-2 MiB, which suit the pipe to
the JVM. Splits are ranges of offsets: rows outside of the range are decoded with their batch and then dropped, so a
split within a batch gives each row to one side only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from spark_connectors.records.columns import COLUMNS, record_batch, schema_of
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.groups import groups_of
from spark_connectors.records.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from spark_connectors.records.batches import Batch, Bytes
    from spark_connectors.records.rows import Rows

ROWS_MAX: Final = 16 << 10  # of a slice
SLICE_BYTES: Final = 1 << 20  # of records; with the numeric columns, a slice has 1-2 MiB


def decode(
    buffer: Bytes,
    batches: Iterable[Batch],
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Rows with `start <= offset < end` of these batches, in order, with the columns of the schema.

    `batches` are the visible ones of `batches_of(buffer)`. The buffer must not change until all rows are read. Raises
    MalformedBatch, and ValueError for a schema with other columns than those of the kafka source.
    """
    if not schema.equals(schema_of(name for name in schema.names if name in COLUMNS)):
        raise ValueError(f"not columns of the kafka source: {schema}")
    wanted = (batch for batch in batches if batch.base_offset < end and batch.next_offset > start)
    next_offset = 0
    for group in groups_of(buffer, wanted):
        rows = rows_of(group, with_headers="headers" in schema.names)
        if rows.offsets[0] < next_offset:
            raise MalformedBatch("offsets of records do not ascend")
        next_offset = int(rows.offsets[-1]) + 1
        first, behind = np.searchsorted(rows.offsets, [start, end]).tolist()
        for part in _slices(rows, first, behind):
            yield record_batch(rows, part, topic, partition, schema)


def _slices(rows: Rows, begin: int, end: int) -> Iterator[slice]:
    """Slices of whole rows, at least one, up to SLICE_BYTES and ROWS_MAX."""
    while begin < end:
        reached = (rows.ends[begin - 1] if begin else 0) + SLICE_BYTES
        stop = min(end, begin + ROWS_MAX, max(begin + 1, int(np.searchsorted(rows.ends, reached, "right"))))
        yield slice(begin, stop)
        begin = stop
