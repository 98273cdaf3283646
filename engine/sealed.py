"""Interface for readers of sealed segments that read files or objects themselves: which segments exist, and where.
Part of the public interface, beside `engine.api`.

The values are metadata, and may be outdated when they are used. docs/formats/sealed-segments.md tells what a reader has
to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

APART_BYTES = 8 * 1024 * 1024  # distance of the positions of a segment, and of the first one from its start


class Contents(NamedTuple):
    """Content of a segment's footer.

    `aborted`: (producer id, first offset, last offset) of each aborted transaction that touches the segment.
    `min_timestamp_ms`: -1 unless a broker's clock has set all timestamps.
    """

    records: int
    digest: bytes
    min_timestamp_ms: int
    aborted: Sequence[tuple[int, int, int]]


class SealedSegment(NamedTuple):
    """A sealed segment. `positions`: (base offset, position) of some batches.

    `path`, `contents`: None if only the remote tier has the segment.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    positions: Sequence[tuple[int, int]]
    path: str | None = None
    contents: Contents | None = None


class SealedLog(Protocol):
    """The sealed segments of a partition that this broker leads."""

    @property
    def sealed_end(self) -> int:
        """The offset up to which the log is in sealed segments, below the LSO and below the high watermark."""

    async def sealed_segments(self, from_offset: int, to_offset: int, count_max: int) -> Sequence[SealedSegment]:
        """The first `count_max` segments with offsets in [from_offset, to_offset), in ascending order. Raises
        StorageError, CorruptMessage, NotLeaderOrFollower, UnknownPartition."""
