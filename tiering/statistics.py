"""What is counted of the tier, by topic, and how it is with each partition: plain numbers, for who shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.api import TopicPartition
    from engine.tier import CopyLag


@dataclass(slots=True)
class TierStatistics:
    """Since the start. Fetches are requests for parts of segments that were not here; `deleted` are objects,
    `collected` manifests that nobody needs any more."""

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
    """Of the topics that are in the tier, by id; those that are no more count in the total for good."""

    def __init__(self) -> None:
        self._by_topic: dict[bytes, TierStatistics] = {}
        self._gone = TierStatistics()

    def of(self, topic_id: bytes) -> TierStatistics:
        return self._by_topic.setdefault(topic_id, TierStatistics())

    def keep(self, topic_ids: set[bytes]) -> None:
        """There are no others."""
        gone = [self._by_topic.pop(topic_id) for topic_id in self._by_topic.keys() - topic_ids]
        self._gone = _sum([self._gone, *gone])

    @property
    def total(self) -> TierStatistics:
        return _sum([self._gone, *self._by_topic.values()])


class TieredPartition(NamedTuple):
    """How it is with a partition and the tier, as far as that is known here.

    `waiting_s`: for how long the first segment that waits has been seen to. `segment_count` and `size_bytes` are of
    what is copied, `doomed_count` and `doomed_bytes` of segments that are to be deleted. `problem`: what somebody has
    to look at, because it may not pass; with `is_fenced` another broker has the partition, and it will not.
    """

    partition: TopicPartition
    lag: CopyLag
    waiting_s: float
    segment_count: int
    size_bytes: int
    doomed_count: int
    doomed_bytes: int
    problem: str | None
    is_fenced: bool
