"""From a request's bytes to its reply's: header, version check, decode, handler, encode.

The only way to a handler. Bytes that are no request of a served version end the connection (`ProtocolViolation`), with
one exception: ApiVersions in a version we do not know is answered in version 0, so that a newer client can find out
what to speak (KIP-511). A request whose handler fails gets the answer that says so. It knows no API by name, and
refuses to know what a request means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Any, Final, cast

import trio

from kafkawire.requests.api import Api, Response, SecondStage
from kafkawire.requests.context import ANONYMOUS, BrokerInterfaces, RequestContext
from kafkawire.requests.failures import answer_failure
from kafkawire.requests.headers import decode_request_header, response_header
from kafkawire.requests.metrics import ApiCounters
from kafkawire.requests.pending_reply import answered
from kafkawire.requests.started import Segment
from kafkawire.wire.connection import ConnectionInfo, ProtocolViolation
from kafkawire.wire.primitives import DecodeError

_START: Final = Struct(">hhi")  # api key, version, correlation id: every request begins with them


class Dispatched:
    """A request on its way. Ask for its outcome once, in the order of the requests: the reply's segments, or None when
    the request gets none. It raises ProtocolViolation when the connection is to be closed instead."""

    __slots__ = ("_api", "_request", "_second_stage", "context", "two_stage")

    def __init__(self, api: Api, context: RequestContext, request: Any, second_stage: SecondStage | None) -> None:
        """One without a second stage begins when its outcome is asked for."""
        self._api = api
        self.context = context
        self._request = request
        self._second_stage = second_stage
        self.two_stage = second_stage is not None

    @property
    def is_ready(self) -> bool:
        """Whether there is an `outcome_now`: the reply can leave together with the one before."""
        return self._second_stage is not None and self._second_stage.is_ready

    @property
    def is_under_way(self) -> bool:
        """Whether awaiting the outcome would do nothing but wait."""
        return self._second_stage is not None and not self._second_stage.is_ready

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        """For one that is under way."""
        assert self._second_stage is not None
        self._second_stage.call_when_ready(callback)

    def outcome_now(self) -> Sequence[Segment] | None:
        """Of one that is ready."""
        assert self._second_stage is not None
        try:
            return self._reply(self._second_stage.response_now())
        except Exception as error:
            return self._reply(answer_failure(self._api, self.context, self._request, error))

    async def outcome(self) -> Sequence[Segment] | None:
        """Of any."""
        try:
            return self._reply(await self._respond())
        except Exception as error:
            return self._reply(answer_failure(self._api, self.context, self._request, error))

    async def _respond(self) -> Response | None:
        if self._second_stage is not None:
            return await self._second_stage
        if self._request is None:
            assert self._api.refuse_version is not None
            return self._api.refuse_version(self.context)
        if self._api.two_stage:  # it could not be queued at once; meanwhile no later request starts
            await self.context.broker.store.wait_for_room()
        response = self._api.handle(self.context, self._request)
        return await response if isinstance(response, Awaitable) else response

    def _reply(self, response: Response | None) -> Sequence[Segment] | None:
        context = self.context
        segments = None
        if response is not None:
            header = response_header(context.api_key, context.api_version, context.correlation_id)
            segments = [header, *response.encode(context.api_version)]
        context.broker.metrics.by_api[context.api_key].latency.note(trio.current_time() - context.received_s)
        return segments


class Dispatcher:
    """The served APIs of one broker."""

    def __init__(self, broker: BrokerInterfaces, table: Sequence[Api]) -> None:
        self._broker = broker
        self._by_key = {api.key: api for api in table}
        self._advertised = tuple((api.key, api.min_version, api.max_version) for api in table)
        for api in table:
            broker.metrics.by_api[api.key] = ApiCounters(api.name)

    def dispatch(self, frame: bytearray, connection: ConnectionInfo) -> Dispatched:
        """Start a request: decoded, and queued if it is two-stage. `frame` belongs to the request from now on.

        Errors: ProtocolViolation.
        """
        try:
            api, context, request = self._decode(frame, connection)
        except ProtocolViolation:
            self._broker.metrics.protocol_violations += 1
            raise
        second_stage: SecondStage | None = None
        if api.two_stage and self._broker.store.has_room:
            try:
                second_stage = cast(SecondStage, api.handle(context, request))
            except Exception as error:
                second_stage = answered(answer_failure(api, context, request, error))
        return Dispatched(api, context, request, second_stage)

    def _decode(self, frame: bytearray, connection: ConnectionInfo) -> tuple[Api, RequestContext, Any]:
        """No request: the version of ApiVersions is unknown."""
        if len(frame) < _START.size:
            raise ProtocolViolation(f"a request of {len(frame)} bytes")
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
            trio.current_time(),
            ANONYMOUS,
        )
        if not api.served_min <= version <= api.max_version:
            if api.refuse_version is None:
                raise ProtocolViolation(f"version {version} of {api.name} is not served")
            context.api_version = 0
            return api, context, None
        try:
            header, body_start = decode_request_header(frame)
            request = api.request.decode(frame, version, body_start)
        except DecodeError as error:
            raise ProtocolViolation(f"{api.name} version {version}: {error}") from None
        context.client_id = header.client_id
        counters = self._broker.metrics.by_api[key]
        counters.requests += 1
        counters.request_size_bytes += len(frame)
        return api, context, request
