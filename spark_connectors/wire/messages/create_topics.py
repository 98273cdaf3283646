"""CreateTopics: creates topics with numbers of partitions and configs."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Bool, Int8, Int16, Int32, NullableText, Text, TopicId, message

BY_BROKER: Final = -1  # a replication factor: the broker's default


@message
class ReplicaAssignment:
    partition_index: Int32
    broker_ids: tuple[Int32, ...]


@message
class TopicConfig:
    name: Text
    value: NullableText


@message
class TopicToCreate:
    name: Text
    num_partitions: Int32
    replication_factor: Int16 = BY_BROKER
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[TopicConfig, ...]


@message
class CreateTopicsRequest:
    topics: tuple[TopicToCreate, ...]
    timeout_ms: Int32
    validate_only: Bool


@message
class CreatedConfig:
    name: Text
    value: NullableText
    read_only: Bool
    config_source: Int8
    is_sensitive: Bool


@message
class CreatedTopic:
    """A created topic. If the client may not see the configs, `configs` is null, and a tagged field has the reason."""

    name: Text
    topic_id: TopicId
    error_code: Int16
    error_message: NullableText
    num_partitions: Int32
    replication_factor: Int16
    configs: tuple[CreatedConfig, ...] | None


@message
class CreateTopicsResponse:
    throttle_time_ms: Int32
    topics: tuple[CreatedTopic, ...]


CREATE_TOPICS: Final = Api("CreateTopics", 19, 7, CreateTopicsRequest, CreateTopicsResponse)
