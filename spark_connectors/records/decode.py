"""Records as rows, one after the other: each is a length, and then what it says it is made of.

Layout: Kafka's DefaultRecord. Timestamps are relative to the batch's base, unless the log's own count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from spark_connectors.records.batches import Batch, body_of
from spark_connectors.records.errors import MalformedBatch

ROWS_MAX: Final = 16_384  # of a slice
VARINT_BYTES_MAX: Final = 10
MICROSECONDS: Final = 1000  # of a millisecond: Spark's timestamps
TIMESTAMP_MAX_MS: Final = 2**63 // MICROSECONDS - 1


def decode(
    buffer: memoryview,
    batches: Sequence[Batch],
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Rows of the records from `start` to before `end`, with the columns of `schema`. Raises MalformedBatch."""
    constant = {"topic": topic, "partition": partition}
    rows = (row | constant for batch in batches for row in _rows(buffer, batch) if start <= row["offset"] < end)
    while some := list(islice(rows, ROWS_MAX)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _rows(buffer: memoryview, batch: Batch) -> Iterator[dict[str, Any]]:
    body = _Body(bytes(body_of(buffer, batch)))
    for _ in range(batch.records):
        size_bytes = body.varint()
        end = body.position + size_bytes
        body.take(1)  # attributes, of which there are none
        timestamp_ms = batch.base_timestamp_ms + body.varint()
        if batch.is_log_append_time:
            timestamp_ms = batch.max_timestamp_ms
        delta = body.varint()
        row = {
            "offset": batch.base_offset + delta,
            "timestamp": timestamp_ms * MICROSECONDS,
            "timestampType": int(batch.is_log_append_time),
            "key": body.sized(),
            "value": body.sized(),
            "headers": body.headers() or None,
        }
        is_possible = abs(timestamp_ms) <= TIMESTAMP_MAX_MS and 0 <= delta <= batch.last_offset_delta
        if body.position != end or not is_possible:
            raise MalformedBatch(f"a record of the batch at offset {batch.base_offset} contradicts itself")
        yield row


class _Body:
    """A place in a records section."""

    def __init__(self, data: bytes) -> None:
        self.position = 0
        self._data = data

    def take(self, size_bytes: int) -> bytes:
        if not 0 <= size_bytes <= len(self._data) - self.position:
            raise MalformedBatch(f"a record ends behind its batch: {size_bytes} bytes at {self.position}")
        self.position += size_bytes
        return self._data[self.position - size_bytes : self.position]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
        raise MalformedBatch(f"a varint that does not end, at {self.position}")

    def sized(self) -> bytes | None:
        size_bytes = self.varint()
        return None if size_bytes == -1 else self.take(size_bytes)

    def headers(self) -> list[dict[str, Any]]:
        return [self._header() for _ in range(self._count())]

    def _count(self) -> int:
        count = self.varint()
        if not 0 <= count <= len(self._data) - self.position:
            raise MalformedBatch(f"{count} headers at {self.position}")
        return count

    def _header(self) -> dict[str, Any]:
        key = self.sized()
        try:
            name = (key or b"").decode()
        except UnicodeDecodeError as error:
            raise MalformedBatch(f"a header whose key is no UTF-8: {error}") from None
        if key is None:
            raise MalformedBatch("a header without a key")
        return {"key": name, "value": self.sized()}
