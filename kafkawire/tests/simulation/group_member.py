"""Members of a group: they join, assign, beat, commit, leave, die and come back too late.

Each process is one member. Requests with an invalid identity (of a zombie, of a fenced static member, of an earlier
generation) are sent on purpose: the broker has to refuse them, and the checker tests that.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkawire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkawire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.group_client import GroupClient
from kafkawire.tests.simulation.group_history import AWAY, Kind, decode_targets, encode_targets
from kafkawire.tests.simulation.network import LOST, Connection
from kafkawire.tests.simulation.plan import Target

PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
BEATS_PER_SESSION = 5
NOBODY = ("", -1)
# Errors that a correct member may get.
_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_BEHIND = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


@dataclass
class Member(GroupClient):
    """A member process. `is_dead`: it ended for good, without a LeaveGroup."""

    is_dead: bool = False
    is_synced: bool = False
    assigned: tuple[Target, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._join_version = self.rng.choice((5, 7, 9))
        self._old = NOBODY
        self._old_assigned: tuple[Target, ...] = ()
        self._members: tuple[tuple[str, str | None], ...] = ()  # to assign to, of a leader
        self._is_leader = False

    @property
    def session_s(self) -> float:
        return self.plan.session_timeout_ms / 1000

    async def run(self) -> None:
        """Take part until the member is dead, or the run is over and cancels it."""
        await trio.sleep(self.rng.uniform(0, self.session_s))
        while not self.is_dead:
            connection = await self.shared.connected(self.name, self.rng)
            try:
                await self.find_coordinator(connection)
                while not self.is_dead:
                    await (self._live(connection) if self.is_synced else self._come_in(connection))
            except LOST:
                if not self.shared.is_over and self.rng.random() < 0.1:
                    self._forget()
            finally:
                self.shared.network.disconnect(connection)

    # Coming in

    async def _come_in(self, connection: Connection) -> None:
        answer = await self._join(connection)
        if answer is not None:
            if self.rng.random() < 0.02 and not self.shared.is_over:
                await self._die()  # between the two
                return
            await self._sync(connection)

    async def _join(self, connection: Connection) -> JoinGroupResponse | None:
        call = self.begin(Kind.JOIN)
        request = JoinGroupRequest(
            group_id=self.plan.name,
            session_timeout_ms=self.plan.session_timeout_ms,
            rebalance_timeout_ms=self.plan.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        answer = await self.call(connection, call, request, self._join_version)
        assert isinstance(answer, JoinGroupResponse)
        call.code = answer.error_code
        if not answer.error_code:
            self.member_id, self.generation = call.member_id, call.generation = answer.member_id, answer.generation_id
            self._is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            self._members = tuple((one.member_id, one.group_instance_id) for one in answer.members)
            call.is_leader = self._is_leader
            call.members = tuple(sorted(instance or one for one, instance in self._members))
        self.note(call)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code:
            await self._refused(answer.error_code, "JoinGroup")
        return None if answer.error_code else answer

    async def _sync(self, connection: Connection) -> None:
        call = self.begin(Kind.SYNC)
        request = SyncGroupRequest(
            group_id=self.plan.name,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=self._assignments() if self._is_leader else [],
        )
        answer = await self.call(connection, call, request, 3 if self._join_version < 7 else 5)
        call.code = answer.error_code
        if not answer.error_code:
            self.assigned = call.assigned = decode_targets(answer.assignment)
            self.is_synced = True
        self.note(call)
        if answer.error_code:
            await self._refused(answer.error_code, "SyncGroup")

    def _assignments(self) -> list[SyncGroupRequestAssignment]:
        ids = [member_id for member_id, _ in sorted(self._members)]
        shift = self.rng.randrange(len(ids))
        ids = ids[shift:] + ids[:shift]
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_targets(self.plan.targets[number :: len(ids)])
            )
            for number, member_id in enumerate(ids)
        ]

    # Being there

    async def _live(self, connection: Connection) -> None:
        """Do one of the actions of members."""
        await trio.sleep(self.session_s / BEATS_PER_SESSION * self.rng.uniform(0.3, 1))
        drawn = 0.0 if self.shared.is_over else self.rng.random()
        if drawn < 0.5:
            await self._beat(connection)
        elif drawn < 0.75:
            await self._commit(connection)
        elif drawn < 0.85:
            await self.read_offsets(connection)
        elif drawn < 0.91:
            await self._commit_too_late(connection)
        elif drawn < 0.94:
            await trio.sleep(self.session_s * self.rng.uniform(0.8, 2.5))
            await self._commit(connection)  # a zombie, if others went on without it
        elif drawn < 0.97:
            await self._leave(connection)
        else:
            await self._die()

    async def _beat(self, connection: Connection) -> None:
        call = self.begin(Kind.HEARTBEAT)
        request = HeartbeatRequest(
            group_id=self.plan.name,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = await self.call(connection, call, request, 3)
        call.code = answer.error_code
        self.note(call)
        if answer.error_code:
            await self._refused(answer.error_code, "Heartbeat")

    async def _commit(self, connection: Connection) -> None:
        if self.assigned:
            chosen = self.rng.sample(self.assigned, self.rng.randint(1, len(self.assigned)))
            code = await self.commit(connection, tuple(sorted(chosen)))
            if code:
                await self._refused(code, "OffsetCommit")

    async def _commit_too_late(self, connection: Connection) -> None:
        """Commit with an identity that is no longer valid, or in an earlier generation."""
        if self._old != NOBODY and self._old_assigned:
            code = await self.commit(connection, self._old_assigned[:1], claim=self._old)
            self.expect(code, "a commit too late", ErrorCode.NONE, *_OUT, *_BEHIND, *AWAY)

    async def _leave(self, connection: Connection) -> None:
        call = self.begin(Kind.LEAVE)
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        answer = await self.call(connection, call, LeaveGroupRequest(group_id=self.plan.name, members=[member]), 3)
        call.code = answer.error_code or answer.members[0].error_code
        self.note(call)
        if call.code in AWAY:
            return
        self.expect(call.code, "LeaveGroup", ErrorCode.NONE, *_OUT)
        await self._die()

    async def _die(self) -> None:
        """Die, and come back as a new member."""
        self._forget()
        await trio.sleep(self.session_s * self.rng.uniform(0, 2.5))

    def _forget(self) -> None:
        self._lapse()
        self.member_id = ""
        self.generation = -1

    def _lapse(self) -> None:
        """Note that the member has to join again."""
        if self.is_synced:
            self._old, self._old_assigned = (self.member_id, self.generation), self.assigned
        self.is_synced = False
        self.assigned = ()

    async def _refused(self, code: int, what: str) -> None:
        if code in AWAY:
            await trio.sleep(self.rng.uniform(0.02, 0.2))
            return
        self.expect(code, what, *_OUT, *_BEHIND)
        if code in _BEHIND:
            self._lapse()
            return
        self._forget()
        if code == ErrorCode.FENCED_INSTANCE_ID:
            await trio.sleep(self.session_s * self.rng.uniform(0.2, 1 if self.shared.is_over else 3))
