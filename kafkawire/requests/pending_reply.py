"""The second stage of a request: its reply waits for others, such as the members of a group, or the disk.

A handler starts the work at once, in the order of its connection's requests, and gives the function that makes the
response when all of the work is settled. A closed connection takes nothing back: a joining member is removed when its
session ends, as in Kafka. This module does not know the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from coordinator.errors import GroupError
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from coordinator.api import Future
    from engine.api import AnyFuture

ResponseT = TypeVar("ResponseT")


class PendingReply(Generic[ResponseT]):
    """A response that is made when all its futures are settled; a `engine.api.AnyFuture`."""

    __slots__ = ("_callback", "_open", "_respond", "deadline_s")

    def __init__(self, pending: Iterable[AnyFuture], respond: Callable[[], ResponseT], deadline_s: float = inf) -> None:
        """`respond` is called once: when all of `pending` are settled, or from `deadline_s` on (trio's clock)."""
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
        """See `AnyFuture`. The deadline does not call the callback."""
        self._callback = callback

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when no future keeps bytes of the request any more.

        It is not called for requests that keep no bytes, or keep them until they are answered.
        """

    def abandon(self) -> None:
        """Give up the reply. Started work goes on."""

    def response_now(self) -> ResponseT:
        """Make the response. Called once."""
        return self._respond()

    def _one_settled(self) -> None:
        self._open -= 1
        if not self._open and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


def immediate_reply(response: ResponseT) -> PendingReply[ResponseT]:
    """The reply of a request that waits for nothing."""
    return PendingReply((), lambda: response)


def code_of(pending: Future[Any]) -> ErrorCode:
    """Error code of a settled future."""
    try:
        pending.result()
    except GroupError as error:
        return error_code_of(error)
    return ErrorCode.NONE


class Row(Protocol):
    """Row of a response."""

    error_code: int


def set_error_codes(rows: Sequence[Row], outcomes: Sequence[GroupError | None]) -> None:
    """Set the error codes of the rows whose outcome is an error."""
    for row, error in zip(rows, outcomes, strict=True):
        if error is not None:
            row.error_code = error_code_of(error)
