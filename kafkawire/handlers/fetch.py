"""Fetch, key 1: records out, at once or when there are enough of them.

Behavior:
- A request without a session (epoch -1) or with a new one (epoch 0) names all its partitions and gets all of them. An
  incremental one (KIP-227) names changes, and gets partitions with records, an error, or another high watermark or log
  start. A served partition goes to the end of the queue (fairness under max.bytes).
- Segments that only the remote tier has are loaded for all partitions at once. The request waits no longer than its max
  wait, or remote.fetch.max.wait.ms if there is nothing else. While the tier cannot be reached there are no records.
- The first partition with records gives at least one batch whatever the limits (KIP-74). Answered at once with
  min.bytes, an error or nothing to wait for; else after max.wait.ms with what there is.
- A session that is not used for ten minutes is dropped (Kafka: when its place is wanted).
- A session takes one request at a time; a second one meanwhile gets INVALID_FETCH_SESSION_EPOCH (Kafka: the waiting one
  gets it).
- A client that sends the epoch of its last record learns at once where its log and this one diverge (KIP-595). If that
  epoch is unknown here, it gets OFFSET_OUT_OF_RANGE. After Partition.readRecords, which checks consumers like
  followers.
- The rack is ignored: every read is from the leader.
- A fetch with a replica id moves the high watermark. Only that broker may send it, over an authenticated peer
  connection (RULES K23). It gets written records beyond the high watermark, where segments begin, and, for compacted
  logs, epochs and gaps of the whole log, which only kafkawire followers understand. Its session is that of its
  connection. It waits no longer once the connection brings another request (in Kafka the wait goes on: a partition that
  a follower adds waits for replica.fetch.wait.max.ms). Such a fetch of any other client is refused as unauthorized, by
  partition.

Version notes: 7 sessions, 9 leader epoch, 12 flexible, 13 topic ids, 15 replica state as a tagged field, 16 leader
hints (KIP-951). Up to version 5 a storage error is NOT_LEADER_OR_FOLLOWER, which such clients retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, cast

import trio

from engine.api import NO_EPOCH, NOT_COMPACTED, Compacted
from engine.replica_log import NEVER
from kafkawire.fetching.reader import UNRESOLVED
from kafkawire.fetching.sessions import UNKNOWN_OFFSET, FetchTarget, TargetKey
from kafkawire.fetching.work import TARGETS_PER_TURN, FetchResults, begin_fetch, begin_replica_fetch
from kafkawire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    EpochStart,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    WhatIsDropped,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.topic_lookup import current_leader
from kafkawire.wire.plan_encode import Pieces

if TYPE_CHECKING:
    from engine.api import EpochEnd, ReadResult
    from engine.replica_log import ReplicaLog
    from kafkawire.requests.context import BrokerInterfaces

FIRST_VERSION_WITH_STORAGE_ERROR: Final = 6
FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
FIRST_VERSION_WITH_HINTS: Final = 16
_HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def handle(context: RequestContext, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    """Answer at once if there is something to return, else when there is, or at the deadline."""
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    is_replica = _is_replica(context, request)
    targets = _targets(request, by_id=by_id, is_replica=is_replica)
    if is_replica:
        return _replicate(context, request, targets, _forgotten(request, by_id=by_id))
    started = begin_fetch(context, request, targets, _forgotten(request, by_id=by_id), by_id=by_id)
    if isinstance(started, ErrorCode):
        return FetchResponse(error_code=started)
    return respond(context, started) if isinstance(started, FetchResults) else _respond_later(context, started)


def _replicate(
    context: RequestContext, request: FetchRequest, targets: list[FetchTarget], forgotten: Iterable[TargetKey]
) -> FetchResponse | Awaitable[FetchResponse]:
    replica = request.replica_state
    if replica is None or not context.is_broker(replica.replica_id):
        return _refuse_all(targets)
    context.connection.gives_way = True
    link = context.broker.followers.note_fetch(context.connection)
    if link.as_of != NEVER:
        round_trip_s = (link.at_ms - link.as_of.ms) / 1000
        context.broker.metrics.replication.note_round_trip(replica.replica_id, round_trip_s)
    started = begin_replica_fetch(context, request, targets, forgotten, replica, link)
    if isinstance(started, ErrorCode):
        return FetchResponse(error_code=started)
    return (
        _respond_to_replica(context, started)
        if isinstance(started, FetchResults)
        else _respond_to_replica_later(context, started)
    )


async def _respond_to_replica_later(context: RequestContext, work: Awaitable[FetchResults]) -> FetchResponse:
    return _respond_to_replica(context, await work)


def _respond_to_replica(context: RequestContext, results: FetchResults) -> FetchResponse:
    """The response to a follower. Each partition has records of one segment at most."""
    response = FetchResponse(session_id=results.session_id, responses=[])
    rows = []
    for target, outcome in results.outcomes:
        row = _row(context, target, outcome, response)
        if not isinstance(outcome, ErrorCode):
            _count_copied(context.broker, target, outcome.size_bytes)
            row.begins_segment = outcome.begins_segment
            _add_compaction_fields(row, outcome.compacted)
        rows.append((target, row))
    _group(rows, response)
    context.broker.followers.note_response(context.connection)
    return response


def _add_compaction_fields(row: PartitionData, compacted: Compacted) -> None:
    if compacted is not NOT_COMPACTED:
        starts, dropped, swaps, gone_by = compacted
        row.epoch_starts = [EpochStart(epoch=epoch, start_offset=at) for epoch, at in starts]
        row.dropped = WhatIsDropped(
            tombstones_to=dropped.tombstones_to,
            markers_to=dropped.markers_to,
            replaced_to=dropped.replaced_to,
            swaps=swaps,
            gone_by=gone_by,
        )


def _count_copied(broker: BrokerInterfaces, target: FetchTarget, size_bytes: int) -> None:
    broker.metrics.replication.bytes_out += size_bytes
    log = cast("ReplicaLog | None", target.log)
    if log is not None:
        broker.throttles.leader.count_copied(log.config.leader_throttled_replicas, target.partition, size_bytes)


async def _respond_later(context: RequestContext, work: Awaitable[FetchResults]) -> FetchResponse:
    return await respond_in_turns(context, await work)


def respond(context: RequestContext, results: FetchResults) -> FetchResponse:
    """The response with the results of a fetch."""
    response = FetchResponse(session_id=results.session_id, responses=[])
    _group(
        ((target, _counted_row(context, target, outcome, response)) for target, outcome in results.outcomes), response
    )
    return response


async def respond_in_turns(context: RequestContext, results: FetchResults) -> FetchResponse:
    """The same response, of any size, made in turns of the event loop."""
    response = FetchResponse(session_id=results.session_id, responses=[])
    rows = []
    for count, (target, outcome) in enumerate(results.outcomes, 1):
        rows.append((target, _counted_row(context, target, outcome, response)))
        if count % TARGETS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    _group(rows, response)
    return response


def refuse(context: RequestContext, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Refuse the request as a whole, and for older clients each named partition, too."""
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    response = FetchResponse(error_code=code, session_id=request.session_id, responses=[])
    if not by_id:
        rows = [(target, _empty_row(target, code)) for target in _targets(request, by_id=by_id)]
        for _, row in rows:
            row.aborted_transactions = []
        _group(rows, response)
    return response


def _counted_row(
    context: RequestContext, target: FetchTarget, outcome: ReadResult | ErrorCode, response: FetchResponse
) -> PartitionData:
    if not isinstance(outcome, ErrorCode) and outcome.size_bytes:
        context.broker.metrics.by_topic[target.topic].bytes_out += outcome.size_bytes
    return _row(context, target, outcome, response)


def _row(
    context: RequestContext, target: FetchTarget, outcome: ReadResult | ErrorCode, response: FetchResponse
) -> PartitionData:
    if isinstance(outcome, ErrorCode):
        return _error_row(context, target, outcome, response)
    aborted = outcome.aborted
    return PartitionData(
        partition_index=target.partition,
        high_watermark=outcome.high_watermark,
        last_stable_offset=outcome.last_stable_offset,
        log_start_offset=outcome.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted],
        records=Pieces(outcome.records),
        diverging_epoch=None if outcome.diverging is None else _epoch_end(outcome.diverging),
    )


def _error_row(context: RequestContext, target: FetchTarget, code: ErrorCode, response: FetchResponse) -> PartitionData:
    version = context.api_version
    if code not in UNRESOLVED and target.topic:
        context.broker.metrics.by_topic[target.topic].failed_fetches += 1
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERROR:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    row = _empty_row(target, code)
    if version >= FIRST_VERSION_WITH_HINTS and code in _HINTED:
        leader = current_leader(context, target.topic, target.partition)
        row.current_leader = LeaderIdAndEpoch(leader_id=leader.broker_id, leader_epoch=leader.epoch)
        nodes = response.node_endpoints
        if leader.host is not None and all(node.node_id != leader.broker_id for node in nodes):
            nodes.append(NodeEndpoint(node_id=leader.broker_id, host=leader.host, port=leader.port, rack=leader.rack))
    return row


def _targets(request: FetchRequest, *, by_id: bool, is_replica: bool = False) -> list[FetchTarget]:
    """Partitions of the request, each once. The last entry for a partition counts, as in Kafka's map."""
    found: dict[TargetKey, FetchTarget] = {}
    for topic in request.topics:
        for one in topic.partitions:
            target = FetchTarget(
                topic="" if by_id else topic.topic,
                topic_id=topic.topic_id,
                partition=one.partition,
                by_id=by_id,
                fetch_offset=one.fetch_offset,
                max_size_bytes=one.partition_max_bytes,
                leader_epoch=max(NO_EPOCH, one.current_leader_epoch),  # any negative one is none, as in Kafka
                last_fetched_epoch=max(NO_EPOCH, one.last_fetched_epoch),
                high_watermark=one.high_watermark if is_replica else UNKNOWN_OFFSET,
                log_start_offset=one.log_start_offset if is_replica else UNKNOWN_OFFSET,
            )
            found[target.key] = target
    return list(found.values())


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterator[TargetKey]:
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield name, partition


def _is_replica(context: RequestContext, request: FetchRequest) -> bool:
    if context.api_version >= FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_state is not None and request.replica_state.replica_id >= 0
    return request.replica_id >= 0


def _refuse_all(targets: list[FetchTarget]) -> FetchResponse:
    response = FetchResponse(responses=[])
    _group(((target, _empty_row(target, ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for target in targets), response)
    return response


def _empty_row(target: FetchTarget, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=target.partition,
        error_code=code,
        high_watermark=UNKNOWN_OFFSET,
        aborted_transactions=[] if code in UNRESOLVED else None,  # as in Kafka
        records=b"",
    )


def _epoch_end(end: EpochEnd) -> EpochEndOffset:
    return EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)


def _group(rows: Iterable[tuple[FetchTarget, PartitionData]], response: FetchResponse) -> None:
    """Put consecutive rows of a topic into one entry (FetchResponse.toMessage)."""
    last: FetchTarget | None = None
    for target, row in rows:
        if last is None or last.key[0] != target.key[0]:
            entry = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id, partitions=[])
            response.responses.append(entry)
        entry.partitions.append(row)
        last = target


API = Api("fetch", FetchRequest, handle, refuse, 4, 18)
