"""DeleteRecords, key 21: raise the log start of partitions, and free what lies wholly below it (KIP-107).

Behavior:
- Each partition is answered by itself with its new log start, the low watermark; -1 as an offset means up to the high
  watermark. An offset at or below the log start changes nothing and succeeds; one above the high watermark is
  OFFSET_OUT_OF_RANGE.
- What was deleted stays deleted: the answer comes when that is durable. The time-out of the request bounds the wait of
  Kafka's leader for its followers; there are none here.
- Records of internal topics are the broker's own (INVALID_TOPIC_EXCEPTION). After ReplicaManager.deleteRecords.

Version notes: 2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.errors import EngineError
from kafkawire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from coordinator.api import TopicInfo

NO_LOW_WATERMARK: Final = -1


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Deletes from one partition after the other."""
    response = DeleteRecordsResponse(topics=[])
    for topic in request.topics:
        found = _find_topic(context, topic.name)
        rows = [await _delete(context, found, asked) for asked in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    return response


def refuse(context: RequestContext, request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """All that was asked for."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_row(asked.partition_index, code) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _find_topic(context: RequestContext, name: str) -> TopicInfo | ErrorCode:
    if not context.authorize(Operation.DELETE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = context.broker.cluster.image.topics.get(name)
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION if found.internal else found


async def _delete(
    context: RequestContext, topic: TopicInfo | ErrorCode, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    row = _row(asked.partition_index, ErrorCode.NONE)
    log = topic if isinstance(topic, ErrorCode) else find_log(context.broker.store, topic, asked.partition_index)
    if isinstance(log, ErrorCode):
        row.error_code = log
        return row
    try:
        row.low_watermark = await log.delete_records(asked.offset)
    except EngineError as error:
        row.error_code = error_code_of(error)
    return row


def _row(partition: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=NO_LOW_WATERMARK, error_code=code)
