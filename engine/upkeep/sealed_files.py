"""Selection of the sealed segments of a log that are below the high watermark and the last stable offset."""

from __future__ import annotations

from collections.abc import Iterator

from engine.logs.segments.segment import Segment
from engine.partitions.partition import Partition


def sealed_files(opened: Partition, behind: int = 0) -> Iterator[Segment]:
    """The first segments with files that end behind offset `behind`, as far as each is sealed, undamaged and stable."""
    limit = min(opened.high_watermark, opened.last_stable_offset)
    for segment in opened.log.segments[:-1]:
        if segment.end_offset <= behind:
            continue
        if not segment.is_sealed or segment.is_damaged or segment.end_offset > limit:
            return
        yield segment
