"""TxnOffsetCommit, key 28: how far a group will have read when a transaction is committed.

Behavior:
- Each partition is answered by itself; those that do not exist, or may not be read, leave the others alone. What the
  group refuses it refuses for all of the rest; it looks at member and generation only if some are given.
- The offsets are durable when they are answered, and count when the transaction is committed. An older epoch of the
  producer is INVALID_PRODUCER_EPOCH.
- It takes the right to write under the transactional id and to read the group and the topics. After
  KafkaApis.handleTxnOffsetCommitRequest.

Version notes: 2 leader epochs (KIP-320) and COORDINATOR_LOAD_IN_PROGRESS, 3 member and generation (KIP-447), 4
TRANSACTION_ABORTABLE, 5 the group's partition need not have been added (KIP-890).
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError
from coordinator.groups.api import Claim, OffsetToCommit
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, answered
from kafkawire.requests.topic_lookup import find_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coordinator.api import Pending, TopicInfo
    from coordinator.errors import GroupError

FIRST_VERSION_WITH_LOADING: Final = 2


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> PendingReply[TxnOffsetCommitResponse]:
    """Finds out what may be committed, and writes it into the transaction."""
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return answered(refuse(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return answered(refuse(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    image = context.broker.cluster.image
    found = [find_topic(context, image, Operation.READ, topic.name) for topic in request.topics]
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
        return answered(_told(request, found, iter(())))
    claim = Claim(request.member_id, request.group_instance_id, request.generation_id)
    pending = context.broker.groups.commit_in_transaction(
        request.group_id, claim, request.producer_id, request.producer_epoch, offsets
    )
    return PendingReply([pending], partial(_respond, context.api_version, request, found, pending))


def refuse(context: RequestContext, request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """All that was asked for."""
    return _told(request, [code] * len(request.topics), iter(()))


def _respond(
    version: int,
    request: TxnOffsetCommitRequest,
    found: Sequence[TopicInfo | ErrorCode],
    pending: Pending[list[GroupError | None]],
) -> TxnOffsetCommitResponse:
    try:
        outcomes = pending.result()
    except CoordinatorError as error:
        code = error_code_of(error)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITH_LOADING:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients before 2.0 break off at the other (KAFKA-7296)
        return _told(request, found, repeat(code))
    return _told(request, found, (ErrorCode.NONE if one is None else error_code_of(one) for one in outcomes))


def _told(
    request: TxnOffsetCommitRequest, found: Sequence[TopicInfo | ErrorCode], codes: Iterator[ErrorCode]
) -> TxnOffsetCommitResponse:
    """Each row by itself; `codes` are of those that may be committed, one after the other."""
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
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows)


def _refusal(info: TopicInfo | ErrorCode, asked: TxnOffsetCommitRequestPartition) -> ErrorCode:
    """NONE for a partition that may be committed."""
    if isinstance(info, ErrorCode):
        return info
    is_there = 0 <= asked.partition_index < len(info.partitions)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
