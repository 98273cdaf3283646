"""Resources with configs: required operations, and the names of brokers.

Shared by the handlers of configs, which never import each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkawire.config.entries import ConfigResourceType
from kafkawire.requests.context import CLUSTER_NAME, Operation, ResourceType
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from kafkawire.requests.context import RequestContext


# Kafka's texts: tools and people search for them.
DENIED: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


def denial(context: RequestContext, operation: Operation, kind: ConfigResourceType, name: str) -> ErrorCode | None:
    """The error code if the client may not do this with the configs of the resource; else None."""
    if kind is ConfigResourceType.TOPIC:
        resource, code = (ResourceType.TOPIC, name), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif kind is ConfigResourceType.GROUP:
        resource, code = (ResourceType.GROUP, name), ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        resource, code = (ResourceType.CLUSTER, CLUSTER_NAME), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if context.authorize(operation, *resource) else code


def broker_id_of(name: str) -> int | None:
    """The broker id that a resource is named by; None if it is no number."""
    return int(name) if _INTEGER.fullmatch(name) else None
