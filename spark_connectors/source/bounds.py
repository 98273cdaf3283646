"""Lookups on the driver: the partitions of a query, and their start and end offsets, or offsets for times.

As in Spark's KafkaOffsetReaderAdmin: the end is the high watermark, or with read_committed the last stable offset. Each
lookup is tried as often as the options say. Decisions about the results are made elsewhere.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from spark_connectors.offsets import Offsets
from spark_connectors.source.options import AtOffsets, AtTimestamp, AtTimestamps, Edge, Limit, Selection, SourceOptions
from spark_connectors.wire import BrokerError, Cluster, ErrorCode, PartitionResult, TopicPartition, WireError, by_topic
from spark_connectors.wire.clock import Clock, SystemClock
from spark_connectors.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from spark_connectors.wire.messages.metadata import MetadataTopic

NOT_FOUND: Final = -1  # answer of ListOffsets if no record is so late

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class LimitRefused(ValueError):
    """A start or an end that does not fit the existing partitions or records."""


class Places:
    """Lookups for the selection of one query. Each method raises WireError if the cluster does not answer in time."""

    knows_times = True

    def __init__(self, cluster: Cluster, options: SourceOptions, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock or SystemClock()

    def latest(self, known: Offsets | None = None) -> Offsets:
        """End offsets of all partitions, and the topics' ids.

        An end before a `known` one is checked again: a new leader may lag for a moment (KAFKA-7703).
        """

        def lookup() -> Offsets:
            ids, partitions = self._selected()
            return Offsets(self.list_offsets(dict.fromkeys(partitions, Edge.LATEST)), ids)

        found = self._with_retries(lookup)
        for _ in range(self._options.lookup_attempts - 1):
            if known is None or all(found.positions.get(one, end) >= end for one, end in known.positions.items()):
                break
            self._clock.sleep(max(self._options.lookup_pause_s, 0.001))
            found = self._with_retries(lookup)
        return found

    def at(self, limit: Limit, *, is_starting: bool) -> Offsets:
        """Offset of a limit in each partition. Raises LimitRefused if the limit does not name exactly the existing
        partitions.
        """

        def lookup() -> Offsets:
            ids, partitions = self._selected()
            return Offsets(self._resolved(limit, partitions, is_starting=is_starting), ids)

        return self._with_retries(lookup)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Start offsets of these partitions, without those that are gone."""

        def lookup() -> dict[TopicPartition, int]:
            _, there = self._selected()
            return self.list_offsets({one: Edge.EARLIEST for one in partitions if one in there})

        return self._with_retries(lookup) if partitions else {}

    def ids_of(self, topics: Collection[str]) -> dict[str, bytes]:
        """Ids of these topics, without those that are gone."""
        return {name: topic.topic_id for name, topic in self._cluster.topics(topics).items()}

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets for these times in ms, or Edges; NOT_FOUND if no record is so late."""
        isolation_level = int(self._options.is_committed_only)

        def request(theirs: dict[TopicPartition, int]) -> ListOffsetsRequest:
            def row(place: TopicPartition) -> ListOffsetsPartition:
                return ListOffsetsPartition(
                    partition_index=place.partition, current_leader_epoch=theirs[place], timestamp=wanted[place]
                )

            topics = tuple(
                ListOffsetsTopic(name=name, partitions=tuple(map(row, places)))
                for name, places in by_topic(theirs).items()
            )
            return ListOffsetsRequest(isolation_level=isolation_level, topics=topics)

        return self._cluster.at_leaders(LIST_OFFSETS, wanted, request, _results)

    def _selected(self) -> tuple[dict[str, bytes], set[TopicPartition]]:
        """Ids of the selected topics, and the selected partitions."""
        selection = self._options.selection
        topics = self._topics_of(selection)
        partitions = {
            TopicPartition(name, row.partition_index) for name, topic in topics.items() for row in topic.partitions
        }
        if selection.partitions:
            missing = [str(one) for one in selection.partitions if one not in partitions]
            if missing:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(missing))
            partitions = set(selection.partitions)
        return {name: topic.topic_id for name, topic in topics.items()}, partitions

    def _topics_of(self, selection: Selection) -> dict[str, MetadataTopic]:
        if selection.pattern is not None:
            pattern = re.compile(selection.pattern)
            every = self._cluster.topics(None)
            return {name: one for name, one in every.items() if pattern.fullmatch(name) and not one.is_internal}
        names = selection.topics or {one.topic for one in selection.partitions}
        found = self._cluster.topics(names)
        missing = sorted(set(names) - found.keys())
        if missing:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {', '.join(missing)}")
        return found

    def _resolved(
        self, limit: Limit, partitions: Collection[TopicPartition], *, is_starting: bool
    ) -> dict[TopicPartition, int]:
        if isinstance(limit, Edge):
            return self.list_offsets(dict.fromkeys(partitions, limit))
        if isinstance(limit, AtOffsets):
            check_names(limit.offsets, partitions)
            found = dict(limit.offsets)
        else:
            found = self._at_times(limit, partitions, is_starting=is_starting)
        edges = {place: Edge(offset) for place, offset in found.items() if offset < 0}
        return {**found, **self.list_offsets(edges)}

    def _at_times(
        self, limit: AtTimestamps | AtTimestamp, partitions: Collection[TopicPartition], *, is_starting: bool
    ) -> dict[TopicPartition, int]:
        """Offsets for times; Edge.LATEST if no record is so late and this is allowed."""
        if isinstance(limit, AtTimestamps):
            check_names(limit.timestamps, partitions)
            times = dict(limit.timestamps)
        else:
            times = dict.fromkeys(partitions, limit.timestamp_ms)
        found = self.list_offsets(times)
        late = [place for place, offset in found.items() if offset == NOT_FOUND]
        if late and is_starting and not self._options.is_late_start_latest:
            raise LimitRefused(
                f"No offset matched from request of topic-partition {late[0]} and timestamp {times[late[0]]}: "
                f"startingOffsetsByTimestampStrategy=latest would start at the end"
            )
        return {place: Edge.LATEST if place in late else offset for place, offset in found.items()}

    def _with_retries(self, lookup: Callable[[], _T]) -> _T:
        for _ in range(self._options.lookup_attempts - 1):
            try:
                return lookup()
            except WireError as error:
                _log.warning("cannot look offsets up, trying again: %s", error)
            self._clock.sleep(max(self._options.lookup_pause_s, 0.001))
        return lookup()


def _results(reply: ListOffsetsResponse) -> Iterable[PartitionResult[int]]:
    for topic in reply.topics:
        for row in topic.partitions:
            yield PartitionResult(TopicPartition(topic.name, row.partition_index), row.error_code, row.offset)


def check_names(given: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> None:
    """Raises LimitRefused unless the limit names all partitions and no others."""
    if set(given) != set(partitions):
        raise LimitRefused(
            f"starting and ending offsets and timestamps must name all partitions (-1 is the latest offset, -2 the "
            f"earliest): named are {', '.join(map(str, sorted(given)))}, there are "
            f"{', '.join(map(str, sorted(partitions)))}"
        )
