"""A client of one group: it finds the coordinator, commits and reads offsets, and notes the replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.group_history import AWAY, NO_ERA, Call, GroupHistory, Kind, OffsetRead
from kafkawire.tests.simulation.group_plan import GroupPlan
from kafkawire.tests.simulation.network import Connection
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.shared import Shared
from kafkawire.wire.message import Message

FIRST_FETCH_VERSION_WITH_GROUPS = 8
LAST_FETCH_VERSION = 9
LAST_COMMIT_VERSION_WITH_RETENTION = 4


@dataclass
class GroupClient:
    """A client of a group, member or not."""

    name: str
    plan: GroupPlan
    shared: Shared
    groups: GroupHistory
    rng: Random = field(init=False)
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    def __post_init__(self) -> None:
        self.rng = self.shared.rng(self.name)
        self._fetch_version = self.rng.choice((5, 8, LAST_FETCH_VERSION))

    async def find_coordinator(self, connection: Connection) -> None:
        """Send FindCoordinator, at each connection: the first one creates the topic. Errors: LOST, also if no
        coordinator answers."""
        answer = await self.shared.ask(connection, FindCoordinatorRequest(coordinator_keys=[self.plan.name]), 4)
        code = answer.coordinators[0].error_code
        if code in AWAY:
            raise EOFError("no coordinator for now")
        self.expect(code, "FindCoordinator", ErrorCode.NONE)

    async def call(self, connection: Connection, call: Call, request: Message, version: int) -> Any:
        """Send a request, and note when the reply came; the caller notes its content. Errors: LOST."""
        self.groups.calls.append(call)
        era = self.shared.era()
        answer = await self.shared.ask(connection, request, version)
        call.completed = self.shared.history.tick()
        call.completed_ms = self.shared.now_ms()
        call.era = era if era == self.shared.era() else NO_ERA
        return answer

    def begin(self, kind: Kind, claim: tuple[str, int] | None = None) -> Call:
        """A call, as it is sent."""
        member_id, generation = (self.member_id, self.generation) if claim is None else claim
        return Call(
            kind=kind,
            group=self.plan.name,
            member_id=member_id,
            instance_id=self.instance_id,
            generation=generation,
            invoked=self.shared.history.tick(),
            invoked_ms=self.shared.now_ms(),
        )

    def note(self, call: Call) -> None:
        """Add the call to the trace."""
        self.shared.history.note(
            self.name, call.kind.value, call.member_id, call.generation, call.code, call.assigned, call.offsets
        )

    def expect(self, code: int, what: str, *expected: ErrorCode) -> None:
        """Note trouble if the broker returns an error that no client within the protocol should get."""
        if code not in expected:
            error_name = ErrorCode(code).name
            self.shared.history.troubles.append(f"{self.name}: {error_name} for {what} of {self.plan.name}")

    # Offsets

    async def commit(
        self,
        connection: Connection,
        targets: tuple[Target, ...],
        *,
        claim: tuple[str, int] | None = None,
        retention_ms: int | None = None,
    ) -> int:
        """Commit a new number to each target; return the error code. Errors: LOST."""
        call = self.begin(Kind.COMMIT, claim)
        call.offsets = {target: self.groups.next_number() for target in targets}
        call.retention_ms = retention_ms
        version = self.rng.choice((7, 8, 9)) if retention_ms is None else LAST_COMMIT_VERSION_WITH_RETENTION
        request = OffsetCommitRequest(
            group_id=self.plan.name,
            generation_id_or_member_epoch=call.generation,
            member_id=call.member_id,
            group_instance_id=call.instance_id,
            retention_time_ms=-1 if retention_ms is None else retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=target.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=target.partition, committed_offset=number, committed_metadata=str(number)
                        )
                    ],
                )
                for target, number in call.offsets.items()
            ],
        )
        answer = await self.call(connection, call, request, version)
        codes = {row.error_code for topic in answer.topics for row in topic.partitions}
        if len(codes) != 1:
            self.shared.history.troubles.append(f"{self.name}: a commit is told {sorted(codes)}")
        call.code = max(codes)
        self.note(call)
        return call.code

    async def read_offsets(self, connection: Connection, *, is_stable: bool | None = None) -> OffsetRead | None:
        """The offsets of all targets of the group; None if the coordinator is away. `is_stable`: whether stable offsets
        are requested, None for a random choice. Errors: LOST."""
        version = self._fetch_version if not is_stable else LAST_FETCH_VERSION
        has_groups = version >= FIRST_FETCH_VERSION_WITH_GROUPS
        if is_stable is None:
            is_stable = has_groups and self.rng.random() < 0.5
        invoked = self.shared.history.tick()
        request = self._request_of_groups(is_stable=is_stable) if has_groups else self._request_of_one_group()
        answer = await self.shared.ask(connection, request, version)
        response = answer.groups[0] if has_groups else answer
        rows = [(Target(topic.name, row.partition_index), row) for topic in response.topics for row in topic.partitions]
        codes = {row.error_code for _, row in rows} | {response.error_code}
        if codes - {0}:
            self.expect(max(codes), "OffsetFetch", *AWAY)
            return None
        found: dict[Target, int | None] = {}
        for target, row in rows:
            found[target] = row.committed_offset if row.committed_offset >= 0 else None
            if row.committed_offset >= 0 and row.metadata != str(row.committed_offset):
                self.shared.history.troubles.append(f"{target} has {row.committed_offset} with {row.metadata!r}")
        for target in self.plan.targets:
            if target not in found:
                self.shared.history.troubles.append(f"{self.name}: nothing is told of {target}")
        history = self.shared.history
        read = OffsetRead(self.plan.name, invoked, history.tick(), self.shared.now_ms(), found, is_stable)
        self.groups.reads.append(read)
        history.note(self.name, "read", is_stable, sorted(found.items()))
        return read

    def _request_of_one_group(self) -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=asked) for name, asked in self._asked()]
        return OffsetFetchRequest(group_id=self.plan.name, topics=topics)

    def _request_of_groups(self, *, is_stable: bool) -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=asked) for name, asked in self._asked()]
        groups = [OffsetFetchRequestGroup(group_id=self.plan.name, topics=topics)]
        return OffsetFetchRequest(groups=groups, require_stable=is_stable)

    def _asked(self) -> list[tuple[str, list[int]]]:
        """All targets of the group, by topic."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in self.plan.targets:
            by_topic.setdefault(topic, []).append(partition)
        return [*by_topic.items()]
