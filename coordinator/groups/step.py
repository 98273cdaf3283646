"""A step of a group: its input, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from coordinator.shards.table import FutureT

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and delays; defaults are Kafka's."""

    session_timeout_min_ms: int = 6_000  # group.min.session.timeout.ms
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    members_max: int = 2**31 - 1  # group.max.size
    expected_max: int = 10_000  # newcomers that were told their id and have not come with it yet
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    newcomer_timeout_ms: int = 300_000  # a newcomer waits no longer for the others (GroupMetadataManager)


@dataclass(slots=True)
class Step(Generic[FutureT]):
    """A step: its time, and its results. Timeouts go by a steady clock, recorded times by the wall's."""

    now_ms: int
    wall_ms: int
    new_id: Callable[[], str]
    answers: list[tuple[FutureT, object]] = field(default_factory=list)
    must_record: bool = False
    generations: int = 0  # that have begun
    expired_members: int = 0

    def answer(self, future: FutureT | None, answer: object) -> None:
        if future is not None:
            self.answers.append((future, answer))
