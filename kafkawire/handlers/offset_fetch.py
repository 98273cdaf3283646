"""OffsetFetch, key 9: how far groups have read.

Behavior:
- A partition without a committed offset has -1 and no error, whether it, its topic and the group exist or not. Without
  topics the answer is all that the group has committed, of topics that the client may describe.
- `require_stable` has nothing to wait for: no transaction can be open. What is answered is always durable.
- COORDINATOR_NOT_AVAILABLE is told as NOT_COORDINATOR: Java consumers before 3.9 take it for fatal here.
- It takes the right to describe the group and the topics. After Kafka's KafkaApis.handleOffsetFetchRequest.

Version notes: 1 knows errors of partitions only, 2 all topics, 5 leader epochs (KIP-320), 7 `require_stable` (KIP-447),
8 many groups (KIP-709), 9 member id and epoch of consumers that share a group in another way (KIP-848), 10 topic ids.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.errors import CoordinatorNotAvailable, GroupError
from coordinator.groups.api import TopicPartition
from kafkawire.context import Operation, RequestContext, ResourceType
from kafkawire.errors import ErrorCode, error_code_of
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkawire.pending_reply import PendingReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.groups.api import CommittedOffset, FetchedOffset, Pending

FIRST_VERSION_WITH_GROUP_ERROR: Final = 2
FIRST_VERSION_WITH_MANY_GROUPS: Final = 8
FIRST_VERSION_WITH_IDS: Final = 10
NO_OFFSET: Final = -1


class _Asked(NamedTuple):
    """One group's part of the reply, and what it waits for. Without `rows` it is of all that was committed."""

    group: OffsetFetchResponseGroup
    rows: Sequence[OffsetFetchResponsePartitions] | None
    pending: Pending[list[FetchedOffset]] | None


def handle(context: RequestContext, request: OffsetFetchRequest) -> PendingReply[OffsetFetchResponse]:
    """Asks all groups at once."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        asked = [_ask(context, group.group_id, group.topics) for group in request.groups]
    else:
        asked = [_ask(context, request.group_id, _as_since_8(request.topics))]
    return PendingReply([one.pending for one in asked if one.pending is not None], partial(_respond, context, asked))


def _ask(context: RequestContext, group_id: str, topics: Sequence[OffsetFetchRequestTopics] | None) -> _Asked:
    group = OffsetFetchResponseGroup(group_id=group_id, topics=[])
    partitions: list[TopicPartition] | None = None
    rows: list[OffsetFetchResponsePartitions] | None = None
    if topics is not None:
        partitions, rows = [], []
        for topic in topics:
            name = _find_name(context, topic)
            answers = [_row(index) for index in topic.partition_indexes]
            group.topics.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, name=topic.name, partitions=answers))
            if isinstance(name, ErrorCode):
                for row in answers:
                    row.error_code = name
            else:
                rows += answers
                partitions += [TopicPartition(name, index) for index in topic.partition_indexes]
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        _refuse(context, group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _Asked(group, rows, None)
    return _Asked(group, rows, context.broker.groups.fetch_offsets(group_id, partitions))


def _find_name(context: RequestContext, topic: OffsetFetchRequestTopics) -> str | ErrorCode:
    name = topic.name
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        found = context.broker.cluster.image.topics_by_id.get(topic.topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    return name if _may_describe(context, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may_describe(context: RequestContext, topic: str) -> bool:
    return context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _row(partition: int, committed: CommittedOffset | None = None) -> OffsetFetchResponsePartitions:
    row = OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET, metadata="")
    if committed is not None:
        _tell(row, committed)
    return row


def _tell(row: OffsetFetchResponsePartitions, committed: CommittedOffset) -> None:
    row.committed_offset = committed.offset
    row.committed_leader_epoch = committed.leader_epoch
    row.metadata = committed.metadata


def _refuse(context: RequestContext, group: OffsetFetchResponseGroup, code: ErrorCode) -> None:
    if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        group.error_code = code
        group.topics = []
        return
    for topic in group.topics:
        for row in topic.partitions:
            row.error_code = code


def _respond(context: RequestContext, asked: Sequence[_Asked]) -> OffsetFetchResponse:
    for one in asked:
        if one.pending is not None:
            _settle(context, one.group, one.rows, one.pending)
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponse(groups=[one.group for one in asked])
    group = asked[0].group
    return OffsetFetchResponse(error_code=group.error_code, topics=[_as_before_8(topic) for topic in group.topics])


def _settle(
    context: RequestContext,
    group: OffsetFetchResponseGroup,
    rows: Sequence[OffsetFetchResponsePartitions] | None,
    pending: Pending[list[FetchedOffset]],
) -> None:
    try:
        fetched = pending.result()
    except CoordinatorNotAvailable:
        _refuse(context, group, ErrorCode.NOT_COORDINATOR)
    except GroupError as error:
        _refuse(context, group, error_code_of(error))
    else:
        if rows is None:
            group.topics = _all(context, fetched)
        else:
            for row, one in zip(rows, fetched, strict=True):
                if one.committed is not None:
                    _tell(row, one.committed)


def _all(context: RequestContext, fetched: Sequence[FetchedOffset]) -> list[OffsetFetchResponseTopics]:
    """A topic that is gone has no id to tell it by."""
    image = context.broker.cluster.image
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    by_name: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for one in fetched:
        by_name.setdefault(one.topic, []).append(_row(one.partition, one.committed))
    return [
        OffsetFetchResponseTopics(topic_id=image.topics[name].topic_id, partitions=rows)
        if by_id
        else OffsetFetchResponseTopics(name=name, partitions=rows)
        for name, rows in by_name.items()
        if _may_describe(context, name) and (not by_id or name in image.topics)
    ]


def _as_since_8(topics: Sequence[OffsetFetchRequestTopic] | None) -> list[OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    return [OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes) for one in topics]


def _as_before_8(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    rows = [
        OffsetFetchResponsePartition(
            partition_index=row.partition_index,
            committed_offset=row.committed_offset,
            committed_leader_epoch=row.committed_leader_epoch,
            metadata=row.metadata,
            error_code=row.error_code,
        )
        for row in topic.partitions
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=rows)
