"""Hand-made histories of groups, sound ones and one for each anomaly: a checker must be able to find each anomaly."""

from __future__ import annotations

import pytest

from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.group_checker import check_groups, stale_offsets
from kafkawire.tests.simulation.group_history import (
    NO_ANSWER,
    Call,
    GroupHistory,
    Kind,
    LastWords,
    LiveMember,
    OffsetRead,
    Removal,
)
from kafkawire.tests.simulation.history import UNANSWERED
from kafkawire.tests.simulation.plan import Target

ONE, TWO = Target("orders", 0), Target("orders", 1)
GROUP = "group"


class Story(GroupHistory):
    """A history of one group, event by event: an event ends before the next one begins, a second later."""

    def __init__(self) -> None:
        super().__init__(session_timeouts_ms={GROUP: 3000}, rebalance_timeouts_ms={GROUP: 5000})
        self.now = 0

    def tick(self) -> int:
        self.now += 1
        return self.now

    def call(
        self,
        kind: Kind,
        member_id: str,
        generation: int = 1,
        *,
        instance: str | None = None,
        code: int = 0,
        era: int = 1,
    ) -> Call:
        at = self.tick()
        call = Call(
            kind=kind,
            group=GROUP,
            member_id=member_id,
            instance_id=instance,
            generation=generation,
            invoked=at,
            invoked_ms=at * 1000,
            code=code,
            era=era,
        )
        if code != NO_ANSWER:
            call.completed = self.tick()
            call.completed_ms = at * 1000
        self.calls.append(call)
        return call

    def join(self, member_id: str, generation: int = 1, *, leads: tuple[str, ...] = (), era: int = 1) -> Call:
        call = self.call(Kind.JOIN, member_id, generation, era=era)
        call.is_leader, call.members = bool(leads), leads
        return call

    def sync(self, member_id: str, generation: int = 1, *assigned: Target, instance: str | None = None) -> Call:
        call = self.call(Kind.SYNC, member_id, generation, instance=instance)
        call.assigned = assigned
        return call

    def commit(
        self,
        number: int,
        *,
        who: str = "",
        generation: int = -1,
        instance: str | None = None,
        code: int = 0,
        retention_ms: int | None = None,
    ) -> Call:
        call = self.call(Kind.COMMIT, who, generation, instance=instance, code=code)
        call.offsets, call.retention_ms = {ONE: number}, retention_ms
        return call

    def read(self, number: int | None, *, is_stable: bool = True) -> OffsetRead:
        at = self.tick()
        self.reads.append(OffsetRead(GROUP, at, self.tick(), at * 1000, {ONE: number}, is_stable))
        return self.reads[-1]

    def remove(self, *, is_done: bool = True) -> Removal:
        removal = Removal(GROUP, (ONE,), self.tick())
        if is_done:
            removal.completed, removal.is_done = self.tick(), True
        self.removals.append(removal)
        return removal

    def kinds(self, *, may_be_stale: bool = False) -> list[str]:
        return sorted({anomaly.kind for anomaly in check_groups(self, may_be_stale=may_be_stale)})


def test_a_sound_history_has_no_anomaly() -> None:
    story = Story()
    story.commit(1)
    story.read(1)
    story.join("a", leads=("a", "b"))
    story.join("b")
    story.sync("a", 1, ONE)
    story.sync("b", 1, TWO)
    story.call(Kind.HEARTBEAT, "a")
    story.commit(2, who="a", generation=1)
    story.commit(3, who="a", generation=1, code=NO_ANSWER)
    story.read(3)
    story.join("a", 2, leads=("a",))
    story.sync("a", 2, ONE, TWO)
    story.commit(4, who="b", generation=1, code=ErrorCode.ILLEGAL_GENERATION)
    story.commit(5, code=NO_ANSWER)
    story.remove()
    story.read(None)
    story.commit(6, retention_ms=500)
    story.read(6)
    story.read(None)
    assert story.kinds() == []


def test_a_partition_with_two_owners() -> None:
    story = Story()
    story.sync("a", 1, ONE)
    story.sync("b", 1, ONE, TWO)
    assert story.kinds() == ["owned twice"]


def test_static_member_keeps_its_partitions_under_a_new_member_id() -> None:
    story = Story()
    story.sync("a", 1, ONE, instance="i")
    story.sync("b", 1, ONE, instance="i")
    assert story.kinds() == []


def test_an_assignment_that_changes_within_a_generation() -> None:
    story = Story()
    story.sync("a", 1, ONE)
    story.sync("a", 1, TWO)
    assert story.kinds() == ["assigned anew"]


def test_two_leaders() -> None:
    story = Story()
    story.join("a", leads=("a", "b"))
    story.join("b", leads=("a", "b"))
    assert story.kinds() == ["two leaders"]


def test_generation_that_was_not_assigned_may_be_used_again_after_a_coordinator_is_lost() -> None:
    story = Story()
    story.join("a", leads=("a", "b"))
    story.join("c", leads=("c",), era=2)
    assert story.kinds() == []


@pytest.mark.parametrize("era", [1, 2])
def test_a_generation_for_another_membership(era: int) -> None:
    story = Story()
    story.join("a", leads=("a", "b"))
    story.sync("a", 1, ONE)
    story.join("a", leads=("a", "c"), era=era)
    assert story.kinds() == ["generation reused"]


def test_a_generation_that_goes_back() -> None:
    story = Story()
    story.sync("a", 2, ONE)
    story.join("b", 1, era=2)
    assert story.kinds() == ["generation went back"]


@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.HEARTBEAT])
def test_a_generation_that_is_over(kind: Kind) -> None:
    story = Story()
    story.sync("a", 1, ONE)
    story.join("b", 2)
    story.call(kind, "a", 1, era=2)  # the leader had not assigned: forgotten with the coordinator
    assert story.kinds() == []
    story.call(kind, "a", 1)
    assert story.kinds() == ["stale generation"]


def test_a_static_member_that_was_replaced() -> None:
    story = Story()
    story.sync("a", 1, ONE, instance="i")
    story.sync("b", 1, ONE, instance="i")
    story.commit(1, who="b", generation=1, instance="i")
    assert story.kinds() == []
    story.commit(2, who="a", generation=1, instance="i")
    assert story.kinds() == ["fenced member"]


def test_a_member_that_left() -> None:
    story = Story()
    story.sync("a", 1, ONE)
    story.call(Kind.LEAVE, "a")
    story.call(Kind.HEARTBEAT, "a")
    assert story.kinds() == ["left member"]


def test_a_member_that_was_not_known() -> None:
    story = Story()
    story.call(Kind.HEARTBEAT, "a", code=ErrorCode.UNKNOWN_MEMBER_ID)
    story.commit(1, who="a", generation=1)
    assert story.kinds() == ["unknown member"]


def test_a_coordinator_that_loads_says_yes_to_heartbeats() -> None:
    story = Story()
    story.sync("a", 1, ONE)
    story.sync("b", 2, ONE)
    story.call(Kind.HEARTBEAT, "a", era=2)
    assert story.kinds() == []
    story.call(Kind.COMMIT, "b", 2, era=2)
    story.call(Kind.HEARTBEAT, "a", era=2)
    assert story.kinds() == ["stale generation"]


@pytest.mark.parametrize("seconds", [1, 4])
def test_member_that_is_thrown_out_soon_after_a_heartbeat_is_an_anomaly(seconds: int) -> None:
    story = Story()
    story.sync("a", 1, ONE)
    beat = story.call(Kind.HEARTBEAT, "a")
    told = story.call(Kind.HEARTBEAT, "a", code=ErrorCode.UNKNOWN_MEMBER_ID)
    told.completed_ms = beat.invoked_ms + seconds * 1000
    assert story.kinds() == (["thrown out"] if seconds < 3 else [])


@pytest.mark.parametrize("has_left", ["before", "afterwards"])
def test_unknown_member_id_is_sound_only_after_the_member_has_left(has_left: str) -> None:
    story = Story()
    story.sync("a", 1, ONE)
    story.call(Kind.HEARTBEAT, "a")
    if has_left == "before":
        story.call(Kind.LEAVE, "a", code=NO_ANSWER)
    story.call(Kind.COMMIT, "a", 1, code=ErrorCode.UNKNOWN_MEMBER_ID)
    if has_left == "afterwards":
        story.call(Kind.LEAVE, "a", code=NO_ANSWER)
    assert story.kinds() == ([] if has_left == "before" else ["thrown out"])


def test_a_commit_that_is_lost() -> None:
    story = Story()
    story.commit(1)
    story.read(None)
    assert story.kinds() == ["lost commit"]


def test_a_commit_that_was_seen_and_is_lost() -> None:
    story = Story()
    story.commit(1, code=NO_ANSWER)
    story.read(1)
    story.read(None)
    assert story.kinds() == ["lost commit"]


def test_a_deletion_before_the_commit_is_no_excuse() -> None:
    story = Story()
    story.remove()
    story.commit(1)
    story.read(None)
    assert story.kinds() == ["lost commit"]


def test_offset_that_expires_before_its_retention_is_a_lost_commit() -> None:
    story = Story()
    story.commit(1, retention_ms=60_000)
    story.read(None)
    assert story.kinds() == ["lost commit"]


@pytest.mark.parametrize("is_acked", [True, False])
def test_an_offset_that_goes_back(is_acked: bool) -> None:
    story = Story()
    story.commit(1)
    story.commit(2, code=0 if is_acked else NO_ANSWER)
    if not is_acked:
        story.read(2)
    story.read(1)
    assert story.kinds() == ["offset went back"]


def test_two_commits_at_a_time_may_come_in_any_order_but_in_one() -> None:
    story = Story()
    first, second = story.commit(1), story.commit(2)
    second.invoked = first.invoked
    story.read(1)
    assert story.kinds() == []
    story.read(2)
    story.read(1)
    assert story.kinds() == ["offset went back"]


def test_offset_that_comes_back_after_its_deletion_is_found() -> None:
    story = Story()
    story.commit(1)
    story.remove()
    story.read(1)
    assert story.kinds() == ["offset went back"]


def test_an_offset_that_was_gone_for_a_while() -> None:
    story = Story()
    story.remove(is_done=False)
    story.commit(1)
    story.read(1)
    story.read(None)
    story.read(1)
    assert story.kinds() == ["offset went back"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_that_was_refused_or_never_made(number: int) -> None:
    story = Story()
    story.commit(1, who="a", generation=1, code=ErrorCode.ILLEGAL_GENERATION)
    story.read(number)
    assert story.kinds() == ["phantom commit"]


def ending(state: str, members: dict[str, tuple[Target, ...]], listed: str) -> Story:
    """The broker's final description of a group in which `a` has both partitions."""
    story = Story()
    story.commit(1)
    story.read(1)
    living = [LiveMember("a", (ONE, TWO))]
    story.last_words = LastWords({GROUP: (state, members)}, {GROUP: listed}, {GROUP: living})
    return story


def test_last_words() -> None:
    assert ending("Stable", {"a": (ONE, TWO)}, "Stable").kinds() == []
    assert ending("Stable", {"a": (ONE,), "b": (TWO,)}, "Stable").kinds() == ["wrong members"]
    assert ending("Stable", {"a": (ONE,)}, "Stable").kinds() == ["wrong assignment"]
    assert ending("PreparingRebalance", {"a": (ONE, TWO)}, "PreparingRebalance").kinds() == ["wrong state"]
    assert ending("Stable", {"a": (ONE, TWO)}, "Empty").kinds() == ["wrong list"]


def test_unanswered_call_never_completes() -> None:
    assert Story().call(Kind.COMMIT, "a", code=NO_ANSWER).completed == UNANSWERED


# Offsets of deposed coordinators


def stale_story() -> Story:
    story = Story()
    story.commit(1)
    story.commit(2)
    return story


@pytest.mark.parametrize(("told", "age_ms"), [(1, 2_000), (None, 4_000)])
def test_old_offset_is_counted_apart_if_it_was_read_without_require_stable(told: int | None, age_ms: int) -> None:
    story = stale_story()
    story.read(told, is_stable=False)
    assert story.kinds() != []
    assert story.kinds(may_be_stale=True) == []
    assert [one.age_ms for one in stale_offsets(story)] == [age_ms]


def test_old_offset_is_an_anomaly_if_it_was_read_with_require_stable() -> None:
    story = stale_story()
    story.read(2)
    story.read(1)
    assert story.kinds(may_be_stale=True) == ["offset went back"]
    assert stale_offsets(story) == []


def test_newest_offset_and_offset_of_an_unanswered_commit_are_not_stale() -> None:
    story = stale_story()
    story.read(2, is_stable=False)
    story.commit(3, code=NO_ANSWER)
    story.read(3, is_stable=False)
    story.read(2, is_stable=False)
    assert stale_offsets(story) == []
    assert story.kinds(may_be_stale=True) == []


def test_missing_offset_after_an_unanswered_deletion_is_not_stale() -> None:
    story = stale_story()
    story.remove(is_done=False)
    story.read(None, is_stable=False)
    assert stale_offsets(story) == []


def test_offset_without_a_commit_is_a_phantom_commit_even_if_read_without_require_stable() -> None:
    story = stale_story()
    story.read(7, is_stable=False)
    assert story.kinds(may_be_stale=True) == ["phantom commit"]
    assert stale_offsets(story) == []
