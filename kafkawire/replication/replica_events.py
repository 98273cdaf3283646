"""Log lines and counters of the logs that this broker follows: truncated, discarded, failed or paused.

After a leader's failure thousands of followers may truncate their logs at once, and as many may wait while the metadata
store is away. So the lines are limited as `coordinator.event_log` describes. The counters count all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from coordinator.event_log import EventLog, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from engine.api import TopicIdPartition
    from engine.partitions.partition import Partition
    from kafkawire.requests.metrics import ReplicationCounters

TRUNCATED: Final = Kind("replica truncated", "replicas truncated")
TRUNCATED_COMMITTED: Final = Kind(
    "replica truncated below high watermark", "replicas truncated below high watermark", "warning"
)
RESTARTED: Final = Kind("re-replication from scratch begun", "re-replications from scratch begun", "warning")
STARTED: Final = Kind("empty replica started", "empty replicas started")
FAILED: Final = Kind("replica failed", "replicas failed", "error")
PAUSED: Final = Kind("replica fetch paused", "replica fetches paused", "warning")
REFUSED: Final = Kind("fetched records not appended", "fetched records not appended", "warning")

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class LogBefore(NamedTuple):
    """The state of a log before it changes: offsets, and whether all of it can be read."""

    partition: TopicIdPartition
    start_offset: int
    end_offset: int
    high_watermark: int
    is_sound: bool


class Truncated(NamedTuple):
    """A log that now ends at `offset`."""

    before: LogBefore
    epoch: int
    offset: int


class _Problem(NamedTuple):
    partition: TopicIdPartition
    reason: str


def log_before(log: Partition) -> LogBefore:
    """The present state of the log."""
    return LogBefore(log.partition, log.log_start_offset, log.log_end_offset, log.high_watermark, log.is_sound)


class ReplicaEvents:
    """Events of the logs that one fetcher follows."""

    def __init__(self, counters: ReplicationCounters) -> None:
        self._counters = counters
        self._lines = EventLog(_log)

    def truncated(self, logs: Sequence[Truncated]) -> None:
        """Note truncated logs. Only an unclean election causes a truncation below the high watermark (RULES K18)."""
        self._counters.truncations += len(logs)
        by_kind: dict[bool, list[Truncated]] = {True: [], False: []}
        for one in logs:
            by_kind[one.offset < one.before.high_watermark].append(one)
        self._lines.write(TRUNCATED_COMMITTED, by_kind[True], _truncated_fields)
        self._lines.write(TRUNCATED, by_kind[False], _truncated_fields)

    def restarted(self, before: LogBefore, epoch: int, offset: int) -> None:
        """Note that a log discarded all records and goes on at `offset`, where the leader's log begins."""
        is_empty = before.is_sound and before.start_offset == before.end_offset
        fields = {**_place(before.partition), "epoch": epoch, "offset": offset}
        if is_empty:
            self._lines.write(STARTED, [before], lambda _: fields)
            return
        self._counters.restarts += 1
        fields |= {"discarded_from": before.start_offset, "discarded_to": before.end_offset}
        self._lines.write(RESTARTED, [before], lambda _: fields, lambda one: _restart_reason(one, offset))

    def failed(self, partition: TopicIdPartition, reason: str) -> None:
        """Note that the replica is closed. It keeps its log until an operator has looked."""
        self._counters.failures += 1
        self._write(FAILED, partition, reason)

    def paused(self, partition: TopicIdPartition, error: Exception) -> None:
        """Note that the fetch of a partition is tried again after a pause."""
        self._write(PAUSED, partition, str(error))

    def refused(self, partition: TopicIdPartition, error: Exception) -> None:
        """Note that the fetched records could not be appended, and are fetched again after a pause."""
        self._write(REFUSED, partition, str(error))

    def _write(self, kind: Kind, partition: TopicIdPartition, reason: str) -> None:
        problem = _Problem(partition, reason)
        self._lines.write(kind, [problem], lambda one: _place(one.partition), lambda one: one.reason)


def _place(partition: TopicIdPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _truncated_fields(one: Truncated) -> dict[str, Any]:
    before = one.before
    offsets = {"offset": one.offset, "end_offset": before.end_offset, "high_watermark": before.high_watermark}
    return {**_place(before.partition), "epoch": one.epoch, **offsets}


def _restart_reason(before: LogBefore, offset: int) -> str:
    """The reason for discarding the log: it is damaged, it ends before the leader's log begins, or it has a gap. A gap:
    records that the follower lacks, and that decided about older ones, are compacted away in the leader's log
    (RULES K18, K19)."""
    if not before.is_sound:
        return "log_damaged"
    return "behind_log_start" if offset > before.end_offset else "log_has_gap"
