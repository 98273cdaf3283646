"""FindCoordinator, key 10: who coordinates a group or a transactional id.

Behavior:
- This broker coordinates neither yet. A group gets COORDINATOR_NOT_AVAILABLE, which clients take for "not now" and
  retry in the background; a transactional id and a share partition get INVALID_REQUEST with a text, because a client
  that is told to retry would wait a minute before it says why.
- The API is served all the same: librdkafka believes that a broker without it cannot read lz4, and then sends
  uncompressed without a word (rdkafka_feature.c).

Version notes: 1 transactions, 4 many keys in one request (KIP-699), 5 TRANSACTION_ABORTABLE (KIP-890), 6 share
partitions (KIP-932).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kafkawire.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.errors import ErrorCode
from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIRST_VERSION_WITH_MANY_KEYS: Final = 4
NO_NODE: Final = -1


class KeyType(IntEnum):
    """Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """One answer per key."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        found = [_find(context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    code, message = _refusal(context, key_type, key)
    return Coordinator(key=key, error_code=code, error_message=message, node_id=NO_NODE, host="", port=NO_NODE)


def _refusal(context: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, str]:
    if key_type == KeyType.GROUP:
        if not context.authorize(Operation.DESCRIBE, ResourceType.GROUP, key):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, "Not authorized to describe this group."
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker does not coordinate groups yet."
    if key_type == KeyType.TRANSACTION:
        if not context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Not authorized to use this transactional id."
        return ErrorCode.INVALID_REQUEST, "This broker does not coordinate transactions yet."
    if key_type == KeyType.SHARE:
        if not context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not authorized to find share coordinators."
        return ErrorCode.INVALID_REQUEST, "This broker does not coordinate share groups yet."
    return ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}."
