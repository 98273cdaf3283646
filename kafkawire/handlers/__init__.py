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
    delete_records,
    delete_topics,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.create_topics import CreateTopicsRequest
from kafkawire.messages.delete_records import DeleteRecordsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.list_offsets import ListOffsetsRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.wire.message import Message


class Response(Protocol):
    """What every response message can do."""

    def encode(self, version: int) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Api:
    """One served API: its module's name, its request, its handler, the versions it advertises.

    A version below `first_served` is advertised and closes the connection all the same. `two_stage`: `handle` has put
    the request into its order when it returns, and the next request starts while it finishes; what it returns is a
    `kafkawire.dispatch.SecondStage`.
    """

    name: str
    request: type[Message]
    handle: Callable[[RequestContext, Any], Response | Awaitable[Response | None]]
    min_version: int
    max_version: int
    first_served: int = 0
    two_stage: bool = False

    @property
    def key(self) -> int:
        """Kafka's number of the API."""
        return self.request.API_KEY

    @property
    def served_min(self) -> int:
        """The lowest version that is answered."""
        return max(self.min_version, self.first_served)


API_TABLE: tuple[Api, ...] = (
    # Advertised from 0: librdkafka would otherwise send uncompressed without a word (KAFKA-18659).
    Api("produce", ProduceRequest, produce.handle, 0, 13, first_served=3, two_stage=True),
    Api("fetch", FetchRequest, fetch.handle, 4, 18),
    Api("list_offsets", ListOffsetsRequest, list_offsets.handle, 1, 11),
    Api("metadata", MetadataRequest, metadata.handle, 0, 13),
    Api("find_coordinator", FindCoordinatorRequest, find_coordinator.handle, 0, 6),
    Api("api_versions", ApiVersionsRequest, api_versions.handle, 0, 4),
    Api("create_topics", CreateTopicsRequest, create_topics.handle, 2, 7),
    Api("delete_topics", DeleteTopicsRequest, delete_topics.handle, 1, 6),
    Api("delete_records", DeleteRecordsRequest, delete_records.handle, 0, 2),
    Api("init_producer_id", InitProducerIdRequest, init_producer_id.handle, 0, 5),
    Api("offset_for_leader_epoch", OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle, 2, 4),
    Api("describe_cluster", DescribeClusterRequest, describe_cluster.handle, 0, 2),
)
