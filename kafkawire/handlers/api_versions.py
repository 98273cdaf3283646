"""ApiVersions, key 18: the served APIs, asked for first on every connection.

Behavior:
- The list is the API table.
- From version 3 on features are reported (KIP-584): the supported levels of this broker, and the finalized levels of
  the cluster, unless 0. Older clients cannot read a range that begins with 0: up to version 3 such a feature is not
  among the supported ones, as in Kafka (KAFKA-17492).
- From version 3 on the client names its software; a malformed name or version is INVALID_REQUEST (KIP-511).
- An unknown newer version is answered in version 0 with UNSUPPORTED_VERSION and the range of this API alone. The client
  then chooses a version in that range.
- From version 5 on the client may name the broker that it wants to reach, by cluster id and node id. Another broker
  answers REBOOTSTRAP_REQUIRED, so that the client begins again with its bootstrap servers (KIP-1242). One of the ids
  without the other is INVALID_REQUEST.
- No authorization is needed: the client learns from it how to authenticate.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkawire.messages.api_versions import (
    API_KEY,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.api import ClusterImage

FIRST_VERSION_WITH_CLIENT: Final = 3
FIRST_VERSION_WITH_LEVEL_0: Final = 4
FIRST_VERSION_WITH_IDS: Final = 5
NO_NODE: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with the whole list."""
    if context.api_version >= FIRST_VERSION_WITH_CLIENT:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return refuse(context, request, ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        code = _code_of_ids(context, request)
        if code:
            return refuse(context, request, code)
    image = context.broker.cluster.image
    return ApiVersionsResponse(
        api_keys=[_row(*served) for served in context.advertised],
        supported_features=_supported(context),
        finalized_features_epoch=image.features_epoch,
        finalized_features=_finalized(image),
    )


def refuse(context: RequestContext, request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """A response with the error and no list."""
    return ApiVersionsResponse(error_code=code, api_keys=[])


def refuse_version(context: RequestContext) -> ApiVersionsResponse:
    """The response to an unknown version of this API; encode it in version 0."""
    rows = [_row(*served) for served in context.advertised if served[0] == API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)


def _code_of_ids(context: RequestContext, request: ApiVersionsRequest) -> ErrorCode:
    """The error if the ids in the request are not those of this broker."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    ours = context.broker.cluster.image.cluster_id, context.broker.config.node_id
    is_meant = request.cluster_id is None or (request.cluster_id, request.node_id) == ours
    return ErrorCode.NONE if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED


def _supported(context: RequestContext) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in context.broker.cluster.supported_features.items()
        if levels.lowest > 0 or context.api_version >= FIRST_VERSION_WITH_LEVEL_0
    ]


def _finalized(image: ClusterImage) -> list[FinalizedFeatureKey]:
    return [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in image.features.items()
        if level > 0
    ]


def _row(api_key: int, min_version: int, max_version: int) -> ApiVersion:
    return ApiVersion(api_key=api_key, min_version=min_version, max_version=max_version)


API = Api("api_versions", ApiVersionsRequest, handle, refuse, 0, 5, refuse_version=refuse_version)
