"""Fetch in the usual shapes, with a session or without: decoded by hand, answered at once if there is something to
return.

Reads, waits and sessions are the work of the general path (`kafkawire.fetching.work`). The fast path makes no messages
of request and response, and no task unless the request waits. The general path makes replies with errors.
"""

from __future__ import annotations

from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Final

import trio

from kafkawire.fast_path.fetch_reply import pack_reply
from kafkawire.fast_path.fetch_shape import DecodedFetch, read_request
from kafkawire.fetching.work import TARGETS_PER_TURN, FetchResults, begin_fetch
from kafkawire.handlers.fetch import FIRST_VERSION_WITH_IDS, respond, respond_in_turns
from kafkawire.messages.fetch import API_KEY, FetchRequest, FetchResponse
from kafkawire.requests.context import ANONYMOUS, RequestContext
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.failures import answer_failure
from kafkawire.requests.headers import CLIENT_ID_AT, CORRELATION_ID_AT, decode_request_header, response_header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkawire.requests.api import Api, Response
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.started import Reply, Segment, StartedRequest
    from kafkawire.wire.connection_info import ConnectionInfo

_INT32: Final = Struct(">i")


class FetchFastPath:
    """Implements `kafkawire.requests.api.FastPath`."""

    def __init__(self, broker: BrokerInterfaces, api: Api) -> None:
        self._broker = broker
        self._api = api

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        request = read_request(frame)
        if request is None:
            return None
        counters = self._broker.metrics.by_api[API_KEY]
        counters.requests += 1
        counters.request_size_bytes += len(frame)
        correlation_id = _INT32.unpack_from(frame, CORRELATION_ID_AT)[0]
        principal = connection.principal or ANONYMOUS
        context = RequestContext(
            self._broker, connection, API_KEY, frame[3], correlation_id, None, (), now_s, principal
        )
        return FastFetch(self._api, context, frame, request)


class FastFetch:
    """See `kafkawire.requests.started.StartedRequest`.

    The frame is small (FRAME_SIZE_MAX_BYTES). It is kept for the case of a failure, and is not counted.
    """

    __slots__ = ("_api", "_context", "_frame", "_request", "_segments", "is_settled")

    two_stage: Final = False
    holds_frame: Final = False
    deadline_s: Final = inf

    def __init__(self, api: Api, context: RequestContext, frame: bytearray, request: DecodedFetch) -> None:
        self._api = api
        self._context = context
        self._frame = frame
        self._request = request
        self._segments: list[Segment] = []
        self.is_settled = False

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        raise AssertionError("it is not two-stage")

    def call_when_released(self, callback: Callable[[], None]) -> None:
        raise AssertionError("it holds no frame that counts")

    def abandon(self) -> None:
        """Do nothing: a Fetch waits for no other replica."""

    def begin(self) -> Awaitable[None] | None:
        context, request = self._context, self._request
        by_id = context.api_version >= FIRST_VERSION_WITH_IDS
        try:
            started = begin_fetch(context, request, request.targets, request.forgotten, by_id=by_id)
            if isinstance(started, ErrorCode):
                self._encode_reply(FetchResponse(error_code=started))
            elif isinstance(started, FetchResults):
                self._answer(started)
            else:
                return self._answer_later(started)
        except Exception as error:
            self._fail(error)
        return None

    def reply(self) -> Reply:
        context = self._context
        context.broker.metrics.by_api[API_KEY].latency.note(trio.current_time() - context.received_s)
        return self._segments

    async def _answer_later(self, work: Awaitable[FetchResults]) -> None:
        try:
            results = await work
            if len(results.outcomes) > TARGETS_PER_TURN:
                self._encode_reply(await respond_in_turns(self._context, results))
            else:
                self._answer(results)
        except Exception as error:
            self._fail(error)

    def _answer(self, results: FetchResults) -> None:
        context = self._context
        correlation_id = bytes(self._frame[CORRELATION_ID_AT:CLIENT_ID_AT])
        segments = pack_reply(correlation_id, context.api_version, results)
        if segments is None:
            self._encode_reply(respond(context, results))
            return
        for target, outcome in results.outcomes:
            if not isinstance(outcome, ErrorCode) and outcome.size_bytes:
                context.broker.metrics.by_topic[target.topic].bytes_out += outcome.size_bytes
        self._segments = segments
        self.is_settled = True

    def _encode_reply(self, response: Response) -> None:
        context = self._context
        header = response_header(API_KEY, context.api_version, context.correlation_id)
        self._segments = [header, *response.encode(context.api_version)]
        self.is_settled = True

    def _fail(self, error: Exception) -> None:
        context = self._context
        header, body_start = decode_request_header(self._frame)
        context.client_id = header.client_id
        request = FetchRequest.decode(self._frame, header.api_version, body_start)
        self._encode_reply(answer_failure(self._api, context, request, error))
