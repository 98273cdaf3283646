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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator.errors import CoordinatorNotAvailable, GroupError
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
NO_TOPIC_ID: Final = bytes(16)


# The rows of versions before 8 and since then are of two classes with the same fields.
_Row = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


class _Asked(NamedTuple):
    """One group's part of the reply, and what it waits for. Without `rows` it is of all that was committed."""

    group: OffsetFetchResponseGroup
    rows: Sequence[_Row] | None
    pending: Pending[Any] | None


def handle(context: RequestContext, request: OffsetFetchRequest) -> PendingReply[OffsetFetchResponse]:
    """Asks all groups at once."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        asked = [_ask(context, group.group_id, group.topics) for group in request.groups]
    else:
        asked = [_ask(context, request.group_id, request.topics)]
    return PendingReply([one.pending for one in asked if one.pending is not None], partial(_respond, context, asked))


def _ask(
    context: RequestContext,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> _Asked:
    group = OffsetFetchResponseGroup(group_id=group_id, topics=[])
    wanted: list[tuple[str, Sequence[int]]] = []
    rows: list[_Row] = []
    for topic in topics or ():
        topic_id = topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else NO_TOPIC_ID
        name = _find_name(context, topic.name, topic_id)
        answers: list[Any] = [_row(context, index) for index in topic.partition_indexes]
        group.topics.append(_topic(context, topic.name, topic_id, answers))
        if isinstance(name, ErrorCode):
            for row in answers:
                row.error_code = name
        else:
            rows += answers
            wanted.append((name, topic.partition_indexes))
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        _refuse(context, group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _Asked(group, rows, None)
    if topics is None:
        return _Asked(group, None, context.broker.groups.fetch_all_offsets(group_id))
    return _Asked(group, rows, context.broker.groups.fetch_offsets(group_id, wanted))


def _find_name(context: RequestContext, name: str, topic_id: bytes) -> str | ErrorCode:
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        found = context.broker.cluster.image.topics_by_id.get(topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    return name if _may_describe(context, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may_describe(context: RequestContext, topic: str) -> bool:
    return context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _topic(context: RequestContext, name: str, topic_id: bytes, rows: list[Any]) -> Any:
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows)
    return OffsetFetchResponseTopic(name=name, partitions=rows)


def _row(context: RequestContext, partition: int) -> _Row:
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartition(partition_index=partition, committed_offset=NO_OFFSET, metadata="")


def _tell(row: _Row, committed: CommittedOffset) -> None:
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
    group: Any = asked[0].group  # with topics of the older class
    return OffsetFetchResponse(error_code=group.error_code, topics=group.topics)


def _settle(
    context: RequestContext,
    group: OffsetFetchResponseGroup,
    rows: Sequence[_Row] | None,
    pending: Pending[Any],
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
            for row, committed in zip(rows, fetched, strict=True):
                if committed is not None:
                    _tell(row, committed)


def _all(context: RequestContext, fetched: Sequence[FetchedOffset]) -> list[Any]:
    """A topic that is gone has no id to tell it by."""
    topics = context.broker.cluster.image.topics
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    by_name: dict[str, list[Any]] = {}
    for one in fetched:
        row = _row(context, one.partition)
        _tell(row, one.committed)
        by_name.setdefault(one.topic, []).append(row)
    return [
        _topic(context, name, topics[name].topic_id if by_id else NO_TOPIC_ID, rows)
        for name, rows in by_name.items()
        if _may_describe(context, name) and (not by_id or name in topics)
    ]
