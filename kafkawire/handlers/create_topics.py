"""CreateTopics, key 19: topics by name, each with its own result.

Behavior:
- The control plane validates and creates; after success the topic can be used. This module checks only the request: a
  name, a config or a partition given twice, a config without a value, the timeout.
- Timeout: topics that are not begun in time get REQUEST_TIMED_OUT; begun ones are finished.
- Clients with DESCRIBE_CONFIGS see the configs in effect; others get a code in topic_config_error_code.
- After Kafka's ControllerApis and ReplicationControlManager.

Version notes: -1 means the broker's default from 4 on for clients (KIP-464), 5 tells configs and counts (KIP-525), 7
the topic id.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import trio

from coordinator.api import TopicInfo
from coordinator.errors import CoordinatorError, InvalidConfig, InvalidReplicaAssignment
from kafkawire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened
from kafkawire.requests.topic_lookup import CREATED_PARTITIONS_MAX

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"  # Kafka's metadata log; clients know the name


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create one topic after the other."""
    deadline = trio.current_time() + max(0, request.timeout_ms) / 1000
    times_named = Counter(topic.name for topic in request.topics)
    response = CreateTopicsResponse(topics=[])
    if _partition_count(context, request) > CREATED_PARTITIONS_MAX:
        text = "Excessively large number of partitions per request."
        response.topics = [_refused(name, ErrorCode.POLICY_VIOLATION, text) for name in times_named]
        return response
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        if times_named[name] > 1:
            row = _refused(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == CLUSTER_METADATA_TOPIC:
            row = _refused(name, ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        elif not _may_create(context, name):
            row = _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        elif trio.current_time() >= deadline:
            row = _refused(name, ErrorCode.REQUEST_TIMED_OUT, None)
        else:
            row = await _create(context, topic, validate_only=request.validate_only)
        response.topics.append(row)
    return response


def refuse(context: RequestContext, request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Refuse every topic."""
    return CreateTopicsResponse(topics=[_refused(topic.name, code, None) for topic in request.topics])


def _partition_count(context: RequestContext, request: CreateTopicsRequest) -> int:
    """The number of partitions over all topics of the request."""
    default = context.broker.config.num_partitions
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else max(0, topic.num_partitions))
        for topic in request.topics
    )


def _may_create(context: RequestContext, name: str) -> bool:
    return context.authorize(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or context.authorize(
        Operation.CREATE, ResourceType.TOPIC, name
    )


async def _create(context: RequestContext, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    try:
        created = await context.broker.cluster.create_topic(
            topic.name,
            partition_count=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=_assignments(topic),
            configs=_configs(topic),
            validate_only=validate_only,
        )
    except CoordinatorError as error:
        return _refused(topic.name, error_code_of(error), str(error) or None)
    return _created(context, created)


def _assignments(topic: CreatableTopic) -> dict[int, list[int]] | None:
    if not topic.assignments:
        return None
    found: dict[int, list[int]] = {}
    for one in topic.assignments:
        if one.partition_index in found:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {one.partition_index}"
            )
        found[one.partition_index] = list(one.broker_ids)
    return found


def _configs(topic: CreatableTopic) -> dict[str, str]:
    found: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {config.name}")
        found[config.name] = config.value
    return found


def _created(context: RequestContext, topic: TopicInfo) -> CreatableTopicResult:
    row = CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
    if not context.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        row.configs = None
        return row
    row.num_partitions = len(topic.partitions)
    row.replication_factor = len(topic.partitions[0].replicas)
    row.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in context.broker.configs.topic(topic.name, topic.configs)
    ]
    return row


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=shortened(message), configs=[])


API = Api("create_topics", CreateTopicsRequest, handle, refuse, 2, 7)
