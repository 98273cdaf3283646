"""Committed offsets of the groups of one partition of `__consumer_offsets`, in transactions and outside of them. Pure.

The part of `GroupTable` that knows of offsets; after Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coordinator.errors import (
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupError,
    GroupNotEmpty,
    InvalidTransactionState,
    SubscribedToTopic,
    UnknownGroup,
    UnstableOffset,
)
from coordinator.groups import descriptions
from coordinator.groups.api import (
    DEFAULT_RETENTION_MS,
    NO_EXPIRY_MS,
    CommittedOffset,
    FetchedOffset,
    GroupCounters,
    GroupState,
    TopicPartition,
)
from coordinator.groups.classic import ClassicGroup
from coordinator.groups.commands import CommitOffsets, DeleteOffsets, FetchAllOffsets, FetchOffsets
from coordinator.groups.commits import commits_of
from coordinator.groups.entry import GroupEntry, tombstone
from coordinator.groups.guards import Guard, Guards
from coordinator.groups.offsets import GroupOffsets
from coordinator.groups.pending_offsets import PendingOffset, PendingOffsets
from coordinator.groups.records import OffsetKey, Value, decode_key, decode_value
from coordinator.shards.table import NEVER_MS, Effects, FutureT
from coordinator.state.record_fields import UnknownRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coordinator.groups.api import Claim, OffsetToCommit
    from coordinator.groups.commands import GroupCommand
    from coordinator.groups.entry import OffsetSettings
    from coordinator.groups.step import GroupSettings
    from coordinator.shards.table import Moment
    from coordinator.state.log import StateMarker, StateProducer, StateRecord

CommittedT = TypeVar("CommittedT")


class GroupEntries(dict[str, GroupEntry[FutureT]]):
    """The groups of one partition, by id, with and without members."""

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__()
        self._settings = settings

    def create(self, group_id: str) -> GroupEntry[FutureT]:
        """Add a group without members and offsets."""
        entry = self[group_id] = GroupEntry(ClassicGroup[FutureT](group_id, self._settings))
        return entry


class OffsetTable(Generic[FutureT]):
    """The offsets of the groups in `entries`. `pending`: those of open transactions."""

    def __init__(self, entries: GroupEntries[FutureT], settings: OffsetSettings, counters: GroupCounters) -> None:
        self._entries = entries
        self._settings = settings
        self._counters = counters
        self.pending = PendingOffsets()
        self.guards = Guards()

    def perform(self, command: GroupCommand[Any], moment: Moment, future: FutureT) -> Effects[FutureT]:
        """Carry out a command to the offsets of a group."""
        group_id = command.group_id
        match command:
            case CommitOffsets(claim=claim, offsets=offsets, retention_ms=retention_ms):
                return self.commit(moment, group_id, claim, offsets, retention_ms, future)
            case FetchOffsets(partitions=places, require_stable=is_stable):
                return self.fetch_offsets(group_id, places, future, require_stable=is_stable)
            case FetchAllOffsets(require_stable=is_stable):
                return self.fetch_all_offsets(group_id, future, require_stable=is_stable)
            case DeleteOffsets(partitions=partitions):
                return self.delete_offsets(group_id, partitions, future)
        raise AssertionError(command)

    def commit(
        self,
        moment: Moment,
        group_id: str,
        claim: Claim,
        offsets: Sequence[OffsetToCommit],
        retention_ms: int,
        future: FutureT,
    ) -> Effects[FutureT]:
        """See `coordinator.groups.commands.CommitOffsets`."""
        entry = self._entries.get(group_id)
        if entry is None and claim.generation_id >= 0:
            return refused(future, UnknownGroup(group_id))
        if entry is not None:
            try:
                entry.group.check_commit(moment.now_ms, claim)
            except GroupError as error:
                return Effects(entry, [(future, error.with_traceback(None))], [])
        entry = entry or self._entries.create(group_id)
        wall_ms = moment.wall_ms
        expires_ms = NO_EXPIRY_MS
        if retention_ms != DEFAULT_RETENTION_MS:
            expires_ms = min(wall_ms + retention_ms, NEVER_MS)  # a record has no room for more
        longest = self._settings.metadata_max_length
        outcomes, taken, records = commits_of(group_id, offsets, longest, wall_ms, expires_ms)
        for topic, partition, committed in taken:
            entry.offsets.put(topic, partition, committed)
            if self.pending:
                self.pending.overrule(group_id, TopicPartition(topic, partition))
        self._counters.commits += len(records)
        return Effects(entry, [(future, outcomes)], records)

    def commit_in_transaction(
        self,
        moment: Moment,
        group_id: str,
        claim: Claim,
        producer: StateProducer,
        offsets: Sequence[OffsetToCommit],
        future: FutureT,
        guard: Guard | None = None,
    ) -> Effects[FutureT]:
        """See `GroupService.commit_in_transaction`. `guard`: taken before the transaction's coordinator was asked."""
        if guard is not None and guard.guards is not self.guards:
            return refused(future, CoordinatorLoading("it was read anew"))
        if guard is not None and not self.guards.give_back(guard):
            return refused(future, InvalidTransactionState("the transaction has ended meanwhile"))
        entry = self._entries.get(group_id)
        if entry is None and claim.generation_id >= 0:
            return refused(future, UnknownGroup(group_id))
        if not self.pending.has_room_for(producer.producer_id):
            return Effects(entry, [(future, CoordinatorNotAvailable("too many transactions are open"))], [])
        if entry is not None:
            try:
                entry.group.check_commit(moment.now_ms, claim, in_transaction=True)
            except GroupError as error:
                return Effects(entry, [(future, error.with_traceback(None))], [])
        entry = entry or self._entries.create(group_id)
        longest = self._settings.metadata_max_length
        outcomes, taken, records = commits_of(group_id, offsets, longest, moment.wall_ms)
        for (topic, partition, committed), record in zip(taken, records, strict=True):
            at = TopicPartition(topic, partition)
            self.pending.put(producer.producer_id, PendingOffset(group_id, at, committed, record))
        return Effects(entry, [(future, outcomes)], records, producer if records else None)

    def end_transaction(self, marker: StateMarker, future: FutureT) -> Effects[FutureT]:
        """See `GroupService.end_transaction`."""
        records, entries = self._end(marker)
        self._counters.commits += len(records)
        return Effects(None, [(future, None)], records, marker, entries)

    def _end(self, marker: StateMarker) -> tuple[list[StateRecord], list[GroupEntry[FutureT]]]:
        """End a transaction; return its records that count from now on, and the groups in which something changes."""
        self.guards.void(marker.producer_id)
        counting, group_ids = self.pending.end(marker.producer_id, is_commit=marker.is_commit)
        for one in counting:
            entry = self._entries.get(one.group_id) or self._entries.create(one.group_id)
            entry.offsets.put(one.at.topic, one.at.partition, one.committed)
        entries = [self._entries[group_id] for group_id in group_ids if group_id in self._entries]
        return [one.record for one in counting], entries

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, Sequence[int]]],
        future: FutureT,
        *,
        require_stable: bool = False,
    ) -> Effects[FutureT]:
        """See `coordinator.groups.commands.FetchOffsets`."""
        entry = self._entries.get(group_id)
        offsets = entry.offsets if entry is not None else GroupOffsets()
        found: list[CommittedOffset | UnstableOffset | None]
        found = [committed for topic, numbers in partitions for committed in offsets.of_topic(topic, numbers)]
        if require_stable and self.pending.has_group(group_id):
            places = (TopicPartition(topic, number) for topic, numbers in partitions for number in numbers)
            found = [self._if_stable(group_id, *one) for one in zip(places, found, strict=True)]
        return Effects(entry, [(future, found)], [])

    def _if_stable(self, group_id: str, at: TopicPartition, committed: CommittedT) -> CommittedT | UnstableOffset:
        return UnstableOffset(f"{at.topic}-{at.partition}") if self.pending.is_pending(group_id, at) else committed

    def fetch_all_offsets(self, group_id: str, future: FutureT, *, require_stable: bool = False) -> Effects[FutureT]:
        """See `coordinator.groups.commands.FetchAllOffsets`."""
        entry = self._entries.get(group_id)
        offsets = entry.offsets if entry is not None else GroupOffsets()
        found = [
            FetchedOffset(*at, self._if_stable(group_id, at, committed) if require_stable else committed)
            for at, committed in offsets.items()
        ]
        return Effects(entry, [(future, found)], [])

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], future: FutureT) -> Effects[FutureT]:
        """See `coordinator.groups.commands.DeleteOffsets`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return refused(future, UnknownGroup(group_id))
        group = entry.group
        if group.state is not GroupState.EMPTY and group.protocol_type != descriptions.CONSUMER_PROTOCOL:
            return Effects(entry, [(future, GroupNotEmpty(group_id))], [])
        subscribed = descriptions.subscribed_topics(group)
        outcomes: list[GroupError | None] = []
        records: list[StateRecord] = []
        for topic, partition in partitions:
            if subscribed is None or topic in subscribed:
                outcomes.append(SubscribedToTopic(topic))
                continue
            outcomes.append(None)
            records += self.remove(entry, topic, partition)
        return Effects(entry, [(future, outcomes)], records)

    def remove(self, entry: GroupEntry[FutureT], topic: str, partition: int) -> list[StateRecord]:
        """Remove an offset, committed or pending; returns its tombstone, or nothing if there is none."""
        group_id, at = entry.group.group_id, TopicPartition(topic, partition)
        if entry.offsets.get(topic, partition) is None and not self.pending.is_pending(group_id, at):
            return []
        entry.offsets.remove(topic, partition)
        self.pending.remove(group_id, at)
        return [tombstone(OffsetKey(group_id, topic, partition))]

    def forget_topics(self, group_id: str, topics: Collection[str], deleted_ms: int) -> Effects[FutureT]:
        """Remove a group's offsets of topics that were deleted at `deleted_ms`. Later commits are for a new topic of
        the same name."""
        entry = self._entries.get(group_id)
        records: list[StateRecord] = []
        if entry is not None:
            gone = [at for at, one in entry.offsets.items() if at.topic in topics and one.committed_ms <= deleted_ms]
            gone += self.pending.of_topics(group_id, topics, deleted_ms)
            for at in dict.fromkeys(gone):
                records += self.remove(entry, *at)
        return Effects(entry, [], records)

    # Replay

    def apply(self, key: OffsetKey, value: Value | None) -> None:
        """Apply a record of the log. Errors: UnknownRecord."""
        entry, at = self._entries.get(key.group_id), TopicPartition(key.topic, key.partition)
        if value is None:
            self.pending.remove(key.group_id, at)
            if entry is not None:
                entry.offsets.remove(key.topic, key.partition)
            return
        if not isinstance(value, CommittedOffset):
            raise UnknownRecord(f"{key} has a value of another kind")
        self.pending.overrule(key.group_id, at)
        (entry or self._entries.create(key.group_id)).offsets.put(key.topic, key.partition, value)

    def apply_in_transaction(self, producer: StateProducer, record: StateRecord) -> None:
        """See `StateTable`."""
        key = decode_key(memoryview(record.key))
        value = None if record.value is None else decode_value(key, memoryview(record.value))
        if not isinstance(key, OffsetKey) or not isinstance(value, CommittedOffset):
            raise UnknownRecord(f"{key} was written in a transaction")
        if key.group_id not in self._entries:
            self._entries.create(key.group_id)
        at = TopicPartition(key.topic, key.partition)
        self.pending.put(producer.producer_id, PendingOffset(key.group_id, at, value, record))

    def apply_marker(self, marker: StateMarker) -> list[StateRecord]:
        """See `StateTable`."""
        return self._end(marker)[0]


def refused(future: FutureT, answer: CoordinatorError | list[GroupError]) -> Effects[FutureT]:
    """Effects of a refusal: there is no such group, or it is not looked at."""
    return Effects(None, [(future, answer)], [])
