"""Counters of the tier by topic, and figures of each partition, for metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.api import TopicIdPartition
    from engine.tier import CopyLag


@dataclass(slots=True)
class TierStatistics:
    """Counters since the start of the broker.

    `fetches` counts requests for chunks that were not in the cache, `deleted` objects, `collected` old manifests.
    """

    copied_segments: int = 0
    copied_bytes: int = 0
    copy_errors: int = 0
    deleted: int = 0
    delete_errors: int = 0
    collected: int = 0
    fetches: int = 0
    fetched_bytes: int = 0
    fetch_errors: int = 0


def _sum(every: Iterable[TierStatistics]) -> TierStatistics:
    counted = list(every)
    return TierStatistics(*(sum(map(attrgetter(one.name), counted)) for one in fields(TierStatistics)))


class TopicCounters:
    """Counters of the topics in the tier, by topic id. The counts of topics that are gone stay in the total."""

    def __init__(self) -> None:
        self._by_topic: dict[bytes, TierStatistics] = {}
        self._gone = TierStatistics()

    def of(self, topic_id: bytes) -> TierStatistics:
        return self._by_topic.setdefault(topic_id, TierStatistics())

    def keep(self, topic_ids: set[bytes]) -> None:
        """Drop the counters of other topics, and add them to the total."""
        gone = [self._by_topic.pop(topic_id) for topic_id in self._by_topic.keys() - topic_ids]
        self._gone = _sum([self._gone, *gone])

    @property
    def total(self) -> TierStatistics:
        return _sum([self._gone, *self._by_topic.values()])


class TieredPartition(NamedTuple):
    """Figures of a partition in the tier, as far as this broker knows them.

    `waiting_s`: for how long the first waiting segment has waited. `segment_count` and `size_bytes` are of copied
    segments, `doomed_count` and `doomed_bytes` of segments that are to be deleted. `problem`: for the operator, because
    it may not pass. With `is_fenced` another broker has the partition, and the problem will not pass.
    """

    partition: TopicIdPartition
    lag: CopyLag
    waiting_s: float
    segment_count: int
    size_bytes: int
    doomed_count: int
    doomed_bytes: int
    problem: str | None
    is_fenced: bool
