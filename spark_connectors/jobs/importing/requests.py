"""Records of a source as plain batches that keep their offsets, and the requests that send them: pure.

Only committed records are copied, without markers, and compaction may have removed more. So that the target ends where
the source does, the last batch of each piece covers all offsets behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.records.plain import as_plain, reach, rebuilt, without_records
from spark_connectors.records.visible import visible
from spark_connectors.source.fetching import Piece

REQUEST_BYTES: Final = 4 << 20
REQUEST_MAX_BYTES: Final = 8 << 20  # of one batch, the maximum of a broker
REQUEST_BATCHES: Final = 1000  # half of a broker's maximum


class Plain(NamedTuple):
    """A batch that keeps its offsets. After its append, the log ends at `end`."""

    batch: bytearray
    records: int
    end: int


class Request(NamedTuple):
    """Batches of one request."""

    body: bytes
    batches: int
    records: int
    end: int


def plain_of(piece: Piece, log_end: int, *, begins: bool = False) -> Iterator[Plain]:
    """Committed records of a piece as plain batches, for a log that ends at `log_end`. `begins`: the log is empty, and
    begins where the piece does, even if there is no record. Raises MalformedBatch.
    """
    end = piece.batches[-1].next_offset
    seen = [one for one in visible(piece.batches, piece.aborted, is_committed_only=True) if one.records]
    reached = max(log_end, piece.start)
    if begins and seen and seen[0].base_offset > piece.start:
        reached = seen[0].base_offset
        yield Plain(without_records(piece.start, reached), 0, reached)
    for number, batch in enumerate(seen):
        if batch.base_offset < piece.start:  # the log begins within the batch
            for made in rebuilt(piece.records, batch, piece.start, keeps_time_type=True):
                reached = made.first_offset + made.records
                yield Plain(made.batch, made.records, reached)
        else:
            wanted_end = end if number == len(seen) - 1 else None
            reached = reach(batch, wanted_end)
            yield Plain(as_plain(piece.records, batch, wanted_end), batch.records, reached)
    if reached < end:
        yield Plain(without_records(reached, end), 0, end)


def requests_of(batches: Iterable[Plain]) -> Iterator[Request]:
    """Requests with these batches, in order. Raises ImportRefused for a batch that is too large for a request."""
    taken: list[Plain] = []
    size_bytes = 0
    for one in batches:
        if len(one.batch) > REQUEST_MAX_BYTES:
            told = f"a batch of {len(one.batch)} bytes, before offset {one.end},"
            raise ImportRefused(f"{told} does not fit into a request of {REQUEST_MAX_BYTES}")
        if taken and (len(taken) == REQUEST_BATCHES or size_bytes + len(one.batch) > REQUEST_BYTES):
            yield _request(taken)
            taken, size_bytes = [], 0
        taken.append(one)
        size_bytes += len(one.batch)
    if taken:
        yield _request(taken)


def _request(taken: list[Plain]) -> Request:
    return Request(b"".join(one.batch for one in taken), len(taken), sum(one.records for one in taken), taken[-1].end)
