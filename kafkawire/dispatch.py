"""From a request's bytes to its reply's: header, version check, decode, handler, encode.

The only way to a handler. Bytes that are no request of a served version end the connection (`ProtocolViolation`), with
one exception: ApiVersions in a version we do not know is answered in version 0, so that a newer client can find out
what to speak (KIP-511). It knows no API by name but that one, and refuses to know what a request means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import trio

from kafkawire.context import BrokerInterfaces, RequestContext
from kafkawire.handlers import API_TABLE, Api, Response
from kafkawire.handlers.api_versions import refuse_version
from kafkawire.messages.api_versions import API_KEY as API_VERSIONS_KEY
from kafkawire.request_metrics import ApiCounters
from kafkawire.wire.connection import ConnectionInfo, ProtocolViolation
from kafkawire.wire.primitives import DecodeError
from kafkawire.wire.versions import decode_request_header, response_header

if TYPE_CHECKING:
    from engine.api import FileRange

    Segment = bytes | bytearray | memoryview | FileRange

_START: Final = Struct(">hhi")  # api key, version, correlation id: every request begins with them


class SecondStage(Protocol):
    """What the handler of a two-stage API returns, an awaitable of the response that can tell when it comes."""

    @property
    def is_ready(self) -> bool: ...
    def call_when_ready(self, callback: Callable[[], None]) -> None: ...


@dataclass(slots=True)
class Dispatched:
    """A request on its way. Await `outcome` once, in the order of the requests: the reply's segments, or None when
    the request gets none. It raises ProtocolViolation when the connection is to be closed instead."""

    correlation_id: int
    two_stage: bool
    outcome: Coroutine[Any, Any, Sequence[Segment] | None]
    second_stage: SecondStage | None = None  # of a two-stage API

    @property
    def is_ready(self) -> bool:
        """Whether the outcome is known to come without waiting: the reply can leave together with the one before."""
        return self.second_stage is not None and self.second_stage.is_ready

    @property
    def is_under_way(self) -> bool:
        """Whether awaiting the outcome would do nothing but wait."""
        return self.second_stage is not None and not self.second_stage.is_ready

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        """For one that is under way."""
        assert self.second_stage is not None
        self.second_stage.call_when_ready(callback)


class Dispatcher:
    """The served APIs of one broker."""

    def __init__(self, broker: BrokerInterfaces, table: Sequence[Api] = API_TABLE) -> None:
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
            return self._dispatch(frame, connection)
        except ProtocolViolation:
            self._broker.metrics.protocol_violations += 1
            raise

    def _dispatch(self, frame: bytearray, connection: ConnectionInfo) -> Dispatched:
        if len(frame) < _START.size:
            raise ProtocolViolation(f"a request of {len(frame)} bytes")
        key, version, correlation_id = _START.unpack_from(frame)
        api = self._by_key.get(key)
        if api is None:
            raise ProtocolViolation(f"unknown API key {key}")
        context = RequestContext(
            self._broker, connection, key, version, correlation_id, None, self._advertised, trio.current_time()
        )
        if not api.served_min <= version <= api.max_version:
            if key != API_VERSIONS_KEY:
                raise ProtocolViolation(f"version {version} of {api.name} is not served")
            context.api_version = 0
            return Dispatched(correlation_id, False, self._answer(api, context, None, refuse_version(context)))
        try:
            header, body_start = decode_request_header(frame)
            request = api.request.decode(frame, version, body_start)
        except DecodeError as error:
            raise ProtocolViolation(f"{api.name} version {version}: {error}") from None
        context.client_id = header.client_id
        counters = self._broker.metrics.by_api[key]
        counters.requests += 1
        counters.request_size_bytes += len(frame)
        if api.two_stage and self._broker.store.has_room:
            try:
                outcome = api.handle(context, request)
            except Exception as error:
                self._note_failure(api, context, error)
                raise
            return Dispatched(
                correlation_id, True, self._answer(api, context, None, outcome), cast(SecondStage, outcome)
            )
        return Dispatched(correlation_id, False, self._answer(api, context, request, None))

    async def _answer(
        self, api: Api, context: RequestContext, request: Any, outcome: Response | Awaitable[Response | None] | None
    ) -> Sequence[Segment] | None:
        """Finish what was begun, or, without an `outcome`, begin it now that its turn has come."""
        counters = self._broker.metrics.by_api[api.key]
        try:
            if outcome is None:
                if api.two_stage:  # it could not be queued at once; meanwhile no later request starts
                    await self._broker.store.wait_for_room()
                outcome = api.handle(context, request)
            response = await outcome if isinstance(outcome, Awaitable) else outcome
            segments = None if response is None else self._encode(context, response)
        except ProtocolViolation:
            self._broker.metrics.protocol_violations += 1
            raise
        except Exception as error:
            self._note_failure(api, context, error)
            raise
        counters.answered((trio.current_time() - context.received_s) * 1000)
        return segments

    def _note_failure(self, api: Api, context: RequestContext, error: Exception) -> None:
        self._broker.metrics.by_api[api.key].failures += 1
        error.add_note(f"in {api.name} version {context.api_version} from client {context.client_id!r}")

    @staticmethod
    def _encode(context: RequestContext, response: Response) -> list[Segment]:
        header = response_header(context.api_key, context.api_version, context.correlation_id)
        return [header, *response.encode(context.api_version)]
