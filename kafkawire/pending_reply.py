"""The second stage of a request that others have to answer, such as the members of a group, or the disk.

A handler asks at once, in the order of its connection's requests, and says how the response reads when all that it
asked for is settled. A connection that goes away takes nothing back: a member that was joining is let go when its
session ends, as in Kafka. It refuses to know what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coordinator.errors import GroupError
from kafkawire.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from coordinator.groups.api import Pending

ResponseT = TypeVar("ResponseT")


class PendingReply(Generic[ResponseT]):
    """A `kafkawire.dispatch.SecondStage`. It has no deadline: whoever settles the answers has one."""

    __slots__ = ("_callback", "_pending", "_respond", "_unsettled")

    def __init__(self, pending: Sequence[Pending[Any]], respond: Callable[[], ResponseT]) -> None:
        """`respond` is called once, when all of `pending` are settled."""
        self._pending = pending
        self._respond = respond
        self._callback: Callable[[], None] | None = None
        self._unsettled = 0
        for one in pending:
            if not one.is_settled:
                self._unsettled += 1
                one.call_when_settled(self._one_settled)

    @property
    def is_ready(self) -> bool:
        """Whether awaiting it would not wait."""
        return not self._unsettled

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when a reply that is not ready is."""
        self._callback = callback

    def _one_settled(self) -> None:
        self._unsettled -= 1
        if not self._unsettled and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()

    def response_now(self) -> ResponseT:
        """Of one that is ready."""
        return self._respond()

    def __await__(self) -> Generator[Any, None, ResponseT]:
        if not self.is_ready:
            yield from self._wait().__await__()
        return self._respond()

    async def _wait(self) -> None:
        for one in self._pending:
            if not one.is_settled:
                with suppress(GroupError):
                    await one.wait()


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
