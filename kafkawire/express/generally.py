"""Back to the general path: what a lane has taken and cannot answer by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkawire.requests.context import ANONYMOUS, RequestContext
from kafkawire.requests.dispatch import Dispatched
from kafkawire.requests.failures import answer_failure
from kafkawire.requests.headers import decode_request_header
from kafkawire.requests.pending_reply import answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.pending_reply import PendingReply
    from kafkawire.wire.connection_info import ConnectionInfo


class Arrival(NamedTuple):
    """A frame as it came, or what is kept of it: its beginning, with at least the header."""

    frame: bytearray
    connection: ConnectionInfo
    now_s: float


def generally(
    broker: BrokerInterfaces,
    api: Api,
    arrival: Arrival,
    finish: Callable[[RequestContext, Any], PendingReply[Any]],
    request: Any = None,
) -> Dispatched:
    """The request as the general path has it, with `finish` to do the rest of the handler's work. `request`: as far as
    it is known already; without it the whole frame is decoded."""
    header, body_start = decode_request_header(arrival.frame)
    if request is None:
        request = api.request.decode(arrival.frame, header.api_version, body_start)
    connection = arrival.connection
    principal = connection.principal or ANONYMOUS
    context = RequestContext(broker, connection, *header[:3], header.client_id, (), arrival.now_s, principal)
    try:
        second_stage = finish(context, request)
    except Exception as error:
        second_stage = answered(answer_failure(api, context, request, error))
    return Dispatched(api, context, request, second_stage)


def failed(broker: BrokerInterfaces, api: Api, arrival: Arrival, error: Exception) -> Dispatched:
    """The request whose handler has failed."""

    def fail(context: RequestContext, request: Any) -> PendingReply[Any]:
        raise error

    return generally(broker, api, arrival, fail)
