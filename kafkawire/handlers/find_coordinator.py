"""FindCoordinator, key 10: the coordinator of a group or of a transactional id.

Behavior:
- The coordinator of a group is the leader of the partition of __consumer_offsets to which its name hashes, that of a
  transactional id the leader of one of __transaction_state. The first request creates the topic.
- Share groups have no coordinator: a share partition gets INVALID_REQUEST with a text, because a client that is told to
  retry would wait a minute before it reports the reason.
- The client needs DESCRIBE on the group or the transactional id, for a share partition CLUSTER_ACTION.

Version notes: 1 transactions, 4 many keys in one request (KIP-699), 5 TRANSACTION_ABORTABLE (KIP-890), 6 share
partitions (KIP-932).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from coordinator.errors import CoordinatorError
from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of

FIRST_VERSION_WITH_MANY_KEYS: Final = 4
NO_NODE: Final = -1
FAILED: Final = "The request failed."


class KeyType(IntEnum):
    """Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


async def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Find the coordinator of each key."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        found = [await _find(context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    return _single(await _find(context, request.key_type, request.key))


def refuse(context: RequestContext, request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Refuse every key."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=[_refuse(key, code, FAILED) for key in request.coordinator_keys])
    return _single(_refuse(request.key, code, FAILED))


def _single(one: Coordinator) -> FindCoordinatorResponse:
    """The response for clients that ask for one key."""
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


async def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    refusal = _refusal(context, key_type, key)
    if refusal is not None:
        return _refuse(key, *refusal)
    try:
        if key_type == KeyType.GROUP:
            node_id = await context.broker.groups.coordinator_of(key)
        else:
            node_id = await context.broker.transactions.coordinator_of(key)
    except CoordinatorError as error:
        return _refuse(key, error_code_of(error), "The coordinator is not available.")
    broker = context.broker.cluster.image.brokers.get(node_id)
    endpoint = context.endpoint_of(broker) if broker is not None else None
    if endpoint is None:
        return _refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator cannot be reached.")
    host, port = endpoint
    return Coordinator(key=key, error_message="", node_id=node_id, host=host, port=port)


def _refusal(context: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, str] | None:
    if key_type == KeyType.GROUP:
        if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, key):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, "Not authorized to describe this group."
        return None
    if key_type == KeyType.TRANSACTION:
        if not context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Not authorized to use this transactional id."
        return None
    if key_type == KeyType.SHARE:
        if not context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to find share coordinators."
        return ErrorCode.INVALID_REQUEST, "This broker does not coordinate share groups yet."
    return ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}."


def _refuse(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, error_code=code, error_message=message, node_id=NO_NODE, host="", port=NO_NODE)


API = Api("find_coordinator", FindCoordinatorRequest, handle, refuse, 0, 6)
