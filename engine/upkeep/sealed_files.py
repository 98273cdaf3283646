"""Which segments of a log are sealed one behind the other, are stable, and have been seen by all replicas in sync."""

from __future__ import annotations

from collections.abc import Iterator

from engine.logs.segment import Segment
from engine.partitions.partition import Partition


def sealed_files(opened: Partition, behind: int = 0) -> Iterator[Segment]:
    """Of those that have files and end behind that offset the first ones, as far as all are."""
    limit = min(opened.high_watermark, opened.last_stable_offset)
    for segment in opened.log.segments[:-1]:
        if segment.end_offset <= behind:
            continue
        if not segment.is_sealed or segment.is_damaged or segment.end_offset > limit:
            return
        yield segment
