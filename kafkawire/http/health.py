"""Liveness, readiness and problems of the cluster, for probes and for operators.

Probes use `/health/live` to decide about a restart, and `/health/ready` to decide whether clients are sent to the
broker. `/health/cluster` lists problems for an operator. Each but the first gives reasons. `/health/ready` also has the
paths of other products' probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coordinator.api import NO_CONTROLLER, NO_LEADER
from engine.api import TopicIdPartition
from engine.errors import EngineError

if TYPE_CHECKING:
    from starlette.requests import Request

    from coordinator.api import ClusterImage, PartitionState
    from engine.api import PartitionStore
    from engine.stats import LogDirStatistics

NAMED_MAX: Final = 20  # partitions; the others are counted
READY_ALIASES: Final = ("/v1/status/ready", "/actuator/health")  # paths of Redpanda's and Kafbat's probes


@dataclass(frozen=True, slots=True)
class Health:
    """Health of the broker, computed at each request.

    `is_live`: the broker serves or starts, and has not been told to stop. `has_session`: the broker has a metadata
    session, as far as it knows.
    """

    is_live: Callable[[], bool]
    image: Callable[[], ClusterImage]
    store: PartitionStore
    log_dirs: Callable[[], Sequence[LogDirStatistics]]
    broker_id: int
    ailments: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)  # by subject
    has_session: Callable[[], bool] = lambda: True

    def routes(self) -> list[Route]:
        ready = [Route(path, self._ready) for path in ("/health/ready", *READY_ALIASES)]
        return [Route("/health/live", self._live), *ready, Route("/health/cluster", self._cluster)]

    async def _live(self, request: Request) -> Response:
        alive = self.is_live()
        return JSONResponse({"status": "live" if alive else "stopping"}, status_code=200 if alive else 503)

    async def _ready(self, request: Request) -> Response:
        reasons = self._unready_reasons()
        return _json_response(
            {"status": "ready" if not reasons else "not ready", "reasons": reasons}, is_well=not reasons
        )

    def _unready_reasons(self) -> list[str]:
        """Reasons why the broker is not ready.

        A metadata store that is away is no reason: all brokers would be unready at once, though they serve.
        """
        if not self.is_live():
            return ["the broker is stopping"]
        if self.broker_id not in self.image().brokers:
            return ["the broker is not registered: the metadata store does not answer"]
        if not self.has_session():
            return ["the broker is fenced: it registers again"]
        dirs = self.log_dirs()
        return ["every log dir is offline"] if all(one.offline_reason for one in dirs) else []

    async def _cluster(self, request: Request) -> Response:
        image = self.image()
        offline = list(self._offline(image))
        reasons = [
            *self._unready_reasons(),
            *(["there is no controller"] if image.controller_id == NO_CONTROLLER else []),
            *(f"log dir {one.path} is offline: {one.offline_reason}" for one in self.log_dirs() if one.offline_reason),
            *_partition_reasons("has no leader", _leaderless(image)),
            *_partition_reasons("is offline", offline),
            *_partition_reasons("has fewer replicas in sync than it should", _under_replicated(image)),
            *(reason for subject, found in self.ailments.items() for reason in _first_reasons(list(found()), subject)),
        ]
        document: dict[str, Any] = {
            "status": "healthy" if not reasons else "ailing",
            "reasons": reasons,
            "cluster_id": image.cluster_id,
            "controller": image.controller_id,
            "brokers": sorted(image.brokers),
            "topics": len(image.topics),
            "partitions": sum(len(topic.partitions) for topic in image.topics.values()),
        }
        return _json_response(document, is_well=not reasons)

    def _offline(self, image: ClusterImage) -> Iterable[str]:
        """Partitions that this broker leads and cannot serve."""
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                if state.leader == self.broker_id:
                    try:
                        self.store.get(TopicIdPartition(topic.topic_id, topic.name, number))
                    except EngineError:
                        yield f"{topic.name}-{number}"


def _json_response(document: dict[str, Any], *, is_well: bool) -> Response:
    return JSONResponse(document, status_code=200 if is_well else 503)


def leads(state: PartitionState, image: ClusterImage) -> bool:
    """Whether the partition has a leader that is up and serves, according to the metadata."""
    return state.leader != NO_LEADER and state.leader in image.brokers and state.leader not in state.offline


def _leaderless(image: ClusterImage) -> Iterable[str]:
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            if not leads(state, image):
                yield f"{topic.name}-{number}"


def _under_replicated(image: ClusterImage) -> Iterable[str]:
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            if len(state.isr) < len(state.replicas):
                yield f"{topic.name}-{number}"


def _partition_reasons(state: str, partitions: Iterable[str]) -> list[str]:
    every = list(partitions)
    return _first_reasons([f"{one} {state}" for one in every], state)


def _first_reasons(reasons: Sequence[str], subject: str) -> list[str]:
    """The first of the reasons, and the number of the others."""
    if len(reasons) <= NAMED_MAX:
        return list(reasons)
    return [*reasons[:NAMED_MAX], f"{len(reasons) - NAMED_MAX:,} more: {subject}"]
