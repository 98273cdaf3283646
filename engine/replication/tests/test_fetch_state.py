"""Fetches of a follower: the offset, truncations, and the answers that count."""

import pytest

from engine.api import EpochEnd
from engine.compaction_horizon import NOT_COMPACTED, Compacted, CompactionHorizon
from engine.errors import (
    CorruptMessage,
    EngineError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)
from engine.logs.recovery.epochs import EpochHistory, EpochStart
from engine.replication.epoch_checks import diverging_end
from engine.replication.exchange import FollowerFetch, LeaderReply, LogState
from engine.replication.fetch_state import Append, AskEnds, Backoff, Fail, FetchState, Restart, Truncate


def log_of(*starts: tuple[int, int], end: int, high_watermark: int = 0, start: int = 0, sealed_to: int = 0) -> LogState:
    """A durable log whose leader epochs began at these offsets."""
    epochs = EpochHistory(EpochStart(*one) for one in starts)
    return LogState(epochs, start, end, end, high_watermark, sealed_to)


def asked_by(machine: FetchState, log: LogState) -> FollowerFetch:
    asked = machine.ask(log)
    assert asked is not None
    return asked


def parted(machine: FetchState, log: LogState, diverging: EpochEnd) -> object:
    return machine.answered(asked_by(machine, log), LeaderReply(diverging=diverging), log)


def test_a_follower_asks_for_the_offset_behind_its_last_record() -> None:
    log = log_of((5, 0), end=100, high_watermark=90, start=10)
    assert FetchState(6, log).ask(log) == FollowerFetch(6, 100, 5, 90, 10)


def test_a_follower_has_a_single_fetch_in_flight_and_the_next_waits_for_durable_records() -> None:
    log = log_of((5, 0), end=100)
    machine = FetchState(5, log)
    asked = asked_by(machine, log)
    assert machine.ask(log) is None
    assert machine.answered(asked, LeaderReply(100, 0), log) == Append(100, 0)
    assert machine.ask(log) is None
    machine.done()
    assert machine.ask(log._replace(end_offset=110)) is None
    assert asked_by(machine, log._replace(end_offset=110, durable_offset=110)).offset == 110


def test_a_damaged_log_restarts_the_copy_at_the_log_start_of_its_leader() -> None:
    log = log_of((5, 0), end=100, high_watermark=90)._replace(is_damaged=True)
    machine = FetchState(6, log)
    assert machine.answered(asked_by(machine, log), LeaderReply(200, 7), log) == Restart(7)


def test_a_damaged_log_asks_below_its_high_watermark_and_so_stays_out_of_the_isr() -> None:
    """RULES K17: otherwise the leader would take it into the ISR upon the first Fetch, though it takes no appends."""
    for end, high_watermark, offset in ((100, 100, 99), (100, 90, 89), (80, 90, 79), (20, 90, 19), (10, 0, 0)):
        log = log_of((5, 0), end=end, high_watermark=high_watermark)._replace(is_damaged=True)
        assert asked_by(FetchState(6, log), log).offset == offset


def test_a_damaged_log_restarts_the_copy_if_its_leader_starts_above_the_asked_offset() -> None:
    log = log_of((5, 0), end=100, high_watermark=90)._replace(is_damaged=True)
    machine = FetchState(6, log)
    asked = asked_by(machine, log)
    assert machine.answered(asked, LeaderReply(error=OffsetOutOfRange("gone")), log) == AskEnds()
    assert machine.ends_received(95, 200, log) == Restart(95)


def test_a_damaged_log_that_diverges_below_its_high_watermark_fails_and_is_not_discarded() -> None:
    log = log_of((5, 0), end=100, high_watermark=90)._replace(is_damaged=True)
    assert isinstance(parted(FetchState(6, log), log, EpochEnd(5, 80)), Fail)
    assert FetchState(6, log).ends_received(0, 95, log) == Restart(0)


def test_late_response() -> None:
    """B2 follows in epoch 5, leads in 6, and follows again: an answer of the leader of epoch 5 is dropped."""
    log = log_of((5, 0), end=100)
    before = asked_by(FetchState(5, log), log)
    machine = FetchState(7, log)
    asked = asked_by(machine, log)
    assert machine.answered(before, LeaderReply(110, 0), log) is None
    assert machine.answered(asked, LeaderReply(100, 0), log) == Append(100, 0)
    assert machine.answered(asked, LeaderReply(100, 0), log) is None


def test_after_a_lost_answer_the_same_question_may_be_answered_twice_and_counts_once() -> None:
    log = log_of((5, 0), end=100)
    machine = FetchState(5, log)
    asked = asked_by(machine, log)
    machine.lost(asked._replace(offset=90))
    assert machine.ask(log) is None
    machine.lost(asked)
    assert machine.ask(log) == asked
    assert machine.answered(asked, LeaderReply(100, 0), log) == Append(100, 0)
    assert machine.answered(asked, LeaderReply(100, 0), log) is None


def test_empty_epoch() -> None:
    """KAFKA-10706: B1 leads 6 with [100, 110); B2 leads 7 and appends nothing; B1 leads 8 and never heard of 7."""
    b1, b2 = log_of((6, 100), (8, 110), end=110), log_of((6, 100), (7, 110), end=110)
    asked = asked_by(FetchState(8, b2), b2)
    assert asked.last_epoch == 6
    assert diverging_end(0, b1.epochs.end_of(6, 110, 0), asked.offset, asked.last_epoch) is None
    assert b2.epochs.below(111) == (EpochStart(6, 100),)


def test_kip_101_nothing_is_cut_because_of_a_high_watermark() -> None:
    """A follower that comes back with a record above its high watermark keeps it, unless its leader lacks it."""
    log = log_of((0, 0), end=2, high_watermark=1)
    machine = FetchState(1, log)
    assert asked_by(machine, log).offset == 2
    assert log.end_offset == 2


def test_kip_101_logs_that_part_after_hard_failures() -> None:
    """A has m1 and m2; B, which had m1, led meanwhile and wrote m3: A truncates m2."""
    log = log_of((0, 0), end=2, high_watermark=1)
    leader = EpochHistory([EpochStart(0, 0), EpochStart(1, 1)])
    assert parted(FetchState(1, log), log, leader.end_of(0, 2)) == Truncate(1, below_sealed=False)


def test_kip_279_a_follower_with_unknown_epochs_truncates_to_the_last_common_record() -> None:
    log = log_of((0, 0), (1, 5), (2, 12), end=15)
    leader = EpochHistory([EpochStart(0, 0), EpochStart(3, 10)])
    machine = FetchState(3, log)
    assert leader.end_of(2, 20) == EpochEnd(0, 10)
    assert parted(machine, log, leader.end_of(2, 20)) == Truncate(5, below_sealed=False)


def test_kip_279_a_follower_without_the_leaders_epoch_asks_again_with_an_older_one() -> None:
    log = log_of((0, 0), (2, 5), end=15)
    leader = EpochHistory([EpochStart(0, 0), EpochStart(1, 3), EpochStart(3, 10)])
    machine = FetchState(3, log)
    assert parted(machine, log, leader.end_of(2, 20)) == Truncate(5, below_sealed=False)
    machine.done()
    shorter = log_of((0, 0), end=5)
    assert parted(machine, shorter, leader.end_of(0, 20)) == Truncate(3, below_sealed=False)


def test_a_follower_with_only_unknown_epochs_truncates_all_its_records() -> None:
    log = log_of((7, 50), end=90, start=50, high_watermark=50)
    assert parted(FetchState(9, log), log, EpochEnd(5, 80)) == Truncate(50, below_sealed=False)


def test_nothing_is_cut_below_the_high_watermark_or_a_sealed_end() -> None:
    for log in (log_of((4, 0), end=10, high_watermark=6), log_of((4, 0), end=10, sealed_to=6)):
        assert isinstance(parted(FetchState(6, log), log, EpochEnd(4, 5)), Fail)
        assert parted(FetchState(6, log), log, EpochEnd(4, 6)) == Truncate(6, below_sealed=False)


def test_a_divergence_below_the_local_start_restarts_the_copy() -> None:
    log = log_of((4, 0), end=10, start=1)._replace(local_start_offset=8)
    for diverging_at, action in (
        (8, Truncate(8, below_sealed=False)),
        (7, Restart(2)),
        (1, Restart(2)),
        (0, Restart(0)),
    ):
        machine = FetchState(6, log)
        answer = LeaderReply(log_start_offset=2, diverging=EpochEnd(4, diverging_at))
        assert machine.answered(asked_by(machine, log), answer, log) == action
    assert asked_ends(log).ends_received(2, 7, log) == Restart(2)


def asked_ends(log: LogState) -> FetchState:
    machine = FetchState(6, log)
    assert machine.answered(asked_by(machine, log), LeaderReply(error=OffsetOutOfRange("")), log) == AskEnds()
    return machine


def test_an_unclean_election_allows_truncation_of_committed_records_of_older_epochs() -> None:
    log = log_of((4, 0), (5, 4), end=10, high_watermark=6, sealed_to=6)
    assert parted(FetchState(7, log, unclean_since=6), log, EpochEnd(4, 3)) == Truncate(3, below_sealed=True)
    assert isinstance(parted(FetchState(7, log, unclean_since=5), log, EpochEnd(4, 3)), Fail)


def test_a_log_that_loses_replacing_records_to_an_unclean_election_restarts_the_copy() -> None:
    """A log is copied again if an unclean election gave up records that replaced others. A log of which only records
    are truncated that were never acknowledged is kept: it may be the last copy of acknowledged ones."""
    log = log_of((4, 0), (6, 8), end=10, high_watermark=3)._replace(replaced_to=9)
    for diverging_at, action in ((8, Truncate(8, below_sealed=False)), (7, Restart(2))):
        answer = LeaderReply(log_start_offset=2, diverging=EpochEnd(4, diverging_at))
        machine = FetchState(7, log, unclean_since=6)
        assert machine.answered(asked_by(machine, log), answer, log) == action
    assert parted(FetchState(7, log), log, EpochEnd(4, 7)) == Truncate(7, below_sealed=False)
    cut_behind = parted(FetchState(7, log, unclean_since=6), log._replace(replaced_to=7), EpochEnd(4, 7))
    assert cut_behind == Truncate(7, below_sealed=False)


def test_a_log_that_ends_before_its_replacing_records_restarts_after_an_unclean_election() -> None:
    """The log is an incomplete copy of a log that an unclean election has given up since."""
    log, compacted = log_of((2, 0), end=10)._replace(replaced_to=11, replaced_in=4), Compacted(swaps=0)
    assert not taken(FetchState(7, log, unclean_since=5), log, compacted)
    assert taken(FetchState(7, log, unclean_since=4), log, compacted)
    assert taken(FetchState(7, log), log, compacted)
    whole = log._replace(replaced_to=10)
    assert taken(FetchState(7, whole, unclean_since=5), whole, compacted)


def taken(machine: FetchState, log: LogState, compacted: Compacted) -> bool:
    """Whether the fetched records are appended; otherwise the follower re-replicates from scratch."""
    action = machine.answered(asked_by(machine, log), LeaderReply(9, 2, compacted=compacted), log)
    machine.done()
    assert action in (Append(9, 2), Restart(2))
    return isinstance(action, Append)


def of_tombstones(tombstones_to: int, swaps: int, gone_by: int) -> Compacted:
    return Compacted(dropped=CompactionHorizon(tombstones_to, 0), swaps=swaps, gone_by=gone_by)


def test_a_log_that_ends_before_a_dropped_tombstone_of_its_leader_restarts_the_copy() -> None:
    """A log is kept if all of it came from that leader's log when no record was left that the removed tombstones
    decide about."""
    log = log_of((4, 0), end=10)
    assert taken(FetchState(6, log), log, of_tombstones(10, 9, 9))
    assert not taken(FetchState(6, log), log, of_tombstones(11, 9, 9))
    assert not taken(FetchState(6, log), log, of_tombstones(11, 0, 0)), "gone where that was copied from"
    empty = log_of(end=2, start=2)._replace(is_unused=True)
    machine = FetchState(6, empty)
    assert taken(machine, empty, of_tombstones(11, 3, 3))
    assert taken(machine, log, of_tombstones(40, 5, 3))
    assert not taken(machine, log, of_tombstones(11, 5, 4))
    assert taken(machine, empty, of_tombstones(11, 5, 5))
    assert taken(machine, log, of_tombstones(11, 5, 5)), "it has begun anew"


def test_a_copy_from_an_uncompacted_leader_counts_as_older_than_its_first_swap() -> None:
    empty, log = log_of(end=2, start=2)._replace(is_unused=True), log_of((4, 0), end=10)
    machine = FetchState(6, empty)
    assert taken(machine, empty, NOT_COMPACTED)
    assert taken(machine, log, of_tombstones(11, 2, 0))
    assert not taken(machine, log, of_tombstones(11, 2, 1))


def of_markers(markers_to: int, swaps: int, gone_by: int) -> Compacted:
    return Compacted(dropped=CompactionHorizon(0, markers_to), swaps=swaps, gone_by=gone_by)


def test_a_log_that_ends_in_a_transaction_with_a_dropped_marker_restarts_the_copy() -> None:
    """A log is kept if the transaction came from that leader's log when no record was left that the removed markers
    decide about."""
    log = log_of((4, 0), end=10)
    within = log._replace(has_open_transactions=True)
    assert taken(FetchState(6, log), log, of_markers(11, 1, 1))
    assert taken(FetchState(6, within), within, of_markers(10, 1, 1))
    assert not taken(FetchState(6, within), within, of_markers(11, 1, 1))
    machine = FetchState(6, log)
    assert taken(machine, log, of_markers(11, 1, 1))
    assert taken(machine, within, of_markers(11, 2, 1))
    assert taken(machine, log, NOT_COMPACTED), "nothing came"
    assert taken(machine, within, of_markers(11, 2, 1))
    assert not taken(machine, within, of_markers(11, 2, 2))
    assert taken(machine, log, of_markers(11, 3, 2))
    assert taken(machine, within, of_markers(11, 4, 3)), "what is open has begun since"
    assert not taken(machine, within, of_markers(11, 4, 4))
    machine = FetchState(6, log)
    assert taken(machine, log, of_markers(11, 4, 4))
    assert parted(machine, log, EpochEnd(4, 9)) == Truncate(9, below_sealed=False)
    machine.done()
    assert not taken(machine, within, of_markers(11, 4, 4)), "its marker may be cut"


def test_a_cut_that_cuts_nothing_is_not_tried_forever() -> None:
    log = log_of((4, 0), end=10)
    assert isinstance(parted(FetchState(6, log), log, EpochEnd(4, 10)), Fail)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 90, Truncate(90, below_sealed=False)),
        (150, 200, Restart(150)),
        (0, 200, Backoff(awaits_news=False)),
        (0, 10, Restart(10)),
    ],
)
def test_out_of_range(start: int, end: int, expected: object) -> None:
    """The leader's log is shorter, or begins later, or has moved meanwhile, or ends before this one starts."""
    log = log_of((4, 0), end=100, start=20)
    machine = FetchState(6, log)
    assert machine.answered(asked_by(machine, log), LeaderReply(error=OffsetOutOfRange()), log) == AskEnds()
    assert machine.ends_received(start, end, log) == expected


@pytest.mark.parametrize(
    ("error", "awaits_news"),
    [
        (FencedLeaderEpoch(), True),
        (UnknownLeaderEpoch(), False),
        (NotLeaderOrFollower(), False),
        (StaleBrokerEpoch(), False),
        (CorruptMessage(), False),
    ],
)
def test_an_error_is_waited_out(error: EngineError, awaits_news: bool) -> None:
    log = log_of((4, 0), end=100)
    machine = FetchState(6, log)
    assert machine.answered(asked_by(machine, log), LeaderReply(error=error), log) == Backoff(awaits_news)
    assert machine.ask(log) is None
    machine.done()
    assert machine.ask(log) is not None
