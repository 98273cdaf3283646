"""ApiVersions: the APIs of a broker, with their versions. The first request of a connection (KIP-511)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import API_VERSIONS_KEY, Api
from spark_connectors.wire.layout import Int16, Int32, Text, message


@message
class ApiVersionsRequest:
    client_software_name: Text
    client_software_version: Text


@message
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class ApiVersionsResponse:
    error_code: Int16
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Int32


API_VERSIONS: Final = Api("ApiVersions", API_VERSIONS_KEY, 3, ApiVersionsRequest, ApiVersionsResponse)
