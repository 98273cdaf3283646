"""A group under the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and its timeouts.

Pure: every step is given a `Step` with the time of now, and leaves in it the answers and whether the group's record has
to be written. A request to join or sync may have to wait for others; the shell hands in something to know it by (an
future) and finds it again among the answers. After Kafka's GroupMetadataManager and ClassicGroup; the life is

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
                     ^ │ all joined, or time is up   │ leader synced   │
                     └─┴──────── a member comes, leaves, dies, changes ┘

It knows no offsets, no bytes of records and no permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from coordinator.errors import (
    FencedInstance,
    GroupError,
    GroupIsFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from coordinator.groups.api import NO_GENERATION, Claim, GroupState, Join, Synced
from coordinator.groups.descriptions import joined_as
from coordinator.groups.members import ExpectedMembers, Member, Members, name_in_id
from coordinator.groups.rebalance_delay import RebalanceDelay
from coordinator.groups.step import GroupSettings, Step
from coordinator.shards.table import NEVER_MS, FutureT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ClassicGroup(Generic[FutureT]):
    """A group. A step raises a CoordinatorError if it refuses the request at once."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members = Members[FutureT]()
        self.changed_ms = -1  # when it came into its state
        self._settings = settings
        self._expected = ExpectedMembers(settings.expected_max)  # new members that were told their id
        self._unsynced: set[str] = set()
        self._rebalance_delay: RebalanceDelay | None = (
            None  # the first members: more may come, and none is known to be missing
        )
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = NEVER_MS

    # State

    @property
    def is_deserted(self) -> bool:
        """Whether the group has no members, and expects none."""
        return self.state is GroupState.EMPTY and not self._expected

    def next_deadline_ms(self) -> int:
        """When `expire` has something to do, at the earliest."""
        deadlines = [one.deadline_ms for one in self.members if one.is_new or not one.waits]
        return min([self._join_deadline_ms, self._sync_deadline_ms, *self._expected.values(), *deadlines])

    def _go(self, step: Step[FutureT], state: GroupState) -> None:
        self.state = state
        self.changed_ms = step.wall_ms

    # Joining

    def join(self, step: Step[FutureT], join: Join, future: FutureT) -> None:
        """JoinGroup. Answered when all have joined, or with MemberIdRequired."""
        self._check_size(step, join.member_id)
        if not self._fits(join):
            raise InconsistentProtocol(f"group {self.group_id} has no protocol in common with the new member")
        if join.member_id:
            self._join_again(step, join, future)
        else:
            self._join_first(step, join, future)

    def _check_size(self, step: Step[FutureT], member_id: str) -> None:
        """Refuse a member beyond group.max.size, as acceptJoiningMember does: a member that joins again too late has
        lost its place."""
        if len(self.members) < self._settings.members_max:
            return
        member = self.members.get(member_id)
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        if member is not None and (member.joining is not None or not is_preparing):
            return
        count = sum(one.joining is not None for one in self.members) if is_preparing else len(self.members)
        if count >= self._settings.members_max:
            if member is not None:
                self._remove(step, member)
            raise GroupIsFull(f"group {self.group_id} has {count} members")

    def _fits(self, join: Join) -> bool:
        if self.members:
            return join.protocol_type == self.protocol_type and self.members.all_offer_one_of(join.protocols)
        return bool(join.protocol_type and join.protocols)

    def _join_first(self, step: Step[FutureT], join: Join, future: FutureT) -> None:
        member_id = f"{name_in_id(join)}-{step.new_id()}"
        known_id = self.members.id_of_instance(join.instance_id)
        if known_id is not None:
            self._replace(step, self.members.find(Claim(known_id)), member_id, join, future)
        elif join.instance_id is None and join.must_know_its_id:
            self._expected.add(member_id, step.now_ms + join.session_timeout_ms)
            raise MemberIdRequired(member_id)
        else:
            self._add(step, member_id, join, future)

    def _join_again(self, step: Step[FutureT], join: Join, future: FutureT) -> None:
        if join.member_id in self._expected and join.instance_id is None:
            self._add(step, join.member_id, join, future)
            return
        member = self.members.find(Claim(join.member_id, join.instance_id))
        has_changed = member.protocols != join.protocols
        is_leader = member.member_id == self.leader_id
        if (
            self.state is GroupState.PREPARING_REBALANCE
            or has_changed
            or (self.state is GroupState.STABLE and is_leader)
        ):
            self._take(step, member, join, future)
            self._rebalance(step)
        else:  # the answer got lost, or it asks for the state that it missed
            step.answer(future, joined_as(self, member))

    def _add(self, step: Step[FutureT], member_id: str, join: Join, future: FutureT) -> None:
        timeouts = join.session_timeout_ms, join.rebalance_timeout_ms
        member = Member[FutureT](
            member_id, join.instance_id, join.client_id, join.client_host, *timeouts, join.protocols
        )
        member.joining = future
        member.deadline_ms = step.now_ms + self._settings.newcomer_timeout_ms
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members.add(member)
        self._expected.pop(member_id, None)
        if self.leader_id is None:
            self.leader_id = member_id
        if self._rebalance_delay is not None:
            self._rebalance_delay.has_newcomers = True
        self._rebalance(step)

    def _take(self, step: Step[FutureT], member: Member[FutureT], join: Join, future: FutureT) -> None:
        """Take over the new JoinGroup of a known member. A request of it that waits is answered with
        RebalanceInProgress."""
        step.answer(member.joining, RebalanceInProgress(self.group_id))
        self.members.update(member, join)
        member.joining = future

    def _replace(
        self, step: Step[FutureT], member: Member[FutureT], member_id: str, join: Join, future: FutureT
    ) -> None:
        """Give a static member that came back its new id: a client that still uses the old one is fenced (KIP-345)."""
        leader_before = self.leader_id
        for waiting in (member.joining, member.syncing):
            step.answer(waiting, FencedInstance(join.instance_id))
        member.joining = member.syncing = None
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        if member.member_id in self._unsynced:
            self._unsynced.remove(member.member_id)
            self._unsynced.add(member_id)
        self.members.remove(member)
        member.member_id = member_id
        self.members.add(member)
        self._take(step, member, join, future)
        self._extend_session(step.now_ms, member)
        if self.state is GroupState.STABLE and self.members.elect_protocol() == self.protocol_name:
            self._resume(step, member, join, leader_before)
        else:
            self._rebalance(step)

    def _resume(self, step: Step[FutureT], member: Member[FutureT], join: Join, leader_before: str | None) -> None:
        """Answer a static member that came back, without a rebalance. A leader that cannot be told not to assign is
        told that another member leads."""
        step.must_record = True
        joined = joined_as(self, member)
        if join.may_skip_assignment:
            joined = joined._replace(skips_assignment=member.member_id == self.leader_id)
        else:
            joined = joined._replace(leader_id=leader_before or "", members=())
        step.answer(member.joining, joined)
        member.joining = None

    # Rebalancing

    def _rebalance(self, step: Step[FutureT]) -> None:
        """Begin to gather all members, or end it when all are there."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_are_there(step)
            return
        for member in self.members:
            if self.state is GroupState.COMPLETING_REBALANCE:
                member.assignment = b""
            if member.syncing is not None:
                step.answer(member.syncing, RebalanceInProgress(self.group_id))
                member.syncing = None
                self._extend_session(step.now_ms, member)
        self._unsynced.clear()
        self._sync_deadline_ms = NEVER_MS
        is_first = self.state is GroupState.EMPTY
        self._go(step, GroupState.PREPARING_REBALANCE)
        if is_first:
            self._rebalance_delay = RebalanceDelay(
                self._settings.initial_rebalance_delay_ms, self.members.rebalance_timeout_ms
            )
            self._join_deadline_ms = step.now_ms + self._rebalance_delay.next_delay_ms()
        else:
            self._join_deadline_ms = step.now_ms + self.members.rebalance_timeout_ms
            self._complete_join_if_all_are_there(step)

    def _complete_join_if_all_are_there(self, step: Step[FutureT]) -> None:
        if self._rebalance_delay is not None or self._expected:
            return
        if all(one.joining is not None for one in self.members):
            self._complete_join(step)

    def _extend_rebalance_delay(self, step: Step[FutureT]) -> bool:
        delay_ms = 0 if self._rebalance_delay is None else self._rebalance_delay.next_delay_ms()
        self._join_deadline_ms = step.now_ms + delay_ms
        return delay_ms > 0

    def _complete_join(self, step: Step[FutureT]) -> None:
        """End the join phase. Members that have not joined are removed, but for static ones: they may come back until
        their session ends."""
        for member in [one for one in self.members if one.joining is None and one.instance_id is None]:
            self._remove(step, member)
        there = [one for one in self.members if one.joining is not None]
        if self.members and not there:
            self._join_deadline_ms = step.now_ms + self.members.rebalance_timeout_ms
            return
        self._rebalance_delay = None
        self._join_deadline_ms = NEVER_MS
        self.generation_id += 1
        step.generations += 1
        if not there:
            self.protocol_name = self.leader_id = None
            self._go(step, GroupState.EMPTY)
            step.must_record = True
            return
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is None or leader.joining is None:
            self.leader_id = there[0].member_id
        self.protocol_name = self.members.elect_protocol()
        self._go(step, GroupState.COMPLETING_REBALANCE)
        self._unsynced = set(self.members.ids())
        self._sync_deadline_ms = step.now_ms + self.members.rebalance_timeout_ms
        for member in self.members:
            step.answer(member.joining, joined_as(self, member))
            member.joining = None
            member.is_new = False
            self._extend_session(step.now_ms, member)

    # Syncing

    def sync(
        self,
        step: Step[FutureT],
        claim: Claim,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        future: FutureT,
    ) -> None:
        """SyncGroup: answered when the leader has assigned the partitions. `protocol` is type and name, if told."""
        member = self.members.find(claim)
        self._check_generation(claim)
        for reported, known in zip(protocol, (self.protocol_type, self.protocol_name), strict=True):
            if reported is not None and reported != known:
                raise InconsistentProtocol(f"group {self.group_id} uses {known}, not {reported}")
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(self.group_id)
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_deadline_ms = NEVER_MS
        if self.state is GroupState.STABLE:
            self._extend_session(step.now_ms, member)
            step.answer(future, Synced(self.protocol_type or "", self.protocol_name or "", member.assignment))
            return
        step.answer(member.syncing, RebalanceInProgress(self.group_id))
        member.syncing = future
        if member.member_id == self.leader_id:
            self._assign(step, assignments)

    def _assign(self, step: Step[FutureT], assignments: Mapping[str, bytes]) -> None:
        self._go(step, GroupState.STABLE)
        step.must_record = True
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                step.answer(
                    member.syncing, Synced(self.protocol_type or "", self.protocol_name or "", member.assignment)
                )
                member.syncing = None
                self._extend_session(step.now_ms, member)

    # Staying and leaving

    def heartbeat(self, now_ms: int, claim: Claim) -> None:
        """Heartbeat: RebalanceInProgress tells the member to join again."""
        member = self.members.find(claim)
        self._check_generation(claim)
        self._extend_session(now_ms, member)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(self.group_id)

    def leave(self, step: Step[FutureT], leaving: Sequence[Claim]) -> list[GroupError | None]:
        """LeaveGroup, with the outcome of each; the others join again once, after all of them."""
        count = len(self.members)
        outcomes: list[GroupError | None] = []
        for claim in leaving:
            try:
                self._leave(step, claim)
            except GroupError as error:
                outcomes.append(error.with_traceback(None))
            else:
                outcomes.append(None)
        if len(self.members) < count:
            self._rebalance(step)
        else:
            self._expect_fewer(step)
        return outcomes

    def _leave(self, step: Step[FutureT], claim: Claim) -> None:
        """Remove a member. A static member may be named by its instance alone."""
        if self._expected.pop(claim.member_id, None) is not None:
            return
        if not claim.member_id and claim.instance_id is not None:
            claim = Claim(self.members.id_of_instance(claim.instance_id) or "", claim.instance_id)
        self._remove(step, self.members.find(claim))

    def expire(self, step: Step[FutureT]) -> None:
        """Remove members and expected ids whose time is over, and end phases whose time is over."""
        now_ms = step.now_ms
        gone = [one for one in self.members if one.deadline_ms <= now_ms and (one.is_new or not one.waits)]
        unexpected = [member_id for member_id, until_ms in self._expected.items() if until_ms <= now_ms]
        for member_id in unexpected:
            del self._expected[member_id]
        for member in gone:
            self._remove(step, member)
        step.expired_members += len(gone)
        if gone:
            self._rebalance(step)
        elif unexpected:
            self._expect_fewer(step)
        if self._sync_deadline_ms <= now_ms:
            for member in [one for one in self.members if one.member_id in self._unsynced]:
                self._remove(step, member)
            self._rebalance(step)
        if self._join_deadline_ms <= now_ms and not self._extend_rebalance_delay(step):
            self._complete_join(step)

    def _remove(self, step: Step[FutureT], member: Member[FutureT]) -> None:
        self.members.remove(member)
        self._unsynced.discard(member.member_id)
        for waiting in (member.joining, member.syncing):
            step.answer(waiting, UnknownMember(member.member_id))
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members.ids()), None)

    def _expect_fewer(self, step: Step[FutureT]) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_are_there(step)

    def check_commit(self, now_ms: int, claim: Claim, *, in_transaction: bool = False) -> None:
        """Refuse a claim that may not commit offsets; a member that commits is alive
        (ClassicGroup.validateOffsetCommit)."""
        if claim.generation_id == NO_GENERATION and not claim.member_id and claim.instance_id is None:
            if self.state is not GroupState.EMPTY and not in_transaction:
                raise UnknownMember(claim.member_id)
            return
        if claim.generation_id < 0 and self.state is GroupState.EMPTY:
            return
        member = self.members.find(claim)
        self._check_generation(claim)
        if not in_transaction:
            if self.state is GroupState.COMPLETING_REBALANCE:
                raise RebalanceInProgress(self.group_id)
            self._extend_session(now_ms, member)

    def reject_assignment(self, step: Step[FutureT], error: GroupError) -> None:
        """Reject the leader's assignment, which cannot be recorded: all waiting requests get the error, and all join
        again."""
        step.answers = [(future, error) for future, _ in step.answers]
        for member in self.members:
            member.assignment = b""
        self._rebalance(step)

    def wake(self, step: Step[FutureT]) -> None:
        """Start the members' time after a load: no heartbeat was heard meanwhile, so each has a whole session
        timeout."""
        for member in self.members:
            self._extend_session(step.now_ms, member)
        if len(self.members) > self._settings.members_max:
            self._rebalance(step)

    # Members and generations

    def _extend_session(self, now_ms: int, member: Member[FutureT]) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms

    def _check_generation(self, claim: Claim) -> None:
        if claim.generation_id != self.generation_id:
            raise IllegalGeneration(f"generation {claim.generation_id} of group {self.group_id} is not the current one")
