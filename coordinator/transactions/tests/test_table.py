"""The transactional ids of one partition: effects of commands, waiting requests, timeouts, and replays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator import errors
from coordinator.shards.table import NEVER_MS, Effects, Moment
from coordinator.state.log import StateMarker, StateProducer, StateRecord
from coordinator.state.record_fields import UnknownRecord
from coordinator.transactions.api import (
    FIRST_PROTOCOL,
    SECOND_PROTOCOL,
    Partition,
    ProducerIdentity,
    TransactionDescription,
    TransactionState,
)
from coordinator.transactions.entry import PARKED_MAX, PARKED_MS, DueMarkers, TransactionDeps, TransactionSettings
from coordinator.transactions.table import TransactionTable
from coordinator.transactions.transitions import EPOCH_EXHAUSTED, NeedsProducerId

ReplyFuture = list[Any]
ORDERS, LATER = Partition("orders", 0), Partition("later", 1)
TIMEOUT_MS = 60_000
CHECK_MS = 10_000
WALL_MS = 1_700_000_000_000
FIRST = ProducerIdentity(100, 0)


class Bench:
    """A table, its log, and the markers that it has sent out."""

    def __init__(self, protocol: int = FIRST_PROTOCOL, **limits: int) -> None:
        """`protocol`: of the cluster, and of the producers here."""
        self.settings = TransactionSettings(**limits)
        self.protocol = protocol
        self.now_ms = 0
        self.log: list[StateRecord] = []
        self.sent: list[DueMarkers] = []
        self.has_ids = True
        self.ids = iter(range(100, 10_000))
        self.table = self.new_table()

    def new_table(self) -> TransactionTable[ReplyFuture]:
        world = TransactionDeps(new_id=self._next_id, protocol=lambda: self.protocol)
        return TransactionTable(self.settings, world)

    def _next_id(self) -> int:
        if not self.has_ids:
            raise NeedsProducerId
        return next(self.ids)

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms, lambda: "")

    def perform(self, effects: Effects[ReplyFuture]) -> None:
        assert effects.transaction is None
        self.log += effects.records
        for future, answer in effects.answers:
            future.append(answer)
        for one in effects.outbox:
            assert isinstance(one, DueMarkers)
            self.sent.append(one)

    def perform_all(self, effects: Iterable[Effects[ReplyFuture]]) -> None:
        for one in effects:
            self.perform(one)

    def initialise(
        self, name: str = "t", timeout_ms: int = TIMEOUT_MS, expected: ProducerIdentity | None = None
    ) -> ReplyFuture:
        future = ReplyFuture()
        self.perform(self.table.initialise(self.moment, name, timeout_ms, expected, future))
        return future

    def ids_come(self) -> None:
        self.has_ids = True
        for name in self.table.without_id():
            self.perform(self.table.retry_parked(self.moment, name))

    def add(self, *partitions: Partition, identity: ProducerIdentity = FIRST, name: str = "t") -> ReplyFuture:
        future = ReplyFuture()
        self.perform(self.table.add_partitions(self.moment, name, identity, partitions, self.protocol, future))
        return future

    def end(self, *, is_commit: bool = True, identity: ProducerIdentity = FIRST, name: str = "t") -> ReplyFuture:
        future = ReplyFuture()
        self.perform(self.table.end(self.moment, name, identity, future, is_commit=is_commit, protocol=self.protocol))
        return future

    def complete(self, due: DueMarkers | None = None) -> None:
        one = due or self.sent[-1]
        self.perform(self.table.complete(self.moment, one.transactional_id, one.identity, ReplyFuture()))

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass as a shard does."""
        until_ms = self.now_ms + duration_ms
        while self.table.next_due_ms() <= until_ms:
            self.now_ms = max(self.now_ms, self.table.next_due_ms())
            self.perform_all(self.table.expire(self.moment))
        self.now_ms = until_ms

    def restart(self, down_ms: int = 0) -> None:
        self.table = self.new_table()
        self.now_ms += down_ms
        self.sent = []
        for record in self.log:
            self.table.apply(record)
        self.perform_all(self.table.wake(self.moment))

    def state(self, name: str = "t") -> TransactionState | None:
        return {one.transactional_id: one.state for one in self.table.listings()}.get(name)


def committed(bench: Bench) -> None:
    """Commit a transaction, from InitProducerId to its markers."""
    bench.initialise()
    bench.add(ORDERS)
    bench.end()
    bench.complete()


def is_error(future: ReplyFuture, kind: type[Exception]) -> bool:
    return len(future) == 1 and isinstance(future[0], kind)


def test_a_transaction_from_begin_to_end() -> None:
    bench = Bench()
    assert bench.initialise() == [FIRST]
    assert bench.add(ORDERS) == [None]
    assert bench.add(LATER) == [None]
    assert bench.sent == []
    assert bench.end() == [FIRST]
    assert bench.sent == [DueMarkers("t", FIRST, True, frozenset({ORDERS, LATER}))]
    assert bench.state() is TransactionState.PREPARE_COMMIT
    bench.complete()
    assert bench.state() is TransactionState.COMPLETE_COMMIT
    assert len(bench.log) == 5, "one record for each transition"
    counters = bench.table.counters
    assert (counters.started, counters.committed, counters.aborted) == (1, 1, 0)
    assert bench.end() == [FIRST], "once more is the same again"
    assert len(bench.log) == 5


def test_a_partition_that_the_transaction_has_already_is_not_written_again() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    assert bench.add(ORDERS) == [None]
    assert len(bench.log) == 2


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused_before_anything_is_known(timeout_ms: int) -> None:
    bench = Bench()
    assert is_error(bench.initialise(timeout_ms=timeout_ms), errors.InvalidTransactionTimeout)
    assert bench.state() is None
    assert bench.initialise(timeout_ms=900_000) == [FIRST]


def test_requests_for_an_unknown_transactional_id_are_refused() -> None:
    bench = Bench()
    for future in (bench.add(ORDERS), bench.end()):
        assert is_error(future, errors.InvalidProducerIdMapping)
    assert bench.state() is None


def test_a_second_producer_fences_the_first() -> None:
    bench = Bench()
    bench.initialise()
    assert bench.initialise() == [ProducerIdentity(100, 1)]
    for future in (bench.add(ORDERS), bench.end()):
        assert is_error(future, errors.ProducerFenced)


def test_a_request_that_arrives_before_the_markers_are_written_waits_for_them() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    bench.end()
    adding = bench.add(LATER)
    assert adding == []
    assert list(bench.table.waiting()) == [adding]
    bench.pass_time(PARKED_MS - 1)
    bench.complete()
    assert adding == [None]
    assert bench.state() is TransactionState.ONGOING
    bench.pass_time(PARKED_MS)
    assert adding == [None], "answered once"


def test_no_request_waits_longer_than_a_tenth_of_a_second() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    bench.end()
    asked = [bench.add(LATER), bench.end(), bench.initialise()]
    assert asked == [[], [], []]
    bench.pass_time(PARKED_MS)
    assert all(is_error(one, errors.ConcurrentTransactions) for one in asked)
    assert list(bench.table.waiting()) == []
    assert bench.table.next_due_ms() == NEVER_MS or bench.table.next_due_ms() > bench.now_ms


def test_only_so_many_wait() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    bench.end()
    asked = [bench.add(LATER) for _ in range(PARKED_MAX + 1)]
    assert is_error(asked[-1], errors.ConcurrentTransactions)
    assert asked[:-1] == [[]] * PARKED_MAX


def test_a_new_producer_has_the_open_transaction_aborted_first() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    second = bench.initialise()
    assert second == []
    assert bench.sent == [DueMarkers("t", ProducerIdentity(100, 1), False, frozenset({ORDERS}))]
    assert is_error(bench.end(), errors.ProducerFenced)
    bench.complete()
    assert second == [ProducerIdentity(100, 2)]
    assert bench.state() is TransactionState.EMPTY


def test_a_producer_that_initialises_in_its_open_transaction_gets_the_next_epoch() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    back = bench.initialise(expected=FIRST)
    bench.complete()
    assert back == [ProducerIdentity(FIRST.producer_id, FIRST.epoch + 1)]


def test_a_producer_that_was_fenced_by_another_does_not_come_back() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    another = bench.initialise()
    bench.complete()
    assert another == [ProducerIdentity(FIRST.producer_id, FIRST.epoch + 2)]
    assert is_error(bench.initialise(expected=FIRST), errors.ProducerFenced)


def test_markers_that_are_not_of_the_last_end_complete_nothing() -> None:
    bench = Bench()
    committed(bench)
    bench.add(ORDERS)
    bench.complete(bench.sent[0])
    assert bench.state() is TransactionState.ONGOING
    bench.complete(DueMarkers("stranger", FIRST, True, ()))


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    bench = Bench(timeout_check_interval_ms=CHECK_MS)
    bench.initialise(timeout_ms=25_000)
    bench.add(ORDERS)
    bench.pass_time(29_999)
    assert bench.sent == []
    bench.pass_time(1)
    assert bench.sent == [DueMarkers("t", ProducerIdentity(100, 1), False, frozenset({ORDERS}))]
    assert bench.table.counters.timed_out == 1
    assert is_error(bench.end(), errors.ProducerFenced)
    assert bench.table.next_due_ms() == NEVER_MS, "nothing is open"
    added = bench.add(LATER)
    assert added == [], "nobody is told who he is before the markers are written"
    bench.complete()
    assert is_error(added, errors.ProducerFenced)


def test_time_runs_on_while_the_broker_is_down() -> None:
    bench = Bench()
    bench.initialise(timeout_ms=25_000)
    bench.add(ORDERS)
    bench.pass_time(5_000)
    bench.restart(down_ms=3_600_000)
    assert bench.sent == []
    bench.pass_time(CHECK_MS)
    assert [one.is_commit for one in bench.sent] == [False]


def test_a_wall_clock_that_is_set_back_gives_no_longer_time_than_was_asked_for() -> None:
    bench = Bench()
    bench.initialise(timeout_ms=25_000)
    bench.add(ORDERS)
    bench.pass_time(24_000)
    bench.restart()
    bench.pass_time(CHECK_MS)
    assert len(bench.sent) == 1


@pytest.mark.parametrize("is_commit", [False, True])
def test_the_markers_of_a_decision_are_sent_again_after_a_restart(*, is_commit: bool) -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS, LATER)
    bench.end(is_commit=is_commit)
    bench.restart()
    assert bench.sent == [DueMarkers("t", FIRST, is_commit, frozenset({ORDERS, LATER}))]
    bench.complete()
    assert bench.end(is_commit=is_commit) == [FIRST]


def test_an_unused_transactional_id_expires() -> None:
    bench = Bench(expiration_ms=1_000)
    committed(bench)
    bench.initialise("busy")
    bench.add(ORDERS, name="busy", identity=ProducerIdentity(101, 0))
    for duration_ms, left in ((999, ["t", "busy"]), (1, ["busy"])):
        bench.now_ms += duration_ms
        for name in bench.table.transactional_ids():
            bench.perform(bench.table.sweep(bench.moment, name))
        assert bench.table.transactional_ids() == left
    assert bench.table.counters.expired_ids == 1
    bench.perform(bench.table.sweep(bench.moment, "t"))
    bench.restart()
    assert bench.table.transactional_ids() == ["busy"]
    assert is_error(bench.end(), errors.InvalidProducerIdMapping)


def test_a_transaction_has_a_size() -> None:
    bench = Bench(record_max_bytes=200)
    bench.initialise()
    assert bench.add(*(Partition("orders", number) for number in range(10))) == [None]
    assert is_error(bench.add(*(Partition("more", number) for number in range(50))), errors.TransactionTooLarge)
    assert bench.end() == [FIRST], "what it had it has"
    assert len(bench.sent[0].partitions) == 10


def test_partitions_are_verified() -> None:
    bench = Bench()

    def verify(identity: ProducerIdentity) -> Any:
        effects = bench.table.verify_partitions("t", identity, [ORDERS, LATER], ReplyFuture())
        return effects.answers[0][1]

    assert isinstance(verify(FIRST), errors.InvalidProducerIdMapping)
    bench.initialise()
    assert verify(FIRST) == [False, False]
    bench.add(ORDERS)
    assert verify(FIRST) == [True, False]
    assert isinstance(verify(ProducerIdentity(100, 1)), errors.ProducerFenced)
    assert isinstance(verify(ProducerIdentity(101, 0)), errors.InvalidProducerIdMapping)
    bench.end()
    assert isinstance(verify(FIRST), errors.ConcurrentTransactions)


def test_a_transactional_id_is_described_listed_and_shown_in_figures() -> None:
    bench = Bench()
    bench.initialise()
    bench.add(ORDERS)
    [(_, description)] = bench.table.describe("t", ReplyFuture()).answers
    assert description == ("t", FIRST, TransactionState.ONGOING, TIMEOUT_MS, WALL_MS, frozenset({ORDERS}))
    [(_, refusal)] = bench.table.describe("stranger", ReplyFuture()).answers
    assert isinstance(refusal, errors.UnknownTransactionalId)
    assert bench.table.listings() == [("t", 100, TransactionState.ONGOING, WALL_MS)]
    assert list(bench.table.figures()) == [("t", TransactionState.ONGOING, WALL_MS)]
    bench.end()
    bench.complete()
    assert list(bench.table.figures()) == [("t", TransactionState.COMPLETE_COMMIT, -1)]


def test_states_are_named_as_kafka_does() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_nothing_here_is_written_in_a_transaction() -> None:
    bench = Bench()
    with pytest.raises(UnknownRecord):
        bench.table.apply_in_transaction(StateProducer(1, 0), StateRecord(b"", b""))
    assert not bench.table.apply_marker(StateMarker(1, 0, 0, is_commit=True))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["initialise", "add", "commit", "abort", "complete", "time", "restart"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 40_000),
    ),
    max_size=40,
)


class Machine(Bench):
    """Commands of any kind, by the present producer."""

    def __init__(self, protocol: int) -> None:
        super().__init__(protocol)
        self.asked: list[ReplyFuture] = []
        self.initialised: list[ReplyFuture] = []

    def identity(self, name: str) -> ProducerIdentity:
        [(_, description)] = self.table.describe(name, ReplyFuture()).answers
        return description.identity if isinstance(description, TransactionDescription) else ProducerIdentity(0, 0)

    def step(self, step: str, name: str, number: int) -> None:
        if step == "initialise":
            self.initialised.append(self.initialise(name))
        elif step == "add":
            self.asked.append(self.add(Partition("t", number % 3), identity=self.identity(name), name=name))
        elif step in {"commit", "abort"}:
            self.asked.append(self.end(is_commit=step == "commit", identity=self.identity(name), name=name))
        elif step == "complete" and self.sent:
            self.complete(self.sent[number % len(self.sent)])
        elif step == "time":
            self.pass_time(number)
        elif step == "restart":
            for waiting in self.table.waiting():
                waiting.append(errors.NotCoordinator())
            self.restart()


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from([FIRST_PROTOCOL, SECOND_PROTOCOL]))
def test_a_replay_gives_the_same_table_after_any_requests(steps: list[tuple[str, str, int]], protocol: int) -> None:
    """Each request is answered once, too, and no identity is given out twice."""
    machine = Machine(protocol)
    for step in steps:
        machine.step(*step)
        twin = machine.new_table()
        for record in machine.log:
            twin.apply(record)
        assert twin.listings() == machine.table.listings()
    machine.pass_time(PARKED_MS)
    assert all(len(future) == 1 for future in machine.asked + machine.initialised)
    given_out = [answer for [answer] in machine.initialised if isinstance(answer, ProducerIdentity)]
    assert len(set(given_out)) == len(given_out)


# The second protocol (KIP-890)


def test_the_reply_to_an_end_is_the_next_identity_of_the_producer() -> None:
    bench = Bench(SECOND_PROTOCOL)
    bench.initialise()
    bench.add(ORDERS)
    after = ProducerIdentity(100, 1)
    assert bench.end() == [after]
    assert bench.sent == [DueMarkers("t", after, True, frozenset({ORDERS}), SECOND_PROTOCOL)]
    bench.complete()
    assert bench.end() == [after], "it did not hear the answer"
    assert is_error(bench.add(ORDERS), errors.ProducerFenced)
    assert bench.add(ORDERS, identity=after) == [None]


def test_an_empty_abort_after_a_commit_waits_for_the_markers_of_the_commit() -> None:
    """Named case 9: the request is of the present producer, although the table does not say so yet."""
    bench = Bench(SECOND_PROTOCOL)
    bench.initialise()
    bench.add(ORDERS)
    [after] = bench.end()
    aborting = bench.end(is_commit=False, identity=after)
    assert aborting == []
    bench.complete()
    assert aborting == [ProducerIdentity(100, 2)]


def test_both_protocols_one_after_the_other() -> None:
    bench = Bench(SECOND_PROTOCOL)
    bench.initialise()
    bench.add(ORDERS)
    [after] = bench.end()
    bench.complete()
    bench.protocol = FIRST_PROTOCOL
    assert bench.add(ORDERS, identity=after) == [None]
    assert bench.end(identity=after) == [after]
    assert bench.sent[-1] == DueMarkers("t", after, True, frozenset({ORDERS}), FIRST_PROTOCOL)


@pytest.mark.parametrize("protocol", [FIRST_PROTOCOL, SECOND_PROTOCOL])
def test_the_protocol_of_a_decision_is_known_after_a_restart(protocol: int) -> None:
    bench = Bench(protocol)
    bench.initialise()
    bench.add(ORDERS)
    bench.end()
    before = bench.sent
    bench.protocol = FIRST_PROTOCOL + SECOND_PROTOCOL - protocol  # a decided transaction keeps its protocol
    bench.restart()
    assert bench.sent == before


def exhausted(bench: Bench, *, is_open: bool) -> ProducerIdentity:
    """A producer in the last epoch that a producer can have."""
    identity = ProducerIdentity(100, EPOCH_EXHAUSTED)
    bench.initialise()
    entry = bench.table._entries["t"]
    assert entry.known is not None
    entry.known = replace(entry.known, epoch=EPOCH_EXHAUSTED)
    if is_open:
        bench.add(ORDERS, identity=identity)
    return identity


def test_a_request_that_needs_a_producer_id_waits_for_the_id() -> None:
    bench = Bench(SECOND_PROTOCOL)
    bench.has_ids = False
    initialised = bench.initialise()
    assert (initialised, bench.log, bench.state()) == ([], [], None)
    bench.ids_come()
    assert initialised == [FIRST]
    identity = exhausted(bench, is_open=True)
    bench.has_ids = False
    ending = bench.end(identity=identity)
    assert ending == []
    bench.ids_come()
    assert ending == [ProducerIdentity(101, 0)]
    assert bench.sent[-1].identity == (100, EPOCH_EXHAUSTED + 1)


def test_a_request_that_waits_for_a_producer_id_keeps_its_transactional_id_from_expiring() -> None:
    """Else the request would never be answered."""
    bench = Bench(SECOND_PROTOCOL, expiration_ms=1_000)
    identity = exhausted(bench, is_open=False)
    bench.now_ms = 2_000
    bench.has_ids = False
    initialised = bench.initialise(expected=identity)
    bench.perform(bench.table.sweep(bench.moment, "t"))
    bench.ids_come()
    assert initialised == [ProducerIdentity(101, 0)]


def test_an_abort_of_nothing_is_not_counted() -> None:
    bench = Bench(SECOND_PROTOCOL)
    bench.initialise()
    bench.end(is_commit=False)
    bench.complete()
    assert (bench.table.counters.started, bench.table.counters.aborted) == (0, 0)


def test_a_request_is_refused_with_loading_if_no_producer_id_comes() -> None:
    bench = Bench(SECOND_PROTOCOL)
    bench.has_ids = False
    initialised = bench.initialise()
    bench.pass_time(PARKED_MS)
    assert is_error(initialised, errors.CoordinatorLoading)
    assert bench.table.transactional_ids() == [], "nothing came of it"
    bench.ids_come()
    assert bench.initialise() == [FIRST]


def test_only_so_many_wait_for_producer_ids() -> None:
    bench = Bench(SECOND_PROTOCOL)
    bench.has_ids = False
    asked = [bench.initialise() for _ in range(PARKED_MAX + 1)]
    assert is_error(asked[-1], errors.CoordinatorLoading)
    assert asked[:-1] == [[]] * PARKED_MAX
    bench.ids_come()
    assert [answer for [answer] in asked[:-1]] == [ProducerIdentity(100, epoch) for epoch in range(PARKED_MAX)]


def test_epoch_32766_times_out() -> None:
    """Named case 8; and it waits for a producer id, if there is none."""
    bench = Bench(SECOND_PROTOCOL, timeout_check_interval_ms=CHECK_MS)
    identity = exhausted(bench, is_open=True)
    bench.has_ids = False
    bench.pass_time(TIMEOUT_MS + CHECK_MS)
    assert (bench.sent, bench.table.counters.timed_out) == ([], 0)
    bench.has_ids = True
    bench.pass_time(CHECK_MS)
    assert [one.identity for one in bench.sent] == [(100, EPOCH_EXHAUSTED + 1)]
    assert bench.table.counters.timed_out == 1
    bench.complete()
    after = ProducerIdentity(101, 0)
    assert is_error(bench.add(ORDERS, identity=identity), errors.InvalidProducerIdMapping)
    assert bench.end(is_commit=False, identity=identity) == [after]
    assert bench.add(ORDERS, identity=after) == [None]
