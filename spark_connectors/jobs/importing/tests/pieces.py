"""Pieces of a log as from a Fetch, and their committed records."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import Marker, Outcome
from engine.batches.markers import build_marker
from spark_connectors.records.batches import batches_of
from spark_connectors.records.tests.test_plain import NOW_MS, batch_of
from spark_connectors.source.fetching import Piece
from testkit.logs import batches_in

PRODUCER = 1234  # the producer in batch_of

RecordRow = tuple[int, bytes | None, bytes | None]


def marker_at(offset: int, outcome: Outcome) -> bytes:
    made = build_marker(Marker(PRODUCER, 5, 0, outcome), NOW_MS)
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


def piece_of(start: int, *batches: bytes, aborted: Sequence[tuple[int, int]] = ()) -> Piece:
    data = b"".join(batches)
    return Piece(start, memoryview(data), batches_of(data), aborted)


def records_of(data: bytes) -> list[RecordRow]:
    """Offset, key and value of each record."""
    return [
        (header.base_offset + one.offset_delta, one.key, one.value)
        for header, records in batches_in(data)
        for one in records
    ]


PIECES = (
    piece_of(3, batch_of([0, 1, 2, 3, 4]), batch_of([5, 6]), marker_at(7, Outcome.COMMIT)),
    piece_of(8, batch_of([8, 9]), marker_at(10, Outcome.ABORT), aborted=[(PRODUCER, 8)]),
    piece_of(11, batch_of([11, 13, 17], end=20), batch_of([20, 21], attributes=0)),
    piece_of(22, batch_of([22, 23]), marker_at(24, Outcome.COMMIT), batch_of([30, 31]), marker_at(32, Outcome.COMMIT)),
)
VISIBLE = [3, 4, 5, 6, 11, 13, 17, 20, 21, 22, 23, 30, 31]
END = 33
