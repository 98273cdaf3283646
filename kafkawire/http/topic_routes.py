"""All routes about topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkawire.http.kept_batches import KeptBatchesRoute
from kafkawire.http.queries import ReadableTopics
from kafkawire.http.record_search import RecordSearch
from kafkawire.http.sealed_segments import SealedSegments, Tier

if TYPE_CHECKING:
    from starlette.routing import Route

    from coordinator.api import ClusterService
    from kafkawire.http.kept_batches import OffsetAppender
    from kafkawire.http.sealed_segments import SealedStore
    from kafkawire.requests.context import Authorizer
    from tiering.read.cold_tier import Catalogue


class HasCatalogue(Protocol):
    """The part of a remote tier that is needed here."""

    @property
    def uploader(self) -> Catalogue: ...


def topic_routes(
    cluster: ClusterService,
    store: SealedStore,
    appender: OffsetAppender,
    authorizer: Authorizer,
    tier_location: str,
    tier: HasCatalogue | None,
) -> list[Route]:
    """Build the routes. `appender` belongs to `store`; `tier_location` is that of the tier for readers of objects."""
    topics = ReadableTopics(cluster, store, authorizer)
    known = None if tier is None else Tier(tier_location, tier.uploader)
    answering = RecordSearch(topics), SealedSegments(topics, store, known), KeptBatchesRoute(topics, appender)
    return [route for one in answering for route in one.routes()]
