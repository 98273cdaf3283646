"""TxnOffsetCommit, key 28: offsets of a group that count when a transaction is committed.

Behavior:
- Each partition has its own result; unknown partitions, or those without READ, do not affect others. A refusal by the
  group counts for all other partitions; the group checks member and generation only if they are given.
- The offsets are durable when the reply leaves, and count when the transaction is committed. An older epoch of the
  producer is INVALID_PRODUCER_EPOCH.
- From version 5 on the request adds the group's partition to the transaction. It waits for that for at most 100 ms;
  then it is CONCURRENT_TRANSACTIONS. In older versions the client has added the partition. If not, or if the
  transaction has ended meanwhile, it is TRANSACTION_ABORTABLE, for older clients INVALID_TXN_STATE
  (CoordinatorPartitionWriter).
- The client needs WRITE on the transactional id, and READ on the group and the topics. After
  KafkaApis.handleTxnOffsetCommitRequest.

Version notes: 2 leader epochs (KIP-320) and COORDINATOR_LOAD_IN_PROGRESS, 3 member and generation (KIP-447), 4
TRANSACTION_ABORTABLE, 5 the group's partition need not have been added (KIP-890), 6 topic ids and
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION (KIP-1319).
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError, UnknownGroup
from coordinator.groups.api import Claim, OffsetToCommit
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, ProducerIdentity
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply
from kafkawire.requests.topic_lookup import find_topic
from kafkawire.requests.transactions import Verified, code_of_unverified, partition_of_group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coordinator.api import Future, TopicInfo
    from coordinator.errors import GroupError

FIRST_VERSION_WITH_LOADING: Final = 2
FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_THAT_ADDS: Final = 5
FIRST_VERSION_WITH_IDS: Final = 6
FIRST_VERSION_WITH_UNKNOWN_GROUP: Final = 6


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> PendingReply[TxnOffsetCommitResponse]:
    """Find the offsets that may be committed, and write them into the transaction."""
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return immediate_reply(refuse(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return immediate_reply(refuse(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    found = [_find_topic(context, topic) for topic in request.topics]
    offsets = [
        OffsetToCommit(
            info.name,
            asked.partition_index,
            asked.committed_offset,
            asked.committed_leader_epoch,
            asked.committed_metadata or "",
        )
        for topic, info in zip(request.topics, found, strict=True)
        if not isinstance(info, ErrorCode)
        for asked in topic.partitions
        if not _refusal(info, asked)
    ]
    if not offsets:
        return immediate_reply(_response_of(request, found, iter(())))
    claim = Claim(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    if not request.transactional_id:
        return immediate_reply(refuse(context, request, ErrorCode.INVALID_REQUEST))
    protocol = SECOND_PROTOCOL if context.api_version >= FIRST_VERSION_THAT_ADDS else FIRST_PROTOCOL
    pending = context.broker.groups.commit_in_transaction(
        request.group_id,
        claim,
        request.producer_id,
        request.producer_epoch,
        offsets,
        allowed=_permission(context, request, protocol),
        protocol=protocol,
    )
    return PendingReply([pending], partial(_respond, context.api_version, request, found, pending))


def _find_topic(context: RequestContext, topic: TxnOffsetCommitRequestTopic) -> TopicInfo | ErrorCode:
    topic_id = topic.topic_id if context.api_version >= FIRST_VERSION_WITH_IDS else None
    return find_topic(context, context.broker.cluster.image, Operation.READ, topic.name, topic_id)


def _permission(context: RequestContext, request: TxnOffsetCommitRequest, protocol: int) -> Future[None] | None:
    """Verification that the transaction has the group's partition; None if there is nothing to verify."""
    broker, name = context.broker, request.transactional_id
    if not request.group_id:
        return None  # the request is refused
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    partitions = [partition_of_group(broker.groups, request.group_id)]
    if protocol == SECOND_PROTOCOL:
        return broker.transactions_anywhere.add_partitions(name, producer, partitions, protocol=protocol)
    if not broker.transaction_rules.verifies_partitions:
        return None
    return Verified(broker.transactions_anywhere.verify_partitions(name, producer, partitions))


def refuse(context: RequestContext, request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Refuse every partition."""
    return _response_of(request, [code] * len(request.topics), iter(()))


def _respond(
    version: int,
    request: TxnOffsetCommitRequest,
    found: Sequence[TopicInfo | ErrorCode],
    pending: Future[list[GroupError | None]],
) -> TxnOffsetCommitResponse:
    try:
        outcomes = pending.result()
    except CoordinatorError as error:
        code = code_of_unverified(error, knows_abortable=version >= FIRST_VERSION_WITH_ABORTABLE)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITH_LOADING:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients before 2.0 fail at the original code (KAFKA-7296)
        if isinstance(error, UnknownGroup) and version < FIRST_VERSION_WITH_UNKNOWN_GROUP:
            code = ErrorCode.ILLEGAL_GENERATION
        return _response_of(request, found, repeat(code))
    return _response_of(request, found, (ErrorCode.NONE if one is None else error_code_of(one) for one in outcomes))


def _response_of(
    request: TxnOffsetCommitRequest, found: Sequence[TopicInfo | ErrorCode], codes: Iterator[ErrorCode]
) -> TxnOffsetCommitResponse:
    """The response. `codes` are the codes of the allowed partitions, one after the other."""
    return TxnOffsetCommitResponse(
        topics=[_topic(topic, info, codes) for topic, info in zip(request.topics, found, strict=True)]
    )


def _topic(
    topic: TxnOffsetCommitRequestTopic, info: TopicInfo | ErrorCode, codes: Iterator[ErrorCode]
) -> TxnOffsetCommitResponseTopic:
    rows = [
        TxnOffsetCommitResponsePartition(
            partition_index=asked.partition_index, error_code=_refusal(info, asked) or next(codes)
        )
        for asked in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=rows)


def _refusal(info: TopicInfo | ErrorCode, asked: TxnOffsetCommitRequestPartition) -> ErrorCode:
    """The refusal of a partition; NONE if it may be committed."""
    if isinstance(info, ErrorCode):
        return info
    is_there = 0 <= asked.partition_index < len(info.partitions)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API = Api("txn_offset_commit", TxnOffsetCommitRequest, handle, refuse, 0, 6, two_stage=True)
