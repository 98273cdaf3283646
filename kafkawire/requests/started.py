"""What a connection sees of the requests it starts; `kafkawire.requests.dispatch` supplies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from engine.api import FileRange
from kafkawire.requests.settleable import Settleable
from kafkawire.wire.connection_info import ConnectionInfo

Segment = bytes | bytearray | memoryview | FileRange
Reply = Sequence[Segment] | None


class StartedRequest(Settleable, Protocol):
    """A request that has been started, in the order of its connection; settled when there is a reply.

    A two-stage one has taken effect in its order and settles by itself; the next request starts meanwhile. Any other
    begins when those before it are answered, and is waited for by awaiting what `begin` returns.
    """

    @property
    def two_stage(self) -> bool: ...
    @property
    def holds_frame(self) -> bool:
        """Whether it keeps its frame's bytes until it is answered, or lets go of them before."""

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, if it lets go of its frame's bytes before it is answered."""

    def abandon(self) -> None:
        """Its connection is closed: no reply leaves. What it has begun goes on, and waits for no other replica."""

    @property
    def deadline_s(self) -> float:
        """On trio's clock: from then on there is a reply though it is not settled."""

    def begin(self) -> Awaitable[None] | None:
        """For one that is not two-stage, once: what has to be awaited before there is a reply, if anything.

        It raises nothing: what fails, fails the reply.
        """

    def reply(self) -> Reply:
        """The reply without its size, or None when the request gets none (acks=0); once.

        Errors: ProtocolViolation. Whatever else it raises is a failure of ours, and ends the connection too.
        """


class RequestStarter(Protocol):
    def dispatch(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest:
        """Starts a request; `frame` is the callee's from now on. Errors: ProtocolViolation."""
