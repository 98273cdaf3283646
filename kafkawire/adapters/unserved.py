"""Replicas that this broker hosts and does not serve: the reasons, and the times at which their logs are opened again.

A log that cannot be opened, or was closed, is opened again in each new leader epoch, and else after a pause that grows
up to a minute. A log that contradicts its leader's waits for another leader epoch; a log on a log dir that is offline
waits for the next start of the broker (RULES L4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import trio

from engine.errors import LogsContradict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.api import TopicIdPartition
    from engine.errors import EngineError

T = TypeVar("T")

FIRST_PAUSE_S = 1.0
PAUSE_MAX_S = 60.0


class _Failures(NamedTuple):
    """How often a log was not opened, or was closed again soon, and the time of the last failure."""

    times: int
    at_s: float

    def next(self, now_s: float) -> _Failures:
        """Count one more failure. A log that stayed open for a while begins with the first again."""
        return _Failures(self.times + 1 if now_s - self.at_s <= 2 * PAUSE_MAX_S else 1, now_s)

    @property
    def due_s(self) -> float:
        """The time at which the log is opened again, in seconds."""
        return self.at_s + min(PAUSE_MAX_S, FIRST_PAUSE_S * 2.0 ** (self.times - 1))


@dataclass(slots=True)
class _Unserved(Generic[T]):
    role: T
    leader_epoch: int
    reason: str
    is_final: bool  # in that leader epoch


class Unserved(Generic[T]):
    """Replicas that are not served, by partition, with the role of type T in which each was to be opened."""

    def __init__(self, now_s: Callable[[], float] = trio.current_time) -> None:
        self._now_s = now_s
        self._partitions: dict[TopicIdPartition, _Unserved[T]] = {}
        self._failures: dict[TopicIdPartition, _Failures] = {}

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._partitions

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return iter([*self._partitions])

    def __len__(self) -> int:
        return len(self._partitions)

    def note(self, partition: TopicIdPartition, role: T, leader_epoch: int, error: EngineError) -> bool:
        """Note that a replica is not open. Return whether that is new, or has another reason now."""
        known, reason = self._partitions.get(partition), str(error)
        is_final = isinstance(error, LogsContradict)
        self._partitions[partition] = _Unserved(role, leader_epoch, reason, is_final)
        self._failures[partition] = self._failures.get(partition, _Failures(0, -PAUSE_MAX_S)).next(self._now_s())
        return known is None or known.reason != reason

    def assume(self, partition: TopicIdPartition, role: T, leader_epoch: int) -> None:
        """Note a newer role of a replica that is not open."""
        known = self._partitions[partition]
        self._partitions[partition] = _Unserved(
            role, leader_epoch, known.reason, is_final=known.is_final and known.leader_epoch == leader_epoch
        )

    def served(self, partition: TopicIdPartition) -> bool:
        """Note that a replica is open. Return whether it was not."""
        return self._partitions.pop(partition, None) is not None

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget a replica that this broker hosts no longer."""
        self._partitions.pop(partition, None)
        self._failures.pop(partition, None)

    def due(self) -> dict[TopicIdPartition, T]:
        """The replicas to open again now."""
        now_s = self._now_s()
        return {
            partition: one.role
            for partition, one in self._partitions.items()
            if not one.is_final and self._failures[partition].due_s <= now_s
        }

    def reasons(self) -> dict[TopicIdPartition, str]:
        """The reason of each replica that is not open."""
        return {partition: one.reason for partition, one in self._partitions.items()}
