"""Transitions of a transactional id: Kafka's rules one by one, then any sequence of requests."""

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
from coordinator.transactions.api import FIRST_PROTOCOL, Partition, ProducerIdentity, TransactionState
from coordinator.transactions.records import decode_value, encode_value
from coordinator.transactions.transitions import (
    EPOCH_EXHAUSTED,
    NeedsProducerId,
    NewId,
    Transaction,
    completed,
    ended,
    fenced,
    has_expired,
    initialised,
    no_id,
    with_partitions,
)

NOW_MS, TIMEOUT_MS = 1_000_000, 60_000
NEW_ID = 99
ORDERS, LATER = Partition("orders", 0), Partition("later", 1)
IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def giving(producer_id: int | None = None) -> NewId:
    return no_id if producer_id is None else lambda: producer_id


def known(state: TransactionState = TransactionState.EMPTY, epoch: int = 3) -> Transaction:
    has_data = state is TransactionState.ONGOING or state in PREPARED
    partitions = frozenset({ORDERS} if has_data else ())
    return Transaction(7, epoch, TIMEOUT_MS, state, NOW_MS - 10, partitions, NOW_MS - 20, previous_producer_id=6)


def initialise(
    before: Transaction | None, expected: ProducerIdentity | None = None, new_id: int | None = None
) -> Transaction:
    return initialised(before, expected, 5000, NOW_MS, giving(new_id))


# InitProducerId


@pytest.mark.parametrize("expected", [None, ProducerIdentity(5, 4)])
def test_an_unknown_transactional_id_begins_with_a_new_producer_id(expected: ProducerIdentity | None) -> None:
    with pytest.raises(NeedsProducerId):
        initialise(None, expected)
    first = initialise(None, expected, NEW_ID)
    assert (first.identity, first.state, first.timeout_ms) == ((NEW_ID, 0), TransactionState.EMPTY, 5000)
    assert (first.previous_producer_id, first.last_epoch, first.started_ms) == (NEW_ID, -1, -1)


@pytest.mark.parametrize("state", IDLE)
def test_a_new_producer_has_the_next_epoch_and_fences_the_one_before(state: TransactionState) -> None:
    after = initialise(known(state))
    assert (after.identity, after.last_epoch, after.state) == ((7, 4), -1, TransactionState.EMPTY)
    assert (after.partitions, after.started_ms, after.changed_ms) == (frozenset(), -1, NOW_MS)


@pytest.mark.parametrize("state", IDLE)
def test_a_producer_that_names_its_identity_gets_the_next_epoch_or_is_fenced(state: TransactionState) -> None:
    bumped = initialise(known(state), ProducerIdentity(7, 3))
    assert (bumped.identity, bumped.last_epoch) == ((7, 4), 3)
    assert initialise(bumped, ProducerIdentity(7, 3)).identity == (7, 4), "it did not hear the answer"
    for other in (ProducerIdentity(7, 2), ProducerIdentity(7, 5), ProducerIdentity(8, 4), ProducerIdentity(6, 3)):
        with pytest.raises(ProducerFenced):
            initialise(bumped, other)
    with pytest.raises(ProducerFenced):
        initialise(initialise(bumped), ProducerIdentity(7, 3))  # another producer came meanwhile


@pytest.mark.parametrize("epoch", [EPOCH_EXHAUSTED, EPOCH_MAX])
def test_epochs_are_used_up(epoch: int) -> None:
    before = known(epoch=epoch)
    for expected in (None, ProducerIdentity(7, epoch)):
        with pytest.raises(NeedsProducerId):
            initialise(before, expected)
        after = initialise(before, expected, NEW_ID)
        assert (after.identity, after.previous_producer_id) == ((NEW_ID, 0), 7)
        assert after.last_epoch == (-1 if expected is None else epoch)
    rotated = initialise(before, ProducerIdentity(7, epoch), NEW_ID)
    assert initialise(rotated, ProducerIdentity(7, epoch)).identity == (NEW_ID, 0), "it did not hear the answer"
    with pytest.raises(ProducerFenced):
        initialise(rotated, ProducerIdentity(7, EPOCH_EXHAUSTED - 1))
    with pytest.raises(ProducerFenced):
        initialise(before, ProducerIdentity(7, epoch - 1))


def test_an_open_transaction_is_aborted_first() -> None:
    before = known(TransactionState.ONGOING)
    assert initialise(replace(before, epoch=EPOCH_EXHAUSTED)).identity == (7, EPOCH_MAX)
    after = initialise(before)
    assert (after.identity, after.state, set(after.partitions)) == ((7, 4), TransactionState.PREPARE_ABORT, {ORDERS})
    assert (after.started_ms, after.last_epoch) == (before.started_ms, before.epoch)
    with pytest.raises(ConcurrentTransactions):
        initialise(after)
    assert initialise(completed(after, NOW_MS)).identity == (7, 5), "the epoch in between belongs to no producer"
    mine = ProducerIdentity(before.producer_id, before.epoch)
    assert initialise(completed(after, NOW_MS), mine).identity == (7, 4), (
        "except for the holder of the one before (KIP-890)"
    )


@pytest.mark.parametrize("epoch", [EPOCH_EXHAUSTED, EPOCH_MAX])
def test_the_very_last_epoch_is_nobodys(epoch: int) -> None:
    before = replace(known(TransactionState.ONGOING), epoch=epoch)
    after = completed(fenced(before, NOW_MS, no_id, FIRST_PROTOCOL), NOW_MS)
    assert after.epoch == EPOCH_MAX
    with pytest.raises(ProducerFenced):
        initialise(after, ProducerIdentity(before.producer_id, EPOCH_EXHAUSTED))


def test_a_fence_never_goes_beyond_the_last_epoch() -> None:
    before = known(TransactionState.ONGOING)
    assert fenced(replace(before, epoch=EPOCH_MAX), NOW_MS, no_id, FIRST_PROTOCOL).epoch == EPOCH_MAX


@pytest.mark.parametrize("state", PREPARED)
def test_markers_are_waited_for(state: TransactionState) -> None:
    """Any producer has to wait: it may have been told the identity that comes with their end."""
    for expected in (None, ProducerIdentity(7, 3), ProducerIdentity(8, 3)):
        with pytest.raises(ConcurrentTransactions):
            initialise(known(state), expected)
    with pytest.raises(ConcurrentTransactions):
        with_partitions(known(state), ProducerIdentity(7, 3), [ORDERS], NOW_MS)


# AddPartitionsToTxn


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    after = with_partitions(known(state), ProducerIdentity(7, 3), [ORDERS], NOW_MS)
    assert (after.state, set(after.partitions), after.started_ms) == (TransactionState.ONGOING, {ORDERS}, NOW_MS)
    more = with_partitions(after, ProducerIdentity(7, 3), [LATER], NOW_MS + 5)
    assert (set(more.partitions), more.started_ms, more.changed_ms) == ({ORDERS, LATER}, NOW_MS, NOW_MS + 5)
    assert with_partitions(more, ProducerIdentity(7, 3), [ORDERS], NOW_MS + 9) is more


@pytest.mark.parametrize("state", [*IDLE, *PREPARED, TransactionState.ONGOING])
def test_strangers(state: TransactionState) -> None:
    for asking, error in (
        (ProducerIdentity(8, 3), InvalidProducerIdMapping),
        (ProducerIdentity(7, 2), ProducerFenced),
        (ProducerIdentity(7, 4), ProducerFenced),
    ):
        with pytest.raises(ConcurrentTransactions if state in PREPARED else error):
            with_partitions(known(state), asking, [ORDERS], NOW_MS)
        for commits in (True, False):
            with pytest.raises(error):
                ended(known(state), asking, commits=commits, now_ms=NOW_MS)
    with pytest.raises(InvalidProducerIdMapping):
        with_partitions(None, ProducerIdentity(7, 3), [ORDERS], NOW_MS)


# EndTxn


@pytest.mark.parametrize(
    ("state", "commits", "outcome"),
    [
        (TransactionState.EMPTY, True, InvalidTransactionState),
        (TransactionState.EMPTY, False, InvalidTransactionState),
        (TransactionState.ONGOING, True, TransactionState.PREPARE_COMMIT),
        (TransactionState.ONGOING, False, TransactionState.PREPARE_ABORT),
        (TransactionState.PREPARE_COMMIT, True, ConcurrentTransactions),
        (TransactionState.PREPARE_COMMIT, False, InvalidTransactionState),
        (TransactionState.PREPARE_ABORT, True, InvalidTransactionState),
        (TransactionState.PREPARE_ABORT, False, ConcurrentTransactions),
        (TransactionState.COMPLETE_COMMIT, True, TransactionState.COMPLETE_COMMIT),
        (TransactionState.COMPLETE_COMMIT, False, InvalidTransactionState),
        (TransactionState.COMPLETE_ABORT, True, InvalidTransactionState),
        (TransactionState.COMPLETE_ABORT, False, TransactionState.COMPLETE_ABORT),
    ],
)
def test_an_end(state: TransactionState, commits: bool, outcome: TransactionState | type[TransactionError]) -> None:
    before = known(state)
    if isinstance(outcome, TransactionState):
        after = ended(before, before.identity, commits=commits, now_ms=NOW_MS)
        assert (after.state, after.identity, after.partitions) == (outcome, before.identity, before.partitions)
        assert after is before or after.changed_ms == NOW_MS
    else:
        with pytest.raises(outcome):
            ended(before, before.identity, commits=commits, now_ms=NOW_MS)


# Time


def test_an_idle_transactional_id_expires_and_an_active_one_does_not() -> None:
    for state in IDLE:
        assert not has_expired(known(state), NOW_MS, 11)
        assert has_expired(known(state), NOW_MS, 10)
    assert not any(has_expired(known(state), 2**62, 1) for state in (*PREPARED, TransactionState.ONGOING))


# Any sequence


requests = st.lists(
    st.tuples(
        st.sampled_from(["init", "init as", "add", "add", "commit", "abort", "complete", "time out"]),
        st.integers(0, 2),
        st.sampled_from([ORDERS, LATER]),
    ),
    max_size=40,
)


def asked_for(
    what: str, before: Transaction, asking: ProducerIdentity, partition: Partition, now_ms: int, new_id: int
) -> Transaction:
    if what.startswith("init"):
        return initialised(before, None if what == "init" else asking, TIMEOUT_MS, now_ms, giving(new_id))
    if what == "add":
        return with_partitions(before, asking, [partition], now_ms)
    if what in ("commit", "abort"):
        return ended(before, asking, commits=what == "commit", now_ms=now_ms)
    if what == "complete":
        return completed(before, now_ms) if before.is_prepared else before
    return fenced(before, now_ms, no_id, FIRST_PROTOCOL) if before.state is TransactionState.ONGOING else before


@given(requests, st.sampled_from([0, EPOCH_EXHAUSTED - 2]))
def test_no_requests_let_a_fenced_producer_write(asked: list[tuple[str, int, Partition]], first_epoch: int) -> None:
    """Only the last producer that was told an identity may write; an open transaction has partitions, a decided one
    keeps its outcome; and the records have the whole state."""
    current = replace(initialise(None, None, 1), epoch=first_epoch)
    identities, new_id = [current.identity], 1
    for number, (what, back, partition) in enumerate(asked):
        asking, before, now_ms = identities[-1 - back % len(identities)], current, NOW_MS + number
        new_id += 1
        try:
            current = asked_for(what, current, asking, partition, now_ms, new_id)
        except TransactionError:
            continue
        if what.startswith("init") and current.state is TransactionState.EMPTY:
            identities.append(current.identity)
        if what in ("add", "commit", "abort"):
            assert asking == identities[-1], "a fenced producer has changed something"
        assert current.identity >= before.identity
        assert current.epoch <= EPOCH_MAX
        assert bool(current.partitions) == (current.is_prepared or current.state is TransactionState.ONGOING)
        assert not (before.is_prepared and current.state is not before.state and what != "complete")
        written = Transaction.from_record(decode_value(memoryview(encode_value(current.record()))))
        assert written == replace(current, last_epoch=-1)
