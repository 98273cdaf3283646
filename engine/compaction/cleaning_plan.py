"""The plan of compaction: the segments to compact, how urgent that is, and which segments become one. Pure.

As in LogCleanerManager.cleanableOffsets, LogToClean and Cleaner.groupSegmentsBySize.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.log_config import LogConfig
from engine.logs.segments.roll_policy import INDEX_ENTRY_SIZE_BYTES, SEGMENT_OFFSETS_MAX
from engine.logs.segments.segment import Segment


@dataclass(frozen=True, slots=True)
class Work:
    """The segments that may be compacted. Their dirty part begins at `first_dirty_offset`."""

    segments: Sequence[Segment]
    first_dirty_offset: int
    dirty_ratio: float
    is_due: bool


def work_on(
    segments: Sequence[Segment], config: LogConfig, start_offset: int, clean_to: int, below: int, now_ms: int
) -> Work:
    """The work on the segments that begin below `below`, the base offset of the segment with the last stable offset."""
    first_dirty_offset = clean_to if start_offset <= clean_to <= segments[-1].end_offset else start_offset
    young_ms = now_ms - config.min_compaction_lag_ms
    touchable: list[Segment] = []
    dirty_bytes = 0
    for one in segments:
        is_dirty = one.end_offset > first_dirty_offset
        is_young = is_dirty and config.min_compaction_lag_ms > 0 and one.max_timestamp_ms > young_ms
        if one.base_offset >= below or is_young:
            break
        touchable.append(one)
        dirty_bytes += one.size_bytes if is_dirty else 0
    total_bytes = sum(one.size_bytes for one in touchable)
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    is_late = any(
        0 < one.first_timestamp_ms < now_ms - config.max_compaction_lag_ms
        for one in segments[:-1]
        if one.end_offset > first_dirty_offset
    )
    is_due = dirty_bytes > 0 and (is_late or ratio > config.min_cleanable_dirty_ratio)
    return Work(touchable, first_dirty_offset, ratio, is_due)


def groups(segments: Sequence[Segment], config: LogConfig) -> list[list[Segment]]:
    """Groups of neighbouring segments that fit into one segment, by their sizes before compaction."""
    found: list[list[Segment]] = []
    for one in segments:
        if found and _fits(found[-1], one, config):
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _fits(group: Sequence[Segment], one: Segment, config: LogConfig) -> bool:
    together = [*group, one]
    return (
        sum(each.size_bytes for each in together) <= config.segment_size_bytes
        and sum(each.entries for each in together) * INDEX_ENTRY_SIZE_BYTES <= config.segment_index_size_bytes
        and one.end_offset - group[0].base_offset <= SEGMENT_OFFSETS_MAX
    )
