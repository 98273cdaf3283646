"""Offsets that were committed in transactions which are still open, of all groups of one table. Pure.

As in Kafka's OffsetMetadataManager: they count when their transaction is committed, unless the log has a later offset
of the same partition (RULES C4). Until it is decided, the group's offset is not stable (KIP-447).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from coordinator.groups.api import CommittedOffset, TopicPartition
    from coordinator.state.log import StateRecord

PRODUCERS_MAX: Final = 50_000  # with pending offsets; half of the engine's limit of open transactions in a partition


class PendingOffset(NamedTuple):
    """An offset that counts when its transaction is committed, and the record of it."""

    group_id: str
    at: TopicPartition
    committed: CommittedOffset
    record: StateRecord


@dataclass(slots=True)
class _Pending:
    """`newest` is None once a later offset has overruled it; `number`: its place in the order of all pending
    offsets."""

    newest: PendingOffset | None
    number: int


_Place = tuple[str, "TopicPartition"]


class PendingOffsets:
    """Pending offsets, by producer and by group."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_Place, _Pending]] = {}
        self._producers: dict[str, dict[TopicPartition, set[int]]] = {}  # by group
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def has_room_for(self, producer_id: int) -> bool:
        return producer_id in self._by_producer or len(self._by_producer) < PRODUCERS_MAX

    def put(self, producer_id: int, one: PendingOffset) -> None:
        """Add a producer's offset; it replaces an earlier one of the same partition."""
        self._count += 1
        self._by_producer.setdefault(producer_id, {})[one.group_id, one.at] = _Pending(one, self._count)
        self._producers.setdefault(one.group_id, {}).setdefault(one.at, set()).add(producer_id)

    def is_pending(self, group_id: str, at: TopicPartition) -> bool:
        """Whether an open transaction has an offset for it."""
        return at in self._producers.get(group_id, ())

    def has_group(self, group_id: str) -> bool:
        return group_id in self._producers

    def of_group(self, group_id: str) -> list[TopicPartition]:
        """The partitions with pending offsets of a group."""
        return list(self._producers.get(group_id, ()))

    def of_topics(self, group_id: str, topics: Collection[str], committed_until_ms: int) -> Iterator[TopicPartition]:
        """The partitions of these topics with offsets that were pended until then, and are not overruled."""
        for at, producers in self._producers.get(group_id, {}).items():
            if at.topic in topics:
                known = (self._by_producer[one][group_id, at].newest for one in producers)
                if any(one is not None and one.committed.committed_ms <= committed_until_ms for one in known):
                    yield at

    def overrule(self, group_id: str, at: TopicPartition) -> None:
        """Overrule the pending offsets of a partition, as an offset was committed outside of any transaction."""
        for producer_id in self._producers.get(group_id, {}).get(at, ()):
            self._by_producer[producer_id][group_id, at].newest = None

    def remove(self, group_id: str, at: TopicPartition) -> None:
        """Remove the pending offsets of a partition, as its offset was removed: they never count, and no client has to
        wait for them."""
        for producer_id in list(self._producers.get(group_id, {}).get(at, ())):
            del self._by_producer[producer_id][group_id, at]
            self._forget(group_id, at, producer_id)

    def end(self, producer_id: int, *, is_commit: bool) -> tuple[list[PendingOffset], list[str]]:
        """End a producer's transaction; return the offsets that count from now on, and the groups in which it had
        pending ones."""
        counting, groups = [], {}
        for (group_id, at), one in self._by_producer.pop(producer_id, {}).items():
            groups[group_id] = True
            self._forget(group_id, at, producer_id)
            if is_commit and one.newest is not None:
                counting.append(one.newest)
                self._overrule_older(group_id, at, one.number)
        return counting, list(groups)

    def _overrule_older(self, group_id: str, at: TopicPartition, number: int) -> None:
        for producer_id in self._producers.get(group_id, {}).get(at, ()):
            other = self._by_producer[producer_id][group_id, at]
            if other.number < number:
                other.newest = None

    def _forget(self, group_id: str, at: TopicPartition, producer_id: int) -> None:
        of_group = self._producers[group_id]
        of_group[at].discard(producer_id)
        if not of_group[at]:
            del of_group[at]
            if not of_group:
                del self._producers[group_id]
