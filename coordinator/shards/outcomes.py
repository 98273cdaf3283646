"""Who is told what a command leads to, besides those who wrote: those who read, and whoever carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coordinator.errors import CoordinatorError, NotCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.shards.pending import Answer


class Confirmed(Protocol):
    """A shard, as its readers see it."""

    @property
    def is_confirmed(self) -> bool: ...


def unconfirmed() -> NotCoordinator:
    """What who may have been succeeded says."""
    return NotCoordinator("another broker may have begun to coordinate it")


class Reading:
    """Is answered by who still leads: checked when the answer leaves, so after what it tells was looked up (RULES
    K24). What was written is on all replicas in sync, whoever leads them."""

    __slots__ = ("_asker", "_shard")

    def __init__(self, asker: Answer[object], shard: Confirmed) -> None:
        self._asker = asker
        self._shard = shard

    def settle(self, outcome: object) -> None:
        """See `writer.Waiting`."""
        self._asker.settle(outcome if self._shard.is_confirmed else unconfirmed())


class Outgoing:
    """Leaves when it is durable; what is dropped does not."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def settle(self, outcome: object) -> None:
        """See `writer.Waiting`."""
        if not isinstance(outcome, CoordinatorError):
            self._send(outcome)
