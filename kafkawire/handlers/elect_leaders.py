"""ElectLeaders, key 43: leader elections on request (KIP-460).

Behavior:
- *Preferred*: the first replica, if it is in sync. *Unclean*: any live replica of a partition without a leader;
  acknowledged records may be lost. After success the elected replica leads.
- Each partition has its own result. In a request for all partitions, those that need no election are left out; their
  topics are not.
- The timeout has no effect, as in Kafka. After ReplicationControlManager.electLeaders.

Version notes: 1 has unclean elections, and an error of the whole request; 0 gets that error for each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import ElectionType
from coordinator.errors import CoordinatorError, ElectionNotNeeded
from kafkawire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.api import ClusterImage


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Hold one election after the other."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.election_type not in {*ElectionType}:
        return _failure(request, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    numbers_by_topic = _requested_partitions(request, context.broker.cluster.image)
    partitions = [(topic, number) for topic, numbers in numbers_by_topic.items() for number in numbers]
    try:
        errors = await context.broker.cluster.elect_leaders(ElectionType(request.election_type), partitions)
    except CoordinatorError as error:
        return _failure(request, error_code_of(error), str(error) or None)
    found: dict[str, list[PartitionResult]] = {topic: [] for topic in numbers_by_topic}
    for (topic, number), refusal in zip(partitions, errors, strict=True):
        if request.topic_partitions is not None or not isinstance(refusal, ElectionNotNeeded):
            found[topic].append(_row(number, refusal))
    rows = [ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in found.items()]
    return ElectLeadersResponse(replica_election_results=rows)


def refuse(context: RequestContext, request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Refuse every partition."""
    return _failure(request, code)


def _requested_partitions(request: ElectLeadersRequest, image: ClusterImage) -> Mapping[str, Sequence[int]]:
    """The requested partitions, by topic."""
    if request.topic_partitions is None:
        return {topic.name: range(len(topic.partitions)) for topic in image.topics.values()}
    numbers_by_topic: dict[str, list[int]] = {}
    for one in request.topic_partitions:
        numbers_by_topic.setdefault(one.topic, []).extend(one.partitions)
    return numbers_by_topic


def _failure(request: ElectLeadersRequest, code: ErrorCode, message: str | None = None) -> ElectLeadersResponse:
    """Set the error for the whole request and for each named partition, as Kafka does."""
    text = shortened(message)
    rows = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=number, error_code=code, error_message=text) for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=rows)


def _row(partition: int, error: CoordinatorError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=partition)
    return PartitionResult(partition_id=partition, error_code=error_code_of(error), error_message=shortened(str(error)))


API = Api("elect_leaders", ElectLeadersRequest, handle, refuse, 0, 2)
