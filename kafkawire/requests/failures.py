"""Requests whose handler failed: counted, logged, and answered as by Kafka (handleError).

A peer may make handlers fail as often as it likes: the log shows a limited number of failures a minute, the metrics
count all. A `ProtocolViolation` is not answered: it goes on to the connection, which closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.line_limit import LineLimit
from kafkawire.wire.connection import ProtocolViolation

if TYPE_CHECKING:
    from typing import Any

    from kafkawire.requests.api import Api, Response
    from kafkawire.requests.context import RequestContext

LOGGED_PER_MINUTE_MAX: Final = 10

_log = structlog.get_logger(__name__)


class FailureLog:
    """Log of failures with tracebacks, limited per minute. The next line tells how many were left out."""

    def __init__(self) -> None:
        self._limit = LineLimit(LOGGED_PER_MINUTE_MAX)

    def note(self, error: Exception, now_s: float, **facts: object) -> None:
        """Log a failure at `now_s`, on any clock."""
        unlogged = self._limit.admit(now_s)
        if unlogged is not None:
            _log.error("request failed", exc_info=error, unlogged=unlogged, **facts)


def answer_failure(api: Api, context: RequestContext, request: Any, error: Exception) -> Response:
    """The response with UNKNOWN_SERVER_ERROR. Raises ProtocolViolation if the API has none."""
    metrics = context.broker.metrics
    if isinstance(error, ProtocolViolation):
        metrics.protocol_violations += 1
        raise error
    metrics.by_api[api.key].failures += 1
    context.broker.failures.note(
        error,
        trio.current_time(),
        api=api.name,
        version=context.api_version,
        client=repr(context.client_id),
        peer=context.connection.peer_host,
    )
    return api.refuse(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
