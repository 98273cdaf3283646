"""Offsets in transactions: they count when the marker commits them, and do not overrule later offsets of the log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.errors import CoordinatorNotAvailable, GroupError, UnknownGroup, UnknownMember, UnstableOffset
from coordinator.groups import pending_offsets
from coordinator.groups.api import Claim, CommittedOffset, FetchedOffset, OffsetToCommit, TopicPartition
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.step import GroupSettings
from coordinator.groups.table import GroupTable
from coordinator.shards.table import Effects, Moment
from coordinator.state.log import StateBatch, StateMarker, StateProducer, StateRecord
from coordinator.state.record_fields import UnknownRecord

NO_MEMBER = Claim("")
P, Q = StateProducer(1, 0), StateProducer(2, 0)
DAY_MS = 86_400_000


class Table:
    """A table, and its log."""

    def __init__(self) -> None:
        self.table = self._new()
        self.log: list[StateBatch | StateMarker] = []
        self.wall_ms = 0

    @staticmethod
    def _new() -> GroupTable[list[Any]]:
        return GroupTable(GroupSettings(), OffsetSettings())

    @property
    def moment(self) -> Moment:
        return Moment(self.wall_ms, self.wall_ms, lambda: "id")

    def perform(self, effects: Effects[list[Any]]) -> Any:
        if isinstance(effects.transaction, StateMarker):
            self.log.append(effects.transaction)
        elif effects.records:
            self.log.append(StateBatch(effects.records, effects.transaction))
        for future, answer in effects.answers:
            future.append(answer)

    def commit(self, offset: int, partition: int = 0, group: str = "g") -> None:
        asked = [OffsetToCommit("t", partition, offset, -1, "")]
        self.perform(self.table.offsets.commit(self.moment, group, NO_MEMBER, asked, -1, []))

    def pend(
        self, producer: StateProducer, offset: int, partition: int = 0, group: str = "g", claim: Claim = NO_MEMBER
    ) -> Any:
        asked, future = [OffsetToCommit("t", partition, offset, -1, "")], list[Any]()
        self.perform(self.table.offsets.commit_in_transaction(self.moment, group, claim, producer, asked, future))
        return future[0]

    def end(self, producer: StateProducer, *, is_commit: bool = True) -> Sequence[StateRecord]:
        marker = StateMarker(*producer, 0, is_commit)
        effects = self.table.offsets.end_transaction(marker, [])
        self.perform(effects)
        return effects.records

    def replay(self) -> list[StateRecord]:
        """Forget all but the log; return the records that a cache of it has."""
        self.table = self._new()
        view: dict[bytes, StateRecord] = {}
        for one in self.log:
            counting: Sequence[StateRecord] = ()
            if isinstance(one, StateMarker):
                counting = self.table.apply_marker(one)
            elif one.producer is None:
                for record in one.records:
                    self.table.apply(record)
                counting = one.records
            else:
                for record in one.records:
                    self.table.apply_in_transaction(one.producer, record)
            view.update((record.key, record) for record in counting)
        for effects in self.table.wake(self.moment):
            self.perform(effects)
        return list(view.values())

    def fetch(self, *, require_stable: bool = True, group: str = "g") -> list[int | str | None]:
        """The offsets of partitions 0 and 1."""
        future = list[Any]()
        self.table.offsets.fetch_offsets(group, [("t", [0, 1])], future, require_stable=require_stable)
        effects = self.table.offsets.fetch_offsets(group, [("t", [0, 1])], future, require_stable=require_stable)
        (_, found) = effects.answers[0]
        assert isinstance(found, list)
        return [_shown(one) for one in found]


def _shown(one: CommittedOffset | GroupError | None) -> int | str | None:
    return one.offset if isinstance(one, CommittedOffset) else type(one).__name__ if one is not None else None


def test_an_offset_counts_when_its_transaction_is_committed() -> None:
    table = Table()
    table.commit(1)
    assert table.pend(P, 5) == [None]
    for _ in range(2):
        assert table.fetch() == ["UnstableOffset", None]
        assert table.fetch(require_stable=False) == [1, None]
        table.replay()
    assert [record.key for record in table.end(P)] == [table.log[0].records[0].key]  # type: ignore[union-attr]
    for _ in range(2):
        assert table.fetch() == [5, None]
        table.replay()


def test_an_offset_of_an_aborted_transaction_never_counts() -> None:
    table = Table()
    table.commit(1)
    table.pend(P, 5)
    assert table.end(P, is_commit=False) == []
    for _ in range(2):
        assert table.fetch() == [1, None]
        table.replay()


def test_a_plain_commit_after_a_pending_one_stays() -> None:
    """Named case 10."""
    table = Table()
    table.pend(P, 10)
    table.commit(11)
    assert table.fetch() == ["UnstableOffset", None]
    assert table.fetch(require_stable=False) == [11, None]
    assert table.end(P) == []
    for _ in range(2):
        assert table.fetch() == [11, None]
        table.replay()


def test_of_two_transactions_the_later_offset_wins_whichever_ends_first() -> None:
    for first, second in ((P, Q), (Q, P)):
        table = Table()
        table.pend(P, 10)
        table.pend(Q, 12)
        table.end(first)
        assert table.fetch() == ["UnstableOffset", None]
        table.end(second)
        for _ in range(2):
            assert table.fetch() == [12, None]
            table.replay()


def test_the_last_pending_offset_of_a_transaction_wins_over_a_plain_commit_in_between() -> None:
    table = Table()
    table.pend(P, 10)
    table.commit(11)
    table.pend(P, 12)
    table.end(P)
    assert table.fetch() == [12, None]


def test_all_offsets_of_a_group_tell_which_are_not_stable() -> None:
    table = Table()
    table.commit(1)
    table.commit(2, 1)
    table.pend(P, 5)
    found = table.table.offsets.fetch_all_offsets("g", [], require_stable=True).answers[0][1]
    assert isinstance(found, list)
    assert all(isinstance(one, FetchedOffset) for one in found)
    assert [(one.partition, _shown(one.committed)) for one in found] == [(0, "UnstableOffset"), (1, 2)]


def test_an_offset_deleted_while_another_is_pending_is_not_restored_by_the_marker() -> None:
    table = Table()
    table.commit(1)
    table.pend(P, 5)
    for _ in range(2):
        table.perform(table.table.offsets.delete_offsets("g", [TopicPartition("t", 0)], []))
    assert len(table.log) == 3, "what is not there is removed once"
    assert table.fetch() == [None, None], "nobody waits for what never counts (OffsetMetadataManager.replay)"
    table.end(P)
    for _ in range(2):
        assert table.fetch() == [None, None]
        table.replay()


def test_a_deleted_group_loses_its_pending_offsets() -> None:
    table = Table()
    table.pend(P, 5)
    table.perform(table.table.delete_group("g", []))
    for _ in range(2):
        assert table.table.group_ids() == []
        table.replay()
    table.end(P)
    for _ in range(2):
        assert table.fetch() == [None, None]
        table.replay()


def test_a_deleted_topic_loses_the_pending_offsets_from_before_its_deletion() -> None:
    table = Table()
    table.pend(P, 5)
    table.wall_ms = 1
    table.pend(P, 6, partition=1)
    table.perform(table.table.offsets.forget_topics("g", {"t"}, deleted_ms=0))
    table.end(P)
    for _ in range(2):
        assert table.fetch() == [None, 6]
        table.replay()


def test_a_pending_offset_keeps_its_group_and_the_committed_offset_from_expiring() -> None:
    table = Table()
    table.commit(1)
    table.pend(P, 5)
    table.pend(Q, 5, group="new")
    table.wall_ms = 8 * DAY_MS
    for group in ("g", "new"):
        table.perform(table.table.sweep(table.moment, group))
    assert table.fetch(require_stable=False) == [1, None]
    assert table.table.group_ids() == ["g", "new"]
    table.end(P, is_commit=False)
    table.end(Q, is_commit=False)
    for group in ("g", "new"):
        table.perform(table.table.sweep(table.moment, group))
    assert table.table.group_ids() == []


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (Claim("", None, 3), UnknownGroup),
        (Claim("stranger", None, 3), UnknownGroup),
        (NO_MEMBER, None),
        (Claim("stranger", None, -1), None),
    ],
)
def test_only_claims_without_generation_commit_to_a_new_group(claim: Claim, error: type[GroupError] | None) -> None:
    table = Table()
    answer = table.pend(P, 1, claim=claim)
    assert isinstance(answer, error) if error is not None else answer == [None]


def test_members_are_asked_for_only_if_some_are_named() -> None:
    table = Table()
    table.table._entries.create("g").group.state = pending_group_state()
    assert table.pend(P, 1) == [None]
    assert isinstance(table.pend(P, 1, claim=Claim("stranger", None, 3)), UnknownMember)
    assert isinstance(table.pend(P, 1, claim=Claim("stranger")), UnknownMember)


def pending_group_state() -> Any:
    from coordinator.groups.api import GroupState

    return GroupState.STABLE


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_offsets, "PRODUCERS_MAX", 1)
    table = Table()
    assert table.pend(P, 1) == [None]
    assert isinstance(table.pend(Q, 1), CoordinatorNotAvailable)
    assert table.pend(P, 2) == [None]
    table.end(P)
    assert table.pend(Q, 1) == [None]


def test_a_tombstone_is_in_no_transaction() -> None:
    table = Table()
    table.commit(1)
    (record,) = table.log[0].records  # type: ignore[union-attr]
    with pytest.raises(UnknownRecord):
        table.table.apply_in_transaction(P, record._replace(value=None))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "pend", "delete", "end", "abort", "replay"]), st.integers(0, 1), st.integers(1, 3)
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_against_a_naive_model(steps: list[tuple[str, int, int]]) -> None:
    """The model has the whole log, and finds for each partition the offset that counts last."""
    table, offsets = Table(), itertools.count()
    model: list[tuple[int, int | None, int]] = []  # partition, offset, producer
    ended: dict[int, bool] = {}
    for step, partition, number in steps:
        producer = StateProducer(1000 * number + sum(1 for one in ended if one // 1000 == number), 0)
        if step == "commit":
            model.append((partition, offset := next(offsets), 0))
            table.commit(offset, partition)
        elif step == "pend":
            model.append((partition, offset := next(offsets), producer.producer_id))
            table.pend(producer, offset, partition)
        elif step == "delete":
            model = [one for one in model if one[0] != partition]
            model.append((partition, None, 0))
            table.perform(table.table.offsets.delete_offsets("g", [TopicPartition("t", partition)], []))
        elif step == "replay":
            table.replay()
        elif any(one[2] == producer.producer_id for one in model):
            ended[producer.producer_id] = step == "end"
            table.end(producer, is_commit=step == "end")
        wanted: list[int | str | None] = []
        for at in (0, 1):
            if any(one[0] == at and one[2] and one[2] not in ended for one in model):
                wanted.append(UnstableOffset.__name__)
            else:
                counting = [one[1] for one in model if one[0] == at and (not one[2] or ended[one[2]])]
                wanted.append(counting[-1] if counting else None)
        assert table.fetch() == wanted
