"""UnregisterBroker, key 64: remove a broker from the cluster (KIP-631).

Behavior:
- It is for brokers that are gone for good. Their replicas stay listed until they are reassigned. A running broker
  registers again at once; in Kafka it stays out until it is started again. After QuorumController.unregisterBroker.

Version notes: there is one.
"""

from __future__ import annotations

from coordinator.errors import CoordinatorError
from kafkawire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of


async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Unregister the broker."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        await context.broker.cluster.unregister_broker(request.broker_id)
    except CoordinatorError as error:
        return UnregisterBrokerResponse(error_code=error_code_of(error), error_message=str(error) or None)
    return UnregisterBrokerResponse()


def refuse(context: RequestContext, request: UnregisterBrokerRequest, code: ErrorCode) -> UnregisterBrokerResponse:
    """A response with the error."""
    return UnregisterBrokerResponse(error_code=code)


API = Api("unregister_broker", UnregisterBrokerRequest, handle, refuse, 0, 0)
