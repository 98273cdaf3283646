"""The engine's face to who reads sealed segments elsewhere, without asking for records: what there is, and where.
Part of the public face, beside `engine.api`.

What is told is metadata, and may be old when it is read: docs/formats/sealed-segments.md says what a reader has to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

APART_BYTES = 8 * 1024 * 1024  # positions of a segment, and the first from its start


class Contents(NamedTuple):
    """What the footer of a segment says; `aborted`: producer id, first and last offset of each transaction that was
    aborted and touches it. `min_timestamp_ms`: -1 unless a broker's clock has set the times of all."""

    records: int
    digest: bytes
    min_timestamp_ms: int
    aborted: Sequence[tuple[int, int, int]]


class SealedSegment(NamedTuple):
    """`positions`: (base offset, position) of some batches. Where a remote tier alone has it there is neither a path,
    nor are its contents known here."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    positions: Sequence[tuple[int, int]]
    path: str | None = None
    contents: Contents | None = None


class SealedLog(Protocol):
    """One partition, led by this broker."""

    @property
    def sealed_end(self) -> int:
        """Up to where all of the log is in sealed segments, is stable, and has been seen by all replicas in sync."""

    async def sealed_segments(self, from_offset: int, to_offset: int, count_max: int) -> Sequence[SealedSegment]:
        """Those with offsets in [from_offset, to_offset), ascending, and not more than that. Raises StorageError,
        CorruptMessage, NotLeaderOrFollower, UnknownPartition."""
