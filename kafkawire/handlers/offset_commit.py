"""OffsetCommit, key 8: commit the offsets of a group.

Behavior:
- Each partition has its own result; unknown partitions, or those without READ, do not affect others. A refusal by the
  group, such as of an old generation, counts for all other partitions.
- A client outside any group commits without member id and generation, to a group of any name, even an empty one.
- The client needs READ on the group and the topics. After Kafka's KafkaApis.handleOffsetCommitRequest.

Version notes: 2-4 a retention time of the client's, 6 leader epochs (KIP-320), 7 static members (KIP-345), 9
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION (KIP-848), 10 topic ids (KIP-848).
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final

from coordinator.errors import GroupError, UnknownGroup
from coordinator.groups.api import Claim, OffsetToCommit
from coordinator.groups.commands import CommitOffsets
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply
from kafkawire.requests.topic_lookup import find_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coordinator.api import Future, TopicInfo

FIRST_VERSION_WITH_UNKNOWN_GROUP: Final = 9
FIRST_VERSION_WITH_IDS: Final = 10


def handle(context: RequestContext, request: OffsetCommitRequest) -> PendingReply[OffsetCommitResponse]:
    """Find the partitions that may be committed, and commit them."""
    may_commit = context.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
    found = [
        _find_topic(context, topic) if may_commit else ErrorCode.GROUP_AUTHORIZATION_FAILED for topic in request.topics
    ]
    return commit(context, request, found)


def commit(
    context: RequestContext, request: OffsetCommitRequest, found: Sequence[TopicInfo | ErrorCode]
) -> PendingReply[OffsetCommitResponse]:
    """Commit all allowed offsets at once. `found` has the topic, or its error, for each topic of the request."""
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
    pending = context.broker.groups.ask(CommitOffsets(request.group_id, claim, offsets, request.retention_time_ms))
    return reply_about(context, request, found, pending)


def reply_about(
    context: RequestContext,
    request: OffsetCommitRequest,
    found: Sequence[TopicInfo | ErrorCode],
    pending: Future[list[GroupError | None]],
) -> PendingReply[OffsetCommitResponse]:
    """The reply, which waits for the outcome of all allowed offsets."""
    return PendingReply([pending], partial(_respond, context.api_version, request, found, pending))


def refuse(context: RequestContext, request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Refuse every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find_topic(context: RequestContext, topic: OffsetCommitRequestTopic) -> TopicInfo | ErrorCode:
    topic_id = topic.topic_id if context.api_version >= FIRST_VERSION_WITH_IDS else None
    return find_topic(context, context.broker.cluster.image, Operation.READ, topic.name, topic_id)


def _respond(
    version: int,
    request: OffsetCommitRequest,
    found: Sequence[TopicInfo | ErrorCode],
    pending: Future[list[GroupError | None]],
) -> OffsetCommitResponse:
    try:
        outcomes = pending.result()
    except GroupError as error:
        code = error_code_of(error)
        if isinstance(error, UnknownGroup) and version < FIRST_VERSION_WITH_UNKNOWN_GROUP:
            code = ErrorCode.ILLEGAL_GENERATION
        return _response_of(request, found, repeat(code))
    return _response_of(request, found, (ErrorCode.NONE if one is None else error_code_of(one) for one in outcomes))


def _response_of(
    request: OffsetCommitRequest, found: Sequence[TopicInfo | ErrorCode], codes: Iterator[ErrorCode]
) -> OffsetCommitResponse:
    """The response. `codes` are the codes of the allowed partitions, one after the other."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=_refusal(info, asked) or next(codes)
                    )
                    for asked in topic.partitions
                ],
            )
            for topic, info in zip(request.topics, found, strict=True)
        ]
    )


def _refusal(info: TopicInfo | ErrorCode, asked: OffsetCommitRequestPartition) -> ErrorCode:
    """The refusal of a partition; NONE if it may be committed."""
    if isinstance(info, ErrorCode):
        return info
    is_there = 0 <= asked.partition_index < len(info.partitions)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API = Api("offset_commit", OffsetCommitRequest, handle, refuse, 2, 10, two_stage=True)
