"""Replicas that this broker hosts and does not serve: why, and when their logs are opened again.

A log that cannot be opened, or was closed, is opened again in each new leader epoch, and else after a pause that grows
up to a minute. A log that contradicts its leader's waits for another epoch; one on a log dir that is offline for the
next start of the broker (RULES L4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import trio

from engine.errors import LogsContradict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.api import TopicPartition
    from engine.errors import EngineError

T = TypeVar("T")

FIRST_PAUSE_S = 1.0
PAUSE_MAX_S = 60.0


class _Failures(NamedTuple):
    """How often a log was not opened, or was closed again soon, and when last."""

    times: int
    at_s: float

    def next(self, now_s: float) -> _Failures:
        """One more; what has stayed open for a while begins from the first."""
        return _Failures(self.times + 1 if now_s - self.at_s <= 2 * PAUSE_MAX_S else 1, now_s)

    @property
    def due_s(self) -> float:
        """When it is opened again."""
        return self.at_s + min(PAUSE_MAX_S, FIRST_PAUSE_S * 2.0 ** (self.times - 1))


@dataclass(slots=True)
class _Unserved(Generic[T]):
    role: T
    leader_epoch: int
    reason: str
    is_final: bool  # in that leader epoch


class Unserved(Generic[T]):
    """By partition, with the role of type T in which each was to be opened."""

    def __init__(self, now_s: Callable[[], float] = trio.current_time) -> None:
        self._now_s = now_s
        self._partitions: dict[TopicPartition, _Unserved[T]] = {}
        self._failures: dict[TopicPartition, _Failures] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._partitions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter([*self._partitions])

    def __len__(self) -> int:
        return len(self._partitions)

    def note(self, partition: TopicPartition, role: T, leader_epoch: int, error: EngineError) -> bool:
        """It is not open; whether that was not known, or has another reason now."""
        known, reason = self._partitions.get(partition), str(error)
        is_final = isinstance(error, LogsContradict)
        self._partitions[partition] = _Unserved(role, leader_epoch, reason, is_final)
        self._failures[partition] = self._failures.get(partition, _Failures(0, -PAUSE_MAX_S)).next(self._now_s())
        return known is None or known.reason != reason

    def assume(self, partition: TopicPartition, role: T, leader_epoch: int) -> None:
        """It has another role by now, and is not open."""
        known = self._partitions[partition]
        self._partitions[partition] = _Unserved(
            role, leader_epoch, known.reason, is_final=known.is_final and known.leader_epoch == leader_epoch
        )

    def served(self, partition: TopicPartition) -> bool:
        """It is open; whether it was not."""
        return self._partitions.pop(partition, None) is not None

    def forget(self, partition: TopicPartition) -> None:
        """It is hosted no longer."""
        self._partitions.pop(partition, None)
        self._failures.pop(partition, None)

    def due(self) -> dict[TopicPartition, T]:
        """Those whose time has come."""
        now_s = self._now_s()
        return {
            partition: one.role
            for partition, one in self._partitions.items()
            if not one.is_final and self._failures[partition].due_s <= now_s
        }

    def reasons(self) -> dict[TopicPartition, str]:
        """Why each is not open."""
        return {partition: one.reason for partition, one in self._partitions.items()}
