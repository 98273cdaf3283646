"""Produce of batches for a few partitions, in the usual shapes of clients.

The prefix of a request is decoded once and then compared as bytes; the bytes around the rows of a reply are encoded
once. Only requests without a transaction are taken, for existing topics that are not internal. The general path makes
replies with refusals and failures, and late replies, from the same appends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from engine.errors import EngineError
from kafkawire.fast_path.fallback import Arrival, fail_on_general_path, on_general_path
from kafkawire.fast_path.prefix_cache import learn
from kafkawire.fast_path.produce_requests import Destination, FastProduce, FastProduceSeveral, ProducePrefix, Template
from kafkawire.fast_path.produce_shape import BATCH_SIZE_MIN_BYTES, SHAPES, NotThisShape, ReplyShape, Shape
from kafkawire.handlers.produce import (
    ALL_ACKS,
    FIRST_VERSION_WITH_IDS,
    Produced,
    reply_to,
)
from kafkawire.messages.produce import ProduceRequest
from kafkawire.requests.context import ANONYMOUS, Operation, ResourceType
from kafkawire.requests.dispatch import INLINE_ELEMENTS_MAX
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import CLIENT_ID_AT, decode_request_header
from kafkawire.requests.metrics import ApiCounters
from kafkawire.requests.topic_lookup import find_log
from kafkawire.wire.primitives import ZERO_UUID, DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage, TopicInfo
    from engine.api import PartitionLog, PendingAppend
    from kafkawire.fast_path.produce_shape import TopicRows
    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces, RequestContext
    from kafkawire.requests.dispatch import Dispatched
    from kafkawire.requests.pending_reply import PendingReply
    from kafkawire.requests.started import StartedRequest
    from kafkawire.wire.connection_info import ConnectionInfo

_INT32: Final = struct.Struct(">i")
_ATTRIBUTES_AT: Final = 22  # the lower byte of a batch's attributes
_TRANSACTIONAL: Final = 0x10


class ProduceFastPath:
    """Implements `kafkawire.requests.api.FastPath`."""

    def __init__(self, broker: BrokerInterfaces, api: Api) -> None:
        self._broker = broker
        self._api = api
        self.metrics = broker.metrics
        self._counters: ApiCounters = broker.metrics.by_api.setdefault(api.key, ApiCounters(api.name))
        self._image: ClusterImage | None = None  # the image under which the following was cached
        self._templates: list[dict[bytes, Template]]
        self._prefixes: list[dict[bytes, ProducePrefix]]
        self._destinations: list[dict[bytes, Destination]]
        self._forget()

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        version = frame[3]
        shape = SHAPES[version] if version < len(SHAPES) and not frame[2] else None
        broker = self._broker
        if shape is None or not broker.store.has_room:
            return None
        if self._image is not broker.cluster.image:
            self._forget()
        try:
            index_at, start, end, end_of_all = shape.single(frame)
            template = self._templates[version].get(bytes(frame[CLIENT_ID_AT:index_at]))
            if template is None:
                return self._take_several(shape, frame, connection, now_s)
            index: int = _INT32.unpack_from(frame, index_at)[0]
            log = template.destination.logs.get(index) or self._find_log(template.destination, index)
            if log is None or end != end_of_all or end - start < BATCH_SIZE_MIN_BYTES:
                return None
            if frame[start + _ATTRIBUTES_AT] & _TRANSACTIONAL:
                return None
        except (IndexError, struct.error, NotThisShape):
            return None
        self._counters.requests += 1
        self._counters.request_size_bytes += len(frame)
        topic, prefix = template.destination.topic.name, template.prefix
        principal, host = connection.principal or ANONYMOUS, connection.peer_host
        try:
            if not broker.authorizer(principal, host, Operation.WRITE, ResourceType.TOPIC, topic):
                produced = [Produced(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
                return self.finish_on_general_path(Arrival(frame, connection, now_s), produced)
            append = log.append(memoryview(frame)[start:end], acks=prefix.acks, allow_zstd=prefix.allow_zstd)
        except EngineError as error:
            produced = [Produced(topic, error.with_traceback(None), log.log_start_offset)]
            return self.finish_on_general_path(Arrival(frame, connection, now_s), produced)
        except Exception as error:
            return self._fail(frame, connection, now_s, error)
        head = Arrival(frame[:start], connection, now_s)
        return FastProduce(self, head, template, index, append, end - start)

    def _take_several(
        self, shape: Shape, frame: bytearray, connection: ConnectionInfo, now_s: float
    ) -> StartedRequest | None:
        """Take any request for a few partitions. Raises the errors of `Shape`."""
        at = shape.topics_at(frame)
        topics = shape.topics(frame, at)
        constant = bytes(frame[CLIENT_ID_AT:at])
        prefix = self._prefixes[frame[3]].get(constant) or self._learn_prefix(frame, constant)
        if prefix is None:
            return None
        places = [
            (destination, requested) for requested in topics if (destination := self._destination(prefix, requested))
        ]
        is_known = len(places) == len(topics) and all(
            (row.partition in destination.logs or self._find_log(destination, row.partition))
            and not frame[row.start + _ATTRIBUTES_AT] & _TRANSACTIONAL
            for destination, requested in places
            for row in requested.rows
        )
        if not is_known:
            return None
        if len(topics) == 1 and len(topics[0].rows) == 1:
            self._learn(shape, frame, prefix, places[0][0])
        return self._start_several(frame, connection, now_s, prefix, places)

    def _start_several(
        self,
        frame: bytearray,
        connection: ConnectionInfo,
        now_s: float,
        prefix: ProducePrefix,
        places: Sequence[tuple[Destination, TopicRows]],
    ) -> StartedRequest:
        self._counters.requests += 1
        self._counters.request_size_bytes += len(frame)
        produced: list[Produced] = []
        appends: list[PendingAppend] = []
        try:
            for destination, requested in places:
                self._append(memoryview(frame), connection, prefix, destination, requested, produced, appends)
        except Exception as error:
            return self._fail(frame, connection, now_s, error)
        if len(appends) == len(produced):
            head = Arrival(frame[: places[0][1].rows[0].start], connection, now_s)
            return FastProduceSeveral(self, head, prefix, places, produced, appends)
        return self.finish_on_general_path(Arrival(frame, connection, now_s), produced)

    def _append(
        self,
        frame: memoryview,
        connection: ConnectionInfo,
        prefix: ProducePrefix,
        destination: Destination,
        requested: TopicRows,
        produced: list[Produced],
        appends: list[PendingAppend],
    ) -> None:
        """Append the batches for one topic. `produced` gets every outcome, `appends` those of accepted batches."""
        topic, host = destination.topic.name, connection.peer_host
        principal = connection.principal or ANONYMOUS
        if not self._broker.authorizer(principal, host, Operation.WRITE, ResourceType.TOPIC, topic):
            produced += [Produced(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)] * len(requested.rows)
            return
        for row in requested.rows:
            log, records = destination.logs[row.partition], frame[row.start : row.end]
            outcome: PendingAppend | EngineError
            try:
                outcome = log.append(records, acks=prefix.acks, allow_zstd=prefix.allow_zstd)
                appends.append(outcome)
            except EngineError as error:
                outcome = error.with_traceback(None)
            produced.append(Produced(topic, outcome, log.log_start_offset, len(records)))

    # Replies of the general path

    def finish_on_general_path(
        self, arrival: Arrival, produced: Sequence[Produced], request: ProduceRequest | None = None
    ) -> Dispatched:
        """The request in the general path, with the outcomes of the appends here. Raises ProtocolViolation (acks=0)."""

        def finish(context: RequestContext, request: ProduceRequest) -> PendingReply[Any]:
            return reply_to(context, request, produced)

        return on_general_path(self._broker, self._api, arrival, finish, request)

    def _fail(self, frame: bytearray, connection: ConnectionInfo, now_s: float, error: Exception) -> Dispatched:
        """The failed request in the general path. Raises ProtocolViolation (acks=0)."""
        return fail_on_general_path(self._broker, self._api, Arrival(frame, connection, now_s), error)

    # Learning

    def _forget(self) -> None:
        """Drop the caches, because the cluster has changed: they may be wrong, and keep deleted topics in memory."""
        self._image = self._broker.cluster.image
        self._templates = [{} for _ in SHAPES]  # by version
        self._prefixes = [{} for _ in SHAPES]
        self._destinations = [{} for _ in SHAPES]

    def _learn_prefix(self, frame: bytearray, constant: bytes) -> ProducePrefix | None:
        """Decode and cache the prefix; None if it is not for the fast path."""
        try:
            header, body_start = decode_request_header(frame)
            request = ProduceRequest.decode(frame, header.api_version, body_start, cap=INLINE_ELEMENTS_MAX)
        except DecodeError:
            return None
        if request.transactional_id is not None or not ALL_ACKS <= request.acks <= 1:
            return None
        prefix = ProducePrefix(request, header.api_version, header.client_id)
        learn(self._prefixes[header.api_version], constant, prefix)
        return prefix

    def _learn(self, shape: Shape, frame: bytearray, prefix: ProducePrefix, destination: Destination) -> None:
        constant = bytes(frame[CLIENT_ID_AT : shape.single(frame)[0]])
        topic, version = destination.topic, prefix.version
        by_id = version >= FIRST_VERSION_WITH_IDS
        reply_shape = ReplyShape(version, "" if by_id else topic.name, topic.topic_id if by_id else ZERO_UUID)
        learn(self._templates[version], constant, Template(prefix, destination, reply_shape))

    def _destination(self, prefix: ProducePrefix, requested: TopicRows) -> Destination | None:
        """An existing topic; None for an internal one, unless the client is an admin tool of Kafka."""
        known = self._destinations[prefix.version]
        found = known.get(requested.name)
        if found is None:
            topic = self._topic_of(prefix, requested)
            if topic is None:
                return None
            found = Destination(topic)
            learn(known, requested.name, found)
        return None if found.topic.internal and not prefix.is_admin else found

    def _topic_of(self, prefix: ProducePrefix, requested: TopicRows) -> TopicInfo | None:
        image = self._broker.cluster.image
        if prefix.version >= FIRST_VERSION_WITH_IDS:
            return image.topics_by_id.get(requested.name)
        try:
            return image.topics.get(requested.name.decode())
        except UnicodeDecodeError:
            return None

    def _find_log(self, destination: Destination, index: int) -> PartitionLog | None:
        log = find_log(self._broker.store, destination.topic, index)
        if isinstance(log, ErrorCode):
            return None
        destination.logs[index] = log
        return log
