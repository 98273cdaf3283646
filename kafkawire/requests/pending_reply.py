"""The second stage of a request that others have to answer, such as the members of a group, or the disk.

A handler asks at once, in the order of its connection's requests, and says how the response reads when all that it
asked for is settled. A connection that goes away takes nothing back: a member that was joining is let go when its
session ends, as in Kafka. It refuses to know what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from coordinator.errors import GroupError
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from coordinator.groups.api import Pending

ResponseT = TypeVar("ResponseT")


class Settleable(Protocol):
    """What a reply can wait for: an append of the engine's, an answer of the coordinator's."""

    @property
    def is_settled(self) -> bool: ...
    def call_when_settled(self, callback: Callable[[], None]) -> None: ...


class Countdown:
    """The part of a `kafkawire.requests.api.SecondStage` that counts those it waits for."""

    __slots__ = ("_callback", "_unsettled")

    def __init__(self) -> None:
        self._callback: Callable[[], None] | None = None
        self._unsettled = 0

    def count(self, one: Settleable) -> None:
        """Wait for it too, if there is anything to wait for."""
        if not one.is_settled:
            self._unsettled += 1
            one.call_when_settled(self._one_settled)

    @property
    def is_ready(self) -> bool:
        """Whether all that is waited for is settled."""
        return not self._unsettled

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when a reply that is not ready is; a deadline of its own does not count."""
        self._callback = callback

    def _one_settled(self) -> None:
        self._unsettled -= 1
        if not self._unsettled and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


class PendingReply(Countdown, Generic[ResponseT]):
    """A `kafkawire.requests.api.SecondStage`. It has no deadline: whoever settles the answers has one."""

    __slots__ = ("_respond",)

    deadline_s: ClassVar[float] = inf

    def __init__(self, pending: Iterable[Settleable], respond: Callable[[], ResponseT]) -> None:
        """`respond` is called once, when all of `pending` are settled."""
        super().__init__()
        self._respond = respond
        for one in pending:
            self.count(one)

    def response_now(self) -> ResponseT:
        return self._respond()


def answered(response: ResponseT) -> PendingReply[ResponseT]:
    """That of a request which asks nobody."""
    return PendingReply((), lambda: response)


def code_of(pending: Pending[Any]) -> ErrorCode:
    """How a settled answer went."""
    try:
        pending.result()
    except GroupError as error:
        return error_code_of(error)
    return ErrorCode.NONE


class Row(Protocol):
    """Of a response, about one of the things that were asked for."""

    error_code: int


def tell_refusals(rows: Sequence[Row], outcomes: Sequence[GroupError | None]) -> None:
    """Each row about its outcome; a success is left as it is."""
    for row, refused in zip(rows, outcomes, strict=True):
        if refused is not None:
            row.error_code = error_code_of(refused)
