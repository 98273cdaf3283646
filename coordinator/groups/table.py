"""The groups of one partition of `__consumer_offsets`: commands in; answers, records and deadlines out. Pure.

A command takes effect at once and leaves its `Effects`: the answers, and the records that make the effect last. The
shell writes the records in the order of the commands and holds the answers back until they are durable. The same
records, applied to an empty table, give the same groups (`apply`, then `wake`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Generic

from coordinator.errors import (
    GroupError,
    GroupNotEmpty,
    GroupTooLarge,
    InvalidSessionTimeout,
    UnknownGroup,
    UnknownMember,
)
from coordinator.groups import descriptions
from coordinator.groups.api import (
    GroupCounters,
    GroupFigures,
    GroupListing,
    GroupState,
)
from coordinator.groups.classic import ClassicGroup
from coordinator.groups.commands import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from coordinator.groups.entry import GroupEntry, record_of_value, tombstone
from coordinator.groups.offset_table import GroupEntries, OffsetTable, refused
from coordinator.groups.offsets import retention_of
from coordinator.groups.records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    Value,
    decode_key,
    decode_value,
)
from coordinator.groups.step import Step
from coordinator.shards.table import NEVER_MS, Effects, FutureT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coordinator.groups.api import Claim, Join
    from coordinator.groups.commands import GroupCommand
    from coordinator.groups.entry import OffsetSettings
    from coordinator.groups.step import GroupSettings
    from coordinator.shards.table import Moment
    from coordinator.state.log import StateMarker, StateProducer, StateRecord


class GroupTable(Generic[FutureT]):
    """The groups of one partition. Every command answers its future once, in its effects or in those of a later one."""

    def __init__(self, groups: GroupSettings, offsets: OffsetSettings, counters: GroupCounters | None = None) -> None:
        self._group_settings = groups
        self._offset_settings = offsets
        self.counters = counters or GroupCounters()
        self._entries = GroupEntries[FutureT](groups)
        self.offsets = OffsetTable[FutureT](self._entries, offsets, self.counters)
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def perform(self, command: GroupCommand[Any], moment: Moment, future: FutureT) -> Effects[FutureT]:
        """Carry out a command."""
        group_id = command.group_id
        match command:
            case Heartbeat(claim=claim):
                return self.heartbeat(moment, group_id, claim, future)
            case JoinGroup(join=join):
                return self.join(moment, group_id, join, future)
            case SyncGroup(claim=claim, protocol=protocol, assignments=assignments):
                return self.sync(moment, group_id, claim, protocol, assignments, future)
            case LeaveGroup(leaving=leaving):
                return self.leave(moment, group_id, leaving, future)
            case DescribeGroup():
                return self.describe(group_id, future)
            case DeleteGroup():
                return self.delete_group(group_id, future)
        return self.offsets.perform(command, moment, future)

    # Membership

    def join(self, moment: Moment, group_id: str, join: Join, future: FutureT) -> Effects[FutureT]:
        """See `coordinator.groups.commands.JoinGroup`. A session timeout out of bounds is refused before the group is
        looked for."""
        settings = self._group_settings
        if not settings.session_timeout_min_ms <= join.session_timeout_ms <= settings.session_timeout_max_ms:
            return refused(future, InvalidSessionTimeout(f"session timeout of {join.session_timeout_ms} ms"))
        entry = self._entries.get(group_id)
        if entry is None:
            if join.member_id:
                return refused(future, UnknownMember(join.member_id))
            entry = self._entries.create(group_id)
        return self._step(moment, entry, future, lambda step, group: group.join(step, join, future))

    def sync(
        self,
        moment: Moment,
        group_id: str,
        claim: Claim,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        future: FutureT,
    ) -> Effects[FutureT]:
        """See `coordinator.groups.commands.SyncGroup`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return refused(future, UnknownMember(claim.member_id))
        return self._step(
            moment, entry, future, lambda step, group: group.sync(step, claim, protocol, assignments, future)
        )

    def heartbeat(self, moment: Moment, group_id: str, claim: Claim, future: FutureT) -> Effects[FutureT]:
        """See `coordinator.groups.commands.Heartbeat`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return refused(future, UnknownMember(claim.member_id))
        answer: GroupError | None = None
        try:
            entry.group.heartbeat(moment.now_ms, claim)
        except GroupError as error:
            answer = error.with_traceback(None)
        return Effects(entry, [(future, answer)], [])  # it only moves a deadline, and later at that

    def leave(self, moment: Moment, group_id: str, leaving: Sequence[Claim], future: FutureT) -> Effects[FutureT]:
        """See `coordinator.groups.commands.LeaveGroup`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return refused(future, [UnknownMember(one.member_id) for one in leaving])
        return self._step(moment, entry, future, lambda step, group: step.answer(future, group.leave(step, leaving)))

    def _step(
        self,
        moment: Moment,
        entry: GroupEntry[FutureT],
        future: FutureT | None,
        action: Callable[[Step[FutureT], ClassicGroup[FutureT]], None],
    ) -> Effects[FutureT]:
        step = self._new_step(moment)
        try:
            action(step, entry.group)
        except GroupError as error:
            step.answer(future, error.with_traceback(None))  # which refers to this step: that would be a cycle
        return self._done(step, entry)

    def _done(self, step: Step[FutureT], entry: GroupEntry[FutureT]) -> Effects[FutureT]:
        group = entry.group
        records = []
        if step.must_record:
            record = record_of_value(GroupKey(group.group_id), descriptions.record_of(group))
            if record.value is not None and len(record.value) > self._offset_settings.record_max_bytes:
                group.reject_assignment(step, GroupTooLarge(f"group {group.group_id}: {len(record.value)} bytes"))
            else:
                records.append(record)
                entry.is_recorded = True
        self.counters.generations += step.generations
        self.counters.expired_members += step.expired_members
        self._schedule(entry)
        return Effects(entry, step.answers, records)

    # Groups as a whole

    def describe(self, group_id: str, future: FutureT) -> Effects[FutureT]:
        """See `coordinator.groups.commands.DescribeGroup`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return refused(future, UnknownGroup(group_id))
        return Effects(entry, [(future, descriptions.describe(entry.group))], [])

    def listings(self) -> list[GroupListing]:
        """All groups, as rows of a list."""
        return [descriptions.listing(entry.group) for entry in self._entries.values()]

    def delete_group(self, group_id: str, future: FutureT) -> Effects[FutureT]:
        """See `coordinator.groups.commands.DeleteGroup`."""
        entry = self._entries.get(group_id)
        if entry is None:
            return refused(future, UnknownGroup(group_id))
        if entry.group.state is not GroupState.EMPTY:
            return Effects(entry, [(future, GroupNotEmpty(group_id))], [])
        places = [*(at for at, _ in entry.offsets.items()), *self.offsets.pending.of_group(group_id)]
        records = [record for at in dict.fromkeys(places) for record in self.offsets.remove(entry, *at)]
        return Effects(entry, [(future, None)], [*records, *self._forget(entry)])

    def _forget(self, entry: GroupEntry[FutureT]) -> list[StateRecord]:
        del self._entries[entry.group.group_id]
        return [tombstone(GroupKey(entry.group.group_id))] if entry.is_recorded else []

    # Time

    def next_due_ms(self) -> int:
        """When `expire` has something to do, at the earliest."""
        return self._due[0][0] if self._due else NEVER_MS

    def expire(self, moment: Moment) -> Iterator[Effects[FutureT]]:
        """Expire every group whose time has come, one by one."""
        while self._due and self._due[0][0] <= moment.now_ms:
            due_ms, group_id = heappop(self._due)
            entry = self._entries.get(group_id)
            if entry is None or entry.due_ms != due_ms:
                continue
            entry.due_ms = NEVER_MS
            if entry.group.next_deadline_ms() > moment.now_ms:
                self._schedule(entry)
                continue
            yield self._step(moment, entry, None, lambda step, group: group.expire(step))

    def _schedule(self, entry: GroupEntry[FutureT]) -> None:
        """Note a group's next deadline. A deadline that has moved later is found out when the earlier one comes."""
        due_ms = entry.group.next_deadline_ms()
        if due_ms < entry.due_ms:
            entry.due_ms = due_ms
            heappush(self._due, (due_ms, entry.group.group_id))

    def waiting(self) -> Iterator[FutureT]:
        """The requests that are not answered yet."""
        for entry in self._entries.values():
            for member in entry.group.members:
                yield from (future for future in (member.joining, member.syncing) if future is not None)

    def group_ids(self) -> list[str]:
        """All group ids, for `Shard.ask_each`."""
        return list(self._entries)

    def sweep(self, moment: Moment, group_id: str) -> Effects[FutureT]:
        """Remove a group's expired offsets, and the group if it has neither members nor offsets."""
        entry = self._entries.get(group_id)
        records: list[StateRecord] = []
        if entry is not None:
            retention = retention_of(entry.group, self._offset_settings.retention_ms)
            expired = entry.offsets.expired(retention, moment.wall_ms)
            for at in expired:
                records += () if self.offsets.pending.is_pending(group_id, at) else self.offsets.remove(entry, *at)
            self.counters.expired_offsets += len(records)
            if entry.group.is_deserted and not entry.offsets and not self.offsets.pending.has_group(group_id):
                records += self._forget(entry)
        return Effects(entry, [], records)

    # Replay

    def apply(self, record: StateRecord) -> None:
        """Apply a record of the log. Errors: UnknownRecord."""
        key = decode_key(memoryview(record.key))
        value = None if record.value is None else decode_value(key, memoryview(record.value))
        if isinstance(key, OffsetKey):
            self.offsets.apply(key, value)
        else:
            self._apply_group(key.group_id, value)

    def apply_in_transaction(self, producer: StateProducer, record: StateRecord) -> None:
        """See `StateTable`."""
        self.offsets.apply_in_transaction(producer, record)

    def apply_marker(self, marker: StateMarker) -> list[StateRecord]:
        """See `StateTable`."""
        return self.offsets.apply_marker(marker)

    def _apply_group(self, group_id: str, value: Value | None) -> None:
        entry = self._entries.get(group_id)
        if entry is None and value is None:
            return
        entry = entry or self._entries.create(group_id)
        entry.group = ClassicGroup(group_id, self._group_settings)
        entry.is_recorded = value is not None
        if isinstance(value, GroupRecord):
            descriptions.restore(entry.group, value)

    def forget_remnants(self) -> None:
        """See `StateTable`."""
        for group_id, entry in list(self._entries.items()):
            if not entry.is_recorded and not entry.offsets and not self.offsets.pending.has_group(group_id):
                del self._entries[group_id]

    def wake(self, moment: Moment) -> Iterator[Effects[FutureT]]:
        """Start the members' time, after the last record; entries without content are dropped."""
        self.forget_remnants()
        for entry in list(self._entries.values()):
            yield self._step(moment, entry, None, lambda step, group: group.wake(step))

    def figures(self) -> Iterator[GroupFigures]:
        """See `GroupStatistics`."""
        for group_id in self.group_ids():
            entry = self._entries.get(group_id)
            if entry is not None:
                offsets = [(at, committed.offset) for at, committed in entry.offsets.items()]
                yield GroupFigures(group_id, entry.group.state, len(entry.group.members), offsets)

    def _new_step(self, moment: Moment) -> Step[FutureT]:
        return Step(moment.now_ms, moment.wall_ms, moment.new_id)
