"""Retention decisions: which old segments go by log start, size or age, or because the disk is full. Pure.

As Kafka's UnifiedLog.deleteOldSegments: from the oldest segment on, without a gap, and nothing at or above the high
watermark. The age of a segment is that of its latest record. The active segment may go as well, if it is not empty:
then the caller rolls the log first.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import NamedTuple

from engine.log_config import CleanupPolicy, LogConfig
from engine.stats import Reason


class OldSegment(NamedTuple):
    """A segment as retention sees it.

    `latest_ms` is its greatest timestamp, or the time of its file's last write if no record has a timestamp
    (LogSegment.largestTimestamp).
    """

    end_offset: int  # where the next one begins
    size_bytes: int
    latest_ms: int


def removal_reasons(
    segments: Sequence[OldSegment], config: LogConfig, log_start_offset: int, high_watermark: int, now_ms: int
) -> list[Reason]:
    """The reason why each of the first segments has to go; with a reason for every segment, the active one goes too.

    A log that was deleted meanwhile has no segments.
    """
    if not segments:
        return []
    removable = _removable(segments, high_watermark)
    reasons = [Reason.LOG_START for one in removable[: len(segments) - 1] if one.end_offset <= log_start_offset]
    if CleanupPolicy.DELETE not in config.cleanup_policy:
        return reasons
    if config.retention_size_bytes >= 0:
        excess_bytes = sum(one.size_bytes for one in segments[len(reasons) :]) - config.retention_size_bytes
        for one in removable[len(reasons) :]:
            excess_bytes -= one.size_bytes
            if excess_bytes < 0:
                break
            reasons.append(Reason.SIZE)
    if config.retention_ms >= 0:
        rest = removable[len(reasons) :]
        reasons += [Reason.TIME for _ in takewhile(lambda one: now_ms - one.latest_ms > config.retention_ms, rest)]
    return reasons


def _removable(segments: Sequence[OldSegment], high_watermark: int) -> list[OldSegment]:
    """The first segments that may go at all, without an empty active one."""
    below = list(takewhile(lambda one: one.end_offset <= high_watermark, segments))
    return below[:-1] if len(below) == len(segments) and not below[-1].size_bytes else below


def may_make_room(config: LogConfig) -> bool:
    """Whether records of the topic may be deleted early because the disk is full (RULES D2)."""
    return config.cleanup_policy == {CleanupPolicy.DELETE}


def to_make_room(finished: Sequence[Sequence[OldSegment]], wanted_bytes: int) -> list[int]:
    """How many of its finished segments each log gives up, the oldest of all logs first, until `wanted_bytes` are
    free."""
    given = [0] * len(finished)
    for number, one in _oldest_first(finished):
        if wanted_bytes <= 0:
            break
        given[number] += 1
        wanted_bytes -= one.size_bytes
    return given


def _oldest_first(finished: Sequence[Sequence[OldSegment]]) -> Iterator[tuple[int, OldSegment]]:
    """Segments of all logs by age, with the number of the log. Each log's segments keep their order, whatever their
    timestamps."""
    heap = [(segments[0].latest_ms, number, 0) for number, segments in enumerate(finished) if segments]
    heapify(heap)
    while heap:
        _, number, position = heappop(heap)
        segments = finished[number]
        yield number, segments[position]
        if position + 1 < len(segments):
            heappush(heap, (segments[position + 1].latest_ms, number, position + 1))
