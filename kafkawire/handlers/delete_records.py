"""DeleteRecords, key 21: raise the log start of partitions, and delete segments wholly below it (KIP-107).

Behavior:
- Each partition is answered by itself with its new log start, the low watermark; offset -1 means up to the high
  watermark. An offset at or below the log start changes nothing and succeeds; one above the high watermark is
  OFFSET_OUT_OF_RANGE.
- A deletion outlasts changes of the leader: the reply leaves when the new log start is durable here and at all replicas
  on brokers that serve. The low watermark is theirs, too. After the timeout of the request it is REQUEST_TIMED_OUT
  (DelayedDeleteRecords).
- Records of internal topics cannot be deleted (INVALID_TOPIC_EXCEPTION), nor those of topics that are only compacted
  (POLICY_VIOLATION). After ReplicaManager.deleteRecords.

Version notes: 2 flexible.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import trio

from engine.errors import EngineError
from engine.log_config import CleanupPolicy
from kafkawire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import TopicInfo
    from engine.api import PartitionLog
    from engine.replica_log import ReplicaLog

NO_LOW_WATERMARK: Final = -1


class _Deleted(NamedTuple):
    """A deletion on the leader. `row` is right once no replica has records below the offset."""

    row: DeleteRecordsPartitionResult
    log: ReplicaLog
    offset: int

    def is_over(self) -> bool:
        """Whether all replicas have deleted the records."""
        try:
            low_watermark = self.log.followers.low_watermark
        except EngineError as error:
            self.row.error_code = error_code_of(error)
            return True
        if low_watermark < self.offset:
            return False
        self.row.error_code, self.row.low_watermark = ErrorCode.NONE, low_watermark
        return True


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete from one partition after the other, then wait for the other replicas."""
    response = DeleteRecordsResponse(topics=[])
    unsettled: list[_Deleted] = []
    for topic in request.topics:
        found = _find_topic(context, topic.name)
        rows = [await _delete(context, found, asked, unsettled) for asked in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    if unsettled:
        with trio.move_on_after(max(0, request.timeout_ms) / 1000):
            await _wait_for_replicas(context, unsettled)
        for one in unsettled:
            if one.row.error_code == ErrorCode.REQUEST_TIMED_OUT:
                one.is_over()  # it may be over since the last check
    return response


async def _wait_for_replicas(context: RequestContext, unsettled: Sequence[_Deleted]) -> None:
    """Wait for the replicas. A change of a partition checks only that partition."""
    unfinished: dict[PartitionLog, list[_Deleted]] = {}
    for one in unsettled:
        unfinished.setdefault(one.log, []).append(one)
    with closing(context.broker.store.new_waiter()) as waiter:
        for log in unfinished:
            waiter.watch(log)
        changed = [*unfinished]
        while True:
            for log in changed:
                unfinished[log] = [one for one in unfinished[log] if not one.is_over()]
                if not unfinished[log]:
                    waiter.unwatch(log)
                    del unfinished[log]
            if not unfinished:
                return
            await waiter.wait()
            changed = waiter.take_changed()


def refuse(context: RequestContext, request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Refuse every partition."""
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
    context: RequestContext,
    topic: TopicInfo | ErrorCode,
    asked: DeleteRecordsPartition,
    unsettled: list[_Deleted],
) -> DeleteRecordsPartitionResult:
    row = _row(asked.partition_index, ErrorCode.NONE)
    log = topic if isinstance(topic, ErrorCode) else find_log(context.broker.store, topic, asked.partition_index)
    if isinstance(log, ErrorCode):
        row.error_code = log
        return row
    if _keeps_newest_of_each_key(log):
        row.error_code = ErrorCode.POLICY_VIOLATION
        return row
    try:
        row.low_watermark = await log.delete_records(asked.offset)
    except EngineError as error:
        row.error_code = error_code_of(error)
    else:
        row.error_code = ErrorCode.REQUEST_TIMED_OUT  # replaced if the deletion is over in time
        offset = row.low_watermark if asked.offset < 0 else asked.offset  # up to the high watermark
        deleted = _Deleted(row, cast("ReplicaLog", log), offset)
        if not deleted.is_over():
            unsettled.append(deleted)
    return row


def _keeps_newest_of_each_key(log: PartitionLog) -> bool:
    """Whether the topic is compacted, and no record may be deleted by its offset (Partition.deleteRecordsOnLeader)."""
    policy = cast("ReplicaLog", log).config.cleanup_policy
    return CleanupPolicy.COMPACT in policy and CleanupPolicy.DELETE not in policy


def _row(partition: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=NO_LOW_WATERMARK, error_code=code)


API = Api("delete_records", DeleteRecordsRequest, handle, refuse, 0, 2)
