"""The second stage of a Produce request: replies that wait for appends, and the memory of the request's frame.

The engine releases a batch once it is written, long before other replicas have it. A frame is released with the last of
its batches; until then its bytes count against queued.max.request.bytes. If a reply is not wanted any more (closed
connection, timeout), its appends stop waiting for other replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkawire.requests.pending_reply import PendingReply, ResponseT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.api import PendingAppend


class PendingAppends(PendingReply[ResponseT]):
    """A `PendingReply` that waits only for appends."""

    __slots__ = ("_appends", "_held", "_on_released")

    def __init__(self, appends: Sequence[PendingAppend], respond: Callable[[], ResponseT], deadline_s: float) -> None:
        """`deadline_s`: see `PendingReply`."""
        super().__init__(appends, respond, deadline_s)
        self._appends = appends
        self._held = 0
        self._on_released: Callable[[], None] | None = None

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """See `PendingReply`. The callback runs at once if no append holds records any more."""
        held = [one for one in self._appends if not one.is_released]
        self._held, self._on_released = len(held), callback
        for one in held:
            one.call_when_released(self._one_released)
        if not held:
            callback()

    def abandon(self) -> None:
        """See `PendingReply`."""
        for one in self._appends:
            one.stop_waiting()

    def _one_released(self) -> None:
        self._held -= 1
        if not self._held and self._on_released is not None:
            self._on_released()
