"""Metadata: topics with their ids (KIP-516), their partitions, and the leaders of these."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    NullableText,
    Text,
    TopicId,
    message,
)


@message
class MetadataRequestTopic:
    """A topic by name; by id if `name` is null."""

    topic_id: TopicId = ZERO_UUID
    name: NullableText


@message
class MetadataRequest:
    """Request for these topics; for all if `topics` is null."""

    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: Bool = False
    include_topic_authorized_operations: Bool = False


@message
class MetadataBroker:
    node_id: Int32
    host: Text
    port: Int32
    rack: NullableText


@message
class MetadataPartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: tuple[Int32, ...]
    isr_nodes: tuple[Int32, ...]
    offline_replicas: tuple[Int32, ...]


@message
class MetadataTopic:
    error_code: Int16
    name: NullableText
    topic_id: TopicId
    is_internal: Bool
    partitions: tuple[MetadataPartition, ...]
    topic_authorized_operations: Int32


@message
class MetadataResponse:
    throttle_time_ms: Int32
    brokers: tuple[MetadataBroker, ...]
    cluster_id: NullableText
    controller_id: Int32
    topics: tuple[MetadataTopic, ...]


METADATA: Final = Api("Metadata", 3, 12, MetadataRequest, MetadataResponse)
