"""Heartbeat: equal each time for a member, so it is known by its bytes, and answered with a constant.

The general path answers failures and clients that may not read the group.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

import trio

from coordinator.groups.api import Claim
from coordinator.groups.commands import Heartbeat
from kafkawire.fast_path.fallback import Arrival, fail_on_general_path, on_general_path
from kafkawire.fast_path.request_prefix import RequestPrefixes
from kafkawire.fast_path.started_request import FastRequest
from kafkawire.handlers.heartbeat import member_code, refuse
from kafkawire.messages.heartbeat import API_KEY, HeartbeatRequest, HeartbeatResponse
from kafkawire.requests.context import ANONYMOUS, Operation, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import CLIENT_ID_AT, CORRELATION_ID_AT, response_header
from kafkawire.requests.pending_reply import immediate_reply

if TYPE_CHECKING:
    from coordinator.api import Future
    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.started import Reply, StartedRequest
    from kafkawire.wire.connection_info import ConnectionInfo


class HeartbeatFastPath:
    """Implements `kafkawire.requests.api.FastPath`."""

    def __init__(self, broker: BrokerInterfaces, api: Api) -> None:
        self._broker = broker
        self.metrics = broker.metrics
        self._api = api
        versions = range(api.served_min, api.max_version + 1)
        self._prefixes = {version: RequestPrefixes(HeartbeatRequest, version, _member_of) for version in versions}

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        prefixes = None if frame[2] else self._prefixes.get(frame[3])
        if prefixes is None:
            return None
        try:
            end = prefixes.end(frame)
        except (IndexError, struct.error):
            return None
        if not end or len(frame) != end + len(prefixes.no_tags) or not frame.endswith(prefixes.no_tags):
            return None
        member = prefixes.find(frame, end)
        return None if member is None else self._start(Arrival(frame, connection, now_s), *member)

    def _start(self, arrival: Arrival, group_id: str, claim: Claim) -> StartedRequest:
        broker, api = self._broker, self._api
        counters = broker.metrics.by_api[API_KEY]
        counters.requests += 1
        counters.request_size_bytes += len(arrival.frame)
        host, principal = arrival.connection.peer_host, arrival.connection.principal or ANONYMOUS
        try:
            if broker.authorizer(principal, host, Operation.READ, ResourceType.GROUP, group_id):
                return FastHeartbeat(self, arrival, broker.groups.ask(Heartbeat(group_id, claim)))
        except Exception as error:
            return fail_on_general_path(broker, api, arrival, error)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return on_general_path(
            broker, api, arrival, lambda context, request: immediate_reply(refuse(context, request, code))
        )


class FastHeartbeat(FastRequest["Future[None]"]):
    """See `kafkawire.requests.started.StartedRequest`."""

    __slots__ = ("_arrival", "_fast_path")

    def __init__(self, fast_path: HeartbeatFastPath, arrival: Arrival, pending: Future[None]) -> None:
        super().__init__(pending)
        self._fast_path = fast_path
        self._arrival = arrival

    def reply(self) -> Reply:
        frame, _, received_s = self._arrival
        self._fast_path.metrics.by_api[API_KEY].latency.note(trio.current_time() - received_s)
        return [frame[CORRELATION_ID_AT:CLIENT_ID_AT] + _reply_to(frame[3], member_code(self._pending))]


def _member_of(request: HeartbeatRequest) -> tuple[str, Claim]:
    return request.group_id, Claim(request.member_id, request.group_instance_id, request.generation_id)


@lru_cache(maxsize=256)
def _reply_to(version: int, code: ErrorCode) -> bytes:
    """The reply, without the correlation id."""
    encoded = [response_header(API_KEY, version, 0), *HeartbeatResponse(error_code=code).encode(version)]
    return b"".join(encoded)[4:]
