"""OffsetDelete, key 47: delete committed offsets of a group (KIP-496).

Behavior:
- Each partition has its own result: an unknown one is UNKNOWN_TOPIC_OR_PARTITION, one of a topic that members of the
  group read is GROUP_SUBSCRIBED_TO_TOPIC, one without an offset is a success.
- A refusal of the whole group is the reply's error, and no partition has a row; the group is asked even if none of the
  partitions exist.
- The client needs DELETE on the group and READ on the topics. After Kafka's KafkaApis.handleOffsetDeleteRequest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordinator.errors import GroupError
from coordinator.groups.api import TopicPartition
from coordinator.groups.commands import DeleteOffsets
from kafkawire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply, set_error_codes
from kafkawire.requests.topic_lookup import find_topic

if TYPE_CHECKING:
    from coordinator.api import Future


def handle(context: RequestContext, request: OffsetDeleteRequest) -> PendingReply[OffsetDeleteResponse]:
    """Delete all allowed offsets at once."""
    if not context.authorize(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return immediate_reply(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    image = context.broker.cluster.image
    response = OffsetDeleteResponse(topics=[])
    rows: list[OffsetDeleteResponsePartition] = []  # rows of allowed partitions
    partitions: list[TopicPartition] = []
    for topic in request.topics:
        found = find_topic(context, image, Operation.READ, topic.name)
        answers: list[OffsetDeleteResponsePartition] = []
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            row = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            answers.append(row)
            if isinstance(found, ErrorCode):
                row.error_code = found
            elif not 0 <= asked.partition_index < len(found.partitions):
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                rows.append(row)
                partitions.append(TopicPartition(topic.name, asked.partition_index))
    pending = context.broker.groups.ask(DeleteOffsets(request.group_id, partitions))
    return PendingReply([pending], partial(_respond, response, rows, pending))


def refuse(context: RequestContext, request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Refuse all partitions together."""
    return OffsetDeleteResponse(error_code=code)


def _respond(
    response: OffsetDeleteResponse,
    rows: list[OffsetDeleteResponsePartition],
    pending: Future[list[GroupError | None]],
) -> OffsetDeleteResponse:
    try:
        outcomes = pending.result()
    except GroupError as error:
        return OffsetDeleteResponse(error_code=error_code_of(error))
    set_error_codes(rows, outcomes)
    return response


API = Api("offset_delete", OffsetDeleteRequest, handle, refuse, 0, 0, two_stage=True)
