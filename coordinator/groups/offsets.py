"""The committed offsets of a group, and how long they are kept. Pure.

After Kafka's OffsetMetadataManager and OffsetExpirationCondition: offsets of a group without members are kept for
offsets.retention.minutes after the group became empty, those of a group that never had any after each commit, those of
topics that a group of consumers does not read any more after their commit as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.groups import descriptions
from coordinator.groups.api import NO_EXPIRY_MS, CommittedOffset, GroupState, TopicPartition

if TYPE_CHECKING:
    from coordinator.groups.classic import ClassicGroup


class Retention(NamedTuple):
    """The way in which the offsets of a group expire in its present state: from which time on, and which topics are
    kept."""

    retention_ms: int
    empty_since_ms: int | None = None  # count from then on, not from the commit
    kept_topics: Collection[str] | None = frozenset()  # None: all


def retention_of(group: ClassicGroup[Any], retention_ms: int) -> Retention:
    """The retention of a group's offsets, as ClassicGroup.offsetExpirationCondition has it."""
    if not group.protocol_type:
        return Retention(retention_ms)
    if group.state is GroupState.EMPTY:
        return Retention(retention_ms, group.changed_ms if group.changed_ms >= 0 else None)
    if group.state is GroupState.STABLE and group.protocol_type == descriptions.CONSUMER_PROTOCOL:
        return Retention(retention_ms, kept_topics=descriptions.subscribed_topics(group))
    return Retention(retention_ms, kept_topics=None)


class GroupOffsets:
    """Committed offsets, by topic and partition."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_topic.get(topic, {}).get(partition)

    def of_topic(self, topic: str, partitions: Iterable[int]) -> Iterable[CommittedOffset | None]:
        """The offsets of these partitions, one after the other; None where nothing was committed."""
        return map(self._by_topic.get(topic, {}).get, partitions)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        of_topic = self._by_topic.get(topic)
        if of_topic is None:
            of_topic = self._by_topic[topic] = {}
        of_topic[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        """Remove an offset; no effect when there is none."""
        partitions = self._by_topic.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            self._by_topic.pop(topic, None)

    def partitions_of(self, topic: str) -> list[int]:
        """The partitions of a topic that have committed offsets."""
        return list(self._by_topic.get(topic, ()))

    def items(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._by_topic.items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def expired(self, retention: Retention, now_ms: int) -> list[TopicPartition]:
        """The partitions whose offsets have expired."""
        if retention.kept_topics is None:
            return []
        return [
            one
            for one, committed in self.items()
            if one.topic not in retention.kept_topics and _is_over(committed, retention, now_ms)
        ]


def _is_over(committed: CommittedOffset, retention: Retention, now_ms: int) -> bool:
    if committed.expires_ms != NO_EXPIRY_MS:
        return now_ms >= committed.expires_ms
    since_ms = committed.committed_ms if retention.empty_since_ms is None else retention.empty_since_ms
    return now_ms - since_ms >= retention.retention_ms
