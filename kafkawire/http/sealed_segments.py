"""`GET /v1/topics/{topic}/segments`: sealed segments of a partition and their places, for readers without a broker.

Metadata only (docs/formats/sealed-segments.md), for clients that may read the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from starlette.routing import Route

from engine.api import PartitionStore
from kafkawire.http.queries import (
    LOOPBACK,
    BadRequest,
    ReadableTopics,
    Refused,
    answered,
    check_known,
    number,
    parameters,
    peer_of,
)
from tiering.errors import TierError
from tiering.object_store import StoreError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from coordinator.api import TopicInfo
    from engine.api import PartitionLog, TopicIdPartition
    from engine.sealed import Contents, SealedLog, SealedSegment
    from tiering.manifest.manifest import SegmentEntry
    from tiering.read.cold_tier import Catalogue

FORMAT: Final = 1
COUNT_MAX: Final = 256
EVERYTHING: Final = 2**63 - 1
_PARAMETERS: Final = frozenset({"partition", "from", "to", "limit", "files"})


class SealedStore(PartitionStore, Protocol):
    """The partitions of this broker, with their sealed segments."""

    def sealed(self, partition: TopicIdPartition) -> SealedLog:
        """Sealed segments of a log. Raises EngineError."""


class Tier(NamedTuple):
    """The remote tier: its location for readers of objects, and its catalogue."""

    store: str
    catalogue: Catalogue


@dataclass(frozen=True, slots=True)
class Query:
    """A query for the segments of one partition with offsets in a range."""

    partition: int
    first: int
    end: int
    count_max: int
    has_files: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Query:
        """Parse the parameters. Raises BadRequest."""
        check_known(given, _PARAMETERS)
        if "partition" not in given:
            raise BadRequest("say of which partition")
        if given.get("files", "false") not in ("true", "false"):
            raise BadRequest("files is neither true nor false")
        first, end = number(given, "from"), number(given, "to", EVERYTHING)
        count_max = number(given, "limit", COUNT_MAX, 1, COUNT_MAX)
        return cls(number(given, "partition"), first, end, count_max, given.get("files") == "true")


class SealedSegments:
    """Answers from the logs of this broker, and from its `tier`, if it has one."""

    def __init__(self, topics: ReadableTopics, store: SealedStore, tier: Tier | None) -> None:
        self._topics = topics
        self._store = store
        self._tier = tier

    def routes(self) -> list[Route]:
        return [Route("/v1/topics/{topic}/segments", self._respond)]

    async def _respond(self, request: Request) -> Response:
        async def ask() -> dict[str, Any]:
            query = Query.parse(parameters(request))
            topic = self._topics.topic(request)
            if query.has_files and peer_of(request) not in LOOPBACK:
                raise Refused(403, "paths of files are sent only to clients on this machine")
            return await self._look_up(topic, query)

        return await answered(ask)

    async def _look_up(self, topic: TopicInfo, query: Query) -> dict[str, Any]:
        log = self._topics.log(topic, query.partition)
        sealed = self._store.sealed(log.partition)
        sealed_end = sealed.sealed_end  # read before the list, so that no segment below it is missing
        segments = await sealed.sealed_segments(query.first, min(query.end, sealed_end), query.count_max)
        entries = await self._entries(log.partition) if segments else {}
        found = [self._describe(log.partition, one, entries, has_files=query.has_files) for one in segments]
        document = {
            "format": FORMAT,
            "cluster_id": self._topics.cluster.image.cluster_id,
            "topic": topic.name,
            "topic_id": topic.topic_id.hex(),
            "partition": query.partition,
            **_offsets(log, sealed_end),
            "tier": None if self._tier is None else self._tier.store,
        }
        is_all = not segments or segments[-1].end_offset >= min(query.end, sealed_end)
        return {**document, "segments": found, "next": None if is_all else segments[-1].end_offset}

    async def _entries(self, partition: TopicIdPartition) -> Mapping[int, SegmentEntry]:
        """Entries of the tier for the partition. Raises Refused if the tier cannot be read."""
        if self._tier is None:
            return {}
        try:
            return await self._tier.catalogue.entries(partition)
        except (StoreError, TierError) as error:
            raise Refused(503, f"the remote tier: {error}") from error

    def _describe(
        self, partition: TopicIdPartition, one: SealedSegment, entries: Mapping[int, SegmentEntry], *, has_files: bool
    ) -> dict[str, Any]:
        entry, contents = entries.get(one.base_offset), one.contents
        if contents is not None and entry is not None and entry.records_digest != contents.digest.hex():
            entry = None  # the entry is of another log: the uploader will notice
        known = _of_footer(contents) if contents is not None else _of_tier(entry)
        key = None if entry is None or self._tier is None else self._tier.catalogue.key_of(partition, entry)
        return {
            "base": one.base_offset,
            "end": one.end_offset,
            "size_bytes": one.size_bytes,
            "max_timestamp_ms": one.max_timestamp_ms,
            **known,
            "positions": one.positions,
            "object": key,
            "file": one.path if has_files else None,
        }


def _offsets(log: PartitionLog, sealed_end: int) -> dict[str, int]:
    return {
        "leader_epoch": log.leader_epoch,
        "log_start": log.log_start_offset,
        "high_watermark": log.high_watermark,
        "last_stable": log.last_stable_offset,
        "sealed_end": sealed_end,
    }


def _of_footer(contents: Contents) -> dict[str, Any]:
    return {
        "min_timestamp_ms": contents.min_timestamp_ms,
        "records": contents.records,
        "digest": contents.digest.hex(),
        "aborted": contents.aborted,
    }


def _of_tier(entry: SegmentEntry | None) -> dict[str, Any]:
    """Fields of a tier entry. Raises Refused."""
    if entry is None:
        raise Refused(503, "the remote tier lacks a segment, or has got it a moment ago: ask again")
    return {
        "min_timestamp_ms": entry.min_timestamp_ms,
        "records": entry.records,
        "digest": entry.records_digest,
        "aborted": None,
    }
