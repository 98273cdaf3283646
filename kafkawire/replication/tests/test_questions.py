"""The requests of a follower, and the decoded replies of its leader."""

import pytest

from engine.api import NO_EPOCH, EpochEnd, TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.compaction_horizon import NOT_COMPACTED, Compacted, CompactionHorizon
from engine.errors import EngineError, FencedLeaderEpoch, NotLeaderOrFollower, OffsetOutOfRange
from engine.replication.exchange import FollowerFetch, LeaderReply
from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.messages.fetch import (
    EpochEndOffset,
    EpochStart,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    ReplicaState,
    WhatIsDropped,
)
from kafkawire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkawire.replication.fetch_session import FetchContents
from kafkawire.replication.questions import (
    FETCH_VERSION,
    FetchLimits,
    complete_batches,
    end_of,
    error_of,
    fetch_request,
    partition_replies,
)
from kafkawire.requests.errors import ErrorCode

TOPIC_ID = b"t" * 16
BATCH = bytes(build_batch([Record(None, b"v")]))


def test_partitions_of_one_topic_are_asked_for_together() -> None:
    asked = {TopicIdPartition(TOPIC_ID, "t", number): FollowerFetch(3, 10 + number, 2, 9, 1) for number in (0, 1)}
    made = FetchContents(7, asked, [TopicIdPartition(TOPIC_ID, "t", 5), TopicIdPartition(TOPIC_ID, "t", 6)])
    request = fetch_request(ReplicaState(replica_id=2, replica_epoch=5), made, FetchLimits())
    [topic] = request.topics
    [forgotten] = request.forgotten_topics_data
    assert (forgotten.topic_id, forgotten.partitions) == (TOPIC_ID, [5, 6])
    assert [(one.partition, one.fetch_offset, one.last_fetched_epoch) for one in topic.partitions] == [
        (0, 10, 2), (1, 11, 2)
    ]  # fmt: skip
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (LINK_SESSION_ID, 7, 500)


def test_where_segments_and_epochs_begin_comes_over_the_wire() -> None:
    epochs = [EpochStart(epoch=2, start_offset=5), EpochStart(epoch=4, start_offset=9)]
    rows = [
        PartitionData(
            partition_index=0,
            high_watermark=4,
            log_start_offset=1,
            records=BATCH,
            begins_segment=True,
            epoch_starts=epochs,
            dropped=WhatIsDropped(tombstones_to=8, markers_to=7, replaced_to=9, swaps=3, gone_by=2),
        ),
        PartitionData(partition_index=1, diverging_epoch=EpochEndOffset(epoch=2, end_offset=7)),
        PartitionData(partition_index=2, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)])
    sent = FetchResponse.decode(b"".join(map(bytes, response.encode(FETCH_VERSION))), FETCH_VERSION)
    first, second, third = (one for _, one in partition_replies(sent))
    compacted = Compacted([(2, 5), (4, 9)], CompactionHorizon(8, 7, 9), 3, 2)
    assert (first.answer, bytes(first.records), first.begins_segment) == (
        LeaderReply(4, 1, compacted=compacted),
        BATCH,
        True,
    )
    assert (second.answer.diverging, second.begins_segment) == (EpochEnd(2, 7), False)
    assert second.answer.compacted == NOT_COMPACTED
    assert isinstance(third.answer.error, OffsetOutOfRange)


def test_a_batch_that_was_cut_is_asked_for_again() -> None:
    for size_bytes in range(len(BATCH)):
        assert bytes(complete_batches(memoryview(BATCH + BATCH[:size_bytes]))) == BATCH
    assert not complete_batches(memoryview(bytes(100))), "zeros are no batch with a size"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, OffsetOutOfRange),
        (ErrorCode.FENCED_LEADER_EPOCH, FencedLeaderEpoch),
        (ErrorCode.STALE_BROKER_EPOCH, NotLeaderOrFollower),
    ],
)
def test_an_error_is_the_leaders_word(code: ErrorCode, kind: type[EngineError]) -> None:
    assert isinstance(error_of(code), kind)
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code, leader_epoch=NO_EPOCH)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
    with pytest.raises(kind):
        end_of(response)
