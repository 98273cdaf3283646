"""Partitions with their start and end offsets from the tier, for queries without a broker.

A topic ends at the end of its copied segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_connectors.offsets import Offsets
from spark_connectors.segments.bucket_catalogue import BucketCatalogue, Topic
from spark_connectors.segments.lookups import each
from spark_connectors.segments.sealed import CatalogueUnavailable, Sealed
from spark_connectors.source.bounds import LimitRefused, check_names
from spark_connectors.source.options import AtOffsets, Edge, Limit, Selection
from spark_connectors.wire import TopicPartition

_NOT_GIVEN: Final = "kafka.bootstrap.servers is not given"
_INTERNAL: Final = "__"  # prefix of internal topics, which match no pattern


class SealedPlaces:
    """Partitions that a query selects in a tier: implements `spark_connectors.source.planner.Limits`."""

    knows_times = False

    def __init__(self, catalogue: BucketCatalogue, selection: Selection) -> None:
        self._catalogue = catalogue
        self._selection = selection
        self._known: dict[TopicPartition, Sealed] | None = None
        self._ids: dict[str, bytes] = {}

    def at(self, limit: Limit, *, is_starting: bool) -> Offsets:
        """Raises LimitRefused, CatalogueUnavailable."""
        del is_starting  # both have the same meaning here
        known = self._all()
        if isinstance(limit, Edge):
            return Offsets({place: _edge(sealed, limit) for place, sealed in known.items()}, self._ids)
        if not isinstance(limit, AtOffsets):
            raise LimitRefused(f"only brokers look times up, and there is none: {_NOT_GIVEN}")
        check_names(limit.offsets, known)
        found = {}
        for place, offset in limit.offsets.items():
            sealed = known[place]
            found[place] = _edge(sealed, Edge(offset)) if offset < 0 else offset
            if not sealed.log_start <= found[place] <= sealed.end:
                raise LimitRefused(
                    f"offset {offset} of {place} is not in the tier, which has {sealed.log_start} to {sealed.end}, and "
                    f"there is no broker to ask: {_NOT_GIVEN}"
                )
        return Offsets(found, self._ids)

    def _all(self) -> dict[TopicPartition, Sealed]:
        """All partitions, looked up once, so that a query begins and ends in one state of the tier."""
        if self._known is None:
            topics = self._topics()
            self._ids = {name: topic.topic_id for name, topic in topics.items()}
            self._known = self._looked_up(self._partitions(topics))
        return self._known

    def _looked_up(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Sealed]:
        def look_up(place: TopicPartition) -> Sealed:
            topic_id = self._ids[place.topic]
            return self._catalogue.sealed(place, topic_id, 0, 0) or Sealed(place, topic_id, 0, 0, ())

        wanted = sorted(places)
        return dict(zip(wanted, each(look_up, wanted), strict=True))

    def _topics(self) -> dict[str, Topic]:
        selection = self._selection
        if selection.pattern is not None:
            pattern = re.compile(selection.pattern)
            every = self._catalogue.topics()
            return {
                name: topic
                for name, topic in every.items()
                if pattern.fullmatch(name) and not name.startswith(_INTERNAL)
            }
        names = selection.topics or {one.topic for one in selection.partitions}
        found = self._catalogue.topics(names)
        missing = sorted(set(names) - found.keys())
        if missing:
            raise CatalogueUnavailable(f"the tier has no topic {', '.join(missing)}")
        return found

    def _partitions(self, topics: dict[str, Topic]) -> set[TopicPartition]:
        every = {TopicPartition(name, one) for name, topic in topics.items() for one in range(topic.partition_count)}
        if not self._selection.partitions:
            return every
        missing = [str(one) for one in self._selection.partitions if one not in every]
        if missing:
            raise CatalogueUnavailable(f"the tier has no {', '.join(missing)}")
        return set(self._selection.partitions)


def _edge(sealed: Sealed, edge: Edge) -> int:
    return sealed.log_start if edge is Edge.EARLIEST else sealed.end
