"""The APIs this broker serves: one row here and one module beside it per API, named as its message module.

The table is the only truth about what is served: dispatch, ApiVersions and docs/protocol.md read it. Versions are
those that Apache Kafka 4.3.1 calls stable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kafkawire.context import RequestContext
from kafkawire.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    produce,
)
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.create_topics import CreateTopicsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.list_offsets import ListOffsetsRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.produce import ProduceRequest


class Response(Protocol):
    """What every response message can do."""

    def encode(self, version: int) -> list[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One served API.

    `min_version` is what is advertised; a version from there to below `served_min` closes the connection. `two_stage`:
    `handle` has put the request into its order when it returns, and the next request starts while it finishes.
    """

    key: int
    name: str
    min_version: int
    served_min: int
    max_version: int
    request: type[Any]
    handle: Callable[[RequestContext, Any], Response | Awaitable[Response | None]]
    two_stage: bool = False


API_TABLE: tuple[Api, ...] = (
    Api(
        key=0,
        name="produce",
        min_version=0,  # KAFKA-18659: librdkafka compresses only where it sees the old versions
        served_min=3,
        max_version=13,
        request=ProduceRequest,
        handle=produce.handle,
        two_stage=True,
    ),
    Api(key=1, name="fetch", min_version=4, served_min=4, max_version=18, request=FetchRequest, handle=fetch.handle),
    Api(
        key=2,
        name="list_offsets",
        min_version=1,
        served_min=1,
        max_version=11,
        request=ListOffsetsRequest,
        handle=list_offsets.handle,
    ),
    Api(
        key=3,
        name="metadata",
        min_version=0,
        served_min=0,
        max_version=13,
        request=MetadataRequest,
        handle=metadata.handle,
    ),
    Api(
        key=10,
        name="find_coordinator",
        min_version=0,
        served_min=0,
        max_version=6,
        request=FindCoordinatorRequest,
        handle=find_coordinator.handle,
    ),
    Api(
        key=18,
        name="api_versions",
        min_version=0,
        served_min=0,
        max_version=4,
        request=ApiVersionsRequest,
        handle=api_versions.handle,
    ),
    Api(
        key=19,
        name="create_topics",
        min_version=2,
        served_min=2,
        max_version=7,
        request=CreateTopicsRequest,
        handle=create_topics.handle,
    ),
    Api(
        key=20,
        name="delete_topics",
        min_version=1,
        served_min=1,
        max_version=6,
        request=DeleteTopicsRequest,
        handle=delete_topics.handle,
    ),
    Api(
        key=60,
        name="describe_cluster",
        min_version=0,
        served_min=0,
        max_version=2,
        request=DescribeClusterRequest,
        handle=describe_cluster.handle,
    ),
)
