"""TxnOffsetCommit: offsets of a group that are valid if their transaction is committed (KIP-98, KIP-447)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int16, Int32, Int64, NullableText, Text, message


@message
class TxnOffsetCommitPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    committed_metadata: NullableText


@message
class TxnOffsetCommitTopic:
    name: Text
    partitions: tuple[TxnOffsetCommitPartition, ...]


@message
class TxnOffsetCommitRequest:
    """Request to commit offsets in a transaction; the defaults are for a client without a member id."""

    transactional_id: Text
    group_id: Text
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = -1
    member_id: Text = ""
    group_instance_id: NullableText = None
    topics: tuple[TxnOffsetCommitTopic, ...]


@message
class TxnOffsetCommittedPartition:
    partition_index: Int32
    error_code: Int16


@message
class TxnOffsetCommittedTopic:
    name: Text
    partitions: tuple[TxnOffsetCommittedPartition, ...]


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32
    topics: tuple[TxnOffsetCommittedTopic, ...]


TXN_OFFSET_COMMIT: Final = Api("TxnOffsetCommit", 28, 3, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
