"""DescribeTopicPartitions, key 75: topics with their partitions, a page at a time (KIP-966).

Behavior:
- Topics come in the order of names; all of them if none is named. A page has no more partitions than the request and
  `max.request.partition.size.limit` allow, at least one. The cursor is the start of the next page, and is sent back
  with the same topics. It must be on one of them.
- A topic that may not be described is not disclosed: it is left out of "all", and refused by name, existing or not.
- Eligible leaders are listed beside the ISR, and the last known leader of a partition without a leader. After Kafka's
  DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from coordinator.api import INTERNAL_TOPICS, NO_LEADER
from kafkawire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.topic_lookup import is_legal_topic_name

if TYPE_CHECKING:
    from coordinator.api import ClusterImage, PartitionState, TopicInfo

TOPICS_PER_TURN: Final = 100


async def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Answer from one image."""
    image, cursor = context.broker.cluster.image, request.cursor
    begin = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    requested = {topic.name for topic in request.topics} or set(image.topics)
    names = sorted(name for name in requested if name >= begin[0])
    if begin[1] < 0 or (request.topics and cursor is not None and cursor.topic_name not in requested):
        refused = [_error_row(ErrorCode.INVALID_REQUEST, topic.name) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    room = max(1, min(context.broker.config.max_request_partitions, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse(topics=[])
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    for count, name in enumerate(names, 1):
        if count % TOPICS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            hidden += [_error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)] if request.topics else []
            continue
        if room == 0:
            response.next_cursor = ResponseCursor(topic_name=name)
            break
        topic = image.topics.get(name)
        row = _missing(name) if topic is None else _page(image, topic, begin[1] if name == begin[0] else 0, room)
        row.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, name)
        response.topics.append(row)
        room -= len(row.partitions)
        if topic is not None and row.partitions and row.partitions[-1].partition_index + 1 < len(topic.partitions):
            next_index = row.partitions[-1].partition_index + 1
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=next_index)
            break
    response.topics += hidden
    return response


def refuse(
    context: RequestContext, request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Refuse every topic."""
    return DescribeTopicPartitionsResponse(topics=[_error_row(code, topic.name) for topic in request.topics])


def _page(image: ClusterImage, topic: TopicInfo, first: int, room: int) -> DescribeTopicPartitionsResponseTopic:
    """The topic with its partitions from the first one on, as many as there is room for."""
    page = enumerate(topic.partitions[first : first + room], first)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition_row(image, index, state) for index, state in page],
    )


def _partition_row(image: ClusterImage, index: int, state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=state.leader if state.leader in image.brokers else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[state.last_known_leader] if state.last_known_leader >= 0 else [],
        offline_replicas=[one for one in state.replicas if one not in image.brokers or one in state.offline],
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_legal = is_legal_topic_name(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _error_row(code, name, is_internal=name in INTERNAL_TOPICS)


def _error_row(code: ErrorCode, name: str, *, is_internal: bool = False) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=is_internal, partitions=[])


API = Api("describe_topic_partitions", DescribeTopicPartitionsRequest, handle, refuse, 0, 0)
