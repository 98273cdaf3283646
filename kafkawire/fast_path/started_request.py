"""A request that its fast path has started: it waits only for the future of its reply."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from engine.api import AnyFuture

if TYPE_CHECKING:
    from collections.abc import Callable

FutureT = TypeVar("FutureT", bound=AnyFuture)


class FastRequest(Generic[FutureT]):
    """See `kafkawire.requests.started.StartedRequest`. Each fast path has its own `reply`."""

    __slots__ = ("_pending", "deadline_s")

    two_stage: Final = True
    holds_frame: Final = True

    def __init__(self, pending: FutureT, deadline_s: float = inf) -> None:
        self._pending = pending
        self.deadline_s = deadline_s

    @property
    def is_settled(self) -> bool:
        return self._pending.is_settled

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._pending.call_when_settled(callback)

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """The frame is kept until the reply, so the callback is not called.

        Subclasses that release it earlier override this.
        """

    def abandon(self) -> None:
        """Give up the reply. Started work goes on."""

    def begin(self) -> None:
        raise AssertionError("it has begun")
