"""What a connection sees of the requests it starts; `kafkawire.requests.dispatch` supplies it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.api import FileRange
from kafkawire.wire.connection import ConnectionInfo

Segment = bytes | bytearray | memoryview | FileRange
Reply = Sequence[Segment] | None


class StartedRequest(Protocol):
    """A request that has been started: its synchronous part is done, the outcome is still to come."""

    @property
    def two_stage(self) -> bool: ...
    @property
    def is_ready(self) -> bool:
        """Whether awaiting the outcome would not wait."""

    @property
    def is_under_way(self) -> bool:
        """Whether awaiting the outcome would do nothing but wait, at most until a deadline."""

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when one that is under way is ready; it says nothing of the deadline."""

    def outcome_now(self) -> Reply:
        """Of one that is ready. Errors: ProtocolViolation."""

    async def outcome(self) -> Reply:
        """The reply without its size, or None when the request gets none (acks=0). Errors: ProtocolViolation."""


class RequestStarter(Protocol):
    def dispatch(self, frame: bytearray, connection: ConnectionInfo) -> StartedRequest:
        """Starts a request; `frame` is the callee's from now on. Errors: ProtocolViolation."""
