"""ListPartitionReassignments, key 46: running reassignments of partitions (KIP-455).

Behavior:
- The named partitions are listed, or all. Partitions without a reassignment, and unknown ones, are left out. After
  ReplicationControlManager.listPartitionReassignments.

Version notes: there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkawire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coordinator.api import ClusterImage


def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Answer from the current image."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    image = context.broker.cluster.image
    if request.topics is None:
        topics = ((topic.name, range(len(topic.partitions))) for topic in image.topics.values())
        return ListPartitionReassignmentsResponse(topics=[*_under_way(image, topics)])
    named = ((topic.name, topic.partition_indexes) for topic in request.topics)
    return ListPartitionReassignmentsResponse(topics=[*_under_way(image, named)])


def refuse(
    context: RequestContext, request: ListPartitionReassignmentsRequest, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Refuse the request. As in Kafka, the named partitions come back without replicas."""
    rows = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[OngoingPartitionReassignment(partition_index=number) for number in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(error_code=code, topics=rows)


def _under_way(image: ClusterImage, topics: Iterable[tuple[str, Iterable[int]]]) -> Iterator[OngoingTopicReassignment]:
    for name, partitions in topics:
        rows = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=[*state.replicas],
                adding_replicas=[*state.adding],
                removing_replicas=[*state.removing],
            )
            for number in partitions
            if (state := image.partition(name, number)) is not None and (state.adding or state.removing)
        ]
        if rows:
            yield OngoingTopicReassignment(name=name, partitions=rows)


API = Api("list_partition_reassignments", ListPartitionReassignmentsRequest, handle, refuse, 0, 0)
