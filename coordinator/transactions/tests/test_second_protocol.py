"""The second protocol (KIP-890): every transaction has an epoch of its own. Kafka's table, epochs that are used up, and
any sequence of requests of both protocols.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    TransactionError,
)
from coordinator.state.log import EPOCH_MAX
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Partition, ProducerIdentity, TransactionState
from coordinator.transactions.records import decode_value, encode_value
from coordinator.transactions.tests.test_transitions import (
    IDLE,
    NEW_ID,
    NOW_MS,
    ORDERS,
    PREPARED,
    TIMEOUT_MS,
    giving,
    known,
)
from coordinator.transactions.transitions import (
    EPOCH_EXHAUSTED,
    NeedsProducerId,
    Transaction,
    completed,
    ended,
    ended_in_own_epoch,
    fenced,
    fenced_in_own_epoch,
    initialised,
    no_id,
    with_partitions,
)

CURRENT, BEFORE, OLDER, LATER = (ProducerIdentity(7, epoch) for epoch in (3, 2, 1, 4))
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

Outcome = TransactionState | type[TransactionError]


def outcome(before: Transaction, asking: ProducerIdentity, *, commits: bool) -> Outcome:
    try:
        return ended_in_own_epoch(before, asking, commits=commits, now_ms=NOW_MS, new_id=giving(NEW_ID)).state
    except TransactionError as error:
        return type(error)


@pytest.mark.parametrize(
    ("state", "asking", "abort", "commit"),
    [
        (EMPTY, BEFORE, ProducerFenced, ProducerFenced),
        (EMPTY, CURRENT, TransactionState.PREPARE_ABORT, InvalidTransactionState),
        (ABORTED, BEFORE, ABORTED, InvalidTransactionState),
        (ABORTED, CURRENT, TransactionState.PREPARE_ABORT, InvalidTransactionState),
        (COMMITTED, BEFORE, InvalidTransactionState, COMMITTED),
        (COMMITTED, CURRENT, TransactionState.PREPARE_ABORT, InvalidTransactionState),
        (ONGOING, BEFORE, ProducerFenced, ProducerFenced),
        (ONGOING, CURRENT, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT),
    ],
)
def test_kafkas_table(state: TransactionState, asking: ProducerIdentity, abort: Outcome, commit: Outcome) -> None:
    """The table in the comment above TransactionCoordinator.endTransaction."""
    before = replace(known(state), protocol=SECOND_PROTOCOL)
    assert outcome(before, asking, commits=False) == abort
    assert outcome(before, asking, commits=True) == commit


@pytest.mark.parametrize("state", [COMMITTED, ABORTED])
def test_an_end_in_the_first_protocol_is_nobodys_retry_in_the_second(state: TransactionState) -> None:
    """An older client has ended its own transaction: the producer with the epoch before would get its identity, and
    write into its next transaction."""
    before = known(state)
    for commits in (True, False):
        assert outcome(before, BEFORE, commits=commits) is ProducerFenced
    fenced_at_first = completed(fenced(known(ONGOING), NOW_MS, no_id, FIRST_PROTOCOL), NOW_MS)
    again = ended_in_own_epoch(fenced_at_first, CURRENT, commits=False, now_ms=NOW_MS)
    assert again is fenced_at_first, "whoever was fenced may ask for it"


def test_a_producer_is_fenced_instead_of_given_the_last_epoch() -> None:
    """The epoch is that of a fence in the first protocol: transaction.version was changed meanwhile."""
    exhausted = replace(known(ONGOING), epoch=EPOCH_EXHAUSTED, protocol=SECOND_PROTOCOL)
    over = completed(fenced(exhausted, NOW_MS, no_id, FIRST_PROTOCOL), NOW_MS)
    for commits in (True, False):
        assert outcome(over, exhausted.identity, commits=commits) is ProducerFenced


def test_a_producer_with_the_old_id_is_fenced_by_a_producer_with_the_new_id() -> None:
    before = ProducerIdentity(7, EPOCH_EXHAUSTED)
    started = initialised(replace(known(EMPTY), epoch=EPOCH_EXHAUSTED), None, TIMEOUT_MS, NOW_MS, giving(NEW_ID))
    for commits in (True, False):
        assert outcome(started, before, commits=commits) is ProducerFenced


@pytest.mark.parametrize("state", [*IDLE, ONGOING])
def test_strangers(state: TransactionState) -> None:
    for commits in (True, False):
        for asking in (OLDER, LATER):
            assert outcome(known(state), asking, commits=commits) is ProducerFenced
        assert outcome(known(state), ProducerIdentity(8, 3), commits=commits) is InvalidProducerIdMapping
    with pytest.raises(InvalidProducerIdMapping):
        ended_in_own_epoch(None, CURRENT, commits=True, now_ms=NOW_MS)


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("asking", [CURRENT, BEFORE, OLDER, ProducerIdentity(8, 3)])
def test_every_end_is_refused_with_concurrent_transactions_while_markers_are_written(
    state: TransactionState, asking: ProducerIdentity
) -> None:
    for commits in (True, False):
        assert outcome(known(state), asking, commits=commits) is ConcurrentTransactions


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_gives_the_next_epoch_to_its_markers_and_to_its_producer(*, commits: bool) -> None:
    before = known(ONGOING)
    decided = ended_in_own_epoch(before, CURRENT, commits=commits, now_ms=NOW_MS)
    assert (decided.identity, decided.identity_after_markers, decided.last_epoch) == (LATER, LATER, 3)
    assert (decided.partitions, decided.started_ms) == (before.partitions, before.started_ms)
    over = completed(decided, NOW_MS)
    assert (over.identity, over.partitions, over.protocol) == (LATER, frozenset(), SECOND_PROTOCOL)
    assert ended_in_own_epoch(over, CURRENT, commits=commits, now_ms=NOW_MS) is over, "it did not hear the answer"
    with pytest.raises(ProducerFenced):
        with_partitions(over, CURRENT, [ORDERS], NOW_MS, SECOND_PROTOCOL)
    assert with_partitions(over, LATER, [ORDERS], NOW_MS, SECOND_PROTOCOL).state is ONGOING


def test_an_abort_of_nothing_is_of_now() -> None:
    """DescribeTransactions and timeouts need its time of beginning (prepareAbortOrCommit)."""
    assert ended_in_own_epoch(known(EMPTY), CURRENT, commits=False, now_ms=NOW_MS).started_ms == NOW_MS


@pytest.mark.parametrize("commits", [True, False])
def test_epochs_that_are_used_up(*, commits: bool) -> None:
    """The last epoch is in the markers alone; the producer goes on with another id."""
    before = replace(known(ONGOING), epoch=EPOCH_EXHAUSTED)
    with pytest.raises(NeedsProducerId):
        ended_in_own_epoch(before, before.identity, commits=commits, now_ms=NOW_MS)
    decided = ended_in_own_epoch(before, before.identity, commits=commits, now_ms=NOW_MS, new_id=giving(NEW_ID))
    assert (decided.identity, decided.identity_after_markers) == ((7, EPOCH_MAX), (NEW_ID, 0))
    over = completed(decided, NOW_MS)
    assert (over.identity, over.previous_producer_id, over.last_epoch) == ((NEW_ID, 0), 7, EPOCH_EXHAUSTED)
    assert ended_in_own_epoch(over, before.identity, commits=commits, now_ms=NOW_MS) is over, (
        "it did not hear the answer"
    )
    with pytest.raises(InvalidTransactionState):
        ended_in_own_epoch(over, before.identity, commits=not commits, now_ms=NOW_MS)
    for stranger in (ProducerIdentity(6, EPOCH_EXHAUSTED), ProducerIdentity(7, EPOCH_EXHAUSTED - 1)):
        with pytest.raises(InvalidProducerIdMapping):
            ended_in_own_epoch(over, stranger, commits=commits, now_ms=NOW_MS)
    assert initialised(over, before.identity, TIMEOUT_MS, NOW_MS, no_id).identity == (NEW_ID, 0)


def test_epoch_32766_times_out() -> None:
    """Named case 8."""
    before = replace(known(ONGOING), epoch=EPOCH_EXHAUSTED)
    decided = fenced_in_own_epoch(before, NOW_MS, giving(NEW_ID))
    assert (decided.state, decided.identity) == (TransactionState.PREPARE_ABORT, (7, EPOCH_MAX))
    over = completed(decided, NOW_MS)
    assert over.identity == (NEW_ID, 0)
    assert ended_in_own_epoch(over, before.identity, commits=False, now_ms=NOW_MS) is over


def test_a_new_producer_fences_as_the_cluster_has_it() -> None:
    before = replace(known(ONGOING), epoch=EPOCH_EXHAUSTED)
    with pytest.raises(NeedsProducerId):
        initialised(before, None, TIMEOUT_MS, NOW_MS, no_id, SECOND_PROTOCOL)
    decided = initialised(before, None, TIMEOUT_MS, NOW_MS, giving(NEW_ID), SECOND_PROTOCOL)
    assert (decided.state, decided.identity_after_markers) == (TransactionState.PREPARE_ABORT, (NEW_ID, 0))
    assert initialised(completed(decided, NOW_MS), None, TIMEOUT_MS, NOW_MS, no_id, SECOND_PROTOCOL).identity == (
        NEW_ID,
        1,
    )


def test_a_fenced_producer_gets_the_next_epoch_if_it_aborts_or_initialises() -> None:
    over = completed(fenced_in_own_epoch(known(ONGOING), NOW_MS), NOW_MS)
    assert ended_in_own_epoch(over, CURRENT, commits=False, now_ms=NOW_MS).identity == LATER
    with pytest.raises(InvalidTransactionState):
        ended_in_own_epoch(over, CURRENT, commits=True, now_ms=NOW_MS)
    assert initialised(over, CURRENT, TIMEOUT_MS, NOW_MS, no_id).identity == LATER


# Any sequence


requests = st.lists(
    st.tuples(
        st.sampled_from(
            ["init", "init as", "add", "commit", "abort", "old commit", "old abort", "complete", "time out"]
        ),
        st.integers(0, 2),
    ),
    max_size=40,
)


class FuzzedId:
    """A transactional id, and the identities that its producers were told."""

    def __init__(self, first_epoch: int) -> None:
        first = initialised(None, None, TIMEOUT_MS, NOW_MS, giving(1))
        self.current = replace(first, epoch=first_epoch)
        self.identities = [self.current.identity]
        self.new_id = 1

    def ask(self, what: str, back: int, now_ms: int) -> None:
        """Send a request of a random earlier identity. Raises TransactionError."""
        asking, before = self.identities[-1 - back % len(self.identities)], self.current
        self.new_id += 1
        if what.startswith("init"):
            expected = asking if what == "init as" else None
            self.current = initialised(before, expected, TIMEOUT_MS, now_ms, giving(self.new_id), SECOND_PROTOCOL)
            if self.current.state is EMPTY:
                self.identities.append(self.current.identity)
        elif what == "add":
            self.current = with_partitions(before, asking, [Partition("orders", back)], now_ms, SECOND_PROTOCOL)
        elif what in ("commit", "abort"):
            commits = what == "commit"
            self.current = ended_in_own_epoch(
                before, asking, commits=commits, now_ms=now_ms, new_id=giving(self.new_id)
            )
            self.identities.append(self.current.identity_after_markers)
        elif what in ("old commit", "old abort"):
            self.current = ended(before, asking, commits=what == "old commit", now_ms=now_ms)
        elif what == "complete" and before.is_prepared:
            self.current = completed(before, now_ms)
        elif what == "time out" and before.state is ONGOING:
            self.current = fenced_in_own_epoch(before, now_ms, giving(self.new_id))


@given(requests, st.sampled_from([0, EPOCH_EXHAUSTED - 2]))
def test_no_request_sequence_lets_a_fenced_producer_write(asked: list[tuple[str, int]], first_epoch: int) -> None:
    """No producer is ever told the identity of another, unless it asks again; only the last producer that was told may
    write; and no two transactions of the second protocol end in one epoch."""
    world = FuzzedId(first_epoch)
    ended: set[ProducerIdentity] = set()
    for number, (what, back) in enumerate(asked):
        before, last = world.current, world.identities[-1]
        try:
            world.ask(what, back, NOW_MS + number)
        except TransactionError:
            continue
        after = world.current
        if what == "add":
            assert world.identities[-1 - back % len(world.identities)] == last, (
                "a fenced producer has changed something"
            )
        if after.is_prepared and not before.is_prepared and after.protocol == SECOND_PROTOCOL and "old" not in what:
            assert after.identity not in ended
            ended.add(after.identity)
        assert after.identity >= before.identity
        assert after.epoch <= EPOCH_MAX
        assert after.is_prepared or after.epoch < EPOCH_MAX
        written = Transaction.from_record(decode_value(memoryview(encode_value(after.record()))))
        assert written == replace(after, last_epoch=-1)
