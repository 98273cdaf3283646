"""Dispatch of requests: header, version check, decoding, handler, encoding of the reply.

The only way to a handler. Bytes that are no request of a served version end the connection (`ProtocolViolation`), with
one exception: ApiVersions in an unknown version is answered in version 0, so that a newer client learns the served
versions (KIP-511). A request whose handler fails gets an error response. This module names no API, and does not know
the meaning of requests.

Decoding delays every other connection, so requests with many elements are decoded elsewhere (`LargeDispatched`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import inf
from struct import Struct
from typing import Any, Final, cast

import trio

from kafkawire.requests.api import Api, FastPath, Response
from kafkawire.requests.context import ANONYMOUS, BrokerInterfaces, RequestContext
from kafkawire.requests.failures import answer_failure
from kafkawire.requests.futures import until_settled
from kafkawire.requests.headers import decode_request_header, response_header
from kafkawire.requests.metrics import ApiCounters
from kafkawire.requests.pending_reply import PendingReply, immediate_reply
from kafkawire.requests.started import Segment, StartedRequest
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.connection_info import ConnectionInfo
from kafkawire.wire.message import Message
from kafkawire.wire.primitives import DecodeError, TooManyElements

INLINE_ELEMENTS_MAX: Final = 2_000  # of a request that is decoded on the event loop, in about 1 ms

_START: Final = Struct(">hhi")  # api key, version, correlation id: every request begins with them


class Dispatched:
    """See `kafkawire.requests.started.StartedRequest`."""

    __slots__ = (
        "_api",
        "_failure",
        "_is_answered",
        "_on_released",
        "_pending",
        "_request",
        "_response",
        "context",
        "two_stage",
    )

    def __init__(self, api: Api, context: RequestContext, request: Any, pending: PendingReply[Any] | None) -> None:
        self._api = api
        self.context = context
        self._request = request
        self._pending = pending
        self.two_stage = pending is not None
        self._is_answered = False
        self._response: Response | None = None
        self._failure: Exception | None = None
        self._on_released: Callable[[], None] | None = None  # for a second stage that begins later

    @property
    def holds_frame(self) -> bool:
        return self._api.holds_frame

    @property
    def deadline_s(self) -> float:
        return inf if self._pending is None else self._pending.deadline_s

    @property
    def is_settled(self) -> bool:
        return self._is_answered if self._pending is None else self._pending.is_settled

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        assert self._pending is not None
        self._pending.call_when_settled(callback)

    def call_when_released(self, callback: Callable[[], None]) -> None:
        if self._pending is None:
            self._on_released = callback
        else:
            self._pending.call_when_released(callback)

    def abandon(self) -> None:
        if self._pending is not None:
            self._pending.abandon()

    def begin(self) -> Awaitable[None] | None:
        if self._api.two_stage:
            return self._begin_late()
        try:
            response = self._handle()
        except Exception as error:
            self._set_failure(error)
            return None
        if isinstance(response, Awaitable):
            return self._wait_for(response)
        self._set_response(cast(Response, response))
        return None

    def reply(self) -> Sequence[Segment] | None:
        if self._failure is not None:
            raise self._take_failure()
        try:
            return self._encode(self._response if self._pending is None else self._pending.response_now())
        except Exception as error:
            return self._encode(answer_failure(self._api, self.context, self._request, error))

    def _take_failure(self) -> Exception:
        """Take the failure out.

        If this object or a local variable kept it, its traceback would make a cycle of references.
        """
        failure, self._failure = self._failure, None
        assert failure is not None
        return failure

    def _handle(self) -> Response | PendingReply[Any] | Awaitable[Response | None]:
        """Call the handler. Raises ProtocolViolation, also if the connection has ended while the request waited."""
        violation = self.context.connection.violation
        if violation is not None:
            raise violation
        if self._request is None:
            assert self._api.refuse_version is not None
            return self._api.refuse_version(self.context)
        return self._api.handle(self.context, self._request)

    async def _wait_for(self, response: Awaitable[Response | None]) -> None:
        try:
            self._set_response(await response)
        except Exception as error:
            self._set_failure(error)

    async def _begin_late(self) -> None:
        """Begin a two-stage request that found no room in the queues. Meanwhile no later request starts."""
        if self._api.needs_room:
            await self.context.broker.store.wait_for_room()
        try:
            self._pending = cast(PendingReply[Any], self._handle())
        except Exception as error:
            self._set_failure(error)
            return
        if self._on_released is not None:
            self._pending.call_when_released(self._on_released)
        with trio.move_on_at(self._pending.deadline_s):
            await until_settled(self._pending)

    def _set_response(self, response: Response | None) -> None:
        self._response = response
        self._is_answered = True

    def _set_failure(self, error: Exception) -> None:
        try:
            self._set_response(answer_failure(self._api, self.context, self._request, error))
        except ProtocolViolation as violation:
            self._failure = violation
            self._is_answered = True

    def _encode(self, response: Response | None) -> Sequence[Segment] | None:
        context = self.context
        segments = None
        if response is not None:
            header = response_header(context.api_key, context.api_version, context.correlation_id)
            segments = [header, *response.encode(context.api_version)]
        context.broker.metrics.by_api[context.api_key].latency.note(trio.current_time() - context.received_s)
        return segments


class LargeDispatched(Dispatched):
    """A request with so many elements that it is decoded elsewhere. No later request starts until it is answered."""

    __slots__ = ("_decode",)

    def __init__(self, api: Api, context: RequestContext, decode: Callable[[], Message]) -> None:
        super().__init__(api, context, None, None)
        self._decode = decode

    @property
    def holds_frame(self) -> bool:
        return True

    def begin(self) -> Awaitable[None]:
        return self._begin_elsewhere()

    async def _begin_elsewhere(self) -> None:
        context = self.context
        try:
            request = await context.broker.decode_elsewhere(self._decode_or_error)
            if isinstance(request, DecodeError):
                context.broker.metrics.protocol_violations += 1
                self._failure = _violation(self._api, context.api_version, request)
            self._request = request
            self._decode = _already_decoded  # the closure holds the frame
        except Exception as error:  # for example, no thread: a request that is not decoded cannot be refused
            self._failure = error
        if self._failure is not None:
            self._is_answered = True
            return
        work = super().begin()
        if work is not None:
            await work

    def _decode_or_error(self) -> Message | DecodeError:
        """Decode, or return the error.

        A raised one, crossing threads, would keep the frame in a cycle of its traceback.
        """
        try:
            return self._decode()
        except DecodeError as error:
            return DecodeError(str(error))


class Dispatcher:
    """The served APIs of one broker."""

    def __init__(self, broker: BrokerInterfaces, table: Sequence[Api], fast_paths: Mapping[int, FastPath]) -> None:
        """`fast_paths` are the fast paths by API key; without any, every request takes the general path."""
        self._broker = broker
        self._fast_paths = fast_paths
        self._by_key = {api.key: api for api in table}
        self._advertised = tuple((api.key, api.min_version, api.max_version) for api in table)
        for api in table:
            broker.metrics.by_api.setdefault(api.key, ApiCounters(api.name))

    def dispatch(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest:
        """Start a request: decode it, and queue it if it is two-stage. `frame` belongs to the request from now on.

        A large request is decoded elsewhere when its turn comes. Errors: ProtocolViolation.
        """
        if len(frame) < _START.size:
            self._broker.metrics.protocol_violations += 1
            raise ProtocolViolation(f"a request of {len(frame)} bytes")
        if connection.ends_because is not None:
            self._broker.metrics.protocol_violations += 1
            raise ProtocolViolation(connection.ends_because)
        fast_path = self._fast_paths.get(frame[1]) if not frame[0] else None
        if fast_path is not None:
            started = fast_path.take(frame, connection, now_s)
            if started is not None:
                return started
        return self._dispatch_on_general_path(frame, connection, now_s)

    def _dispatch_on_general_path(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> Dispatched:
        try:
            api, context, request = self._decode(frame, connection, now_s)
        except ProtocolViolation:
            self._broker.metrics.protocol_violations += 1
            raise
        if isinstance(request, partial):
            return LargeDispatched(api, context, request)
        pending: PendingReply[Any] | None = None
        if api.two_stage and (self._broker.store.has_room or not api.needs_room):
            try:
                pending = cast(PendingReply[Any], api.handle(context, request))
            except Exception as error:
                pending = immediate_reply(answer_failure(api, context, request, error))
        return Dispatched(api, context, request, pending)

    def _decode(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> tuple[Api, RequestContext, Any]:
        """The API, the context and the request. The request is None for an unknown version of ApiVersions.

        If it is large, it is a partial that decodes it. Errors: ProtocolViolation.
        """
        key, version, correlation_id = _START.unpack_from(frame)
        api = self._by_key.get(key)
        if api is None:
            raise ProtocolViolation(f"unknown API key {key}")
        context = RequestContext(
            self._broker,
            connection,
            key,
            version,
            correlation_id,
            None,
            self._advertised,
            now_s,
            connection.principal or ANONYMOUS,
        )
        if not api.served_min <= version <= api.max_version:
            if api.refuse_version is None:
                raise ProtocolViolation(f"version {version} of {api.name} is not served")
            context.api_version = 0
            return api, context, None
        try:
            header, body_start = decode_request_header(frame)
            request: Any = api.request.decode(frame, version, body_start, cap=INLINE_ELEMENTS_MAX)
        except TooManyElements:
            request = partial(api.request.decode, frame, version, body_start)
        except DecodeError as error:
            raise _violation(api, version, error) from None
        context.client_id = header.client_id
        counters = self._broker.metrics.by_api[key]
        counters.requests += 1
        counters.request_size_bytes += len(frame)
        return api, context, request


def _already_decoded() -> Message:
    raise AssertionError("a request is decoded once")


def _violation(api: Api, version: int, error: DecodeError) -> ProtocolViolation:
    return ProtocolViolation(f"{api.name} version {version}: {error}")
