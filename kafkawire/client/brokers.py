"""Brokers for administrators: the list of brokers (KIP-700), and their log dirs (KIP-113)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Address
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkawire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kafkawire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kafkawire.requests.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, as the cluster describes it. A *fenced* broker is registered, and leads nothing."""

    broker_id: int
    address: Address
    rack: str | None
    is_controller: bool
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log dir. Unknown sizes are -1. `problem` is the reason why its content is unknown."""

    path: str
    partitions: int
    partitions_size_bytes: int
    total_bytes: int
    usable_bytes: int
    problem: str | None


async def describe_brokers(cluster: Cluster) -> dict[int, Broker]:
    """All brokers of the cluster, by id; fenced ones if the brokers report them (Kafka 4.0). Raises ClientError."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    answer = await (await cluster.any_broker()).call(request, DescribeClusterResponse)
    if answer.error_code:
        raise ClientError(f"the cluster: {refusal(answer.error_code, answer.error_message)}")
    brokers = [
        Broker(
            one.broker_id,
            Address(one.host, one.port),
            one.rack,
            one.broker_id == answer.controller_id,
            one.is_fenced,
        )
        for one in answer.brokers
    ]
    return {one.broker_id: one for one in sorted(brokers, key=lambda one: one.broker_id)}


async def unregister_broker(cluster: Cluster, broker_id: int) -> Refusal | None:
    """Remove the broker from the cluster. Return a Refusal, or None for success. Raises ClientError."""
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = await (await cluster.any_broker()).call(request, UnregisterBrokerResponse)
    return refusal(answer.error_code, answer.error_message) if answer.error_code else None


async def describe_log_dirs(cluster: Cluster, broker: Broker) -> Sequence[LogDir]:
    """Log dirs of a broker that is up. Raises ClientError."""
    connection = await cluster.broker(broker.address)
    answer = await connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    if answer.error_code:
        raise ClientError(str(refusal(answer.error_code)))
    return [_log_dir(one) for one in sorted(answer.results, key=lambda one: one.log_dir)]


def _log_dir(one: DescribeLogDirsResult) -> LogDir:
    """The row of a log dir. Replicas that move to another log dir count in their present one only."""
    sizes = [row.partition_size for topic in one.topics for row in topic.partitions if not row.is_future_key]
    is_offline = one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    problem = "offline" if is_offline else str(refusal(one.error_code)) if one.error_code else None
    return LogDir(one.log_dir, len(sizes), sum(sizes), one.total_bytes, one.usable_bytes, problem)
