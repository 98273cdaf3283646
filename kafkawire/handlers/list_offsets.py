"""ListOffsets, key 2: the offset at a point in time, or at one of the ends.

Behavior:
- A timestamp of 0 or more asks for the first record at or after it, exactly. Negative ones are named points, each known
  from a version on; below it, and for any other negative number, the answer is UNSUPPORTED_VERSION.
- A partition that is named twice is answered once, with INVALID_REQUEST. Each partition has its own result.
- All points but the latest count segments that only the remote tier has; Kafka's latest timestamp is that of its local
  segments.
- A search in the remote tier lasts at most for the timeout of the request, or remote.list.offsets.request.timeout.ms.
  Then the partition is REQUEST_TIMED_OUT. A tier that cannot be reached is KAFKA_STORAGE_ERROR, upon which clients ask
  again; it is UNKNOWN_SERVER_ERROR in Kafka.
- An authenticated broker with its own replica id gets the end of the log. Any other client with a replica id is
  answered like a consumer, with nothing above the high watermark. A new leader may not know it yet (KIP-207).

Version notes: 2 isolation level, 4 leader epochs, 7 max timestamp (KIP-734), 8 earliest local and 9 latest tiered
offset (KIP-405, KIP-1005), 10 timeout, 11 earliest pending upload (KIP-1023).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.api import NO_TIMESTAMP_MS, Isolation, OffsetAtTimestamp, OffsetSpec
from engine.errors import EngineError
from kafkawire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Mapping, Sequence

    from engine.api import PartitionLog

Key = tuple[str, int]  # topic and partition
OffsetOrError = OffsetAtTimestamp | ErrorCode

_FIRST_VERSION_BY_TIMESTAMP: Final[dict[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}


class _Search(NamedTuple):
    """A search in one partition. `is_cold`: it may need segments that only the remote tier has."""

    key: Key
    is_cold: bool
    find: Callable[[], Awaitable[OffsetOrError]]


def handle(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Answer each partition, in the order of the request; at once if no records have to be searched."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    allowed = {name for name in names if context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    found, searches = resolve(context, request, allowed)
    return _search(context, request, found, searches) if searches else respond(request, found)


def refuse(context: RequestContext, request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """Refuse every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_row(one, code) for one in topic.partitions])
            for topic in request.topics
        ]
    )


def respond(request: ListOffsetsRequest, found: Mapping[Key, OffsetOrError]) -> ListOffsetsResponse:
    """The response with all found offsets."""
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        asked = {one.partition_index: one for one in topic.partitions}
        if asked:  # else Kafka leaves it out of the reply
            rows = [_row(one, found[topic.name, number]) for number, one in asked.items()]
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return response


def resolve(
    context: RequestContext, request: ListOffsetsRequest, allowed: Container[str]
) -> tuple[dict[Key, OffsetOrError], list[_Search]]:
    """Offsets of allowed topics that are known without a search, and searches for the others."""
    asked = [(topic.name, one) for topic in request.topics for one in topic.partitions]
    named = Counter((topic, one.partition_index) for topic, one in asked)
    isolation, is_replica = isolation_of(request), context.is_broker(request.replica_id)
    found: dict[Key, OffsetOrError] = {}
    searches: list[_Search] = []
    for topic, one in asked:
        key = topic, one.partition_index
        if topic not in allowed:
            found[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif named[key] > 1:
            found[key] = ErrorCode.INVALID_REQUEST
        elif isinstance(log := _log_of(context, topic, one), ErrorCode):
            found[key] = log
        elif _is_searched(one.timestamp):
            searches.append(_Search(key, log.has_cold, partial(_find, log, one.timestamp, isolation)))
        else:
            found[key] = _offset_of_point(log, one.timestamp, isolation, is_replica=is_replica)
    return found, searches


def isolation_of(request: ListOffsetsRequest) -> Isolation:
    """Isolation level of the request. Unknown values mean READ_UNCOMMITTED."""
    return Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED


async def _search(
    context: RequestContext, request: ListOffsetsRequest, found: dict[Key, OffsetOrError], searches: Sequence[_Search]
) -> ListOffsetsResponse:
    """Search the logs here, then, all at once, the remote tier."""
    cold = [one for one in searches if one.is_cold]
    for one in searches:
        if not one.is_cold:
            found[one.key] = await one.find()
    searched = await context.broker.cold_searches.perform([one.find for one in cold], request.timeout_ms)
    for one, outcome in zip(cold, searched, strict=True):
        found[one.key] = ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome
    return respond(request, found)


def _log_of(context: RequestContext, topic: str, asked: ListOffsetsPartition) -> PartitionLog | ErrorCode:
    """The log of the partition, if the version knows the timestamp; else an error code."""
    timestamp_ms = asked.timestamp
    if timestamp_ms < 0 and context.api_version < _FIRST_VERSION_BY_TIMESTAMP.get(timestamp_ms, 2**15):
        return ErrorCode.UNSUPPORTED_VERSION
    info = context.broker.cluster.image.topics.get(topic)
    if info is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = find_log(context.broker.store, info, asked.partition_index)
    if isinstance(log, ErrorCode):
        return log
    try:
        log.check_leader_epoch(asked.current_leader_epoch)
    except EngineError as error:
        return error_code_of(error)
    return log


def _offset_of_point(log: PartitionLog, spec: int, isolation: Isolation, *, is_replica: bool) -> OffsetOrError:
    """The offset of a named point. For an authenticated replica the latest one is the end of the log."""
    if is_replica and spec == OffsetSpec.LATEST:
        return OffsetAtTimestamp(log.log_end_offset, NO_TIMESTAMP_MS, log.leader_epoch)
    try:
        return log.offset_of(spec, isolation)
    except EngineError as error:
        return error_code_of(error)


def _is_searched(timestamp_ms: int) -> bool:
    """Whether records have to be searched: named points are known without that."""
    return timestamp_ms >= 0 or timestamp_ms == OffsetSpec.MAX_TIMESTAMP


async def _find(log: PartitionLog, timestamp_ms: int, isolation: Isolation) -> OffsetOrError:
    try:
        return await log.offset_for_timestamp(timestamp_ms, isolation)
    except EngineError as error:
        return error_code_of(error)


def _row(asked: ListOffsetsPartition, outcome: OffsetOrError) -> ListOffsetsPartitionResponse:
    if isinstance(outcome, ErrorCode):
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=outcome)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=outcome.timestamp_ms,
        offset=outcome.offset,
        leader_epoch=outcome.leader_epoch,
    )


API = Api("list_offsets", ListOffsetsRequest, handle, refuse, 1, 11)
