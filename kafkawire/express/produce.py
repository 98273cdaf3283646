"""Produce of one batch for one partition, which is what clients with few partitions, or little to say, send.

What a request says of itself is learned once, from the decoder, and then compared as bytes; so is what surrounds a
reply. Taken are only requests that wait for an answer, without a transaction, for a topic that is there and no internal
one. Refusals, failures and late answers are told by the general path's own reply, around the same append.
"""

from __future__ import annotations

import struct
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from engine.errors import EngineError
from kafkawire.express.produce_shape import CONSTANT_FROM, SHAPES, ReplyShape
from kafkawire.handlers.produce import (
    ADMIN_CLIENT_ID,
    ALL_ACKS,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_ZSTD,
    ProduceReply,
    is_transactional,
)
from kafkawire.messages.produce import API_KEY, PartitionProduceResponse, ProduceRequest, TopicProduceResponse
from kafkawire.requests.context import ANONYMOUS, Operation, RequestContext, ResourceType
from kafkawire.requests.dispatch import Dispatched
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.failures import answer_failure
from kafkawire.requests.headers import decode_request_header
from kafkawire.requests.pending_reply import answered
from kafkawire.requests.topic_lookup import find_log
from kafkawire.wire.primitives import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.api import ClusterImage, TopicInfo
    from engine.api import AppendResult, PartitionLog, PendingAppend
    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.started import Reply, StartedRequest
    from kafkawire.wire.connection import ConnectionInfo

TEMPLATES_MAX: Final = 4096  # of all clients together; then they are learned anew

_INT32: Final = struct.Struct(">i")


class Template:
    """What a request says up to its partition's index, as far as it matters."""

    __slots__ = ("acks", "allow_zstd", "logs", "reply_shape", "timeout_s", "topic")

    def __init__(self, request: ProduceRequest, version: int, topic: TopicInfo) -> None:
        self.topic = topic
        self.acks = request.acks
        self.timeout_s = request.timeout_ms / 1000 if request.acks == ALL_ACKS else inf
        self.allow_zstd = version >= FIRST_VERSION_WITH_ZSTD
        self.reply_shape = ReplyShape(version, request.topic_data[0].name, request.topic_data[0].topic_id)
        self.logs: dict[int, PartitionLog] = {}


class Arrival(NamedTuple):
    """A frame as it came."""

    frame: bytearray
    connection: ConnectionInfo
    now_s: float


class ProduceLane:
    """Implements `kafkawire.requests.api.Lane`."""

    def __init__(self, broker: BrokerInterfaces, api: Api) -> None:
        self._broker = broker
        self._api = api
        self._image: ClusterImage | None = None  # under which the templates were learned
        self._templates: list[dict[bytes, Template]] = [{} for _ in SHAPES]  # by version

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        version = frame[3]
        shape = SHAPES[version] if version < len(SHAPES) and not frame[2] else None
        if shape is None:
            return None
        try:
            index_at = shape.index_at(frame)
            place = shape.place(frame, index_at)
            if place is None:
                return None
            index: int = _INT32.unpack_from(frame, index_at)[0]
        except (IndexError, struct.error):
            return None
        constant = bytes(frame[CONSTANT_FROM:index_at])
        records = memoryview(frame)[place.start : place.end]
        if self._image is not self._broker.cluster.image:
            self._forget()
        template = self._templates[version].get(constant) or self._learn(frame, constant, index, records)
        log = None if template is None else template.logs.get(index) or self._find_log(template, index)
        if template is None or log is None or is_transactional(records) or not self._broker.store.has_room:
            return None
        return self._start(Arrival(frame, connection, now_s), template, index, log, records)

    def _start(
        self, arrival: Arrival, template: Template, index: int, log: PartitionLog, records: memoryview
    ) -> StartedRequest:
        broker, topic = self._broker, template.topic.name
        counters = broker.metrics.by_api[API_KEY]
        counters.requests += 1
        counters.request_size_bytes += len(arrival.frame)
        host = arrival.connection.peer_host
        if not broker.authorizer(ANONYMOUS, host, Operation.WRITE, ResourceType.TOPIC, topic):
            return self.general(arrival, template, ErrorCode.TOPIC_AUTHORIZATION_FAILED, log)
        try:
            append = log.append(records, acks=template.acks, allow_zstd=template.allow_zstd)
        except Exception as error:
            return self.general(arrival, template, error, log)
        return ExpressProduce(self, arrival, template, index, log, append, len(records))

    def general(
        self, arrival: Arrival, template: Template, outcome: PendingAppend | ErrorCode | Exception, log: PartitionLog
    ) -> StartedRequest:
        """The general path's request around what has become of the append here. Raises ProtocolViolation (acks=0)."""
        header, body_start = decode_request_header(arrival.frame)
        request = ProduceRequest.decode(arrival.frame, header.api_version, body_start)
        context = RequestContext(
            self._broker,
            arrival.connection,
            *header[:3],
            header.client_id,
            (),
            arrival.now_s,
            ANONYMOUS,
        )
        [asked] = request.topic_data
        [data] = asked.partition_data
        assert data.records is not None
        work, row = ProduceReply(context, request), PartitionProduceResponse(index=data.index, base_offset=-1)
        told = TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=[row])
        work.response.responses.append(told)
        if isinstance(outcome, ErrorCode):
            row.error_code = outcome
        elif isinstance(outcome, EngineError):
            work.refuse_row(row, template.topic.name, outcome, log.log_start_offset)
        elif isinstance(outcome, Exception):
            return Dispatched(
                self._api, context, request, answered(answer_failure(self._api, context, request, outcome))
            )
        else:
            work.wait_for(row, template.topic.name, outcome, log.log_start_offset, len(data.records))
        return Dispatched(self._api, context, request, work)

    def _forget(self) -> None:
        """The cluster has changed: what was learned may be wrong, and would keep what is gone in memory."""
        self._image = self._broker.cluster.image
        for templates in self._templates:
            templates.clear()

    def _learn(self, frame: bytearray, constant: bytes, index: int, records: memoryview) -> Template | None:
        """What the decoder makes of it, if that is a request for this lane and these are its index and records."""
        try:
            header, body_start = decode_request_header(frame)
            request = ProduceRequest.decode(frame, header.api_version, body_start)
        except DecodeError:
            return None
        rows = [(topic, data) for topic in request.topic_data for data in topic.partition_data]
        if len(request.topic_data) != 1 or len(rows) != 1 or request.transactional_id is not None:
            return None
        [(asked, data)] = rows
        is_located = data.index == index and data.records is not None and data.records == records
        if not is_located or not ALL_ACKS <= request.acks <= 1:
            return None
        image = self._image
        assert image is not None
        by_id = header.api_version >= FIRST_VERSION_WITH_IDS
        topic = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        if topic is None or (topic.internal and header.client_id != ADMIN_CLIENT_ID):
            return None
        templates = self._templates[header.api_version]
        if len(templates) >= TEMPLATES_MAX:
            templates.clear()
        templates[constant] = Template(request, header.api_version, topic)
        return templates[constant]

    def _find_log(self, template: Template, index: int) -> PartitionLog | None:
        log = find_log(self._broker.store, template.topic, index)
        if isinstance(log, ErrorCode):
            return None
        template.logs[index] = log
        return log

    def note(self, template: Template, result: AppendResult, arrival: Arrival, size_bytes: int) -> None:
        """Count a batch that was appended, and how long that took."""
        metrics = self._broker.metrics
        counters = metrics.by_topic[template.topic.name]
        counters.bytes_in += size_bytes
        counters.messages_in += result.last_offset - result.base_offset + 1
        metrics.by_api[API_KEY].latency.note(trio.current_time() - arrival.now_s)


class ExpressProduce:
    """See `kafkawire.requests.started.StartedRequest`."""

    __slots__ = ("_append", "_arrival", "_index", "_lane", "_log", "_size_bytes", "_template", "deadline_s")

    two_stage: Final = True
    holds_frame: Final = True

    def __init__(
        self,
        lane: ProduceLane,
        arrival: Arrival,
        template: Template,
        index: int,
        log: PartitionLog,
        append: PendingAppend,
        size_bytes: int,
    ) -> None:
        self._size_bytes = size_bytes
        self._lane = lane
        self._arrival = arrival
        self._template = template
        self._index = index
        self._log = log
        self._append = append
        self.deadline_s = arrival.now_s + template.timeout_s

    @property
    def is_ready(self) -> bool:
        return self._append.is_settled

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        self._append.call_when_settled(callback)

    def begin(self) -> None:
        raise AssertionError("it has begun")

    def reply(self) -> Reply:
        append, template, arrival = self._append, self._template, self._arrival
        try:
            result = append.result() if append.is_settled else None
        except EngineError:
            result = None
        if result is None:
            return self._lane.general(arrival, template, append, self._log).reply()
        self._lane.note(template, result, arrival, self._size_bytes)
        if not template.acks:
            return None
        shape, frame = template.reply_shape, arrival.frame
        return [
            shape.reply(
                frame[4:CONSTANT_FROM],
                self._index,
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            )
        ]
