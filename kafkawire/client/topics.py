"""Topics for administrators: create, add partitions, delete. Each topic has its own result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from kafkawire.client.cluster import RETRY_FIRST_S, Cluster
from kafkawire.client.connection import Connection
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.offsets import partitions_of
from kafkawire.client.partitions import TopicPartition
from kafkawire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kafkawire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkawire.requests.errors import ErrorCode

BROKER_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the default of the brokers."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


TopicResults = dict[str, Refusal | None]  # None: done


async def create_topics(cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False) -> TopicResults:
    """Create topics; with `validate_only` only validate the request."""
    wanted = {topic.name: topic for topic in topics}

    async def ask(connection: Connection, names: list[str]) -> TopicResults:
        request = CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=BROKER_TIMEOUT_MS,
            validate_only=validate_only,
        )
        answer = await connection.call(request, CreateTopicsResponse, at_least=4)  # counts of -1 (KIP-464)
        return {one.name: _outcome(one.error_code, one.error_message) for one in answer.topics}

    return await cluster.at_controller(wanted, ask)


async def created_partitions(
    cluster: Cluster, topic: str, partition_count: int = -1
) -> tuple[list[TopicPartition], bool]:
    """Partitions of a topic, and whether it was created here.

    If it does not exist, it is created with `partition_count` partitions (-1: the brokers' default). Raises
    ClientError.
    """
    found = (await partitions_of(cluster, [topic]))[topic]
    if not isinstance(found, Refusal):
        return found, False
    if found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        refused = (await create_topics(cluster, [NewTopic(topic, partition_count)]))[topic]
        if refused is not None and refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise ClientError(f"topic {topic}: {refused}")
        cluster.waiting_for = f"topic {topic}"
    while isinstance(found, Refusal):  # the asked broker may learn of it later than the controller
        if found.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            raise ClientError(f"topic {topic}: {found}")
        await trio.sleep(RETRY_FIRST_S)
        found = (await partitions_of(cluster, [topic]))[topic]
    return found, True


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


async def create_partitions(
    cluster: Cluster, counts: Mapping[str, int], *, validate_only: bool = False
) -> TopicResults:
    """Increase the partitions of topics to these total counts."""

    async def ask(connection: Connection, names: list[str]) -> TopicResults:
        rows = [CreatePartitionsTopic(name=name, count=counts[name], assignments=None) for name in names]
        request = CreatePartitionsRequest(topics=rows, timeout_ms=BROKER_TIMEOUT_MS, validate_only=validate_only)
        answer = await connection.call(request, CreatePartitionsResponse)
        return {one.name: _outcome(one.error_code, one.error_message) for one in answer.results}

    return await cluster.at_controller(counts, ask)


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> TopicResults:
    """Delete topics with all their records."""

    async def ask(connection: Connection, names: list[str]) -> TopicResults:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], topic_names=names, timeout_ms=BROKER_TIMEOUT_MS
        )
        answer = await connection.call(request, DeleteTopicsResponse)
        return {one.name: _outcome(one.error_code, one.error_message) for one in answer.responses if one.name}

    return await cluster.at_controller(names, ask)


def _outcome(code: int, message: str | None) -> Refusal | None:
    return refusal(code, message) if code else None
