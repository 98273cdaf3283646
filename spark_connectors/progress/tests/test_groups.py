"""Offsets that are committed for a group, and their times: the newest, the lowest, and retries after errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from spark_connectors.progress import groups as tested
from spark_connectors.progress.groups import PAUSE_MAX_S, REFRESH_S, Commit, CommitResult, Groups, Query
from spark_connectors.progress.options import report_options
from spark_connectors.progress.positions import Positions
from spark_connectors.wire import TopicPartition

NOW_S = 1000.0
ORDERS = Query("id-1", "run-1", "orders")
OTHERS = Query("id-2", "run-2", "others")
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def machine(group_id: str = "spark-{query}", **said: Any) -> Groups:
    return Groups(report_options("one", group_id, said.get("queries"), said.get("topics"), {}))


def commit_all(groups: Groups, now_s: float = NOW_S) -> list[Commit]:
    """Commit all waiting offsets successfully."""
    found = []
    while (wanted := groups.take(now_s)) is not None:
        assert groups.done(wanted, CommitResult(wanted.positions)) in (None, "offsets are committed again")
        found.append(wanted)
    return found


# --- offsets


def test_only_the_newest_offsets_count() -> None:
    groups = machine()
    for offset in range(5):
        groups.progressed(ORDERS, {FIRST: offset})
    assert commit_all(groups) == [Commit("spark-orders", {FIRST: 4})]
    assert groups.take(NOW_S) is None


def test_offsets_that_arrive_during_a_commit_are_committed_next() -> None:
    groups = machine()
    groups.progressed(ORDERS, {FIRST: 1})
    wanted = groups.take(NOW_S)
    assert wanted is not None
    groups.progressed(ORDERS, {FIRST: 2})
    groups.ended(ORDERS.run_id)
    groups.done(wanted, CommitResult(wanted.positions))
    assert commit_all(groups) == [Commit("spark-orders", {FIRST: 2})]
    assert list(groups.unsettled()) == []


def test_query_without_a_name_has_its_id_in_the_group_name() -> None:
    groups = machine()
    groups.progressed(Query("id-3", "run-3", None), {FIRST: 1})
    assert [one.group for one in commit_all(groups)] == ["spark-id-3"]


def test_others_are_left_out() -> None:
    groups = machine(queries=["orders"], topics=["t"])
    groups.started(OTHERS)
    groups.progressed(OTHERS, {FIRST: 1})
    groups.progressed(ORDERS, {TopicPartition("u", 0): 1})
    assert commit_all(groups) == []
    groups.progressed(ORDERS, {FIRST: 2, TopicPartition("u", 0): 1})
    assert commit_all(groups) == [Commit("spark-orders", {FIRST: 2})]
    assert list(groups.unsettled()) == ["query orders has not ended"]


def test_queries_that_share_a_group() -> None:
    groups = machine("ours")
    groups.progressed(ORDERS, {FIRST: 10, SECOND: 5})
    groups.progressed(OTHERS, {FIRST: 3})
    assert commit_all(groups) == [Commit("ours", {FIRST: 3, SECOND: 5})]
    groups.ended(OTHERS.run_id)
    groups.progressed(ORDERS, {FIRST: 11, SECOND: 5})
    assert commit_all(groups) == [Commit("ours", {FIRST: 11, SECOND: 5})]


def test_restarted_query_replaces_the_offsets_of_its_earlier_run() -> None:
    """Offsets of the run before may still be waiting, Spark may report its end late, and the new run may go back."""
    groups = machine()
    groups.started(ORDERS)
    groups.progressed(ORDERS, {FIRST: 10})
    again = Query(ORDERS.id, "run-3", ORDERS.name)
    groups.started(again)
    groups.ended(ORDERS.run_id)
    groups.progressed(again, {FIRST: 4})
    assert commit_all(groups) == [Commit("spark-orders", {FIRST: 4})]


def test_the_end_of_a_run_is_not_that_of_the_next() -> None:
    groups = machine()
    again = Query(ORDERS.id, "run-3", ORDERS.name)
    groups.started(ORDERS)
    groups.progressed(again, {FIRST: 4})
    groups.ended(ORDERS.run_id)
    commit_all(groups)
    groups.idled(again.run_id, NOW_S + REFRESH_S)
    assert commit_all(groups, NOW_S + REFRESH_S) == [Commit("spark-orders", {FIRST: 4})]


def test_a_query_that_reads_nothing_of_topics() -> None:
    groups = machine()
    groups.progressed(ORDERS, {})
    groups.idled(ORDERS.run_id, NOW_S + REFRESH_S)
    groups.ended(ORDERS.run_id)
    assert commit_all(groups) == []
    assert list(groups.unsettled()) == []


def test_an_idle_query_is_not_forgotten_by_brokers() -> None:
    groups = machine()
    groups.progressed(ORDERS, {FIRST: 1})
    commit_all(groups)
    groups.idled(ORDERS.run_id, NOW_S + REFRESH_S - 1)
    assert groups.take(NOW_S) is None
    groups.idled(ORDERS.run_id, NOW_S + REFRESH_S)
    assert commit_all(groups, NOW_S + REFRESH_S) == [Commit("spark-orders", {FIRST: 1})]
    groups.idled("unheard", NOW_S + 3 * REFRESH_S)
    groups.ended(ORDERS.run_id)
    groups.idled(ORDERS.run_id, NOW_S + 3 * REFRESH_S)
    assert groups.take(NOW_S) is None


# --- errors


def test_unreachable_cluster_is_logged_once_and_tried_again_with_growing_pauses() -> None:
    groups = machine()
    groups.progressed(ORDERS, {FIRST: 1})
    now_s, lines, pauses = NOW_S, [], []
    for _ in range(7):
        wanted = groups.take(now_s)
        assert wanted is not None
        lines.append(groups.failed(wanted, "nobody is there", now_s))
        assert groups.take(now_s) is None
        pause_s = groups.pause_s(now_s)
        assert pause_s is not None
        pauses.append(pause_s)
        now_s += pause_s
    assert lines == ["offsets are not committed, and will be later: nobody is there", *[None] * 6]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_MAX_S, PAUSE_MAX_S]
    wanted = groups.take(now_s)
    assert wanted == Commit("spark-orders", {FIRST: 1})
    assert groups.done(wanted, CommitResult(wanted.positions)) == "offsets are committed again"
    assert (groups.metrics().failures, groups.metrics().last_error) == (7, "nobody is there")


def test_new_offsets_are_committed_at_once_after_a_failure() -> None:
    groups = machine()
    groups.progressed(ORDERS, {FIRST: 1})
    wanted = groups.take(NOW_S)
    assert wanted is not None
    groups.failed(wanted, "away", NOW_S)
    groups.progressed(ORDERS, {FIRST: 2})
    assert commit_all(groups) == [Commit("spark-orders", {FIRST: 2})]


def test_refusal_is_logged_once_and_tried_again_with_new_offsets() -> None:
    groups = machine()
    lines = []
    for refusal in ("it has members", "it has members", None, "it has members"):
        groups.progressed(ORDERS, {FIRST: 1, SECOND: 1})
        wanted = groups.take(NOW_S)
        assert wanted is not None
        lines.append(groups.done(wanted, CommitResult({FIRST: 1}, refusal)))
        assert groups.take(NOW_S + 1e6) is None
    assert lines == ["it has members", None, None, "it has members"]
    assert groups.refusals() == {"spark-orders": "it has members"}
    metrics = groups.metrics()
    assert (metrics.commits, metrics.failures, metrics.committed) == (4, 3, {"spark-orders": {FIRST: 1}})


def test_failed_group_does_not_delay_other_groups() -> None:
    groups = machine()
    groups.progressed(ORDERS, {FIRST: 1})
    groups.progressed(OTHERS, {FIRST: 1})
    wanted = groups.take(NOW_S)
    assert wanted is not None
    groups.failed(wanted, "its coordinator is away", NOW_S)
    groups.hurry()
    groups.progressed(ORDERS, {FIRST: 2})
    assert [one.group for one in commit_all(groups)] == ["spark-others", "spark-orders"]


def test_number_of_remembered_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of running queries and the current commit stay."""
    monkeypatch.setattr(tested, "GROUPS_MAX", 3)
    groups = machine()
    groups.progressed(ORDERS, {FIRST: 1})
    commit_all(groups)
    wanted = None
    for number in range(10):
        query = Query(f"short-{number}", f"run-of-{number}", None)
        groups.progressed(query, {FIRST: number})
        wanted = wanted or groups.take(NOW_S)
        groups.ended(query.run_id)
    assert wanted is not None
    groups.done(wanted, CommitResult(wanted.positions))
    commit_all(groups)
    assert set(groups.metrics().committed) == {"spark-orders", "spark-short-0", "spark-short-9"}


# --- waiting for the end


def test_unsettled_lists_running_queries_and_uncommitted_groups() -> None:
    groups = machine()
    groups.started(ORDERS)
    groups.started(OTHERS)
    groups.progressed(ORDERS, {FIRST: 1})
    groups.ended(ORDERS.run_id)
    assert list(groups.unsettled()) == ["query others has not ended", "group spark-orders is not told"]
    assert list(groups.unsettled([OTHERS])) == ["query others has not ended"]
    wanted = groups.take(NOW_S)
    assert wanted is not None
    assert list(groups.unsettled([ORDERS])) == ["group spark-orders is not told"]
    groups.failed(wanted, "away", NOW_S)
    assert list(groups.unsettled([ORDERS])) == ["group spark-orders is not told (away)"]
    groups.hurry()
    commit_all(groups)
    assert list(groups.unsettled([ORDERS])) == []


class Histories(RuleBasedStateMachine):
    """Events in any order: at the end, each group has the last offsets of its query, and nothing accumulates."""

    runs: Bundle[Query] = Bundle("runs")

    @initialize()
    def begin(self) -> None:
        self.groups = machine("{query}")
        self.committed: dict[str, Positions] = {}
        self.running: dict[str, Query] = {}
        self.taken: Commit | None = None
        self.now_s = NOW_S
        self.count = 0

    @rule(target=runs, number=st.integers(0, 3))
    def start(self, number: int) -> Query:
        """The end of the run before may not be reported yet."""
        self.count += 1
        query = Query(f"q{number}", f"run-{self.count}", None)
        self.groups.started(query)
        self.running[query.run_id] = query
        return query

    @rule(query=runs, offset=st.integers(0, 100))
    def progress(self, query: Query, offset: int) -> None:
        self.groups.progressed(query, {FIRST: offset})
        self.committed[query.id] = {FIRST: offset}

    @rule(query=consumes(runs))
    def end(self, query: Query) -> None:
        self.groups.ended(query.run_id)
        del self.running[query.run_id]

    @rule(query=runs, after_s=st.sampled_from([1.0, REFRESH_S]))
    def idle(self, query: Query, after_s: float) -> None:
        self.now_s += after_s
        self.groups.idled(query.run_id, self.now_s)

    @rule(outcome=st.sampled_from(["taken", "away"]))
    def attempt(self, outcome: str) -> None:
        if self.taken is None:
            self.taken = self.groups.take(self.now_s)
        elif outcome == "taken":
            self.groups.done(self.taken, CommitResult(self.taken.positions))
            self.taken = None
        else:
            self.groups.failed(self.taken, "away", self.now_s)
            self.taken = None

    @invariant()
    def nothing_piles_up(self) -> None:
        lines = list(self.groups.unsettled())
        assert len(lines) <= len(self.running) + len(self.committed) + 1

    def teardown(self) -> None:
        if self.taken is not None:
            self.groups.failed(self.taken, "away", self.now_s)
        self.groups.hurry()
        commit_all(self.groups, self.now_s)
        assert self.groups.metrics().committed == self.committed
        assert len(list(self.groups.unsettled())) == len(self.running)


Histories.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase
