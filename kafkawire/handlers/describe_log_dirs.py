"""DescribeLogDirs, key 35: the log dirs of this broker, their space, and their partitions (KIP-113, KIP-827).

Behavior:
- Null as topics means all partitions, else the named ones. Partitions that are not here are left out silently.
- A log dir that is offline is a row with KAFKA_STORAGE_ERROR and nothing else.
- Without DESCRIBE on the cluster there are no rows; from version 3 on there is a code.
- The size is that of the segments. The lag is what a follower knows to lack. There are no future replicas, because
  replicas do not move between log dirs, and no log dir is ever cordoned. After ReplicaManager.describeLogDirs.

Version notes: 2 flexible, 3 top-level error, 4 space (KIP-827), 5 cordoned (KIP-1066).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kafkawire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from engine.api import LogDirDescription


async def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe every log dir."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    found = await context.broker.store.describe_log_dirs()
    return DescribeLogDirsResponse(results=[_result(one, wanted) for one in found])


def refuse(context: RequestContext, request: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """A response with the error."""
    return DescribeLogDirsResponse(error_code=code, results=[])


def _result(log_dir: LogDirDescription, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if not log_dir.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path, topics=[])
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition, size_bytes in log_dir.partition_size_bytes.items():
        if wanted is None or (partition.topic, partition.partition) in wanted:
            row = DescribeLogDirsPartition(
                partition_index=partition.partition,
                partition_size=size_bytes,
                offset_lag=log_dir.lags.get(partition, 0),
            )
            topics[partition.topic].append(row)
    return DescribeLogDirsResult(
        log_dir=log_dir.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        total_bytes=log_dir.total_bytes,
        usable_bytes=log_dir.usable_bytes,
    )


API = Api("describe_log_dirs", DescribeLogDirsRequest, handle, refuse, 1, 5)
