"""The groups of one partition of `__consumer_offsets`: commands in; answers, records and deadlines out. Pure.

A command takes effect at once and leaves its `Effects`: whom to answer what, and which records make the effect last.
The shell writes the records in the order of the commands and holds the answers back until they are durable. The same
records, applied to an empty table, give the same groups (`apply`, then `wake`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic

from coordinator.errors import (
    GroupError,
    GroupNotEmpty,
    GroupTooLarge,
    InvalidSessionTimeout,
    OffsetMetadataTooLarge,
    SubscribedToTopic,
    UnknownGroup,
    UnknownMember,
)
from coordinator.groups import descriptions
from coordinator.groups.api import (
    DEFAULT_RETENTION_MS,
    NO_EXPIRY_MS,
    CommittedOffset,
    FetchedOffset,
    GroupCounters,
    GroupFigures,
    GroupListing,
    GroupState,
    TopicPartition,
)
from coordinator.groups.classic import ClassicGroup
from coordinator.groups.entry import Effects, Entry, record_of_value, tombstone
from coordinator.groups.members import NEVER_MS, AskerT
from coordinator.groups.offsets import GroupOffsets, Retention
from coordinator.groups.records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    Value,
    decode_key,
    decode_value,
    encode_offset,
    offset_key_prefix,
)
from coordinator.groups.turn import Turn
from coordinator.record_fields import UnknownRecord
from coordinator.state_log import StateRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from coordinator.groups.api import Claim, Join, OffsetToCommit
    from coordinator.groups.entry import Moment, OffsetSettings
    from coordinator.groups.turn import GroupSettings


class GroupTable(Generic[AskerT]):
    """Whoever asks is told by way of the asker given; every command answers it once, now or in a later one."""

    def __init__(self, groups: GroupSettings, offsets: OffsetSettings, counters: GroupCounters | None = None) -> None:
        self._group_settings = groups
        self._offset_settings = offsets
        self._entries: dict[str, Entry[AskerT]] = {}
        self._due: list[tuple[int, str]] = []
        self.counters = counters or GroupCounters()

    def __len__(self) -> int:
        return len(self._entries)

    # Membership

    def join(self, moment: Moment, group_id: str, join: Join, asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.join`. A session timeout out of bounds is refused before anybody looks for a group."""
        settings = self._group_settings
        if not settings.session_timeout_min_ms <= join.session_timeout_ms <= settings.session_timeout_max_ms:
            return _refused(asker, InvalidSessionTimeout(f"session timeout of {join.session_timeout_ms} ms"))
        entry = self._entries.get(group_id)
        if entry is None:
            if join.member_id:
                return _refused(asker, UnknownMember(join.member_id))
            entry = self._create(group_id)
        return self._step(moment, entry, asker, lambda turn, group: group.join(turn, join, asker))

    def sync(
        self,
        moment: Moment,
        group_id: str,
        claim: Claim,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        asker: AskerT,
    ) -> Effects[AskerT]:
        """See `GroupService.sync`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return _refused(asker, UnknownMember(claim.member_id))
        return self._step(
            moment, entry, asker, lambda turn, group: group.sync(turn, claim, protocol, assignments, asker)
        )

    def heartbeat(self, moment: Moment, group_id: str, claim: Claim, asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.heartbeat`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return _refused(asker, UnknownMember(claim.member_id))
        answer: GroupError | None = None
        try:
            entry.group.heartbeat(moment.now_ms, claim)
        except GroupError as error:
            answer = error.with_traceback(None)
        return Effects(entry, [(asker, answer)], [])  # it only moves a deadline, and later at that

    def leave(self, moment: Moment, group_id: str, leaving: Sequence[Claim], asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.leave`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return _refused(asker, [UnknownMember(one.member_id) for one in leaving])
        return self._step(moment, entry, asker, lambda turn, group: turn.answer(asker, group.leave(turn, leaving)))

    def _step(
        self,
        moment: Moment,
        entry: Entry[AskerT],
        asker: AskerT | None,
        step: Callable[[Turn[AskerT], ClassicGroup[AskerT]], None],
    ) -> Effects[AskerT]:
        turn = self._turn(moment)
        try:
            step(turn, entry.group)
        except GroupError as error:
            turn.answer(asker, error.with_traceback(None))  # which leads to this turn, and so in a cycle
        return self._done(turn, entry)

    def _done(self, turn: Turn[AskerT], entry: Entry[AskerT]) -> Effects[AskerT]:
        group = entry.group
        records = []
        if turn.must_record:
            record = record_of_value(GroupKey(group.group_id), descriptions.record_of(group))
            if record.value is not None and len(record.value) > self._offset_settings.record_max_bytes:
                group.reject_assignment(turn, GroupTooLarge(f"group {group.group_id}: {len(record.value)} bytes"))
            else:
                records.append(record)
                entry.is_recorded = True
        self.counters.generations += turn.generations
        self.counters.expired_members += turn.expired_members
        self._schedule(entry)
        return Effects(entry, turn.answers, records)

    # Offsets

    def commit(
        self,
        moment: Moment,
        group_id: str,
        claim: Claim,
        offsets: Sequence[OffsetToCommit],
        retention_ms: int,
        asker: AskerT,
    ) -> Effects[AskerT]:
        """See `GroupService.commit`."""
        entry = self._entries.get(group_id)
        if entry is None and claim.generation_id >= 0:
            return _refused(asker, UnknownGroup(group_id))
        if entry is not None:
            try:
                entry.group.check_commit(moment.now_ms, claim)
            except GroupError as error:
                return Effects(entry, [(asker, error.with_traceback(None))], [])
        entry = entry or self._create(group_id)
        wall_ms = moment.wall_ms
        expires_ms = NO_EXPIRY_MS
        if retention_ms != DEFAULT_RETENTION_MS:
            expires_ms = min(wall_ms + retention_ms, NEVER_MS)  # a record has no room for more
        outcomes: list[GroupError | None] = []
        records: list[StateRecord] = []
        prefixes: dict[str, bytes] = {}
        for topic, partition, offset, leader_epoch, metadata in offsets:
            if metadata and self._is_too_long(metadata):
                outcomes.append(OffsetMetadataTooLarge(f"{len(metadata)} characters"))
                continue
            committed = CommittedOffset(offset, leader_epoch, metadata, wall_ms, expires_ms)
            entry.offsets.put(topic, partition, committed)
            prefix = prefixes.get(topic) or prefixes.setdefault(topic, offset_key_prefix(group_id, topic))
            records.append(encode_offset(prefix, partition, committed))
            outcomes.append(None)
        self.counters.commits += len(records)
        return Effects(entry, [(asker, outcomes)], records)

    def _is_too_long(self, metadata: str) -> bool:
        """Counted as Java counts: in units of UTF-16, of which a character has one or two."""
        longest = self._offset_settings.metadata_max_length
        return 2 * len(metadata) > longest and len(metadata.encode("utf-16-le")) > 2 * longest

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, Sequence[int]]], asker: AskerT
    ) -> Effects[AskerT]:
        """See `GroupService.fetch_offsets`."""
        entry = self._entries.get(group_id)
        offsets = entry.offsets if entry is not None else GroupOffsets()
        found = [committed for topic, numbers in partitions for committed in offsets.of_topic(topic, numbers)]
        return Effects(entry, [(asker, found)], [])

    def fetch_all_offsets(self, group_id: str, asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.fetch_all_offsets`."""
        entry = self._entries.get(group_id)
        offsets = entry.offsets if entry is not None else GroupOffsets()
        found = [FetchedOffset(at.topic, at.partition, committed) for at, committed in offsets.items()]
        return Effects(entry, [(asker, found)], [])

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.delete_offsets`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return _refused(asker, UnknownGroup(group_id))
        group = entry.group
        if group.state is not GroupState.EMPTY and group.protocol_type != descriptions.CONSUMER_PROTOCOL:
            return Effects(entry, [(asker, GroupNotEmpty(group_id))], [])
        subscribed = descriptions.subscribed_topics(group)
        outcomes: list[GroupError | None] = []
        records: list[StateRecord] = []
        for topic, partition in partitions:
            if subscribed is None or topic in subscribed:
                outcomes.append(SubscribedToTopic(topic))
                continue
            outcomes.append(None)
            records += self._remove_offset(entry, topic, partition)
        return Effects(entry, [(asker, outcomes)], records)

    def _remove_offset(self, entry: Entry[AskerT], topic: str, partition: int) -> list[StateRecord]:
        if entry.offsets.get(topic, partition) is None:
            return []
        entry.offsets.remove(topic, partition)
        return [tombstone(OffsetKey(entry.group.group_id, topic, partition))]

    # Groups as a whole

    def describe(self, group_id: str, asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.describe`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return _refused(asker, UnknownGroup(group_id))
        return Effects(entry, [(asker, descriptions.describe(entry.group))], [])

    def listings(self) -> list[GroupListing]:
        """Of all groups."""
        return [descriptions.listing(entry.group) for entry in self._entries.values()]

    def delete_group(self, group_id: str, asker: AskerT) -> Effects[AskerT]:
        """See `GroupService.delete_group`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return _refused(asker, UnknownGroup(group_id))
        if entry.group.state is not GroupState.EMPTY:
            return Effects(entry, [(asker, GroupNotEmpty(group_id))], [])
        records = [tombstone(OffsetKey(group_id, *at)) for at, _ in entry.offsets.items()]
        return Effects(entry, [(asker, None)], [*records, *self._forget(entry)])

    def _forget(self, entry: Entry[AskerT]) -> list[StateRecord]:
        del self._entries[entry.group.group_id]
        return [tombstone(GroupKey(entry.group.group_id))] if entry.is_recorded else []

    # Time

    def next_due_ms(self) -> int:
        """When `expire` has something to do, at the earliest."""
        return self._due[0][0] if self._due else NEVER_MS

    def expire(self, moment: Moment) -> Iterator[Effects[AskerT]]:
        """Every group whose time has come, one by one."""
        while self._due and self._due[0][0] <= moment.now_ms:
            due_ms, group_id = heappop(self._due)
            entry = self._entries.get(group_id)
            if entry is None or entry.due_ms != due_ms:
                continue
            entry.due_ms = NEVER_MS
            if entry.group.next_deadline_ms() > moment.now_ms:
                self._schedule(entry)
                continue
            yield self._step(moment, entry, None, lambda turn, group: group.expire(turn))

    def _schedule(self, entry: Entry[AskerT]) -> None:
        """Deadlines that moved later are found out when the earlier one comes."""
        due_ms = entry.group.next_deadline_ms()
        if due_ms < entry.due_ms:
            entry.due_ms = due_ms
            heappush(self._due, (due_ms, entry.group.group_id))

    def waiting(self) -> Iterator[AskerT]:
        """Who is not answered yet."""
        for entry in self._entries.values():
            for member in entry.group.members:
                yield from (asker for asker in (member.joining, member.syncing) if asker is not None)

    def group_ids(self) -> list[str]:
        """For what is done to each of many."""
        return list(self._entries)

    def sweep(self, moment: Moment, group_id: str) -> Effects[AskerT]:
        """Lets go of a group's offsets that are over, and of the group if it has neither members nor offsets."""
        entry = self._entries.get(group_id)
        records: list[StateRecord] = []
        if entry is not None:
            expired = entry.offsets.expired(self._retention(entry.group), moment.wall_ms)
            for topic, partition in expired:
                records += self._remove_offset(entry, topic, partition)
            self.counters.expired_offsets += len(expired)
            if entry.group.is_deserted and not entry.offsets:
                records += self._forget(entry)
        return Effects(entry, [], records)

    def _retention(self, group: ClassicGroup[AskerT]) -> Retention:
        """As ClassicGroup.offsetExpirationCondition."""
        retention_ms = self._offset_settings.retention_ms
        if not group.protocol_type:
            return Retention(retention_ms)
        if group.state is GroupState.EMPTY:
            return Retention(retention_ms, group.changed_ms if group.changed_ms >= 0 else None)
        if group.state is GroupState.STABLE and group.protocol_type == descriptions.CONSUMER_PROTOCOL:
            return Retention(retention_ms, kept_topics=descriptions.subscribed_topics(group))
        return Retention(retention_ms, kept_topics=None)

    def forget_topics(self, group_id: str, topics: Collection[str], deleted_ms: int) -> Effects[AskerT]:
        """They were deleted then: nothing that a group had committed to them means anything any more. What came later
        is of a new topic of the same name."""
        entry = self._entries.get(group_id)
        records: list[StateRecord] = []
        if entry is not None:
            for topic in topics:
                for partition in entry.offsets.partitions_of(topic):
                    committed = entry.offsets.get(topic, partition)
                    if committed is not None and committed.committed_ms <= deleted_ms:
                        records += self._remove_offset(entry, topic, partition)
        return Effects(entry, [], records)

    # Replay

    def apply(self, record: StateRecord) -> None:
        """What the log tells. Errors: UnknownRecord."""
        key = decode_key(memoryview(record.key))
        value = None if record.value is None else decode_value(key, memoryview(record.value))
        if isinstance(key, OffsetKey):
            self._apply_offset(key, value)
        else:
            self._apply_group(key.group_id, value)

    def _apply_offset(self, key: OffsetKey, value: Value | None) -> None:
        entry = self._entries.get(key.group_id)
        if value is None:
            if entry is not None:
                entry.offsets.remove(key.topic, key.partition)
            return
        if not isinstance(value, CommittedOffset):
            raise UnknownRecord(f"{key} has a value of another kind")
        (entry or self._create(key.group_id)).offsets.put(key.topic, key.partition, value)

    def _apply_group(self, group_id: str, value: Value | None) -> None:
        entry = self._entries.get(group_id)
        if entry is None and value is None:
            return
        entry = entry or self._create(group_id)
        entry.group = ClassicGroup(group_id, self._group_settings)
        entry.is_recorded = value is not None
        if isinstance(value, GroupRecord):
            descriptions.restore(entry.group, value)

    def wake(self, moment: Moment) -> Iterator[Effects[AskerT]]:
        """After the last record: members' time begins, and what is of no group is forgotten."""
        for entry in list(self._entries.values()):
            if not entry.is_recorded and not entry.offsets:
                del self._entries[entry.group.group_id]
                continue
            yield self._step(moment, entry, None, lambda turn, group: group.wake(turn))

    def figures(self) -> Iterator[GroupFigures]:
        """See `GroupStatistics`."""
        for group_id in self.group_ids():
            entry = self._entries.get(group_id)
            if entry is not None:
                offsets = [(at, committed.offset) for at, committed in entry.offsets.items()]
                yield GroupFigures(group_id, entry.group.state, len(entry.group.members), offsets)

    def _create(self, group_id: str) -> Entry[AskerT]:
        entry = self._entries[group_id] = Entry(ClassicGroup[AskerT](group_id, self._group_settings))
        return entry

    def _turn(self, moment: Moment) -> Turn[AskerT]:
        return Turn(moment.now_ms, moment.wall_ms, moment.new_id)


def _refused(asker: AskerT, answer: GroupError | list[GroupError]) -> Effects[AskerT]:
    """There is no such group."""
    return Effects(None, [(asker, answer)], [])
