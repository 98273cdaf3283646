"""Produce: appends record batches to partitions."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import (
    Int16,
    Int32,
    Int64,
    NullableBytes,
    NullableText,
    Text,
    message,
)

ACKS_ALL: Final = -1


@message
class PartitionToProduce:
    """Records for a partition: one batch or several. From a producer with an id, Kafka accepts one only."""

    index: Int32
    records: NullableBytes


@message
class TopicToProduce:
    name: Text
    partitions: tuple[PartitionToProduce, ...]


@message
class ProduceRequest:
    transactional_id: NullableText
    acks: Int16 = ACKS_ALL
    timeout_ms: Int32
    topics: tuple[TopicToProduce, ...]


@message
class RecordError:
    batch_index: Int32
    message: NullableText


@message
class ProducedPartition:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64
    log_start_offset: Int64
    record_errors: tuple[RecordError, ...]
    error_message: NullableText


@message
class ProducedTopic:
    name: Text
    partitions: tuple[ProducedPartition, ...]


@message
class ProduceResponse:
    responses: tuple[ProducedTopic, ...]
    throttle_time_ms: Int32


PRODUCE: Final = Api("Produce", 0, 9, ProduceRequest, ProduceResponse)
