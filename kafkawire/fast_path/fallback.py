"""The way back to the general path, for taken requests that the fast path cannot answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkawire.requests.context import ANONYMOUS, RequestContext
from kafkawire.requests.dispatch import Dispatched
from kafkawire.requests.failures import answer_failure
from kafkawire.requests.headers import decode_request_header
from kafkawire.requests.pending_reply import immediate_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.pending_reply import PendingReply
    from kafkawire.wire.connection_info import ConnectionInfo


class Arrival(NamedTuple):
    """A frame as it arrived, or its beginning, with at least the header."""

    frame: bytearray
    connection: ConnectionInfo
    now_s: float


def on_general_path(
    broker: BrokerInterfaces,
    api: Api,
    arrival: Arrival,
    finish: Callable[[RequestContext, Any], PendingReply[Any]],
    request: Any = None,
) -> Dispatched:
    """Continue the request in the general path. `finish` does the rest of the handler's work.

    `request` is the known part of the request; without it the whole frame is decoded.
    """
    header, body_start = decode_request_header(arrival.frame)
    if request is None:
        request = api.request.decode(arrival.frame, header.api_version, body_start)
    connection = arrival.connection
    principal = connection.principal or ANONYMOUS
    context = RequestContext(broker, connection, *header[:3], header.client_id, (), arrival.now_s, principal)
    try:
        second_stage = finish(context, request)
    except Exception as error:
        second_stage = immediate_reply(answer_failure(api, context, request, error))
    return Dispatched(api, context, request, second_stage)


def fail_on_general_path(broker: BrokerInterfaces, api: Api, arrival: Arrival, error: Exception) -> Dispatched:
    """Continue a failed request in the general path."""

    def fail(context: RequestContext, request: Any) -> PendingReply[Any]:
        raise error

    return on_general_path(broker, api, arrival, fail)
