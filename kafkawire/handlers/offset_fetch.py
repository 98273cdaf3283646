"""OffsetFetch, key 9: committed offsets of groups.

Behavior:
- A partition without a committed offset has -1 and no error, whether it, its topic and the group exist or not. Without
  named topics the response has all committed offsets of topics that the client may describe.
- With `require_stable` a partition is UNSTABLE_OFFSET_COMMIT while an open transaction has an offset for it. Offsets in
  a response are always durable.
- COORDINATOR_NOT_AVAILABLE is sent as NOT_COORDINATOR: for Java consumers before 3.9 it is fatal here.
- The client needs DESCRIBE on the group and the topics. After Kafka's KafkaApis.handleOffsetFetchRequest.

Version notes: 1 knows errors of partitions only, 2 all topics, 5 leader epochs (KIP-320), 7 `require_stable` (KIP-447),
8 many groups (KIP-709), 9 member id and epoch of the consumer protocol (KIP-848), 10 topic ids.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator.errors import CoordinatorNotAvailable, GroupError
from coordinator.groups.commands import FetchAllOffsets, FetchOffsets
from kafkawire.handlers.common.offset_rows import NO_OFFSET, encode_rows
from kafkawire.handlers.common.repeats import check_repeats
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
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.api import Future
    from coordinator.groups.api import CommittedOffset, FetchedOffset

FIRST_VERSION_WITH_GROUP_ERROR: Final = 2
FIRST_VERSION_WITH_MANY_GROUPS: Final = 8
FIRST_VERSION_WITH_IDS: Final = 10
NO_TOPIC_ID: Final = bytes(16)


# Topic classes before version 8 and since: both have the same fields.
_Topic = OffsetFetchResponseTopic | OffsetFetchResponseTopics


class _GroupFetch(NamedTuple):
    """Response of one group, its future, and the topics that the result fills.

    `all`: the request names no topics, and means all committed offsets.
    """

    group: OffsetFetchResponseGroup
    pending: Future[Any] | None
    to_fill: Sequence[tuple[_Topic, Sequence[int]]] = ()
    all: bool = False


def handle(context: RequestContext, request: OffsetFetchRequest) -> PendingReply[OffsetFetchResponse]:
    """Ask all groups at once."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        check_repeats([group.group_id for group in request.groups])
        fetches = [
            _fetch(context, group.group_id, group.topics, require_stable=request.require_stable)
            for group in request.groups
        ]
    else:
        fetches = [_fetch(context, request.group_id, request.topics, require_stable=request.require_stable)]
    return PendingReply(
        [one.pending for one in fetches if one.pending is not None], partial(_respond, context, fetches)
    )


def refuse(context: RequestContext, request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Refuse every group; for the oldest clients each partition."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        groups = [OffsetFetchResponseGroup(group_id=one.group_id, topics=[], error_code=code) for one in request.groups]
        return OffsetFetchResponse(groups=groups)
    if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=code, topics=[])
    rows = [
        OffsetFetchResponseTopic(name=topic.name, partitions=_rows(context, topic.partition_indexes, code))
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=rows)


def _fetch(
    context: RequestContext,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    *,
    require_stable: bool,
) -> _GroupFetch:
    group = OffsetFetchResponseGroup(group_id=group_id, topics=[])
    wanted: list[tuple[str, Sequence[int]]] = []
    to_fill: list[tuple[_Topic, Sequence[int]]] = []
    for topic in topics or ():
        topic_id = topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else NO_TOPIC_ID
        name = _find_name(context, topic.name, topic_id)
        answer = _topic(context, topic.name, topic_id)
        group.topics.append(answer)
        if isinstance(name, ErrorCode):
            answer.partitions = _rows(context, topic.partition_indexes, name)
        else:
            wanted.append((name, topic.partition_indexes))
            to_fill.append((answer, topic.partition_indexes))
    if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        one = _GroupFetch(group, None, to_fill)
        _refuse(context, one, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return one
    if topics is None:
        pending = context.broker.groups.ask(FetchAllOffsets(group_id, require_stable=require_stable))
        return _GroupFetch(group, pending, all=True)
    found = context.broker.groups.ask(FetchOffsets(group_id, wanted, require_stable=require_stable))
    return _GroupFetch(group, found, to_fill)


def _find_name(context: RequestContext, name: str, topic_id: bytes) -> str | ErrorCode:
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        found = context.broker.cluster.image.topics_by_id.get(topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    return name if _may_describe(context, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _may_describe(context: RequestContext, topic: str) -> bool:
    return context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _topic(context: RequestContext, name: str, topic_id: bytes) -> Any:
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id)
    return OffsetFetchResponseTopic(name=name)


def _rows(context: RequestContext, partitions: Iterable[int], code: ErrorCode) -> list[Any]:
    """Rows of partitions with an error."""
    is_of_many = context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS
    new: type[Any] = OffsetFetchResponsePartitions if is_of_many else OffsetFetchResponsePartition
    return [new(partition_index=each, committed_offset=NO_OFFSET, metadata="", error_code=code) for each in partitions]


def _refuse(context: RequestContext, one: _GroupFetch, code: ErrorCode) -> None:
    if context.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
        one.group.error_code = code
        one.group.topics = []
        return
    for topic, partitions in one.to_fill:
        topic.partitions = _rows(context, partitions, code)
    for topic in one.group.topics:
        for row in topic.partitions:
            row.error_code = code


def _respond(context: RequestContext, fetches: Sequence[_GroupFetch]) -> OffsetFetchResponse:
    for one in fetches:
        if one.pending is not None:
            _settle(context, one, one.pending)
    if context.api_version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponse(groups=[one.group for one in fetches])
    group: Any = fetches[0].group  # it has topics of the older class
    return OffsetFetchResponse(error_code=group.error_code, topics=group.topics)


def _settle(context: RequestContext, one: _GroupFetch, pending: Future[Any]) -> None:
    try:
        fetched = pending.result()
    except CoordinatorNotAvailable:
        _refuse(context, one, ErrorCode.NOT_COORDINATOR)
    except GroupError as error:
        _refuse(context, one, error_code_of(error))
    else:
        if one.all:
            one.group.topics = _all(context, fetched)
        else:
            remaining = iter(fetched)
            for topic, partitions in one.to_fill:
                found = zip(partitions, remaining)  # noqa: B905 - of the rest
                topic.partitions = encode_rows(found, context.api_version)


def _all(context: RequestContext, fetched: Sequence[FetchedOffset]) -> list[Any]:
    """Topic rows of all committed offsets. A deleted topic has no id, and is left out of versions with ids."""
    topics = context.broker.cluster.image.topics
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    by_name: dict[str, list[tuple[int, CommittedOffset | GroupError | None]]] = {}
    for one in fetched:
        by_name.setdefault(one.topic, []).append((one.partition, one.committed))
    rows = []
    for name, found in by_name.items():
        if _may_describe(context, name) and (not by_id or name in topics):
            topic = _topic(context, name, topics[name].topic_id if by_id else NO_TOPIC_ID)
            topic.partitions = encode_rows(found, context.api_version)
            rows.append(topic)
    return rows


API = Api("offset_fetch", OffsetFetchRequest, handle, refuse, 1, 10, two_stage=True)
