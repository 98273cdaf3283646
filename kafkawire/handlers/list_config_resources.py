"""ListConfigResources, key 74: resources whose configs can be described (KIP-1142).

Behavior:
- Without types, all types of the version are listed; in version 0 only clients' metrics. An unknown type is
  UNSUPPORTED_VERSION.
- There are topics and brokers, each broker with its loggers; no group and no client's metrics have configs here. After
  KafkaApis.handleListConfigResources.

Version notes: 0 is the former ListClientMetricsResources (KIP-714), 1 has types.
"""

from __future__ import annotations

from typing import Final

from kafkawire.config.entries import ConfigResourceType
from kafkawire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode

FIRST_VERSION_WITH_TYPES: Final = 1
ALL_TYPES: Final = frozenset(map(int, ConfigResourceType))


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Answer from the current image."""
    if not context.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if context.api_version < FIRST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse(config_resources=[])
    types = set(request.resource_types) or ALL_TYPES
    if not types <= ALL_TYPES:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    image = context.broker.cluster.image
    brokers = [str(broker_id) for broker_id in image.brokers]
    names = {
        ConfigResourceType.TOPIC: list(image.topics),
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
    }
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind, of_kind in names.items()
        if kind in types
        for name in of_kind
    ]
    return ListConfigResourcesResponse(config_resources=found)


def refuse(
    context: RequestContext, request: ListConfigResourcesRequest, code: ErrorCode
) -> ListConfigResourcesResponse:
    """A response with the error."""
    return _refuse(code)


def _refuse(code: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


API = Api("list_config_resources", ListConfigResourcesRequest, handle, refuse, 0, 1)
