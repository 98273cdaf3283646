"""A table with offsets and with groups as a whole; membership has its scenarios (`test_classic`)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from struct import pack

import pytest

from coordinator.errors import (
    GroupNotEmpty,
    GroupTooLarge,
    IllegalGeneration,
    InvalidSessionTimeout,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    SubscribedToTopic,
    UnknownGroup,
    UnknownMember,
)
from coordinator.groups.api import (
    Claim,
    CommittedOffset,
    FetchedOffset,
    GroupDescription,
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
from coordinator.shards.table import Effects, Moment
from coordinator.state.log import StateRecord

NO_MEMBER = Claim("")
T0 = TopicPartition("t", 0)
MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS


def subscription(*topics: str) -> bytes:
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">i", -1) + pack(">i", 0)


@dataclass
class Script:
    """A table whose answers are found by the names of their futures, and whose records are kept."""

    settings: OffsetSettings = field(default_factory=lambda: OffsetSettings(retention_ms=RETENTION_MS))
    now_ms: int = 0
    kept: list[StateRecord] = field(default_factory=list)
    answers: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = itertools.count(1)
        self.table = self.new_table()

    def new_table(self) -> GroupTable[str]:
        return GroupTable(GroupSettings(initial_rebalance_delay_ms=0), self.settings)

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms, lambda: str(next(self.numbers)))

    def take(self, effects: Effects[str]) -> object:
        """Keep the records; return the answer to the future `x`, if there is one now."""
        self.kept += effects.records
        self.answers = dict(effects.answers)
        return self.answers.get("x")

    def commit(
        self,
        offset: int,
        at: TopicPartition = T0,
        *,
        claim: Claim = NO_MEMBER,
        group: str = "g",
        retention_ms: int = -1,
    ) -> object:
        offsets = [OffsetToCommit(at.topic, at.partition, offset, 3, "m")]
        return self.take(self.table.offsets.commit(self.moment, group, claim, offsets, retention_ms, "x"))

    def offset(self, at: TopicPartition = T0, group: str = "g") -> int | None:
        (found,) = self.fetch((at.topic, [at.partition]), group=group)
        return None if found is None else found.offset

    def fetch(self, *partitions: tuple[str, list[int]], group: str = "g") -> list[CommittedOffset | None]:
        found = self.take(self.table.offsets.fetch_offsets(group, partitions, "x"))
        assert isinstance(found, list)
        return found

    def fetch_all(self, group: str = "g") -> list[FetchedOffset]:
        found = self.take(self.table.offsets.fetch_all_offsets(group, "x"))
        assert isinstance(found, list)
        return found

    def join(
        self,
        kind: str = "consumer",
        metadata: bytes = subscription("t"),
        member_id: str = "",
        session_timeout_ms: int = 10_000,
    ) -> None:
        protocols = (MemberProtocol("range", metadata),)
        join = Join(member_id, None, "c", "/h", kind, protocols, session_timeout_ms, 60_000)
        self.take(self.table.join(self.moment, "g", join, "x"))

    def settled(self, kind: str = "consumer", metadata: bytes = subscription("t")) -> Claim:
        """A member of a stable group."""
        self.join(kind, metadata)
        self.pass_time(0)
        joined = self.answers["x"]
        assert isinstance(joined, Joined)
        claim = Claim(joined.member_id, None, joined.generation_id)
        synced = self.take(self.table.sync(self.moment, "g", claim, (None, None), {claim.member_id: b"assigned"}, "x"))
        assert isinstance(synced, Synced)
        return claim

    def leave(self, claim: Claim) -> object:
        return self.take(self.table.leave(self.moment, "g", [claim], "x"))

    def pass_time(self, time_ms: int) -> None:
        self.now_ms += time_ms
        for effects in self.table.expire(self.moment):
            self.take(effects)

    def sweep(self) -> None:
        for group_id in self.table.group_ids():
            self.take(self.table.sweep(self.moment, group_id))

    def state(self) -> GroupState | None:
        found = self.take(self.table.describe("g", "x"))
        return found.state if isinstance(found, GroupDescription) else None

    def restart(self) -> None:
        self.table = self.new_table()
        for record in self.kept:
            self.table.apply(record)
        for effects in self.table.wake(self.moment):
            self.take(effects)


def each_of(answer: object) -> list[object]:
    assert isinstance(answer, list)
    return answer


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_committed_offset_is_fetched(script: Script) -> None:
    assert script.commit(5) == [None]
    committed = CommittedOffset(5, 3, "m", 0)
    assert script.fetch(("u", [0]), ("t", [1, 0])) == [None, None, committed]
    assert script.fetch_all() == [FetchedOffset("t", 0, committed)]


def test_nothing_is_committed_to_unknown_groups_and_partitions(script: Script) -> None:
    assert script.offset() is None
    script.commit(5)
    assert script.offset(TopicPartition("t", 1)) is None


def test_all_of_a_group_is_fetched(script: Script) -> None:
    script.commit(5)
    script.commit(6, TopicPartition("u", 2))
    assert [(one.topic, one.partition) for one in script.fetch_all()] == [("t", 0), ("u", 2)]
    assert script.fetch_all("unknown") == []


@pytest.mark.parametrize(("short", "long"), [("m" * 4_096, "m" * 4_097), ("🐙" * 2_048, "🐙" * 2_048 + "m")])
def test_long_metadata_is_refused_alone(script: Script, short: str, long: str) -> None:
    offsets = [OffsetToCommit("t", 0, 1, -1, long), OffsetToCommit("t", 1, 2, -1, short)]
    first, second = each_of(script.take(script.table.offsets.commit(script.moment, "g", NO_MEMBER, offsets, -1, "x")))
    assert isinstance(first, OffsetMetadataTooLarge)
    assert second is None
    assert script.offset() is None
    assert script.offset(TopicPartition("t", 1)) == 2


@pytest.mark.parametrize("session_timeout_ms", [-1, 5_999, 1_800_001])
@pytest.mark.parametrize("member_id", ["", "who"])
def test_a_bad_session_timeout_is_refused_before_a_group_is_looked_for(
    script: Script, session_timeout_ms: int, member_id: str
) -> None:
    script.join(member_id=member_id, session_timeout_ms=session_timeout_ms)
    assert isinstance(script.answers["x"], InvalidSessionTimeout)
    assert len(script.table) == 0


def test_a_generation_of_no_group_is_refused(script: Script) -> None:
    assert isinstance(script.commit(5, claim=Claim("m", None, 3)), UnknownGroup)
    assert len(script.table) == 0


def test_members_commit_and_strangers_do_not(script: Script) -> None:
    claim = script.settled()
    assert script.commit(5, claim=claim) == [None]
    assert isinstance(script.commit(6), UnknownMember)
    assert isinstance(script.commit(6, claim=Claim("x", None, 1)), UnknownMember)
    assert isinstance(script.commit(6, claim=Claim(claim.member_id, None, 0)), IllegalGeneration)
    assert isinstance(script.commit(6, claim=Claim(claim.member_id, None, 2)), IllegalGeneration)
    assert script.offset() == 5


def test_a_member_cannot_commit_between_join_and_sync(script: Script) -> None:
    script.join()
    script.pass_time(0)
    joined = script.answers["x"]
    assert isinstance(joined, Joined)
    claim = Claim(joined.member_id, None, joined.generation_id)
    assert isinstance(script.commit(5, claim=claim), RebalanceInProgress)


def test_a_commit_is_a_sign_of_life(script: Script) -> None:
    claim = script.settled()
    for offset in range(5):
        script.pass_time(9_000)
        assert script.commit(offset, claim=claim) == [None]
    script.pass_time(10_000)
    assert isinstance(script.commit(6, claim=claim), UnknownMember)


def test_any_client_commits_to_an_empty_group(script: Script) -> None:
    script.leave(script.settled())
    assert script.commit(5) == [None]


def test_offsets_are_deleted_unless_they_are_read(script: Script) -> None:
    other = TopicPartition("u", 0)
    claim = script.settled()
    script.commit(5, claim=claim)
    script.commit(6, other, claim=claim)
    deleted = script.take(script.table.offsets.delete_offsets("g", [T0, other, TopicPartition("v", 0)], "x"))
    assert isinstance(deleted, list)
    assert isinstance(deleted[0], SubscribedToTopic)
    assert deleted[1:] == [None, None]
    assert (script.offset(), script.offset(other)) == (5, None)
    script.restart()
    assert (script.offset(), script.offset(other)) == (5, None)


def test_offsets_of_a_living_group_of_another_kind_are_not_deleted(script: Script) -> None:
    script.settled(kind="connect", metadata=b"whatever")
    assert isinstance(script.take(script.table.offsets.delete_offsets("g", [T0], "x")), GroupNotEmpty)
    assert isinstance(script.take(script.table.offsets.delete_offsets("unknown", [T0], "x")), UnknownGroup)


def test_a_subscription_that_cannot_be_read_covers_every_topic(script: Script) -> None:
    script.settled(metadata=b"\0\0\0\0\0\7junk")
    (outcome,) = each_of(script.take(script.table.offsets.delete_offsets("g", [T0], "x")))
    assert isinstance(outcome, SubscribedToTopic)


def test_an_empty_group_is_deleted_with_its_offsets(script: Script) -> None:
    claim = script.settled()
    script.commit(5, claim=claim)
    assert isinstance(script.take(script.table.delete_group("g", "x")), GroupNotEmpty)
    script.leave(claim)
    assert script.take(script.table.delete_group("g", "x")) is None
    assert isinstance(script.take(script.table.delete_group("g", "x")), UnknownGroup)
    script.restart()
    assert (script.state(), script.offset(), len(script.table)) == (None, None, 0)


def test_a_simple_group_needs_no_tombstone_of_its_own(script: Script) -> None:
    script.commit(5)
    script.take(script.table.delete_group("g", "x"))
    assert [record.value is None for record in script.kept] == [False, True]


def test_offsets_of_a_simple_group_expire_after_the_commit(script: Script) -> None:
    script.commit(5)
    script.pass_time(RETENTION_MS - 1)
    script.commit(6, TopicPartition("t", 1))
    script.pass_time(1)
    script.sweep()
    assert (script.offset(), script.offset(TopicPartition("t", 1))) == (None, 6)
    script.pass_time(RETENTION_MS)
    script.sweep()
    assert len(script.table) == 0


def test_offsets_of_a_group_expire_after_its_last_member_has_left(script: Script) -> None:
    claim = script.settled()
    script.commit(5, claim=claim)
    for _ in range(2 * RETENTION_MS // 9_000):
        script.pass_time(9_000)
        script.take(script.table.heartbeat(script.moment, "g", claim, "x"))
    script.sweep()
    assert script.offset() == 5
    script.leave(claim)
    script.pass_time(RETENTION_MS - 1)
    script.sweep()
    assert script.offset() == 5
    script.restart()
    script.pass_time(1)
    script.sweep()
    assert script.offset() is None
    script.restart()
    assert len(script.table) == 0


def test_offsets_that_a_living_group_no_longer_reads_expire(script: Script) -> None:
    claim = script.settled()
    script.commit(5, claim=claim)
    script.commit(6, TopicPartition("u", 0), claim=claim)
    for _ in range(RETENTION_MS // 9_000 + 1):
        script.pass_time(9_000)
        script.take(script.table.heartbeat(script.moment, "g", claim, "x"))
    script.sweep()
    assert (script.offset(), script.offset(TopicPartition("u", 0))) == (5, None)


def test_nothing_expires_while_the_group_rebalances(script: Script) -> None:
    claim = script.settled(kind="connect")
    script.commit(5, claim=claim)
    script.now_ms += 2 * RETENTION_MS
    script.sweep()
    assert script.offset() == 5


def test_an_old_client_sets_the_retention_of_its_offsets(script: Script) -> None:
    script.commit(5, retention_ms=MINUTE_MS)
    script.commit(6, TopicPartition("t", 1), retention_ms=10 * RETENTION_MS)
    script.restart()
    script.pass_time(MINUTE_MS)
    script.sweep()
    assert script.offset() is None
    script.pass_time(2 * RETENTION_MS)
    script.sweep()
    assert script.offset(TopicPartition("t", 1)) == 6


def test_no_time_is_too_long_for_an_offset_to_live(script: Script) -> None:
    script.commit(5, retention_ms=2**63 - 1)
    script.restart()
    script.pass_time(2 * RETENTION_MS)
    script.sweep()
    assert script.offset() == 5


def test_a_group_whose_new_member_never_joined_is_swept(script: Script) -> None:
    join = Join("", None, "c", "/h", "consumer", (MemberProtocol("range", b""),), 10_000, 60_000, must_know_its_id=True)
    script.take(script.table.join(script.moment, "g", join, "x"))
    script.sweep()
    assert len(script.table) == 1, "it may still come"
    script.pass_time(10_000)
    script.sweep()
    assert len(script.table) == 0


def test_offsets_of_a_deleted_topic_are_removed(script: Script) -> None:
    script.commit(5)
    script.commit(6, TopicPartition("u", 0))
    script.take(script.table.offsets.forget_topics("g", {"t"}, script.now_ms))
    script.restart()
    assert (script.offset(), script.offset(TopicPartition("u", 0))) == (None, 6)


def test_an_offset_committed_after_the_deletion_of_the_topic_is_kept(script: Script) -> None:
    script.commit(5)
    deleted_ms = script.now_ms
    script.pass_time(1)
    script.commit(6)
    script.take(script.table.offsets.forget_topics("g", {"t"}, deleted_ms))
    assert script.offset() == 6


def test_a_sync_too_large_for_a_record_is_refused_and_the_group_rebalances(script: Script) -> None:
    script.settings = OffsetSettings(record_max_bytes=1_000)
    script.table = script.new_table()
    script.join(metadata=b"m" * 1_000)
    script.pass_time(0)
    joined = script.answers["x"]
    assert isinstance(joined, Joined)
    claim = Claim(joined.member_id, None, joined.generation_id)
    synced = script.take(script.table.sync(script.moment, "g", claim, (None, None), {claim.member_id: b"a"}, "x"))
    assert isinstance(synced, GroupTooLarge)
    assert script.state() is GroupState.PREPARING_REBALANCE
    assert script.kept == []


def test_a_stable_group_is_unchanged_after_a_restart(script: Script) -> None:
    claim = script.settled()
    before = script.take(script.table.describe("g", "x"))
    script.restart()
    assert script.take(script.table.describe("g", "x")) == before
    assert script.take(script.table.heartbeat(script.moment, "g", claim, "x")) is None


def test_a_group_over_its_maximum_size_rebalances_after_a_restart(script: Script) -> None:
    script.settled()
    script.table = GroupTable(GroupSettings(members_max=0), script.settings)
    for record in script.kept:
        script.table.apply(record)
    for effects in script.table.wake(script.moment):
        script.take(effects)
    assert script.state() is GroupState.PREPARING_REBALANCE
