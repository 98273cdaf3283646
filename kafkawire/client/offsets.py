"""Offsets of partitions' logs: start, end, and the first one at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from engine.api import Isolation
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Connection
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.partitions import TopicPartition, by_topic
from kafkawire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
NO_OFFSET: Final = -1  # no record has such a late timestamp

_CONSUMER_REPLICA_ID: Final = -1


async def offsets_at(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int | Refusal]:
    """First offsets with that timestamp in ms or a later one; EARLIEST and LATEST are the ends for consumers."""

    async def ask(connection: Connection, partitions: list[TopicPartition]) -> dict[TopicPartition, int | Refusal]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=one.partition, timestamp=timestamp_ms)
                    for one in topic_partitions
                ],
            )
            for topic, topic_partitions in by_topic(partitions)
        ]
        request = ListOffsetsRequest(replica_id=_CONSUMER_REPLICA_ID, isolation_level=isolation, topics=topics)
        answer = await connection.call(request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, row.partition_index): refusal(row.error_code) if row.error_code else row.offset
            for topic in answer.topics
            for row in topic.partitions
        }

    return await cluster.at_leaders(partitions, ask)


async def partitions_of(cluster: Cluster, topics: Collection[str]) -> dict[str, list[TopicPartition] | Refusal]:
    """All partitions of these topics."""
    return {
        name: refusal(topic.error_code)
        if topic.error_code
        else sorted(TopicPartition(name, row.partition_index) for row in topic.partitions)
        for name, topic in (await cluster.topics(topics)).items()
    }


async def known_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Partitions of a topic that must exist. Raises ClientError."""
    found = (await partitions_of(cluster, [topic]))[topic]
    if isinstance(found, Refusal):
        raise ClientError(f"topic {topic}: {found}")
    return found


async def known_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Same as `offsets_at`, for partitions that must exist. Raises ClientError."""
    known = {}
    for one, offset in (await offsets_at(cluster, partitions, timestamp_ms, isolation)).items():
        if isinstance(offset, Refusal):
            raise ClientError(f"{one}: {offset}")
        known[one] = offset
    return known
