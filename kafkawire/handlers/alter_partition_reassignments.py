"""AlterPartitionReassignments, key 45: partitions move to other replicas, or are kept where they were (KIP-455).

Behavior:
- Each partition is answered by itself; success says that it is on its way. Of one that is named twice the last order
  counts. No replicas at all are those from before: what is under way is cancelled.
- The time-out means nothing, as with Kafka. The control plane checks. After ReplicationControlManager.

Version notes: 1 may refuse that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from coordinator.api import Reassignment
from coordinator.errors import CoordinatorError
from kafkawire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Orders all that is named."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [
        Reassignment(topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas))
        for topic in request.topics
        for one in topic.partitions
    ]
    may_change_factor = request.allow_replication_factor_change
    try:
        errors = iter(await context.broker.cluster.reassign(asked, may_change_factor=may_change_factor))
    except CoordinatorError as error:
        return _failure(request, error_code_of(error), str(error) or None)
    rows = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[_row(one.partition_index, next(errors)) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_factor, responses=rows)


def refuse(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """All of them."""
    return _failure(request, code)


def _failure(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None = None
) -> AlterPartitionReassignmentsResponse:
    """As Kafka: the error is said of the whole, and of each."""
    text = shortened(message)
    rows = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(partition_index=one.partition_index, error_code=code, error_message=text)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=text, responses=rows)


def _row(partition: int, error: CoordinatorError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=partition)
    return ReassignablePartitionResponse(
        partition_index=partition, error_code=error_code_of(error), error_message=shortened(str(error) or None)
    )
