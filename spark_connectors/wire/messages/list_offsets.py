"""ListOffsets: the offset of the first record at or after a time, or the start or end offset of a partition."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int8, Int16, Int32, Int64, Text, message

LATEST_TIMESTAMP: Final = -1  # the next offset; with read_committed the last stable offset
EARLIEST_TIMESTAMP: Final = -2


@message
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = -1
    timestamp: Int64


@message
class ListOffsetsTopic:
    name: Text
    partitions: tuple[ListOffsetsPartition, ...]


@message
class ListOffsetsRequest:
    replica_id: Int32 = -1
    isolation_level: Int8
    topics: tuple[ListOffsetsTopic, ...]


@message
class ListOffsetsPartitionResponse:
    """Offset of a partition; -1 if no record is so late."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64
    offset: Int64
    leader_epoch: Int32


@message
class ListOffsetsTopicResponse:
    name: Text
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@message
class ListOffsetsResponse:
    throttle_time_ms: Int32
    topics: tuple[ListOffsetsTopicResponse, ...]


LIST_OFFSETS: Final = Api("ListOffsets", 2, 7, ListOffsetsRequest, ListOffsetsResponse)
