"""AlterPartitionReassignments, key 45: reassign partitions to other replicas, or cancel reassignments (KIP-455).

Behavior:
- Each partition has its own result; success means that the reassignment has begun. If a partition is named twice, the
  last entry counts. Null replicas cancel a running reassignment.
- The timeout has no effect, as in Kafka. The control plane checks. After ReplicationControlManager.

Version notes: 1 may refuse a changed number of replicas (KIP-860).
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
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin all reassignments."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    reassignments = [
        Reassignment(topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas))
        for topic in request.topics
        for one in topic.partitions
    ]
    may_change_factor = request.allow_replication_factor_change
    try:
        errors = iter(await context.broker.cluster.reassign(reassignments, may_change_factor=may_change_factor))
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
    """Refuse every partition."""
    return _failure(request, code)


def _failure(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None = None
) -> AlterPartitionReassignmentsResponse:
    """Set the error for the whole request and for each partition, as Kafka does."""
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


API = Api("alter_partition_reassignments", AlterPartitionReassignmentsRequest, handle, refuse, 0, 1)
