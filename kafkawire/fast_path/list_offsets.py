"""ListOffsets of the ends of partitions, which consumers request repeatedly: known by its bytes.

It needs no task, because nothing is searched. Other requests take the general path, which also makes replies with
refusals, errors and failures.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import trio

from engine.errors import EngineError
from kafkawire.fast_path.fallback import Arrival, fail_on_general_path, on_general_path
from kafkawire.fast_path.list_offsets_shape import RequestShape
from kafkawire.handlers.list_offsets import resolve, respond
from kafkawire.messages.list_offsets import API_KEY, ListOffsetsRequest, ListOffsetsResponse
from kafkawire.requests.context import ANONYMOUS, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import CLIENT_ID_AT, CORRELATION_ID_AT
from kafkawire.requests.pending_reply import immediate_reply
from kafkawire.requests.topic_lookup import find_log
from kafkawire.security.accepted_links import PRINCIPAL_OF_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from engine.api import OffsetAtTimestamp
    from kafkawire.fast_path.list_offsets_shape import DecodedListOffsets
    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.dispatch import Dispatched
    from kafkawire.requests.pending_reply import PendingReply
    from kafkawire.requests.started import Reply, StartedRequest
    from kafkawire.wire.connection_info import ConnectionInfo


class ListOffsetsFastPath:
    """Implements `kafkawire.requests.api.FastPath`."""

    def __init__(self, broker: BrokerInterfaces, api: Api) -> None:
        self._broker = broker
        self.metrics = broker.metrics
        self._api = api
        self._shapes = {version: RequestShape(version) for version in range(api.served_min, api.max_version + 1)}

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        shape = None if frame[2] else self._shapes.get(frame[3])
        decoded = None if shape is None else shape.read(frame)
        if decoded is None:
            return None
        counters = self.metrics.by_api[API_KEY]
        counters.requests += 1
        counters.request_size_bytes += len(frame)
        return FastListOffsets(self, Arrival(frame, connection, now_s), decoded)

    def find(self, arrival: Arrival, decoded: DecodedListOffsets) -> list[OffsetAtTimestamp] | Dispatched:
        """The requested offsets. Unless all of them are found: the request in the general path, answered."""
        broker, api, connection = self._broker, self._api, arrival.connection
        principal, host = connection.principal or ANONYMOUS, connection.peer_host
        try:
            allowed = [
                topic
                for topic in decoded.topics
                if broker.authorizer(principal, host, Operation.DESCRIBE, ResourceType.TOPIC, topic)
            ]
            is_broker = decoded.is_replica and principal.startswith(PRINCIPAL_OF_BROKERS)  # a broker may see more
            found = self._find_all(decoded) if len(allowed) == len(decoded.topics) and not is_broker else None
        except Exception as error:
            return fail_on_general_path(broker, api, arrival, error)
        return found or on_general_path(
            broker, api, arrival, lambda context, request: _answer(context, request, allowed)
        )

    def _find_all(self, decoded: DecodedListOffsets) -> list[OffsetAtTimestamp] | None:
        topics, store = self._broker.cluster.image.topics, self._broker.store
        found: list[OffsetAtTimestamp] = []
        for topic, partition, leader_epoch, spec, _ in decoded.partitions:
            info = topics.get(topic)
            log = None if info is None else find_log(store, info, partition)
            if log is None or isinstance(log, ErrorCode):
                return None
            try:
                log.check_leader_epoch(leader_epoch)
                found.append(log.offset_of(spec, decoded.isolation))
            except EngineError:
                return None
        return found


class FastListOffsets:
    """See `kafkawire.requests.started.StartedRequest`. Its frame is small, and is not counted."""

    __slots__ = ("_arrival", "_decoded", "_fast_path", "_found", "is_settled")

    two_stage: Final = False
    holds_frame: Final = False
    deadline_s: Final = inf

    def __init__(self, fast_path: ListOffsetsFastPath, arrival: Arrival, decoded: DecodedListOffsets) -> None:
        self._fast_path = fast_path
        self._arrival = arrival
        self._decoded = decoded
        self._found: list[OffsetAtTimestamp] | Dispatched = []
        self.is_settled = False

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        raise AssertionError("it is not two-stage")

    def call_when_released(self, callback: Callable[[], None]) -> None:
        raise AssertionError("it holds no frame that counts")

    def abandon(self) -> None:
        """Do nothing: the request waits for no other replica."""

    def begin(self) -> None:
        self._found = self._fast_path.find(self._arrival, self._decoded)
        self.is_settled = True

    def reply(self) -> Reply:
        found = self._found
        if not isinstance(found, list):
            return found.reply()
        frame, _, received_s = self._arrival
        self._fast_path.metrics.by_api[API_KEY].latency.note(trio.current_time() - received_s)
        return [self._decoded.reply(frame[CORRELATION_ID_AT:CLIENT_ID_AT], found)]


def _answer(
    context: RequestContext, request: ListOffsetsRequest, allowed: Container[str]
) -> PendingReply[ListOffsetsResponse]:
    found, _ = resolve(context, request, allowed)  # nothing to search: all points are ends
    return immediate_reply(respond(request, found))
