"""What is known of one served API, and what its handler is and returns.

The table of all of them is `kafkawire.handlers.API_TABLE`; whoever dispatches is handed it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply
from kafkawire.requests.started import StartedRequest
from kafkawire.wire.connection_info import ConnectionInfo
from kafkawire.wire.message import Message


class Response(Protocol):
    """What every response message can do."""

    def encode(self, version: int) -> list[Any]: ...


class Handler(Protocol):
    """What the module of an API has; see `Api`."""

    @property
    def __name__(self) -> str: ...
    @property
    def handle(self) -> Callable[[RequestContext, Any], Response | PendingReply[Any] | Awaitable[Response | None]]: ...
    @property
    def refuse(self) -> Callable[[RequestContext, Any, ErrorCode], Response]: ...


@dataclass(frozen=True, slots=True)
class Api:
    """One served API: its module's name, its request, its handler, the versions it advertises.

    `refuse` makes the response that says an error of the whole request, where Kafka says it (each API has places of its
    own, see AbstractRequest.getErrorResponse). Raises ProtocolViolation where Kafka says nothing and closes.

    A version below `first_served` is advertised and closes the connection all the same. `two_stage`: `handle` has put
    the request into its order when it returns, and the next request starts while it finishes; what it returns is a
    `PendingReply`. `holds_frame`: it keeps bytes of its frame until it is answered. `needs_room`: it is not handled
    before the engine's queues have room. `refuse_version` answers, in version 0, a version that is not served; without
    it such a request ends the connection.
    """

    name: str
    request: type[Message]
    handle: Callable[[RequestContext, Any], Response | PendingReply[Any] | Awaitable[Response | None]]
    refuse: Callable[[RequestContext, Any, ErrorCode], Response]
    min_version: int
    max_version: int
    first_served: int = 0
    two_stage: bool = False
    holds_frame: bool = False
    needs_room: bool = False
    refuse_version: Callable[[RequestContext], Response] | None = None

    @property
    def key(self) -> int:
        """Kafka's number of the API."""
        return self.request.API_KEY

    @property
    def served_min(self) -> int:
        """The lowest version that is answered."""
        return max(self.min_version, self.first_served)


class Lane(Protocol):
    """A short way for requests of one API in the shapes that clients send (`kafkawire.express`)."""

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        """The request, started, or None when it is not for this lane: then nothing has happened.

        Errors: ProtocolViolation.
        """
        ...
