"""Description of a served API.

`kafkawire.handlers.API_TABLE` is the table of all of them; the dispatcher gets it from its creator.
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
    """A response message."""

    def encode(self, version: int) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Api:
    """Served API: the name of its module, its request, its handler, the versions it advertises.

    `refuse` makes the response with an error of the whole request, at the place where Kafka puts it (each API has
    places of its own, see AbstractRequest.getErrorResponse). It raises ProtocolViolation where Kafka closes without a
    response.

    A version below `first_served` is advertised, but closes the connection. `two_stage`: `handle` has put the request
    into its order when it returns a `PendingReply`, and the next request starts while it finishes. `holds_frame`: the
    request keeps bytes of its frame until it is answered. `needs_room`: it is not handled before the engine's queues
    have room. `refuse_version` answers, in version 0, a version that is not served; without it such a request ends the
    connection.
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


class FastPath(Protocol):
    """Fast path of one API: handles requests in the usual shapes of clients (`kafkawire.fast_path`)."""

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        """Start the request, or return None without any effect if it needs the general path.

        Errors: ProtocolViolation.
        """
        ...
