"""The second stage of a request that others have to answer, such as the members of a group, or the disk.

A handler asks at once, in the order of its connection's requests, and says how the response reads when all that it
asked for is settled. A connection that goes away takes nothing back: a member that was joining is let go when its
session ends, as in Kafka. It refuses to know what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from coordinator.errors import GroupError
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from coordinator.api import Pending
    from kafkawire.requests.settleable import Settleable

ResponseT = TypeVar("ResponseT")


class PendingReply(Generic[ResponseT]):
    """A response that is made when all that it waits for is settled; a `kafkawire.requests.settleable.Settleable`."""

    __slots__ = ("_callback", "_open", "_respond", "deadline_s")

    def __init__(
        self, pending: Iterable[Settleable], respond: Callable[[], ResponseT], deadline_s: float = inf
    ) -> None:
        """`respond` is called once: when all of `pending` are settled, or, on trio's clock, from `deadline_s` on."""
        self._respond = respond
        self.deadline_s = deadline_s
        self._callback: Callable[[], None] | None = None
        self._open = 0
        for one in pending:
            if not one.is_settled:
                self._open += 1
                one.call_when_settled(self._one_settled)

    @property
    def is_settled(self) -> bool:
        return not self._open

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """A deadline of its own does not count."""
        self._callback = callback

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when nothing that it waits for keeps bytes of the request any more. Most
        requests keep none, or until they are answered: it is not called then."""

    def abandon(self) -> None:
        """No reply leaves: nothing needs to be waited for on its behalf. What the request began goes on."""

    def response_now(self) -> ResponseT:
        """Once."""
        return self._respond()

    def _one_settled(self) -> None:
        self._open -= 1
        if not self._open and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


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
