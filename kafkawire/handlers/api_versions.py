"""ApiVersions, key 18: what this broker serves, asked first on every connection.

Behavior:
- The list is the API table. Features are not listed: none works yet.
- From version 3 on the client says what it is; a malformed name or version is INVALID_REQUEST (KIP-511).
- A version above ours is answered in version 0 with UNSUPPORTED_VERSION and our range of this API alone, by which a
  client picks a version it can ask in.
- Needs no authorization: it is how a client finds out how to authenticate.
"""

from __future__ import annotations

import re
from typing import Final

from kafkawire.messages.api_versions import API_KEY, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode

FIRST_VERSION_WITH_CLIENT: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The whole list."""
    if context.api_version >= FIRST_VERSION_WITH_CLIENT:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    return ApiVersionsResponse(api_keys=[_row(*served) for served in context.advertised])


def refuse(context: RequestContext, request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """The list."""
    return ApiVersionsResponse(error_code=code, api_keys=[])


def refuse_version(context: RequestContext) -> ApiVersionsResponse:
    """For a version that is not ours; to be encoded in version 0."""
    rows = [_row(*served) for served in context.advertised if served[0] == API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)


def _row(api_key: int, min_version: int, max_version: int) -> ApiVersion:
    return ApiVersion(api_key=api_key, min_version=min_version, max_version=max_version)
