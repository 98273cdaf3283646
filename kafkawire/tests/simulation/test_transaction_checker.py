"""The checker of transactions finds each anomaly in hand-made histories, and none in a sound one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.transaction_checker import check_transactions
from kafkawire.tests.simulation.transaction_history import (
    NO_EPOCH,
    Fate,
    PlainCommit,
    ReadRecord,
    StableOffset,
    StableRead,
    Transaction,
    TransactionHistory,
    Value,
    WrittenRecord,
)

HERE, THERE, COMPACTED = Target("t", 0), Target("t", 1), Target("c", 0)
GROUP = "g"


def transaction(
    number: int, fate: Fate, *targets: Target, completed: int = 10, has_offset: bool = False
) -> Transaction:
    """A transaction with an acknowledged record in each of the targets."""
    written = [WrittenRecord(target, (number, count), 0, is_acked=True) for count, target in enumerate(targets)]
    return Transaction(number, "x", GROUP, fate, completed, has_offset, written)


def read(target: Target, *values: Value, first: int = 0, end: int = 100, invoked: int = 20) -> StableRead:
    records = tuple(ReadRecord(first + number, value, 0) for number, value in enumerate(values))
    return StableRead(target, first, invoked, invoked + 1, end, end, records, first + len(values))


def sound() -> TransactionHistory:
    """A sound history: 1 is committed into two partitions, 2 is aborted, 3 has an unknown outcome and is there."""
    return TransactionHistory(
        transactions=[
            transaction(1, Fate.COMMITTED, HERE, THERE, has_offset=True),
            transaction(2, Fate.ABORTED, HERE, has_offset=True),
            transaction(3, Fate.UNKNOWN, HERE, THERE, has_offset=True),
        ],
        plain_commits=[PlainCommit(4, GROUP, 30)],
        reads=[read(HERE, (1, 0), (3, 0)), read(HERE, (1, 0), (3, 0), invoked=40)],
        offsets=[StableOffset(GROUP, 5, 6, -1), StableOffset(GROUP, 20, 21, 3), StableOffset(GROUP, 40, 41, 4)],
        final={
            HERE: [ReadRecord(0, (1, 0), 0), ReadRecord(1, (3, 0), 0)],
            THERE: [ReadRecord(0, (1, 1), 0), ReadRecord(1, (3, 1), 0)],
        },
    )


def kinds(history: TransactionHistory) -> set[str]:
    return {anomaly.kind for anomaly in check_transactions(history)}


def test_nothing_is_wrong_with_a_sound_history() -> None:
    assert check_transactions(sound()) == []


def aborted_read(history: TransactionHistory) -> None:
    history.reads.append(read(HERE, (2, 0), first=2))


def invented(history: TransactionHistory) -> None:
    history.reads.append(read(THERE, (1, 0)))


def changed(history: TransactionHistory) -> None:
    history.reads.append(read(HERE, (3, 0)))


def beyond_the_stable_end(history: TransactionHistory) -> None:
    history.reads.append(read(HERE, (1, 0), end=0))


def in_another_order(history: TransactionHistory) -> None:
    history.reads[0].records = history.reads[0].records[::-1]


def back(history: TransactionHistory) -> None:
    history.reads.append(read(HERE, end=99, invoked=50))


def torn(history: TransactionHistory) -> None:
    del history.final[THERE][0]


def torn_though_nobody_knows(history: TransactionHistory) -> None:
    del history.final[THERE][1]


def lost(history: TransactionHistory) -> None:
    del history.final[THERE][0], history.final[HERE][0]


def doubled(history: TransactionHistory) -> None:
    history.final[HERE].append(ReadRecord(9, (1, 0), 0))


def some_of_a_transaction(history: TransactionHistory) -> None:
    """A transaction with two records in a partition, and a reader that went past both and got only one."""
    history.transactions[0].written.append(WrittenRecord(HERE, (1, 2), 0, is_acked=True))
    history.final[HERE][1:1] = [ReadRecord(1, (1, 2), 0)]
    history.final[HERE][2].offset = 2
    history.reads[:] = [replace(read(HERE, (1, 0)), next_offset=2)]


def taken_back(history: TransactionHistory) -> None:
    """A reader that got a record of a transaction which is not there in the end."""
    del history.final[HERE][1], history.final[THERE][1]


def reordered(history: TransactionHistory) -> None:
    history.reads.clear()
    history.final[HERE] = [ReadRecord(0, (3, 0), 0), ReadRecord(1, (1, 0), 0)]


def offset_lost(history: TransactionHistory) -> None:
    history.offsets.append(StableOffset(GROUP, 40, 41, 3))


def offset_never_there(history: TransactionHistory) -> None:
    history.offsets.append(StableOffset(GROUP, 40, 41, -1))


def offset_of_an_aborted(history: TransactionHistory) -> None:
    history.offsets.append(StableOffset(GROUP, 20, 21, 2))


def offset_of_nobody(history: TransactionHistory) -> None:
    history.offsets.append(StableOffset(GROUP, 20, 21, 77))


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (aborted_read, "aborted read"),
        (invented, "invented"),
        (changed, "changed"),
        (beyond_the_stable_end, "unstable read"),
        (in_another_order, "unstable read"),
        (back, "stable end went back"),
        (torn, "torn transaction"),
        (torn_though_nobody_knows, "torn transaction"),
        (lost, "lost transaction"),
        (doubled, "doubled"),
        (some_of_a_transaction, "fractured read"),
        (taken_back, "taken back"),
        (reordered, "reordered"),
        (offset_lost, "offset lost"),
        (offset_never_there, "offset lost"),
        (offset_of_an_aborted, "offset of an aborted transaction"),
        (offset_of_nobody, "invented offset"),
    ],
)
def test_each_anomaly_of_a_history_is_found(damage: Callable[[TransactionHistory], None], kind: str) -> None:
    history = sound()
    damage(history)
    assert kind in kinds(history), "and perhaps others that come with it"


def test_an_unknown_transaction_may_be_nowhere() -> None:
    history = sound()
    history.reads.clear()
    del history.final[HERE][1], history.final[THERE][1]
    assert check_transactions(history) == []


def test_reads_that_overlap_say_nothing_of_each_other() -> None:
    history = sound()
    late = read(HERE, invoked=19, end=50)
    late.completed = 60
    history.reads.append(late)
    assert check_transactions(history) == []


def compacted(*records: ReadRecord) -> TransactionHistory:
    """Two committed transactions and an aborted one, all with one key."""
    return TransactionHistory(
        transactions=[
            transaction(1, Fate.COMMITTED, COMPACTED),
            transaction(2, Fate.COMMITTED, COMPACTED),
            transaction(3, Fate.ABORTED, COMPACTED),
        ],
        reads=[read(COMPACTED, (1, 0), (2, 0))],
        final={COMPACTED: list(records)},
        compacted=frozenset({COMPACTED}),
    )


def test_compacted_record_gives_way_only_to_a_later_record_of_its_key() -> None:
    assert check_transactions(compacted(ReadRecord(0, (1, 0), 0), ReadRecord(1, (2, 0), 0))) == []
    assert check_transactions(compacted(ReadRecord(1, (2, 0), 0))) == []
    assert kinds(compacted(ReadRecord(0, (1, 0), 0))) == {"lost key"}
    assert kinds(compacted()) == {"lost key"}


def test_stable_end_may_go_back_under_another_leader_but_not_under_the_same_leader() -> None:
    history = sound()
    history.reads[1].stable_end -= 1
    history.reads[1].epoch = 1
    assert kinds(history) == set()
    history.reads[0].epoch = 1
    assert kinds(history) == {"stable end went back"}


def test_stable_ends_of_reads_from_deposed_leaders_are_not_compared() -> None:
    history = sound()
    for one in history.reads:
        one.epoch = NO_EPOCH
    history.reads[1].stable_end -= 1
    assert kinds(history) == set()
