"""AddPartitionsToTxn: adds partitions to a transaction, before records are written to them (KIP-98)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Int16, Int32, Int64, Text, message


@message
class AddPartitionsToTxnTopic:
    name: Text
    partitions: tuple[Int32, ...]


@message
class AddPartitionsToTxnRequest:
    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    topics: tuple[AddPartitionsToTxnTopic, ...]


@message
class AddedPartition:
    partition_index: Int32
    error_code: Int16


@message
class AddedTopic:
    name: Text
    partitions: tuple[AddedPartition, ...]


@message
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32
    topics: tuple[AddedTopic, ...]


ADD_PARTITIONS_TO_TXN: Final = Api("AddPartitionsToTxn", 24, 3, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
