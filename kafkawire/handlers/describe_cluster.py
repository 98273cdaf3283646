"""DescribeCluster, key 60: the brokers, the controller and the cluster's id (KIP-700).

Behavior:
- Every client may ask. Authorized operations are listed on request; 0 without DESCRIBE on the cluster.
- This listener belongs to a broker. A request for a controller's endpoint is MISMATCHED_ENDPOINT_TYPE; one for another
  type is UNSUPPORTED_ENDPOINT_TYPE (KIP-919).
- Brokers that are fenced, or registered and not serving yet, are listed if the client asks for them. After
  KafkaApis.handleDescribeCluster.

Version notes: 1 endpoint type, 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from enum import IntEnum

from kafkawire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode


class EndpointType(IntEnum):
    """Kafka's EndpointType."""

    BROKER = 1
    CONTROLLER = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Answer from the current image."""
    if request.endpoint_type == EndpointType.CONTROLLER:
        return _refuse(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != EndpointType.BROKER:
        return _refuse(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    image = context.broker.cluster.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint[0],
                port=endpoint[1],
                rack=broker.rack,
                is_fenced=not broker.is_up,
            )
            for broker in (image.members if request.include_fenced_brokers else image.brokers).values()
            if (endpoint := context.endpoint_of(broker)) is not None
        ],
    )
    if request.include_cluster_authorized_operations:
        allowed = context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = (
            context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME) if allowed else 0
        )
    return response


def refuse(context: RequestContext, request: DescribeClusterRequest, code: ErrorCode) -> DescribeClusterResponse:
    """A response with the error."""
    return _refuse(code, None)


def _refuse(code: ErrorCode, message: str | None) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


API = Api("describe_cluster", DescribeClusterRequest, handle, refuse, 0, 2)
