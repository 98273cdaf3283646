"""Tells an operator what becomes of the logs that are followed here: truncated, discarded, or given up.

After a leader's failure thousands of followers may truncate their logs at once, and with the metadata away as many may
wait: lines are written within the bounds of `coordinator.event_log`. Counters have all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from coordinator.event_log import EventLog, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from engine.api import TopicPartition
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


class Held(NamedTuple):
    """A log as it is before it changes: offsets, and whether all of it can be read."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    high_watermark: int
    is_sound: bool


class Truncated(NamedTuple):
    """A log that ends at `offset` now."""

    held: Held
    epoch: int
    offset: int


class _Problem(NamedTuple):
    partition: TopicPartition
    reason: str


def held(log: Partition) -> Held:
    """What the log has now."""
    return Held(log.partition, log.log_start_offset, log.log_end_offset, log.high_watermark, log.is_sound)


class ReplicaEvents:
    """Of what one fetcher follows."""

    def __init__(self, counters: ReplicationCounters) -> None:
        self._counters = counters
        self._lines = EventLog(_log)

    def truncated(self, logs: Sequence[Truncated]) -> None:
        """By an answer of the leader. Below the high watermark only an unclean election has that done (RULES K18)."""
        self._counters.truncations += len(logs)
        by_kind: dict[bool, list[Truncated]] = {True: [], False: []}
        for one in logs:
            by_kind[one.offset < one.held.high_watermark].append(one)
        self._lines.write(TRUNCATED_COMMITTED, by_kind[True], _truncated_fields)
        self._lines.write(TRUNCATED, by_kind[False], _truncated_fields)

    def restarted(self, before: Held, epoch: int, offset: int) -> None:
        """The log forgot all that it had, and goes on at `offset`, where the leader's begins."""
        is_empty = before.is_sound and before.start_offset == before.end_offset
        fields = {**_place(before.partition), "epoch": epoch, "offset": offset}
        if is_empty:
            self._lines.write(STARTED, [before], lambda _: fields)
            return
        self._counters.restarts += 1
        fields |= {"discarded_from": before.start_offset, "discarded_to": before.end_offset}
        self._lines.write(RESTARTED, [before], lambda _: fields, lambda one: _why(one, offset))

    def failed(self, partition: TopicPartition, reason: str) -> None:
        """The replica is closed, and keeps what it has, until an operator has looked."""
        self._counters.failures += 1
        self._tell(FAILED, partition, reason)

    def paused(self, partition: TopicPartition, error: Exception) -> None:
        """The leader is asked again in a while."""
        self._tell(PAUSED, partition, str(error))

    def refused(self, partition: TopicPartition, error: Exception) -> None:
        """What was fetched is fetched again in a while."""
        self._tell(REFUSED, partition, str(error))

    def _tell(self, kind: Kind, partition: TopicPartition, reason: str) -> None:
        problem = _Problem(partition, reason)
        self._lines.write(kind, [problem], lambda one: _place(one.partition), lambda one: one.reason)


def _place(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _truncated_fields(one: Truncated) -> dict[str, Any]:
    before = one.held
    offsets = {"offset": one.offset, "end_offset": before.end_offset, "high_watermark": before.high_watermark}
    return {**_place(before.partition), "epoch": one.epoch, **offsets}


def _why(before: Held, offset: int) -> str:
    """A log that can go on nowhere is damaged, ends before the leader's begins, or has a gap: what had decided about
    something in it is gone from the leader's (RULES K18, K19)."""
    if not before.is_sound:
        return "log_damaged"
    return "behind_log_start" if offset > before.end_offset else "log_has_gap"
