"""OffsetFetch: committed offsets of a group. `require_stable`: an error if a transaction may change them (KIP-447)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Bool, Int16, Int32, Int64, NullableText, Text, message


@message
class OffsetFetchTopic:
    name: Text
    partition_indexes: tuple[Int32, ...]


@message
class OffsetFetchRequest:
    """Request for these topics; for all if `topics` is null."""

    group_id: Text
    topics: tuple[OffsetFetchTopic, ...] | None
    require_stable: Bool


@message
class FetchedOffset:
    """Committed offset of a partition; -1 if there is none."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32
    metadata: NullableText
    error_code: Int16


@message
class OffsetFetchedTopic:
    name: Text
    partitions: tuple[FetchedOffset, ...]


@message
class OffsetFetchResponse:
    throttle_time_ms: Int32
    topics: tuple[OffsetFetchedTopic, ...]
    error_code: Int16


OFFSET_FETCH: Final = Api("OffsetFetch", 9, 7, OffsetFetchRequest, OffsetFetchResponse)
