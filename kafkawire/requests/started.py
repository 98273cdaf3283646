"""Interface of started requests for their connection; `kafkawire.requests.dispatch` implements it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from engine.api import AnyFuture, FileRange
from kafkawire.wire.connection_info import ConnectionInfo

Segment = bytes | bytearray | memoryview | FileRange
Reply = Sequence[Segment] | None


class StartedRequest(AnyFuture, Protocol):
    """A request that was started in the order of its connection; settled when there is a reply.

    A two-stage request has taken effect in its order and settles by itself; the next request starts meanwhile. Any
    other request begins when those before it are answered; then the result of `begin` is awaited.
    """

    @property
    def two_stage(self) -> bool: ...
    @property
    def holds_frame(self) -> bool:
        """Whether it keeps the bytes of its frame until it is answered."""

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, if it releases the bytes of its frame before it is answered."""

    def abandon(self) -> None:
        """Give up the reply, because the connection is closed.

        Started work goes on, without a wait for other replicas.
        """

    @property
    def deadline_s(self) -> float:
        """Deadline on trio's clock: from then on there is a reply, settled or not."""

    def begin(self) -> Awaitable[None] | None:
        """Begin a request that is not two-stage. Called once; await the result, if any, before `reply`.

        It raises nothing: an error becomes the reply.
        """

    def reply(self) -> Reply:
        """The reply without its size; None if the request gets none (acks=0). Called once.

        Errors: ProtocolViolation. Any other exception is a fault of the broker, and ends the connection, too.
        """


class RequestStarter(Protocol):
    def dispatch(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest:
        """Start a request; `frame` belongs to it from now on. Errors: ProtocolViolation."""
