"""Any commands in any order: a table answers each once, never fails, and comes back from its records as it was."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.errors import GroupError, MemberIdRequired
from coordinator.groups.api import (
    Claim,
    CommittedOffset,
    GroupState,
    Join,
    Joined,
    MemberProtocol,
    OffsetToCommit,
    Synced,
    TopicPartition,
)
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.step import GroupSettings
from coordinator.groups.table import GroupTable
from coordinator.shards.table import NEVER_MS, Effects, Moment
from coordinator.state.log import StateRecord

GROUPS = st.sampled_from(["g", "h"])
NAMES = st.lists(st.sampled_from(["range", "sticky", "x"]), max_size=3)
INSTANCES = st.sampled_from([None, None, "i1", "i2"])
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t"
RETENTION_MS = 100_000
SETTINGS = GroupSettings(members_max=4, initial_rebalance_delay_ms=500, newcomer_timeout_ms=20_000)
OFFSET_SETTINGS = OffsetSettings(retention_ms=RETENTION_MS)


class Request:
    """A command, and its answers."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.answers: list[object] = []


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)
        self.now_ms = 0
        self.table = GroupTable[Request](SETTINGS, OFFSET_SETTINGS)
        self.records: list[StateRecord] = []
        self.asked: list[Request] = []
        self.ids: list[str] = [""]  # that members were told, or claim to have
        self.generations: dict[str, int] = {}
        self.committed: dict[tuple[str, int], CommittedOffset] = {}

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms, lambda: str(next(self.numbers)))

    def take(self, effects: Effects[Request]) -> None:
        self.records += effects.records
        for asked, answer in effects.answers:
            assert not asked.answers, "answered twice"
            asked.answers.append(answer)
            self.learn(asked, answer)

    def learn(self, asked: Request, answer: object) -> None:
        if isinstance(answer, MemberIdRequired):
            self.ids.append(answer.member_id)
        elif isinstance(answer, Joined):
            assert answer.generation_id >= self.generations.get(asked.group_id, 0)
            self.generations[asked.group_id] = answer.generation_id
            if answer.member_id not in self.ids:
                self.ids.append(answer.member_id)
            if answer.leader_id == answer.member_id and not answer.skips_assignment:
                assert answer.member_id in [one[0] for one in answer.members]
        else:
            assert answer is None or isinstance(answer, (Synced, GroupError, list)), answer

    def ask(self, group_id: str) -> Request:
        self.asked.append(Request(group_id))
        return self.asked[-1]

    def claim(self, data: st.DataObject, group_id: str) -> Claim:
        generation = self.generations.get(group_id, 0)
        return Claim(
            data.draw(st.sampled_from(self.ids[-6:])),
            data.draw(INSTANCES),
            data.draw(st.sampled_from([generation, generation, generation, generation - 1, -1])),
        )

    @rule(data=st.data(), group_id=GROUPS, names=NAMES, instance_id=INSTANCES, must_know=st.booleans())
    def join(
        self, data: st.DataObject, group_id: str, names: list[str], instance_id: str | None, must_know: bool
    ) -> None:
        protocols = tuple(MemberProtocol(name, SUBSCRIPTION + bytes([next(self.numbers) % 3])) for name in names)
        member_id = data.draw(st.sampled_from(["", *self.ids[-6:]]))
        timeouts = data.draw(st.sampled_from([(6_000, 9_000), (10_000, 5_000)]))
        kind = data.draw(st.sampled_from(["consumer", "consumer", "connect", ""]))
        join = Join(member_id, instance_id, "c", "/h", kind, protocols, *timeouts, must_know, data.draw(st.booleans()))
        self.take(self.table.join(self.moment, group_id, join, self.ask(group_id)))

    @rule(data=st.data(), group_id=GROUPS)
    def sync(self, data: st.DataObject, group_id: str) -> None:
        assignments = {one: one.encode() for one in self.ids[-6:]}
        claim = self.claim(data, group_id)
        self.take(self.table.sync(self.moment, group_id, claim, (None, None), assignments, self.ask(group_id)))

    @rule(data=st.data(), group_id=GROUPS)
    def heartbeat(self, data: st.DataObject, group_id: str) -> None:
        self.take(self.table.heartbeat(self.moment, group_id, self.claim(data, group_id), self.ask(group_id)))

    @rule(data=st.data(), group_id=GROUPS, count=st.integers(1, 3))
    def leave(self, data: st.DataObject, group_id: str, count: int) -> None:
        leaving = [self.claim(data, group_id) for _ in range(count)]
        self.take(self.table.leave(self.moment, group_id, leaving, self.ask(group_id)))

    @rule(data=st.data(), group_id=GROUPS, partition=st.integers(0, 2), retention_ms=st.sampled_from([-1, 1_000]))
    def commit(self, data: st.DataObject, group_id: str, partition: int, retention_ms: int) -> None:
        offsets = [OffsetToCommit("t", partition, next(self.numbers), -1, "")]
        claim = data.draw(st.sampled_from([Claim(""), self.claim(data, group_id)]))
        asked = self.ask(group_id)
        self.take(self.table.offsets.commit(self.moment, group_id, claim, offsets, retention_ms, asked))
        assert asked.answers, "a commit waits for nobody"

    @rule(group_id=GROUPS, partition=st.integers(0, 2))
    def delete_offsets(self, group_id: str, partition: int) -> None:
        at = [TopicPartition("t", partition)]
        self.take(self.table.offsets.delete_offsets(group_id, at, self.ask(group_id)))

    @rule(group_id=GROUPS)
    def delete_group(self, group_id: str) -> None:
        asked = self.ask(group_id)
        self.take(self.table.delete_group(group_id, asked))
        if asked.answers == [None]:
            self.generations.pop(group_id, None)

    @rule(group_id=GROUPS)
    def describe(self, group_id: str) -> None:
        self.table.describe(group_id, self.ask(group_id))
        self.asked.pop()

    @rule(time_ms=st.sampled_from([0, 500, 3_000, 10_000, 30_000]))
    def wait(self, time_ms: int) -> None:
        until_ms = self.now_ms + time_ms
        steps = 0
        while (due_ms := self.table.next_due_ms()) <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            for effects in self.table.expire(self.moment):
                self.take(effects)
            steps += 1
            assert steps < 1_000, "time does not move on"
        self.now_ms = until_ms

    @rule(is_late=st.booleans())
    def sweep(self, is_late: bool) -> None:
        if is_late:
            self.wait(RETENTION_MS)
        for group_id in self.table.group_ids():
            self.take(self.table.sweep(self.moment, group_id))
            if group_id not in self.table.group_ids():
                self.generations.pop(group_id, None)

    @precondition(lambda self: self.records)
    @rule()
    def come_back(self) -> None:
        """Load the log into a new table: settled state is as before, and waiting requests come again."""
        before = self.seen(self.table)
        again = GroupTable[Request](SETTINGS, OFFSET_SETTINGS)
        for record in self.records:
            again.apply(record)
        for effects in again.wake(self.moment):
            self.take(effects)
        after = self.seen(again)
        for group_id in before:
            offsets, state, members = before[group_id]
            assert after.get(group_id, ({}, None, []))[0] == offsets
            if state is GroupState.STABLE:
                assert after[group_id][1:] == (state, members)
        assert all(group_id in before for group_id in after)
        self.asked = []
        self.table = again
        self.generations = {}

    def seen(self, table: GroupTable[Request]) -> dict[str, tuple[dict[Any, Any], GroupState, list[Any]]]:
        found = {}
        for group_id in table.group_ids():
            asked = Request(group_id)
            ((_, described),) = table.describe(group_id, asked).answers
            ((_, offsets),) = table.offsets.fetch_all_offsets(group_id, asked).answers
            members = [(one.member_id, one.instance_id, one.assignment) for one in described.members]  # type: ignore[attr-defined]
            committed = {(one.topic, one.partition): one.committed.offset for one in offsets}  # type: ignore[attr-defined]
            found[group_id] = committed, described.state, members  # type: ignore[attr-defined]
        return found

    @invariant()
    def waits_end(self) -> None:
        """A request waits for others no longer than some deadline."""
        waiting = Counter(asked.group_id for asked in self.table.waiting())
        open_ = Counter(asked.group_id for asked in self.asked if not asked.answers)
        assert waiting == open_
        if waiting:
            assert self.table.next_due_ms() < NEVER_MS


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
