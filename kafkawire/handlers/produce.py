"""Produce, key 0: batches in, offsets out.

Behavior:
- Each partition has its own result; a refused batch does not affect others. Acks, topic and producer are checked here,
  the batch in the engine, all before the first await: batches of one connection are queued in the order of its
  requests, and the next request starts while this one waits for its acks.
- acks=0 gets no reply. An error closes the connection, the only way to report it to such a client (KafkaApis).
- A timeout (acks=all) answers REQUEST_TIMED_OUT; appended batches stay.
- Records without a key are refused in compacted topics, each by its position in the batch.
- A transactional batch needs WRITE on the transactional id, else the whole request is refused. So is a request with
  several producers (INVALID_PRODUCER_ID_MAPPING). The batch waits until its partition is part of the transaction, see
  `kafkawire.handlers.common.txn_verification`; later batches of its producer wait with it.
- Only the broker writes to internal topics (INVALID_TOPIC_EXCEPTION), except for Kafka's admin tools.

Version notes: 0-2 are advertised (KAFKA-18659) and not served, 7 allows zstd (KIP-110), 8 record errors (KIP-467), 10
leader hints (KIP-951), 11 TRANSACTION_ABORTABLE and 12 adds partitions to transactions (KIP-890), 13 topic ids
(KIP-516).
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from engine import errors as log_errors
from engine.errors import EngineError
from kafkawire.handlers.common.pending_appends import PendingAppends
from kafkawire.handlers.common.txn_verification import NotJoined, TransactionJoining, is_transactional, producers_of
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
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
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

# Errors of Kafka's LogValidator have a text, which a client can show. Errors of the log have the log start.
_VALIDATION_ERRORS: Final = (log_errors.InvalidRecord, log_errors.InvalidTimestamp, log_errors.RecordsRefused)
_LOG_ERRORS: Final = (
    *_VALIDATION_ERRORS,
    log_errors.OutOfOrderSequence,
    log_errors.InvalidProducerEpoch,
    log_errors.InvalidTxnState,
)


class Produced(NamedTuple):
    """Outcome of a partition's batch: a running append, an error of its log, or an earlier error code."""

    topic: str
    outcome: PendingAppend | EngineError | ErrorCode
    log_start_offset: int = -1  # when the batch was queued; some errors have it
    size_bytes: int = 0


def handle(context: RequestContext, request: ProduceRequest) -> PendingReply[ProduceResponse | None]:
    """Queue every allowed batch; the reply waits for their acks."""
    image = context.broker.cluster.image
    joining = _joining(context, request) if _has_transactions(request) else None
    refused = joining if isinstance(joining, ErrorCode) else None
    produced: list[Produced] = []
    try:
        for topic in request.topic_data:
            if not topic.partition_data:
                continue  # without partitions, not even the right to the topic is checked
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
            joining.send()  # always, because batches wait for it
    return reply_to(context, request, produced)


def reply_to(
    context: RequestContext, request: ProduceRequest, produced: Sequence[Produced]
) -> PendingReply[ProduceResponse | None]:
    """The reply to a request with these outcomes.

    With acks=all it comes at the client's deadline at the latest. Else only the disk bounds it, as in Kafka.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None  # only the appends keep the records, until they are written
    appends = [one.outcome for one in produced if not isinstance(one.outcome, (ErrorCode, EngineError))]
    deadline_s = context.received_s + request.timeout_ms / 1000 if request.acks == ALL_ACKS else inf
    return PendingAppends(appends, partial(_respond, context, request, produced), deadline_s)


def refuse(context: RequestContext, request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """Refuse every partition. With acks=0 raise ProtocolViolation, which closes the connection."""
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
        outcome = error.with_traceback(None)  # a traceback would keep this frame, in a cycle
    return Produced(topic.name, outcome, log.log_start_offset, len(data.records))


def _respond(context: RequestContext, request: ProduceRequest, produced: Sequence[Produced]) -> ProduceResponse | None:
    """The response, or None for acks=0, whose errors end the connection (ProtocolViolation)."""
    response, remaining = ProduceResponse(responses=[]), iter(produced)
    for topic in request.topic_data:
        if topic.partition_data:  # Kafka leaves topics without partitions out
            rows = [_row(context, response, data.index, next(remaining)) for data in topic.partition_data]
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            )
    if request.acks != NO_ACKS:
        return response
    for topic_row in response.responses:
        for row in topic_row.partition_responses:
            if row.error_code:
                raise ProtocolViolation(
                    f"produce with acks=0 to {topic_row.name or topic_row.topic_id.hex()}-{row.index} failed: "
                    f"{ErrorCode(row.error_code).name}"
                )
    return None


def _row(context: RequestContext, response: ProduceResponse, index: int, one: Produced) -> PartitionProduceResponse:
    """Row of a partition. An append that is not settled by now has timed out."""
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
    """Set the error of a batch that is not appended."""
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
    """Add the present leader of the partition (KIP-951)."""
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
    for topic in request.topic_data:  # no `any`: its generator would cost more than this loop
        for data in topic.partition_data:
            if is_transactional(data.records):
                return True
    return False


def _joining(context: RequestContext, request: ProduceRequest) -> TransactionJoining | ErrorCode | None:
    """Verification for the transactional batches, an error code for the whole request, or None without verification.

    Without the right to the transactional id the whole request is refused.
    """
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


# Advertised from 0: otherwise librdkafka would silently send without compression (KAFKA-18659).
API = Api(
    "produce", ProduceRequest, handle, refuse, 0, 13, first_served=3, two_stage=True, holds_frame=True, needs_room=True
)
