"""Replies of a shard to commands that wrote nothing, and messages that leave with a commit batch."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from coordinator.errors import (
    ConcurrentTransactions,
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.futures import SettableFuture
    from coordinator.state.log import StateLog


class Freshness(Enum):
    """The state that a reply to a command that wrote nothing has to reflect (RULES K24)."""

    MAY_FALL_BACK = "all records in the log, acknowledged or not (RULES K26)"
    MAY_BE_STALE = "all acknowledged records; a successor may have acknowledged more, not long ago"
    NEWEST = "all that any coordinator had acknowledged when the request came"


NEWEST: Final = Freshness.NEWEST
OptionalFreshness: TypeAlias = Freshness | None  # None: as all replies of the table
RETRIABLE: Final = ConcurrentTransactions, CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator


class ReplyingShard(Protocol):
    """A shard, as its readers see it."""

    def reply(self, future: SettableFuture[object], outcome: object, freshness: Freshness) -> None:
        """SettableFuture, now or when it is confirmed that this broker leads."""


def reply(state_log: StateLog | None, future: SettableFuture[object], outcome: object, freshness: Freshness) -> None:
    """Reply to a read of `state_log`, None if that is not loaded. A leader that was stopped may have a successor."""
    if state_log is None or not state_log.is_current:
        future.settle(superseded())
    elif freshness is NEWEST and is_final(outcome):
        state_log.confirm(lambda is_confirmed: future.settle(outcome if is_confirmed else superseded()))
    else:
        future.settle(outcome)


def superseded() -> NotCoordinator:
    """The reply of a coordinator that may have a successor."""
    return NotCoordinator("another broker may have begun to coordinate it")


def is_final(outcome: object) -> bool:
    """Whether a client acts on this reply: after a retriable one it asks again."""
    return not isinstance(outcome, RETRIABLE)


class ReadReply:
    """A reply that leaves with its commit batch. Its records are on all replicas in sync, whichever broker leads
    them."""

    __slots__ = ("_asker", "_freshness", "_shard")

    def __init__(self, future: SettableFuture[object], shard: ReplyingShard, freshness: Freshness) -> None:
        self._asker = future
        self._shard = shard
        self._freshness = freshness

    def settle(self, outcome: object) -> None:
        """See `writer.Waiting`."""
        self._shard.reply(self._asker, outcome, self._freshness)


class OutboxMessage:
    """A message that leaves when its commit batch is durable, and not if that is dropped."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def settle(self, outcome: object) -> None:
        """See `writer.Waiting`."""
        if not isinstance(outcome, CoordinatorError):
            self._send(outcome)
