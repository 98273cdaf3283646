"""OffsetCommit, key 8: how far a group has read.

Behavior:
- Each partition is answered by itself; those that do not exist, or may not be read, leave the others alone. What the
  group refuses, such as a generation that is over, it refuses for all of the rest.
- Whoever is in no group commits without a member id and a generation, to a group of any name, even an empty one.
- It takes the right to read the group and the topics. After Kafka's KafkaApis.handleOffsetCommitRequest.

Version notes: 2-4 a retention time of the client's, 6 leader epochs (KIP-320), 7 static members (KIP-345), 9
GROUP_ID_NOT_FOUND where it was ILLEGAL_GENERATION before (KIP-848), 10 topic ids (KIP-848).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import GroupError, UnknownGroup
from coordinator.groups.api import Claim, OffsetToCommit
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, answered, tell_refusals
from kafkawire.requests.topic_lookup import find_topic

if TYPE_CHECKING:
    from coordinator.api import TopicInfo
    from coordinator.groups.api import Pending

FIRST_VERSION_WITH_UNKNOWN_GROUP: Final = 9
FIRST_VERSION_WITH_IDS: Final = 10


def handle(context: RequestContext, request: OffsetCommitRequest) -> PendingReply[OffsetCommitResponse]:
    """Commits, in one go, all that may be committed."""
    response = OffsetCommitResponse(topics=[])
    rows: list[OffsetCommitResponsePartition] = []  # of what is committed
    offsets: list[OffsetToCommit] = []
    may_commit = context.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
    for topic in request.topics:
        found = _find_topic(context, topic) if may_commit else ErrorCode.GROUP_AUTHORIZATION_FAILED
        answers: list[OffsetCommitResponsePartition] = []
        response.topics.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=answers))
        for asked in topic.partitions:
            row = OffsetCommitResponsePartition(partition_index=asked.partition_index)
            answers.append(row)
            if isinstance(found, ErrorCode):
                row.error_code = found
            elif not 0 <= asked.partition_index < len(found.partitions):
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                rows.append(row)
                offsets.append(
                    OffsetToCommit(
                        found.name,
                        asked.partition_index,
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata or "",
                    )
                )
    if not offsets:
        return answered(response)
    claim = Claim(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    pending = context.broker.groups.commit(request.group_id, claim, offsets, request.retention_time_ms)
    return PendingReply([pending], partial(_respond, context.api_version, response, rows, pending))


def refuse(context: RequestContext, request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """All that was asked for."""
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
    response: OffsetCommitResponse,
    rows: list[OffsetCommitResponsePartition],
    pending: Pending[list[GroupError | None]],
) -> OffsetCommitResponse:
    try:
        outcomes = pending.result()
    except GroupError as error:
        code = error_code_of(error)
        if isinstance(error, UnknownGroup) and version < FIRST_VERSION_WITH_UNKNOWN_GROUP:
            code = ErrorCode.ILLEGAL_GENERATION
        for row in rows:
            row.error_code = code
        return response
    tell_refusals(rows, outcomes)
    return response
