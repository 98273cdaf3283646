"""ListOffsets, key 2: the offset at a point in time, or at one of the ends.

Behavior:
- A timestamp of 0 or more asks for the first record at or after it, exactly. Negative ones are named points, each
  known from a version on; below it, and for any other negative number, the answer is UNSUPPORTED_VERSION.
- A partition named twice is answered once, with INVALID_REQUEST. Each partition is answered by itself.
- All points but the latest count what only a remote tier has; Kafka's latest timestamp is that of its local segments.
- Who claims to be a replica is answered as a consumer: nothing above the high watermark is told.

Version notes: 2 isolation level, 4 leader epochs, 7 max timestamp (KIP-734), 8 earliest local and 9 latest tiered
offset (KIP-405, KIP-1005), 10 time-out, 11 earliest pending upload (KIP-1023).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from engine.api import Isolation, OffsetAtTimestamp, OffsetSpec
from engine.errors import EngineError
from kafkawire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

_FIRST_VERSION_BY_TIMESTAMP: Final[dict[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answers partition by partition, in the order of the request."""
    named = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        if not topic.partitions:
            continue  # Kafka leaves it out of the reply
        allowed = context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        rows = []
        for one in {one.partition_index: one for one in topic.partitions}.values():
            if not allowed:
                outcome: OffsetAtTimestamp | ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif named[topic.name, one.partition_index] > 1:
                outcome = ErrorCode.INVALID_REQUEST
            else:
                outcome = await _find(context, topic, one, isolation)
            rows.append(_row(one, outcome))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return response


def refuse(context: RequestContext, request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """All that was asked for."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_row(one, code) for one in topic.partitions])
            for topic in request.topics
        ]
    )


async def _find(
    context: RequestContext, topic: ListOffsetsTopic, asked: ListOffsetsPartition, isolation: Isolation
) -> OffsetAtTimestamp | ErrorCode:
    timestamp_ms = asked.timestamp
    if timestamp_ms < 0 and context.api_version < _FIRST_VERSION_BY_TIMESTAMP.get(timestamp_ms, 2**15):
        return ErrorCode.UNSUPPORTED_VERSION
    info = context.broker.cluster.image.topics.get(topic.name)
    if info is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = find_log(context.broker.store, info, asked.partition_index)
    if isinstance(log, ErrorCode):
        return log
    try:
        log.check_leader_epoch(asked.current_leader_epoch)
        return await log.offset_for_timestamp(timestamp_ms, isolation)
    except EngineError as error:
        return error_code_of(error)


def _row(asked: ListOffsetsPartition, outcome: OffsetAtTimestamp | ErrorCode) -> ListOffsetsPartitionResponse:
    if isinstance(outcome, ErrorCode):
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=outcome)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=outcome.timestamp_ms,
        offset=outcome.offset,
        leader_epoch=outcome.leader_epoch,
    )
