"""Produce, key 0: batches in, offsets out.

Behavior:
- Each partition is answered by itself; a refused batch leaves the others alone. Checks of acks, topic and producer
  happen here, those of the batch in the engine, all before the first await: batches of one connection are queued in
  the order of its requests, and the next request starts while this one waits for its acks.
- acks=0 gets no reply. An error closes the connection, the only way to tell such a client (KafkaApis).
- A time-out (acks=all) answers REQUEST_TIMED_OUT; what was appended stays.
- Records without a key are refused in compacted topics, each by its place in the batch.
- No transaction can be open: a transactional batch gets INVALID_TXN_STATE.
- Internal topics are written by the broker alone (INVALID_TOPIC_EXCEPTION), Kafka's admin tools excepted.

Version notes: 0-2 are advertised (KAFKA-18659) and not served, 7 allows zstd (KIP-110), 8 record errors (KIP-467),
10 leader hints (KIP-951), 13 topic ids (KIP-516).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from engine import errors as log_errors
from engine.errors import EngineError
from kafkawire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import Countdown
from kafkawire.requests.topic_lookup import current_leader, find_log, find_topic
from kafkawire.wire.connection import ProtocolViolation

if TYPE_CHECKING:
    from coordinator.api import ClusterImage, TopicInfo
    from engine.api import PendingAppend

FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_HINTS: Final = 10
FIRST_VERSION_WITH_IDS: Final = 13
NO_ACKS: Final = 0
ALL_ACKS: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"  # Kafka's AdminUtils.ADMIN_CLIENT_ID

_ATTRIBUTES_AT: Final = 21
_MAGIC_AT: Final = 16
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

# What Kafka's LogValidator finds is told with a text: a client can show it. The log start goes with what the log finds.
_VALIDATION_ERRORS: Final = (log_errors.InvalidRecord, log_errors.InvalidTimestamp, log_errors.RecordsRefused)
_LOG_ERRORS: Final = (*_VALIDATION_ERRORS, log_errors.OutOfOrderSequence, log_errors.InvalidProducerEpoch)


class _Waiting(NamedTuple):
    """A queued batch and the row of the response that tells about it."""

    row: PartitionProduceResponse
    append: PendingAppend
    log_start_offset: int
    topic: str
    size_bytes: int


def handle(context: RequestContext, request: ProduceRequest) -> ProduceReply:
    """Queues every batch that may be queued; the reply waits for their acks."""
    work = ProduceReply(context, request)
    image = context.broker.cluster.image
    refused = None
    if _has_transactions(request):
        work.has_transactions = True
        refused = _refuse_transactions(context, request)
    for topic in request.topic_data:
        if not topic.partition_data:
            continue  # Kafka leaves it out of the reply
        rows: list[PartitionProduceResponse] = []
        work.response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
        found = refused or _find_topic(context, image, topic)
        for data in topic.partition_data:
            row = PartitionProduceResponse(index=data.index, base_offset=-1)
            rows.append(row)
            if isinstance(found, ErrorCode):
                row.error_code = found
            else:
                work.append(found, data, row)
    return work


def refuse(context: RequestContext, request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """Every partition. Who wants no reply loses the connection instead, and raises ProtocolViolation."""
    if request.acks == NO_ACKS:
        raise ProtocolViolation(f"produce with acks=0 failed: {code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, base_offset=-1, error_code=code)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


class ProduceReply(Countdown):
    """The second stage: the response, or None for acks=0.

    With acks=all it comes at the client's deadline at the latest, else it is bounded by the disk alone, as in Kafka.
    """

    __slots__ = (
        "_acks",
        "_allow_zstd",
        "_context",
        "_waiting",
        "deadline_s",
        "has_transactions",
        "response",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        super().__init__()
        self._context = context
        self._acks = request.acks
        is_timed = request.acks == ALL_ACKS
        self.deadline_s = context.received_s + request.timeout_ms / 1000 if is_timed else inf
        self._allow_zstd = context.api_version >= FIRST_VERSION_WITH_ZSTD
        self._waiting: list[_Waiting] = []
        self.has_transactions = False
        self.response = ProduceResponse(responses=[])

    def append(self, topic: TopicInfo, data: PartitionProduceData, row: PartitionProduceResponse) -> None:
        """Queue one partition's batch, or say in `row` why not."""
        code = self._check(data)
        if code is not ErrorCode.NONE:
            row.error_code = code
            return
        assert data.records is not None
        log = find_log(self._context.broker.store, topic, data.index)
        if isinstance(log, ErrorCode):
            row.error_code = log
            self._hint(row, topic.name)
            return
        try:
            pending = log.append(data.records, acks=self._acks, allow_zstd=self._allow_zstd)
        except EngineError as error:
            self.refuse_row(row, topic.name, error, log.log_start_offset)
            return
        self.wait_for(row, topic.name, pending, log.log_start_offset, len(data.records))

    def wait_for(
        self, row: PartitionProduceResponse, topic: str, append: PendingAppend, log_start_offset: int, size_bytes: int
    ) -> None:
        """Tell in `row` what becomes of `append`; with some errors go the log start of when it was queued."""
        self._waiting.append(_Waiting(row, append, log_start_offset, topic, size_bytes))
        self.count(append)

    def _check(self, data: PartitionProduceData) -> ErrorCode:
        if not data.records:
            return ErrorCode.INVALID_RECORD
        if not ALL_ACKS <= self._acks <= 1:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if self.has_transactions and is_transactional(data.records) and not data.records[_ATTRIBUTES_AT + 1] & _CONTROL:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def response_now(self) -> ProduceResponse | None:
        """What is not settled by now has timed out."""
        self._settle()
        if self._acks != NO_ACKS:
            return self.response
        for topic in self.response.responses:
            for row in topic.partition_responses:
                if row.error_code:
                    raise ProtocolViolation(
                        f"produce with acks=0 to {topic.name or topic.topic_id.hex()}-{row.index} failed: "
                        f"{ErrorCode(row.error_code).name}"
                    )
        return None

    def _settle(self) -> None:
        by_topic = self._context.broker.metrics.by_topic
        for row, append, log_start_offset, topic, size_bytes in self._waiting:
            if not append.is_settled:
                row.error_code = ErrorCode.REQUEST_TIMED_OUT
                continue
            try:
                result = append.result()
            except EngineError as error:
                self.refuse_row(row, topic, error, log_start_offset)
                continue
            row.base_offset = result.base_offset
            row.log_append_time_ms = result.log_append_time_ms
            row.log_start_offset = result.log_start_offset
            counters = by_topic[topic]
            counters.bytes_in += size_bytes
            counters.messages_in += result.last_offset - result.base_offset + 1

    def refuse_row(self, row: PartitionProduceResponse, topic: str, error: EngineError, log_start_offset: int) -> None:
        """Tell in `row` why its batch is not appended."""
        row.error_code = error_code_of(error)
        self._context.broker.metrics.by_topic[topic].failed_produces += 1
        if isinstance(error, _LOG_ERRORS):
            row.log_start_offset = log_start_offset
        if isinstance(error, _VALIDATION_ERRORS):
            row.error_message = str(error) or None
        if isinstance(error, log_errors.RecordsRefused):
            row.record_errors = [
                BatchIndexAndErrorMessage(batch_index=one.number, batch_index_error_message=one.message)
                for one in error.errors
            ]
        self._hint(row, topic)

    def _hint(self, row: PartitionProduceResponse, topic: str) -> None:
        """Who leads the partition instead (KIP-951)."""
        if row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER or self._context.api_version < FIRST_VERSION_WITH_HINTS:
            return
        leader = current_leader(self._context, topic, row.index)
        row.current_leader = LeaderIdAndEpoch(leader_id=leader.broker_id, leader_epoch=leader.epoch)
        nodes = self.response.node_endpoints
        if leader.host is not None and all(node.node_id != leader.broker_id for node in nodes):
            nodes.append(NodeEndpoint(node_id=leader.broker_id, host=leader.host, port=leader.port, rack=leader.rack))


def _find_topic(context: RequestContext, image: ClusterImage, topic: TopicProduceData) -> TopicInfo | ErrorCode:
    topic_id = topic.topic_id if context.api_version >= FIRST_VERSION_WITH_IDS else None
    found = find_topic(context, image, Operation.WRITE, topic.name, topic_id)
    if not isinstance(found, ErrorCode) and found.internal and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return found


def _has_transactions(request: ProduceRequest) -> bool:
    for topic in request.topic_data:  # no `any`: its generator would cost more than most requests have to look at
        for data in topic.partition_data:
            if is_transactional(data.records):
                return True
    return False


def _refuse_transactions(context: RequestContext, request: ProduceRequest) -> ErrorCode | None:
    """Transactional batches need the right to the transactional id; without it nothing of the request is taken."""
    name = request.transactional_id
    if name is None or not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def is_transactional(records: memoryview | None) -> bool:
    """Whether it belongs, as it says itself, to a transaction."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_AT + 1
        and records[_MAGIC_AT] == 2
        and bool(records[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL)
    )
