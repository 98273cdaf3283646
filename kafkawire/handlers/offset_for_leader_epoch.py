"""OffsetForLeaderEpoch, key 23: the end offset of a leader epoch, so that a client can see lost records.

Behavior:
- A client with an older or newer current leader epoch than this broker's gets an error (KIP-320).
- For an unknown epoch the answer is epoch -1 and offset -1, for one without records the greatest epoch before it. After
  Kafka's LeaderEpochFileCache and KafkaApis.handleOffsetForLeaderEpochRequest.
- The client needs DESCRIBE on the topic, or CLUSTER_ACTION.
- A controller that elects a leader asks for the end of a replica's log with a tagged field of kafkawire. The replica
  follows in the leader epoch that the controller names; that epoch has no leader (RULES K33).

Version notes: 2 throttle time, 3 replica id, 4 flexible. Fetch tells followers where to truncate; so all clients are
answered alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import TopicIdPartition
from engine.errors import EngineError
from kafkawire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from coordinator.api import TopicInfo


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Answer each partition by itself."""
    image = context.broker.cluster.image
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        found: TopicInfo | ErrorCode = image.topics.get(topic.topic) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not _may_ask(context, topic.topic):
            found = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows = [
            _replica_end(context, found, asked) if asked.of_replica else _end_offset(context, found, asked)
            for asked in topic.partitions
        ]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return response


def refuse(
    context: RequestContext, request: OffsetForLeaderEpochRequest, code: ErrorCode
) -> OffsetForLeaderEpochResponse:
    """Refuse every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(partition=asked.partition, error_code=code) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _may_ask(context: RequestContext, topic: str) -> bool:
    return context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic) or context.authorize(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )


def _replica_end(
    context: RequestContext, topic: TopicInfo | ErrorCode, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    row = EpochEndOffset(partition=asked.partition)
    if isinstance(topic, ErrorCode):
        row.error_code = topic
    elif not context.is_of_any_broker:
        row.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        partition = TopicIdPartition(topic.topic_id, topic.name, asked.partition)
        try:
            end = context.broker.store.replica_end(partition, asked.current_leader_epoch)
        except EngineError as error:
            row.error_code = error_code_of(error)
        else:
            row.leader_epoch, row.end_offset, row.high_watermark = end
    return row


def _end_offset(
    context: RequestContext, topic: TopicInfo | ErrorCode, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    row = EpochEndOffset(partition=asked.partition)
    log = topic if isinstance(topic, ErrorCode) else find_log(context.broker.store, topic, asked.partition)
    if isinstance(log, ErrorCode):
        row.error_code = log
        return row
    try:
        log.check_leader_epoch(asked.current_leader_epoch)
        row.leader_epoch, row.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    except EngineError as error:
        row.error_code = error_code_of(error)
    return row


API = Api("offset_for_leader_epoch", OffsetForLeaderEpochRequest, handle, refuse, 2, 4)
