"""Produce, key 0: batches in, offsets out.

Behavior:
- Each partition is answered by itself; a refused batch leaves the others alone. Checks of acks, topic and producer
  happen here, those of the batch in the engine, all before the first await: batches of one connection are queued in
  the order of its requests, and the next request starts while this one waits for its acks.
- acks=0 gets no reply. An error closes the connection, the only way to tell such a client (KafkaApis).
- A time-out (acks=all) answers REQUEST_TIMED_OUT; what was appended stays.
- Records without a key are refused in compacted topics, each by its place in the batch.
- A transactional batch takes the right to write under the transactional id, or nothing of the request is taken; nor is
  it when there are several producers (INVALID_PRODUCER_ID_MAPPING). It waits until its partition is a part of the
  transaction, see `kafkawire.requests.joining`; its producer's batches behind it wait with it.
- Internal topics are written by the broker alone (INVALID_TOPIC_EXCEPTION), Kafka's admin tools excepted.

Version notes: 0-2 are advertised (KAFKA-18659) and not served, 7 allows zstd (KIP-110), 8 record errors (KIP-467),
10 leader hints (KIP-951), 11 TRANSACTION_ABORTABLE and 12 adds partitions to transactions (KIP-890), 13 topic ids
(KIP-516).
"""

from __future__ import annotations

from functools import partial
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
from kafkawire.requests.joining import (
    NotJoined,
    TransactionJoining,
    is_transactional,
    producers_of,
)
from kafkawire.requests.pending_appends import PendingAppends
from kafkawire.requests.pending_reply import PendingReply
from kafkawire.requests.topic_lookup import current_leader, find_log, find_topic
from kafkawire.wire.connection import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage, TopicInfo
    from engine.api import PendingAppend

FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_HINTS: Final = 10
FIRST_VERSION_WITH_IDS: Final = 13
NO_ACKS: Final = 0
ALL_ACKS: Final = -1
ADMIN_CLIENT_ID: Final = "__admin_client"  # Kafka's AdminUtils.ADMIN_CLIENT_ID

# What Kafka's LogValidator finds is told with a text: a client can show it. The log start goes with what the log finds.
_VALIDATION_ERRORS: Final = (log_errors.InvalidRecord, log_errors.InvalidTimestamp, log_errors.RecordsRefused)
_LOG_ERRORS: Final = (
    *_VALIDATION_ERRORS,
    log_errors.OutOfOrderSequence,
    log_errors.InvalidProducerEpoch,
    log_errors.InvalidTxnState,
)


class Produced(NamedTuple):
    """What has become of a partition's batch: an append on its way, an error of its log's, or one before that."""

    topic: str
    outcome: PendingAppend | EngineError | ErrorCode
    log_start_offset: int = -1  # when it was queued: some errors tell it
    size_bytes: int = 0


def handle(context: RequestContext, request: ProduceRequest) -> PendingReply[ProduceResponse | None]:
    """Queues every batch that may be queued; the reply waits for their acks."""
    image = context.broker.cluster.image
    joining = _joining(context, request) if _has_transactions(request) else None
    refused = joining if isinstance(joining, ErrorCode) else None
    produced: list[Produced] = []
    try:
        for topic in request.topic_data:
            if not topic.partition_data:
                continue  # it asks for nothing, not even for a right to the topic
            found = refused or _find_topic(context, image, topic)
            for data in topic.partition_data:
                code = found if isinstance(found, ErrorCode) else _check(request, data)
                if code is ErrorCode.NONE:
                    assert not isinstance(found, ErrorCode)
                    assert not isinstance(joining, ErrorCode)
                    produced.append(_append(context, request, found, data, joining))
                else:
                    produced.append(Produced(topic.name, code))
    finally:
        if isinstance(joining, TransactionJoining):
            joining.send()  # whatever happens: batches wait for it
    return reply_to(context, request, produced)


def reply_to(
    context: RequestContext, request: ProduceRequest, produced: Sequence[Produced]
) -> PendingReply[ProduceResponse | None]:
    """To a request of which this has become, partition by partition.

    With acks=all it comes at the client's deadline at the latest, else it is bounded by the disk alone, as in Kafka.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None  # the appends alone keep them, until they are written
    appends = [one.outcome for one in produced if not isinstance(one.outcome, (ErrorCode, EngineError))]
    deadline_s = context.received_s + request.timeout_ms / 1000 if request.acks == ALL_ACKS else inf
    return PendingAppends(appends, partial(_respond, context, request, produced), deadline_s)


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


def _check(request: ProduceRequest, data: PartitionProduceData) -> ErrorCode:
    if not data.records:
        return ErrorCode.INVALID_RECORD
    if not ALL_ACKS <= request.acks <= 1:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def _append(
    context: RequestContext,
    request: ProduceRequest,
    topic: TopicInfo,
    data: PartitionProduceData,
    joining: TransactionJoining | None,
) -> Produced:
    log = find_log(context.broker.store, topic, data.index)
    if isinstance(log, ErrorCode):
        return Produced(topic.name, log)
    assert data.records is not None
    allow_zstd = context.api_version >= FIRST_VERSION_WITH_ZSTD
    outcome: PendingAppend | EngineError
    try:
        outcome = log.append(data.records, acks=request.acks, allow_zstd=allow_zstd, joining=joining)
    except EngineError as error:
        outcome = error.with_traceback(None)  # it would keep this frame, in a cycle
    return Produced(topic.name, outcome, log.log_start_offset, len(data.records))


def _respond(context: RequestContext, request: ProduceRequest, produced: Sequence[Produced]) -> ProduceResponse | None:
    """The response, or None for acks=0, whose errors end the connection (ProtocolViolation)."""
    response, left = ProduceResponse(responses=[]), iter(produced)
    for topic in request.topic_data:
        if topic.partition_data:  # Kafka leaves any other one out of the reply
            rows = [_row(context, response, data.index, next(left)) for data in topic.partition_data]
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            )
    if request.acks != NO_ACKS:
        return response
    for told in response.responses:
        for row in told.partition_responses:
            if row.error_code:
                raise ProtocolViolation(
                    f"produce with acks=0 to {told.name or told.topic_id.hex()}-{row.index} failed: "
                    f"{ErrorCode(row.error_code).name}"
                )
    return None


def _row(context: RequestContext, response: ProduceResponse, index: int, one: Produced) -> PartitionProduceResponse:
    """An append that is not settled by now has timed out: its reply was the last to depend on other replicas."""
    row = PartitionProduceResponse(index=index, base_offset=-1)
    outcome = one.outcome
    if isinstance(outcome, ErrorCode):
        row.error_code = outcome
    elif isinstance(outcome, EngineError):
        _refuse_row(context, row, one, outcome)
    elif not outcome.is_settled:
        row.error_code = ErrorCode.REQUEST_TIMED_OUT
        outcome.stop_waiting()
    elif isinstance(outcome.outcome, EngineError):
        _refuse_row(context, row, one, outcome.outcome)
    else:
        result = outcome.outcome
        row.base_offset = result.base_offset
        row.log_append_time_ms = result.log_append_time_ms
        row.log_start_offset = result.log_start_offset
        counters = context.broker.metrics.by_topic[one.topic]
        counters.bytes_in += one.size_bytes
        counters.messages_in += result.last_offset - result.base_offset + 1
    if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= FIRST_VERSION_WITH_HINTS:
        _hint(context, response, row, one.topic)
    return row


def _refuse_row(context: RequestContext, row: PartitionProduceResponse, one: Produced, error: EngineError) -> None:
    """Why its batch is not appended."""
    if isinstance(error, NotJoined):
        row.error_code, row.error_message = error.code, error.message
    else:
        row.error_code = error_code_of(error)
    context.broker.metrics.by_topic[one.topic].failed_produces += 1
    if isinstance(error, _LOG_ERRORS):
        row.log_start_offset = one.log_start_offset
    if isinstance(error, _VALIDATION_ERRORS):
        row.error_message = str(error) or None
    if isinstance(error, log_errors.RecordsRefused):
        row.record_errors = [
            BatchIndexAndErrorMessage(batch_index=each.number, batch_index_error_message=each.message)
            for each in error.errors
        ]


def _hint(context: RequestContext, response: ProduceResponse, row: PartitionProduceResponse, topic: str) -> None:
    """Who leads the partition instead (KIP-951)."""
    leader = current_leader(context, topic, row.index)
    row.current_leader = LeaderIdAndEpoch(leader_id=leader.broker_id, leader_epoch=leader.epoch)
    nodes = response.node_endpoints
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


def _joining(context: RequestContext, request: ProduceRequest) -> TransactionJoining | ErrorCode | None:
    """Transactional batches need the right to the transactional id; without it nothing of the request is taken. None:
    nobody is to be asked for them."""
    name, broker, version = request.transactional_id, context.broker, context.api_version
    if name is None or not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producers = producers_of(data.records for topic in request.topic_data for data in topic.partition_data)
    if len(producers) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not producers:
        return None
    is_enforced = broker.transaction_rules.verifies_partitions
    return TransactionJoining(broker.transactions_anywhere, name, producers.pop(), version, is_enforced=is_enforced)
