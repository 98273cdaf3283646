"""Leader-side tracking of replicas: their ends, the maximal ISR, and proposals of an ISR.

Pure; each leadership has its own object. The high watermark is the least durable end in the *maximal ISR*: the
committed ISR, and all replicas that the leader has proposed since (KIP-497). A proposal replaces one version of the
metadata, or fails. Its result is known only when a greater version is seen (RULES K5). Fetches with another leader
epoch, or another broker epoch, do not count.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from engine.api import NO_EPOCH, NO_OFFSET, EpochEnd
from engine.errors import OffsetOutOfRange, StaleBrokerEpoch, UnknownLeaderEpoch
from engine.replica_log import NEVER_MS, SessionFetch
from engine.replica_log import FollowerFetchResult as FollowerFetchResult
from engine.replication.end_history import EndHistory
from engine.replication.epoch_checks import check_leader_epoch, diverging_end
from engine.replication.exchange import FollowerFetch, LogState
from engine.replication.progress import Progress
from engine.roles import CommittedIsr as CommittedIsr


class Proposal(NamedTuple):
    """A proposed ISR, to replace the committed one of this version. `added`: broker epochs of the replicas that
    enter."""

    version: int
    in_sync: frozenset[int]
    added: Mapping[int, int] = MappingProxyType({})


class FollowerState(NamedTuple):
    """A follower as of its last Fetch. It is replaced as a whole, since its fields belong together (KAFKA-15221).

    `caught_up_at_ms`: time of the last Fetch at which the leader had no more records than the follower had at that
    Fetch or at the next one (Kafka's lastCaughtUpTimeMs). `session_fetch`: repetitions of the Fetch in its session; as
    long as the follower is not noted again, the leader had no new record for it.
    """

    end_offset: int
    broker_epoch: int
    at_ms: int
    leader_end_offset: int
    caught_up_at_ms: int
    session_fetch: SessionFetch | None = None
    start_offset: int = NO_OFFSET

    def without_later_fetches(self) -> "FollowerState":
        """The state with the repetitions so far, but without later ones."""
        if self.session_fetch is None:
            return self
        at_ms, caught_up_at_ms = max(self.at_ms, self.session_fetch.at_ms), self.caught_up_at_ms
        if self.end_offset >= self.leader_end_offset:
            caught_up_at_ms = max(caught_up_at_ms, at_ms)
        return self._replace(at_ms=at_ms, caught_up_at_ms=caught_up_at_ms, session_fetch=None)


class FollowerLag(NamedTuple):
    """Lag of a follower, in offsets and in time.

    `offsets`: the whole log if the follower has not fetched. `late_ms`: 0 if it lacks no record; a value below
    replica.lag.time.max.ms may be too great by a fifteenth of that."""

    offsets: int
    late_ms: int


class Replicas:
    """Replicas of one partition, in one epoch of this leader, which begins at its log end.

    A follower is late if it lacks a record that the leader had `lag_max_ms` (replica.lag.time.max.ms) ago. A late
    follower is not admitted to the ISR; a late member leaves it, but not within `lag_max_ms` of its admission.
    """

    __slots__ = (
        "_began_at_ms",
        "_broker_id",
        "_committed",
        "_ends",
        "_follower_states",
        "_joined_at_ms",
        "_lag_max_ms",
        "_progress",
        "_proposed",
        "epoch",
        "epoch_start",
    )  # fmt: skip

    def __init__(
        self, broker_id: int, epoch: int, progress: Progress, committed: CommittedIsr, now_ms: int, lag_max_ms: int
    ) -> None:
        self._broker_id = broker_id
        self.epoch = epoch
        self.epoch_start = progress.written.offset
        self._progress = progress
        self._committed = committed
        self._began_at_ms = now_ms
        self._joined_at_ms = dict.fromkeys(committed.in_sync, now_ms)
        self._lag_max_ms = lag_max_ms
        self._ends = EndHistory(lag_max_ms)
        self._proposed: Proposal | None = None
        self._follower_states: dict[int, FollowerState] = {}
        progress.lead(committed.in_sync - {broker_id}, is_enough=committed.is_enough)

    @property
    def has_latest(self) -> bool:
        """Whether the high watermark has reached the begin of the epoch: before, it may be below the predecessor's
        (KIP-207)."""
        return self._progress.high_watermark.offset >= self.epoch_start

    @property
    def is_enough(self) -> bool:
        return self._committed.is_enough

    @property
    def maximal_isr(self) -> frozenset[int]:
        """All replicas that may be in the ISR, as far as this leader can know."""
        proposed = self._proposed
        return self._committed.in_sync if proposed is None else self._committed.in_sync | proposed.in_sync

    @property
    def successors(self) -> frozenset[int]:
        """The other replicas that may be elected while this broker leads, without an unclean election."""
        return (self.maximal_isr | self._committed.eligible) - {self._broker_id}

    @property
    def others(self) -> frozenset[int]:
        """All replicas except the leader."""
        return self._committed.replicas - {self._broker_id}

    @property
    def serving(self) -> Collection[int]:
        """The brokers that serve, by the metadata."""
        return self._committed.serving

    @property
    def enough_others(self) -> int:
        """The number of other replicas that have to be in sync for min.insync.replicas."""
        return min(self._committed.min_isr, len(self._committed.replicas)) - 1

    @property
    def lag_max_ms(self) -> int:
        """The value of replica.lag.time.max.ms."""
        return self._lag_max_ms

    @property
    def version(self) -> int:
        """The version of the committed ISR."""
        return self._committed.version

    def low_watermark(self, start_offset: int) -> int:
        """The least log start of the replicas whose brokers serve (Partition.lowWatermarkIfLeader); -1: not known of
        all.

        `start_offset`: of the leader.
        """
        others = {*self._committed.replicas}.intersection(self._committed.serving) - {self._broker_id}
        starts = (
            self._follower_states[one].start_offset if one in self._follower_states else NO_OFFSET for one in others
        )
        return min((start_offset, *starts))

    def stopped_fetching(self, replica: int, session_fetch: SessionFetch | None = None) -> None:
        """Note that a follower no longer repeats its Fetch. `session_fetch`: only in that session."""
        follower = self._follower_states.get(replica)
        if follower is not None and (session_fetch is None or follower.session_fetch is session_fetch):
            self._follower_states[replica] = follower.without_later_fetches()

    def check_fetch_counts(self, replica: int) -> None:
        """Raise UnknownLeaderEpoch if no Fetch of the replica counts any more."""
        if replica not in self._follower_states:
            raise UnknownLeaderEpoch(f"broker {replica} has to say again how far it is")

    def fetched(
        self,
        replica: int,
        broker_epoch: int,
        asked: FollowerFetch,
        log: LogState,
        now_ms: int,
        session_fetch: SessionFetch | None = None,
    ) -> FollowerFetchResult:
        """Note a Fetch of a follower with that broker epoch.

        Its end does not count if the logs diverge, or if this raises FencedLeaderEpoch, UnknownLeaderEpoch,
        StaleBrokerEpoch or OffsetOutOfRange.
        """
        self.stopped_fetching(replica)
        check_leader_epoch(asked.leader_epoch, self.epoch)
        self._check(replica, broker_epoch)
        diverging = _diverging(asked, log)
        if diverging is not None:
            return FollowerFetchResult(diverging)
        before = self._follower_states.get(replica)
        caught_up_at_ms = NEVER_MS if before is None else before.caught_up_at_ms
        if asked.offset >= log.end_offset:
            caught_up_at_ms = now_ms
        elif before is not None and asked.offset >= before.leader_end_offset:
            caught_up_at_ms = max(caught_up_at_ms, before.at_ms)
        self._ends.note(log.end_offset, now_ms)
        start_offset = asked.log_start_offset
        has_deleted = before is None or before.start_offset < start_offset
        self._follower_states[replica] = FollowerState(
            asked.offset, broker_epoch, now_ms, log.end_offset, caught_up_at_ms, session_fetch, start_offset
        )
        has_moved = self._progress.note_replica(replica, asked.offset)
        is_outside = replica not in self._committed.in_sync
        return FollowerFetchResult(None, self._count(now_ms) or has_moved, has_deleted, is_outside)

    def learn(self, committed: CommittedIsr, now_ms: int) -> bool:
        """Take over a newer committed ISR; returns whether the high watermark moved.

        An older or equal version is ignored: it may come from an outdated metadata server. With another
        `state_version`, a suspect replica may have lost records, so that it has to fetch again before its end counts
        (RULES K8).
        """
        if committed.version <= self._committed.version:
            return False
        is_written = committed.state_version != self._committed.state_version
        void = committed.marked - committed.in_sync if is_written else frozenset[int]()
        if committed.in_sync != self._committed.in_sync:
            self._joined_at_ms = {one: self._joined_at_ms.get(one, now_ms) for one in committed.in_sync}
        self._committed, self._proposed = committed, None
        for replica, follower in [*self._follower_states.items()]:
            if replica in void or follower.broker_epoch != committed.broker_epochs.get(replica):
                del self._follower_states[replica]
                self._progress.note_replica(replica, NO_OFFSET)
        return self._count(now_ms)

    def propose(self, now_ms: int) -> Proposal | None:
        """The ISR to write, None: no change. From now on its members count for the high watermark.

        While the result of the last proposal is not known, the same one is returned again.
        """
        self._ends.note(self._progress.written.offset, now_ms)
        if self._proposed is None:
            committed = self._committed
            joining = [one for one in sorted(committed.replicas) if self._may_join(one, now_ms)]
            added = {one: self._follower_states[one].broker_epoch for one in joining}
            late = {one for one in committed.in_sync if self._is_late(one, now_ms)}
            if added or late:
                in_sync = (committed.in_sync - late) | added.keys()
                self._proposed = Proposal(committed.version, in_sync, added)
        self._count(now_ms)
        return self._proposed

    def lags(self, now_ms: int) -> dict[int, FollowerLag]:
        """Lags of all other replicas, by broker id."""
        return {one: self._lag(one, now_ms) for one in sorted(self._committed.replicas - {self._broker_id})}

    def _lag(self, replica: int, now_ms: int) -> FollowerLag:
        follower, end_offset = self._follower_states.get(replica), self._progress.written.offset
        known_offset = max(0, self._end_of(replica))
        if known_offset >= end_offset:
            return FollowerLag(0, 0)
        since_ms = self._began_at_ms if follower is None else max(self._began_at_ms, self._reached_at_ms(follower))
        return FollowerLag(end_offset - known_offset, now_ms - since_ms)

    def _check(self, replica: int, broker_epoch: int) -> None:
        """Raise UnknownLeaderEpoch or StaleBrokerEpoch unless the metadata show the follower with this broker epoch.

        A reassignment begins no leader epoch, so a follower may know of one before this leader does.
        """
        if replica not in self._committed.replicas:
            raise UnknownLeaderEpoch(f"broker {replica} is no replica here yet")
        if broker_epoch != (known := self._committed.broker_epochs.get(replica)):
            raise StaleBrokerEpoch(f"broker {replica} is in epoch {known}, not {broker_epoch}")

    def _count(self, now_ms: int) -> bool:
        """Update the replicas that the high watermark waits for: the maximal ISR, and followers that are about to
        enter.

        Otherwise a leader that is alone in the ISR would always be ahead of them (Partition.maybeIncrementLeaderHW).
        Returns whether the high watermark moved.
        """
        joining = {one for one in self._follower_states if self._is_eligible(one) and self._is_close(one, now_ms)}
        others = (self.maximal_isr | joining) - {self._broker_id}
        return self._progress.set_in_sync(others, is_enough=self.is_enough)

    def _may_join(self, replica: int, now_ms: int) -> bool:
        """Whether the follower may enter the ISR.

        It has all records below the high watermark, and all that the leader had at the begin of its epoch, which may be
        more (KAFKA-7128). And it is not late: below min.insync.replicas the high watermark stands still, so a late
        follower could enter, and would leave again at once.
        """
        if replica in self._committed.in_sync or not self._is_eligible(replica):
            return False
        reached = max(self._progress.high_watermark.offset, self.epoch_start)
        return self._end_of(replica) >= reached and not self._is_late(replica, now_ms)

    def _is_eligible(self, replica: int) -> bool:
        """Whether the replica serves, and has fetched with its present broker epoch (KIP-841, KIP-903)."""
        follower, committed = self._follower_states.get(replica), self._committed
        has_fetched = follower is not None and follower.broker_epoch == committed.broker_epochs.get(replica)
        return has_fetched and replica in committed.replicas and replica in committed.serving

    def _is_close(self, replica: int, now_ms: int) -> bool:
        """Whether a follower has all records, or was at most one response behind within `lag_max_ms`
        (Replica.isCaughtUp). The high watermark waits for it; for a follower that is seconds behind it would wait for
        seconds."""
        follower = self._follower_states[replica]
        has_all = follower.end_offset >= self._progress.written.offset
        return has_all or now_ms - follower.without_later_fetches().caught_up_at_ms <= self._lag_max_ms

    def _is_late(self, replica: int, now_ms: int) -> bool:
        """Whether a replica has lacked records for longer than `lag_max_ms`, counted from its admission at the
        earliest.

        A replica that has all records is not late, however old its last Fetch is.
        """
        if replica == self._broker_id or self._end_of(replica) >= self._progress.written.offset:
            return False
        follower, joined_at_ms = self._follower_states.get(replica), self._joined_at_ms.get(replica, NEVER_MS)
        since_ms = joined_at_ms if follower is None else max(joined_at_ms, self._reached_at_ms(follower))
        return now_ms - since_ms > self._lag_max_ms

    def _end_of(self, replica: int) -> int:
        follower = self._follower_states.get(replica)
        return NO_OFFSET if follower is None else follower.end_offset

    def _reached_at_ms(self, follower: FollowerState) -> int:
        """The latest known time, up to its last Fetch, at which the leader had no record that the follower lacks
        now."""
        follower = follower.without_later_fetches()
        return max(follower.caught_up_at_ms, min(follower.at_ms, self._ends.reached_at_ms(follower.end_offset)))


def _diverging(asked: FollowerFetch, log: LogState) -> EpochEnd | None:
    """Check a Fetch for log divergence; None: no divergence. A log without records never diverges. Raises
    OffsetOutOfRange."""
    if asked.last_epoch != NO_EPOCH:
        end = log.epochs.end_of(asked.last_epoch, log.end_offset, log.start_offset)
        return diverging_end(log.start_offset, end, asked.offset, asked.last_epoch)
    if not log.start_offset <= asked.offset <= log.end_offset:
        raise OffsetOutOfRange(f"offset {asked.offset} is not within [{log.start_offset}, {log.end_offset}]")
    return None
