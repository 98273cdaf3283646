"""Replicas of partitions for administrators: eligible leader replicas (KIP-966), and lags."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kafkawire.client.brokers import Broker
from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import ClientError, refusal
from kafkawire.client.partitions import TopicPartition
from kafkawire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkawire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)

PAGE_PARTITIONS: Final = 2_000


async def eligible_leaders(cluster: Cluster, topics: Collection[str]) -> Mapping[TopicPartition, list[int]]:
    """Eligible leader replicas by partition: broker ids. Partitions without any are left out.

    Empty if the brokers do not know them (before Kafka 3.7). Raises ClientError.
    """
    connection = await cluster.any_broker()
    found: dict[TopicPartition, list[int]] = {}
    cursor: RequestCursor | None = None
    while topics and connection.supports(DescribeTopicPartitionsRequest):
        wanted = [TopicRequest(name=name) for name in sorted(topics)]
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=PAGE_PARTITIONS, cursor=cursor)
        answer = await connection.call(request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            for row in topic.partitions:
                if row.eligible_leader_replicas:
                    found[TopicPartition(str(topic.name), row.partition_index)] = list(row.eligible_leader_replicas)
        if answer.next_cursor is None:
            break
        cursor = RequestCursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    return found


async def replica_lags(cluster: Cluster, brokers: Iterable[Broker]) -> Mapping[TopicPartition, dict[int, int]]:
    """Lags by partition and broker: records that a replica lacks, as the replica itself knows.

    Fenced brokers are not asked, because they may be down. Raises ClientError.
    """
    found: dict[TopicPartition, dict[int, int]] = {}
    for broker in brokers:
        if broker.is_fenced:
            continue
        connection = await cluster.broker(broker.address)
        answer = await connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        if answer.error_code:
            raise ClientError(f"broker {broker.broker_id}: {refusal(answer.error_code)}")
        rows = ((topic.name, row) for one in answer.results for topic in one.topics for row in topic.partitions)
        for name, row in rows:
            if not row.is_future_key:
                found.setdefault(TopicPartition(name, row.partition_index), {})[broker.broker_id] = row.offset_lag
    return found
