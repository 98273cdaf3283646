"""A repeated Fetch of a session counts for partitions that the request does not name (KIP-227)."""

from hypothesis import given
from hypothesis import strategies as st

from engine.logs.recovery.epochs import EpochHistory, EpochStart
from engine.replica_log import NEVER, SessionFetch
from engine.replication.exchange import FollowerFetch, LogState
from engine.replication.progress import Progress
from engine.replication.replicas import CommittedIsr, Replicas
from engine.replication.tests.test_progress import at, ends_of

ME, OTHER, LAG_MAX_MS = 1, 2, 1000
EPOCHS = EpochHistory([EpochStart(0, 0)])


class Leading:
    """Broker 1 leads; all records that it writes are durable at once."""

    def __init__(self) -> None:
        self.progress = Progress(at(0), has_others=True)
        committed = CommittedIsr(1, frozenset({ME, OTHER}), frozenset({ME, OTHER}), {ME: 1, OTHER: 1}, {ME, OTHER}, 1)
        self.replicas = Replicas(ME, 0, self.progress, committed, 0, LAG_MAX_MS)
        self.session_fetch = SessionFetch()

    @property
    def end(self) -> int:
        return self.progress.written.offset

    def write(self) -> None:
        ends = ends_of([1], self.end)
        self.progress.note_written(ends[-1], ends)
        self.progress.note_durable(ends[-1])

    def fetch(self, offset: int, now_ms: int, session_fetch: SessionFetch | None = None) -> None:
        log = LogState(EPOCHS, 0, self.end, self.end, self.progress.high_watermark.offset)
        asked = FollowerFetch(0, offset, 0 if offset else -1, 0, 0)
        self.replicas.fetched(OTHER, 1, asked, log, now_ms, session_fetch)

    def is_dropped(self, now_ms: int) -> bool:
        """Whether the leader proposes an ISR without the follower, as late."""
        proposal = self.replicas.propose(now_ms)
        return proposal is not None and OTHER not in proposal.in_sync

    def late_ms(self, now_ms: int) -> int:
        return self.replicas.lags(now_ms)[OTHER].late_ms


def test_a_follower_that_repeats_a_fetch_at_the_log_end_keeps_up_until_a_new_record() -> None:
    leading = Leading()
    leading.fetch(0, 0, leading.session_fetch)
    leading.session_fetch.asked(5_000, NEVER)
    leading.write()
    assert leading.late_ms(5_300) == 300
    assert not leading.is_dropped(5_000 + LAG_MAX_MS)
    assert leading.is_dropped(5_001 + LAG_MAX_MS)


def test_a_follower_that_lacks_a_record_is_late_however_often_its_session_fetches() -> None:
    leading = Leading()
    leading.write()
    leading.fetch(0, 0, leading.session_fetch)
    leading.session_fetch.asked(5_000, NEVER)
    assert leading.late_ms(5_300) == 5_300
    assert leading.is_dropped(5_000)


def test_a_partition_that_left_the_session_is_not_refreshed_by_later_fetches() -> None:
    leading = Leading()
    leading.fetch(0, 0, leading.session_fetch)
    leading.session_fetch.asked(100, NEVER)
    leading.replicas.stopped_fetching(OTHER)
    leading.session_fetch.asked(5_000, NEVER)
    leading.write()
    assert leading.late_ms(5_300) == 5_200


def test_a_partition_that_an_earlier_session_lets_go_of_late_stays_with_the_next_one() -> None:
    """The follower fetches over another connection by now, without naming its idle partitions again."""
    leading, before = Leading(), SessionFetch()
    leading.fetch(0, 0, before)
    leading.fetch(0, 100, leading.session_fetch)
    leading.replicas.stopped_fetching(OTHER, before)
    leading.session_fetch.asked(5_000, NEVER)
    leading.write()
    assert leading.late_ms(5_300) == 300


def test_only_the_session_of_the_last_fetch_of_a_partition_counts() -> None:
    """A later Fetch over another connection, or in another session, replaces the repetitions of the first one."""
    leading, before = Leading(), SessionFetch()
    leading.fetch(0, 0, before)
    leading.fetch(0, 100, leading.session_fetch)
    before.asked(5_000, NEVER)
    leading.write()
    assert leading.late_ms(5_300) == 5_200


class Following:
    """A follower and two equal leaders. The follower names its partition to one in each Fetch, to the other only upon
    changes."""

    def __init__(self) -> None:
        self.with_every_fetch, self.with_news_only = Leading(), Leading()
        self.now_ms = 0
        self.ends = [(0, 0)]  # of the log, since when
        self.offset = -1
        self.has_changed = True
        self.is_counted = False  # by this Fetch
        self.may_take = 0

    def write(self) -> None:
        """Write a record while a Fetch waits."""
        for leading in (self.with_every_fetch, self.with_news_only):
            leading.write()
        self.ends.append((self.now_ms, self.with_every_fetch.end))
        self.has_changed = True

    def wake(self) -> None:
        if self.has_changed:
            if not self.is_counted:
                self.with_news_only.fetch(self.offset, self.now_ms, self.with_news_only.session_fetch)
            self.is_counted, self.has_changed = True, False
            self.may_take = self.with_news_only.end - self.offset

    def fetch(self, taken: int) -> None:
        """Let the follower append some of the records that it got, and fetch again."""
        offset = max(0, self.offset) + min(taken, self.may_take)
        self.is_counted = self.has_changed or offset != self.offset or offset < self.with_news_only.end
        self.offset, self.has_changed = offset, False
        self.with_every_fetch.fetch(offset, self.now_ms)
        if self.is_counted:
            self.with_news_only.fetch(offset, self.now_ms, self.with_news_only.session_fetch)
        self.with_news_only.session_fetch.asked(self.now_ms, NEVER)
        self.may_take = self.with_news_only.end - offset

    def check(self) -> None:
        late_ms, late_in_news_ms = (one.late_ms(self.now_ms) for one in (self.with_every_fetch, self.with_news_only))
        assert late_in_news_ms <= late_ms, "it is heard no later"
        if late_in_news_ms:
            since_ms = self.now_ms - late_in_news_ms
            assert self.offset >= max(end for from_ms, end in self.ends if from_ms <= since_ms), "it had all of that"


@given(st.lists(st.tuples(st.sampled_from(["write", "wake", "fetch", "wait"]), st.integers(0, 3)), max_size=40))
def test_the_lag_of_a_session_follower_equals_the_lag_with_full_fetches(steps: list[tuple[str, int]]) -> None:
    following = Following()
    following.fetch(0)
    for step, amount in steps:
        following.now_ms += 1
        match step:
            case "write":
                following.write()
            case "wake":
                following.wake()
            case "fetch":
                following.fetch(amount)
            case _:
                following.now_ms += 10 * amount
        following.check()
