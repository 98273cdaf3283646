"""OffsetCommit: commits offsets of a group, by default without a member id."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int16, Int32, Int64, NullableText, Text, message


@message
class OffsetCommitPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    committed_metadata: NullableText


@message
class OffsetCommitTopic:
    name: Text
    partitions: tuple[OffsetCommitPartition, ...]


@message
class OffsetCommitRequest:
    group_id: Text
    generation_id: Int32 = -1
    member_id: Text = ""
    group_instance_id: NullableText = None
    topics: tuple[OffsetCommitTopic, ...]


@message
class OffsetCommittedPartition:
    partition_index: Int32
    error_code: Int16


@message
class OffsetCommittedTopic:
    name: Text
    partitions: tuple[OffsetCommittedPartition, ...]


@message
class OffsetCommitResponse:
    throttle_time_ms: Int32
    topics: tuple[OffsetCommittedTopic, ...]


OFFSET_COMMIT: Final = Api("OffsetCommit", 8, 8, OffsetCommitRequest, OffsetCommitResponse)
