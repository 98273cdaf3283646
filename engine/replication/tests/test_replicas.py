"""Leader-side tracking of replicas: the high watermark, the ISR, and proposals whose result is not known."""

from collections.abc import Collection, Mapping

import pytest

from engine.api import EpochEnd
from engine.errors import FencedLeaderEpoch, OffsetOutOfRange, StaleBrokerEpoch, UnknownLeaderEpoch
from engine.logs.recovery.epochs import EpochHistory, EpochStart
from engine.replication.exchange import FollowerFetch, LogState
from engine.replication.progress import Progress
from engine.replication.replicas import CommittedIsr, FollowerFetchResult, Proposal, Replicas
from engine.replication.tests.test_progress import at, ends_of

EPOCH, LAG_MAX_MS = 5, 1000
LIVES = {1: 10, 2: 20, 3: 30}


def committed(
    version: int,
    in_sync: Collection[int],
    *,
    min_isr: int = 1,
    lives: Mapping[int, int] = LIVES,
    serving: Collection[int] = (1, 2, 3),
) -> CommittedIsr:
    return CommittedIsr(version, frozenset(in_sync), frozenset({1, 2, 3}), lives, serving, min_isr)


class Leading:
    """Broker 1 leads a log from offset 100 on; all records that it writes are durable at once."""

    def __init__(self, in_sync: Collection[int] = (1, 2), *, high_watermark: int = 90, min_isr: int = 1) -> None:
        ends = ends_of([1] * (100 - high_watermark), high_watermark)
        self.progress = Progress(at(100), at(high_watermark), ends, has_others=True)
        self.epochs = EpochHistory([EpochStart(3, 0), EpochStart(4, 50), EpochStart(EPOCH, 100)])
        self.replicas = Replicas(1, EPOCH, self.progress, committed(1, in_sync, min_isr=min_isr), 0, LAG_MAX_MS)

    def write(self, count: int = 1) -> None:
        ends = ends_of([1] * count, self.progress.written.offset)
        self.progress.note_written(ends[-1], ends)
        self.progress.note_durable(ends[-1])

    def fetch(
        self,
        replica: int,
        offset: int,
        now_ms: int = 0,
        *,
        last_epoch: int = -2,
        epoch: int = EPOCH,
        life: int = 0,
        start: int = 0,
    ) -> FollowerFetchResult:
        end = self.progress.written.offset
        log = LogState(self.epochs, 0, end, end, self.high_watermark)
        last_epoch = self.epochs.epoch_of(offset - 1) if last_epoch == -2 else last_epoch
        asked = FollowerFetch(epoch, offset, last_epoch, 0, start)
        return self.replicas.fetched(replica, life or LIVES[replica], asked, log, now_ms)

    @property
    def high_watermark(self) -> int:
        return self.progress.high_watermark.offset


def test_the_low_watermark_is_the_lowest_log_start_of_the_serving_replicas() -> None:
    leading = Leading((1, 2))
    assert leading.replicas.low_watermark(30) == -1, "nobody has told"
    assert leading.fetch(2, 100, start=20).has_deleted
    assert not leading.fetch(2, 100, start=20).has_deleted
    leading.fetch(3, 40, start=40)
    assert leading.replicas.low_watermark(30) == 20
    assert leading.fetch(2, 100, start=30).has_deleted
    assert leading.replicas.low_watermark(30) == 30
    leading.fetch(3, 40, start=25)
    assert leading.replicas.low_watermark(30) == 25
    leading.replicas.learn(committed(2, (1, 2))._replace(serving={1, 2}), 0)
    assert leading.replicas.low_watermark(30) == 30


def test_a_record_counts_when_all_in_sync_have_it() -> None:
    leading = Leading((1, 2, 3))
    leading.write(5)
    assert not leading.fetch(2, 105).has_moved
    assert leading.fetch(3, 103).has_moved
    assert leading.high_watermark == 103


def test_a_new_leader_has_the_latest_high_watermark_only_after_its_follower_fetched() -> None:
    leading = Leading()
    assert not leading.replicas.has_latest
    leading.fetch(2, 100)
    assert leading.replicas.has_latest


def test_while_too_few_are_in_sync_nothing_more_counts() -> None:
    leading = Leading((1,), min_isr=2)
    leading.write()
    assert (leading.high_watermark, leading.replicas.is_enough) == (90, False)
    leading.replicas.learn(committed(2, {1}, min_isr=1), 0)
    assert leading.high_watermark == 101


@pytest.mark.parametrize("high_watermark", [90, 100])
def test_a_follower_enters_the_isr_only_with_all_records_that_the_leader_began_with(high_watermark: int) -> None:
    """KAFKA-7128: the high watermark of a new leader may be behind what was acknowledged."""
    leading = Leading((1, 2), high_watermark=high_watermark)
    leading.fetch(3, 99)
    assert leading.replicas.propose(0) is None
    leading.fetch(3, 100)
    assert leading.replicas.propose(0) == Proposal(1, frozenset({1, 2, 3}), {3: 30})


def test_kip_497_a_proposed_replica_counts_until_a_greater_version_is_seen() -> None:
    """CLUSTER case `expand_unknown`: the reply is lost, and an outdated metadata server shows the old ISR."""
    leading = Leading((1, 2), high_watermark=100)
    leading.fetch(3, 100)
    proposal = leading.replicas.propose(0)
    leading.write()
    leading.fetch(2, 101)
    late = 10 * LAG_MAX_MS
    for version in (0, 1):
        assert not leading.replicas.learn(committed(version, {1, 2}), late)
    assert leading.replicas.propose(late) == proposal
    assert leading.high_watermark == 100
    assert leading.replicas.learn(committed(2, {1, 2}), late)
    assert leading.high_watermark == 101


def test_a_replica_proposed_to_leave_the_isr_counts_until_it_has_left() -> None:
    leading = Leading((1, 2), high_watermark=100)
    leading.write()
    assert leading.replicas.propose(LAG_MAX_MS) is None
    assert leading.replicas.propose(LAG_MAX_MS + 1) == Proposal(1, frozenset({1}), {})
    assert leading.high_watermark == 100
    assert leading.replicas.learn(committed(2, {1}), LAG_MAX_MS + 1)
    assert leading.high_watermark == 101


def test_a_single_proposal_adds_and_removes_replicas() -> None:
    leading = Leading((1, 2), high_watermark=100)
    leading.write()
    leading.fetch(3, 101, 2 * LAG_MAX_MS)
    assert leading.replicas.propose(2 * LAG_MAX_MS) == Proposal(1, frozenset({1, 3}), {3: 30})


def joins(leading: Leading, now_ms: int) -> bool:
    """Whether replica 2 is proposed; if so, the next version of the metadata has it in the ISR."""
    proposal = leading.replicas.propose(now_ms)
    if proposal is None or 2 not in proposal.added:
        return False
    leading.replicas.learn(committed(proposal.version + 1, proposal.in_sync), now_ms)
    return True


def is_put_out(leading: Leading, now_ms: int) -> bool:
    proposal = leading.replicas.propose(now_ms)
    return proposal is not None and 2 not in proposal.in_sync


def test_a_late_follower_at_the_high_watermark_is_admitted_only_after_it_has_caught_up() -> None:
    """The high watermark stands still below min.insync.replicas: the follower would leave again at once."""
    leading, late_ms = Leading((1,), high_watermark=100, min_isr=2), 10 * LAG_MAX_MS
    leading.write(50)
    leading.fetch(2, 110, late_ms)
    assert leading.high_watermark == 100
    assert not joins(leading, late_ms)
    leading.write(50)
    leading.fetch(2, 150, late_ms + 10)
    assert joins(leading, late_ms + 10), "it has all that was there at the Fetch before"


@pytest.mark.parametrize("min_isr", [1, 2])
def test_a_follower_one_response_behind_a_load_that_never_pauses_is_admitted(min_isr: int) -> None:
    """Producers use acks=1: before each Fetch of the follower, and before the proposal, the leader writes more."""
    leading, began_ms = Leading((1,), high_watermark=100, min_isr=min_isr), 10 * LAG_MAX_MS
    offset, has_joined = 100, []
    for now_ms in range(began_ms, began_ms + 50, 10):
        leading.write(5)
        leading.fetch(2, offset, now_ms)
        offset = leading.progress.written.offset
        leading.write(5)
        has_joined.append(joins(leading, now_ms))
    assert any(has_joined)


def test_an_isr_member_that_falls_back_is_late_only_a_maximum_lag_after_its_admission() -> None:
    leading, now_ms = Leading((1,), high_watermark=100), 10 * LAG_MAX_MS
    leading.fetch(2, 100, now_ms)
    leading.write(50)
    now_ms += LAG_MAX_MS - 10
    assert joins(leading, now_ms), "not late yet, but nearly"
    assert leading.replicas.propose(now_ms + LAG_MAX_MS) is None
    assert is_put_out(leading, now_ms + LAG_MAX_MS + 1)


def test_the_lag_of_an_isr_member_counts_from_its_admission_and_not_from_later_metadata() -> None:
    leading = Leading((1, 2), high_watermark=100)
    leading.fetch(2, 100)
    leading.write()
    leading.replicas.learn(committed(2, {1, 2}), LAG_MAX_MS)
    leading.replicas.learn(committed(3, {1, 2, 3}), LAG_MAX_MS)
    assert is_put_out(leading, LAG_MAX_MS + 1)


def lagging(leading: Leading, behind_ms: int, until_ms: int, *, from_ms: int = 0) -> int:
    """Let the log grow by one offset each millisecond, and replica 2 fetch every 10 ms, always `behind_ms` behind, more
    than one response. Returns the time of the last Fetch."""
    for now_ms in range(from_ms, until_ms, 10):
        leading.fetch(2, 100 + max(0, now_ms - behind_ms), now_ms)
        leading.write(10)
    return until_ms - 10


def test_an_isr_member_several_responses_behind_stays_while_its_lag_is_below_the_maximum() -> None:
    """The member never has all records of its previous Fetch, and always all records of a while ago."""
    leading = Leading((1, 2), high_watermark=100)
    for now_ms in range(0, 5 * LAG_MAX_MS, 500):
        lagging(leading, LAG_MAX_MS // 2, now_ms + 500, from_ms=now_ms)
        assert leading.replicas.propose(now_ms + 500) is None
    lag = leading.replicas.lags(5 * LAG_MAX_MS)[2]
    assert LAG_MAX_MS // 2 <= lag.late_ms < 0.7 * LAG_MAX_MS


def test_an_isr_member_that_lags_more_than_the_maximum_is_late_though_it_fetches_steadily() -> None:
    leading = Leading((1, 2), high_watermark=100)
    now_ms = lagging(leading, LAG_MAX_MS + 50, 5 * LAG_MAX_MS)
    assert is_put_out(leading, now_ms)


def test_a_silent_isr_member_is_late_with_the_first_record_that_it_lacks() -> None:
    """The member's lag in time counts from its last Fetch, though it lacked no record meanwhile."""
    leading = Leading((1, 2), high_watermark=100)
    leading.fetch(2, 100)
    for now_ms in range(0, 5 * LAG_MAX_MS, LAG_MAX_MS // 2):
        assert leading.replicas.propose(now_ms) is None
    leading.write()
    assert is_put_out(leading, 5 * LAG_MAX_MS)


def test_the_high_watermark_does_not_wait_for_a_follower_several_responses_behind() -> None:
    """The follower is not late, but the high watermark would be behind by its lag."""
    leading = Leading((1,), high_watermark=100)
    now_ms = lagging(leading, LAG_MAX_MS // 2, 3 * LAG_MAX_MS)
    leading.replicas.propose(now_ms)
    assert leading.high_watermark == leading.progress.written.offset


def test_a_follower_several_responses_behind_is_admitted_at_the_high_watermark() -> None:
    """The follower is as far as the slowest member, so the high watermark waits no longer with both."""
    leading = Leading((1, 3), high_watermark=100)
    for now_ms in range(0, 3 * LAG_MAX_MS, 10):
        offset = 100 + max(0, now_ms - LAG_MAX_MS // 2)
        leading.fetch(3, offset, now_ms)
        leading.fetch(2, offset, now_ms)
        leading.write(10)
    assert joins(leading, 3 * LAG_MAX_MS)


def test_a_follower_with_all_records_is_not_late_however_long_no_record_comes() -> None:
    leading = Leading((1, 2))
    leading.fetch(2, 100)
    assert leading.replicas.propose(100 * LAG_MAX_MS) is None


def test_a_follower_that_always_has_the_records_of_its_previous_fetch_keeps_up() -> None:
    leading = Leading((1, 2), high_watermark=100)
    for now_ms in range(0, 5000, 500):
        leading.fetch(2, leading.progress.written.offset, now_ms)
        leading.write()
        assert leading.replicas.propose(now_ms) is None
        leading.write()


def test_the_high_watermark_waits_for_a_follower_that_is_about_to_enter_the_isr() -> None:
    """A leader alone would otherwise be ahead of every Fetch."""
    leading = Leading((1,), high_watermark=100)
    leading.write()
    assert leading.high_watermark == 101
    leading.fetch(2, 101)
    leading.write()
    assert leading.high_watermark == 101
    assert leading.replicas.propose(0) == Proposal(1, frozenset({1, 2}), {2: 20})


def test_but_not_for_long() -> None:
    leading = Leading((1,), high_watermark=100)
    leading.fetch(2, 99)
    leading.fetch(2, 100)
    leading.write(2)
    leading.fetch(2, 101, 0)
    assert leading.high_watermark == 101
    leading.replicas.learn(committed(2, {1}, serving=(1, 3)), 0)
    assert leading.high_watermark == 102


def test_kip_320_a_fetch_of_another_epoch_says_nothing() -> None:
    leading = Leading((1, 2), high_watermark=100)
    leading.write()
    with pytest.raises(FencedLeaderEpoch):
        leading.fetch(2, 101, epoch=EPOCH - 1)
    with pytest.raises(UnknownLeaderEpoch):
        leading.fetch(2, 101, epoch=EPOCH + 1)
    assert leading.high_watermark == 100


def test_follower_offsets_of_an_earlier_leader_epoch_do_not_count() -> None:
    leading = Leading((1, 2, 3), high_watermark=100)
    leading.fetch(2, 100)
    leading.fetch(3, 100)
    leading.write()
    leading.progress.note_replica(2, 101)
    assert leading.high_watermark == 100
    Replicas(1, EPOCH + 1, leading.progress, committed(2, {1, 2}), 0, LAG_MAX_MS)
    leading.write()
    assert leading.high_watermark == 100


def test_kip_903_a_follower_in_another_life_is_refused_and_has_said_nothing() -> None:
    leading = Leading((1, 2), high_watermark=100)
    leading.fetch(3, 100)
    leading.write()
    leading.fetch(2, 101)
    with pytest.raises(StaleBrokerEpoch):
        leading.fetch(3, 101, life=29)
    leading.replicas.learn(committed(2, {1, 2}, lives=LIVES | {2: 21, 3: 31}), 0)
    assert leading.replicas.propose(0) is None
    leading.write()
    assert leading.high_watermark == 100
    with pytest.raises(StaleBrokerEpoch):
        leading.fetch(3, 102)
    leading.fetch(3, 102, life=31)
    assert leading.replicas.propose(0) == Proposal(2, frozenset({1, 2, 3}), {3: 31})


def test_kip_841_a_replica_that_does_not_serve_does_not_enter_the_isr() -> None:
    leading = Leading((1, 2), high_watermark=100)
    leading.replicas.learn(committed(2, {1, 2}, serving=(1, 2)), 0)
    leading.fetch(3, 100)
    assert leading.replicas.propose(0) is None


def test_a_fetch_of_a_broker_that_is_no_replica_yet_raises_unknown_leader_epoch() -> None:
    leading = Leading()
    with pytest.raises(UnknownLeaderEpoch):
        leading.fetch(4, 100, life=1)


def test_logs_that_part_count_for_nothing() -> None:
    leading = Leading((1, 2), high_watermark=90)
    assert leading.fetch(2, 110, last_epoch=4).diverging == EpochEnd(4, 100)
    assert leading.fetch(2, 60, last_epoch=3).diverging == EpochEnd(3, 50)
    assert leading.high_watermark == 90


def test_an_empty_follower_begins_anywhere_in_the_log() -> None:
    leading = Leading()
    assert leading.fetch(3, 0, last_epoch=-1) == FollowerFetchResult(has_deleted=True, is_outside=True)
    for offset in (-1, 101):
        with pytest.raises(OffsetOutOfRange):
            leading.fetch(3, offset, last_epoch=-1)


@pytest.mark.parametrize("is_in_sync", [False, True])
def test_earlier_fetches_of_a_suspect_replica_do_not_count(*, is_in_sync: bool) -> None:
    """Otherwise the replica would stay in the ISR, or enter it, by records that it no longer has."""
    leading = Leading((1, 2, 3) if is_in_sync else (1, 3), high_watermark=90)
    leading.fetch(3, 100)
    leading.fetch(2, 100)
    assert leading.high_watermark == 100
    update = committed(2, {1, 3})._replace(marked=frozenset({2}), state_version=1)
    leading.replicas.learn(update, 0)
    assert leading.replicas.propose(0) is None
    leading.write(5)
    leading.fetch(3, 105)
    assert leading.high_watermark == 105, "nobody waits for it"
    leading.fetch(2, 60)
    assert leading.replicas.propose(0) is None
    leading.fetch(2, 105)
    assert leading.replicas.propose(0) == Proposal(2, frozenset({1, 2, 3}), {2: 20})


def test_a_suspect_replica_counts_again_with_a_later_fetch() -> None:
    """A Fetch counts with later versions of the metadata, too, unless the state of the partition was written again."""
    leading = Leading((1, 3), high_watermark=90)
    update = committed(2, {1, 3})._replace(marked=frozenset({2}), state_version=1)
    leading.replicas.learn(update, 0)
    leading.fetch(2, 100)
    leading.replicas.learn(update._replace(version=3), 0)
    assert leading.replicas.propose(0) == Proposal(3, frozenset({1, 2, 3}), {2: 20})
    leading.replicas.learn(update._replace(version=4, state_version=2), 0)
    assert leading.replicas.propose(0) is None


def test_a_waiting_fetch_of_a_replica_that_became_suspect_raises_unknown_leader_epoch() -> None:
    leading = Leading((1, 2))
    leading.fetch(2, 100)
    leading.replicas.check_fetch_counts(2)
    leading.replicas.learn(committed(2, {1})._replace(marked=frozenset({2}), state_version=1), 0)
    with pytest.raises(UnknownLeaderEpoch):
        leading.replicas.check_fetch_counts(2)


def test_an_isr_member_at_the_high_watermark_stays_though_it_is_behind_the_log_end() -> None:
    leading = Leading((1, 2), high_watermark=90)
    leading.write(5)
    assert not leading.fetch(2, 90).is_outside
    assert leading.replicas.propose(0) is None
