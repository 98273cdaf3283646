"""Requests of a follower to its leader, and the leader's replies, as Kafka's messages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from engine.api import EpochEnd, OffsetSpec
from engine.batches.batch import HEADER_SIZE_BYTES, parse_header
from engine.compaction_horizon import NOT_COMPACTED, Compacted, CompactionHorizon
from engine.errors import EngineError, FencedLeaderEpoch, NotLeaderOrFollower, OffsetOutOfRange
from engine.replication.exchange import LeaderReply
from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.api import TopicIdPartition
    from kafkawire.messages.fetch import FetchResponse, PartitionData
    from kafkawire.messages.list_offsets import ListOffsetsResponse
    from kafkawire.replication.fetch_session import FetchContents, Place

FETCH_VERSION: Final = 18
LIST_OFFSETS_VERSION: Final = 10
MIB: Final = 1024 * 1024


class FetchLimits(NamedTuple):
    """Limits of fetches from other brokers, with their config keys."""

    wait_max_ms: int = 500  # replica.fetch.wait.max.ms
    min_bytes: int = 1  # replica.fetch.min.bytes
    partition_max_bytes: int = MIB  # replica.fetch.max.bytes
    response_max_bytes: int = 10 * MIB  # replica.fetch.response.max.bytes
    backoff_ms: int = 1_000  # replica.fetch.backoff.ms


class PartitionReply(NamedTuple):
    """The reply for one partition, with complete batches or none. `begins_segment`: a segment of the leader begins with
    them."""

    answer: LeaderReply
    records: memoryview
    begins_segment: bool


def fetch_request(me: ReplicaState, contents: FetchContents, limits: FetchLimits) -> FetchRequest:
    """The Fetch request of the broker `me`."""
    topics: dict[bytes, FetchTopic] = {}
    forgotten: dict[bytes, ForgottenTopic] = {}
    for one in contents.forgotten:
        forgotten.setdefault(one.topic_id, ForgottenTopic(topic_id=one.topic_id)).partitions.append(one.partition)
    for one, question in contents.named.items():
        topic = topics.setdefault(one.topic_id, FetchTopic(topic_id=one.topic_id))
        topic.partitions.append(
            FetchPartition(
                partition=one.partition,
                current_leader_epoch=question.leader_epoch,
                fetch_offset=question.offset,
                last_fetched_epoch=question.last_epoch,
                log_start_offset=question.log_start_offset,
                partition_max_bytes=limits.partition_max_bytes,
                high_watermark=question.high_watermark,
            )
        )
    return FetchRequest(
        replica_state=me,
        max_wait_ms=limits.wait_max_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.response_max_bytes,
        session_id=LINK_SESSION_ID,
        session_epoch=contents.epoch,
        topics=[*topics.values()],
        forgotten_topics_data=[*forgotten.values()],
    )


def partition_replies(response: FetchResponse) -> Iterator[tuple[Place, PartitionReply]]:
    """The replies of a leader, by partition."""
    for topic in response.responses:
        for row in topic.partitions:
            yield (topic.topic_id, row.partition_index), _reply_of(row)


def _reply_of(row: PartitionData) -> PartitionReply:
    if row.error_code:
        return PartitionReply(LeaderReply(error=error_of(row.error_code)), memoryview(b""), begins_segment=False)
    end = row.diverging_epoch
    diverging = None if end is None else EpochEnd(end.epoch, end.end_offset)
    records = b"" if row.records is None else row.records
    assert isinstance(records, bytes | bytearray | memoryview)
    answer = LeaderReply(row.high_watermark, row.log_start_offset, diverging, compacted=_compacted(row))
    return PartitionReply(answer, complete_batches(memoryview(records)), row.begins_segment)


def _compacted(row: PartitionData) -> Compacted:
    """The compaction state of the leader's log. A broker of an older version does not send it."""
    horizon, starts = row.dropped, [(one.epoch, one.start_offset) for one in row.epoch_starts or ()]
    if horizon is None:
        return Compacted(starts) if starts else NOT_COMPACTED
    dropped = CompactionHorizon(horizon.tombstones_to, horizon.markers_to, horizon.replaced_to)
    return Compacted(starts, dropped, horizon.swaps, horizon.gone_by)


def complete_batches(records: memoryview) -> memoryview:
    """The records without an incomplete last batch."""
    end = 0
    while len(records) - end >= HEADER_SIZE_BYTES:
        size_bytes = parse_header(records, end).size_bytes
        if size_bytes < HEADER_SIZE_BYTES or end + size_bytes > len(records):
            break
        end += size_bytes
    return records[:end]


def error_of(code: int) -> EngineError:
    """The engine's error of an error code. Codes that a follower handles alike are the same error."""
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRange(ErrorCode(code).name)
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return FencedLeaderEpoch(ErrorCode(code).name)
    return NotLeaderOrFollower(f"error {code}")


def ends_request(
    broker_id: int, partition: TopicIdPartition, leader_epoch: int, spec: OffsetSpec
) -> ListOffsetsRequest:
    """A ListOffsets request for the start or the end of the leader's log."""
    row = ListOffsetsPartition(
        partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=int(spec)
    )
    topic = ListOffsetsTopic(name=partition.topic, partitions=[row])
    return ListOffsetsRequest(replica_id=broker_id, topics=[topic])


def end_of(response: ListOffsetsResponse) -> int:
    """The offset in the reply. Raises EngineError."""
    row = response.topics[0].partitions[0]
    if row.error_code:
        raise error_of(row.error_code)
    return row.offset
