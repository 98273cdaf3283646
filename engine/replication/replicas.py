"""What a leader knows of its followers, who of them has to have a record before it counts, and whom it wants in sync.

Pure; one object for each leadership. The high watermark is where the last of the *maximal ISR* is durable: of all that
are in sync as the metadata was last seen, and of all that the leader has proposed since (KIP-497). A proposal replaces
one version of the metadata or nothing; what became of it is known when a greater version is seen, and in no other way
(RULES K5). What followers said in another epoch, or in another life, counts for nothing.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from engine.api import NO_EPOCH, NO_OFFSET, EpochEnd
from engine.errors import OffsetOutOfRange, StaleBrokerEpoch, UnknownLeaderEpoch
from engine.replica_log import NEVER_MS, Standing
from engine.replica_log import Heard as Heard
from engine.replication.end_history import EndHistory
from engine.replication.epoch_checks import check_leader_epoch, diverging_end
from engine.replication.exchange import Asked, LogState
from engine.replication.progress import Progress
from engine.roles import Committed as Committed


class Proposal(NamedTuple):
    """An ISR, to be written in place of what is committed at this version; `added`: who enters it, in which life."""

    version: int
    in_sync: frozenset[int]
    added: Mapping[int, int] = MappingProxyType({})


class Seen(NamedTuple):
    """A follower as of its last Fetch, replaced as a whole: how far it is, where its log starts, and in which life are
    one statement (KAFKA-15221). `caught_up_at_ms`: the last Fetch at which the leader had no more than the follower had
    at that Fetch or at the next one (Kafka's lastCaughtUpTimeMs). `standing`: when it has asked the same again; for as
    long as it is not heard anew, there is nothing else that it could have got."""

    end_offset: int
    broker_epoch: int
    at_ms: int
    leader_end_offset: int
    caught_up_at_ms: int
    standing: Standing | None = None
    start_offset: int = NO_OFFSET

    def so_far(self) -> "Seen":
        """Without what it will ask."""
        if self.standing is None:
            return self
        at_ms, caught_up_at_ms = max(self.at_ms, self.standing.at_ms), self.caught_up_at_ms
        if self.end_offset >= self.leader_end_offset:
            caught_up_at_ms = max(caught_up_at_ms, at_ms)
        return self._replace(at_ms=at_ms, caught_up_at_ms=caught_up_at_ms, standing=None)


class FollowerLag(NamedTuple):
    """How far a follower is behind: in offsets, all there are if it has not said so, and in time: 0 if it has all.

    `late_ms` is told too great by a fifteenth of replica.lag.time.max.ms, at most, as far as it is below that."""

    offsets: int
    late_ms: int


class Replicas:
    """Of one partition, in one epoch of this leader, which begins at the end of its log.

    A follower is late if it lacks something that the leader had `lag_max_ms` (replica.lag.time.max.ms) ago. A late
    follower is not admitted to the ISR; a late member leaves it, but not within `lag_max_ms` of its admission.
    """

    __slots__ = (
        "_began_at_ms", "_broker_id", "_committed", "_ends", "_joined_at_ms", "_lag_max_ms", "_progress", "_proposed",
        "_seen", "epoch", "epoch_start",
    )  # fmt: skip

    def __init__(
        self, broker_id: int, epoch: int, progress: Progress, committed: Committed, now_ms: int, lag_max_ms: int
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
        self._seen: dict[int, Seen] = {}
        progress.lead(committed.in_sync - {broker_id}, is_enough=committed.is_enough)

    @property
    def has_latest(self) -> bool:
        """Whether the high watermark says what was committed: at first it may be behind (KIP-207)."""
        return self._progress.high_watermark.offset >= self.epoch_start

    @property
    def is_enough(self) -> bool:
        return self._committed.is_enough

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Whoever may be in the ISR, as far as this leader can know."""
        proposed = self._proposed
        return self._committed.in_sync if proposed is None else self._committed.in_sync | proposed.in_sync

    @property
    def successors(self) -> frozenset[int]:
        """Who else may be elected as long as this broker leads, unless an unclean election is ordered."""
        return (self.maximal_isr | self._committed.eligible) - {self._broker_id}

    @property
    def others(self) -> frozenset[int]:
        """All replicas but the leader's own."""
        return self._committed.replicas - {self._broker_id}

    @property
    def serving(self) -> Collection[int]:
        """The brokers that are up, as far as the metadata tell."""
        return self._committed.serving

    @property
    def enough_others(self) -> int:
        """How many other replicas have to be in sync for min.insync.replicas."""
        return min(self._committed.min_isr, len(self._committed.replicas)) - 1

    @property
    def lag_max_ms(self) -> int:
        """See replica.lag.time.max.ms."""
        return self._lag_max_ms

    @property
    def version(self) -> int:
        """Of the metadata that it goes by."""
        return self._committed.version

    def low_watermark(self, start_offset: int) -> int:
        """The least log start of all whose brokers serve, where that is the leader's; -1: one has not told its own
        (Partition.lowWatermarkIfLeader)."""
        others = {*self._committed.replicas}.intersection(self._committed.serving) - {self._broker_id}
        starts = (self._seen[one].start_offset if one in self._seen else NO_OFFSET for one in others)
        return min((start_offset, *starts))

    def left(self, replica: int, standing: Standing | None = None) -> None:
        """It asks for the same no longer; in the session of `standing`, if told."""
        seen = self._seen.get(replica)
        if seen is not None and (standing is None or seen.standing is standing):
            self._seen[replica] = seen.so_far()

    def check_heard(self, replica: int) -> None:
        """Raises UnknownLeaderEpoch if nothing that it has said counts any more."""
        if replica not in self._seen:
            raise UnknownLeaderEpoch(f"broker {replica} has to say again how far it is")

    def fetched(
        self,
        replica: int,
        broker_epoch: int,
        asked: Asked,
        log: LogState,
        now_ms: int,
        standing: Standing | None = None,
    ) -> Heard:
        """A follower in that life asks. Raises FencedLeaderEpoch, UnknownLeaderEpoch, StaleBrokerEpoch,
        OffsetOutOfRange; it has said nothing then, and nothing of what it holds if the logs part before that."""
        self.left(replica)
        check_leader_epoch(asked.leader_epoch, self.epoch)
        self._check(replica, broker_epoch)
        diverging = _diverging(asked, log)
        if diverging is not None:
            return Heard(diverging)
        before = self._seen.get(replica)
        caught_up_at_ms = NEVER_MS if before is None else before.caught_up_at_ms
        if asked.offset >= log.end_offset:
            caught_up_at_ms = now_ms
        elif before is not None and asked.offset >= before.leader_end_offset:
            caught_up_at_ms = max(caught_up_at_ms, before.at_ms)
        self._ends.note(log.end_offset, now_ms)
        start_offset = asked.log_start_offset
        has_deleted = before is None or before.start_offset < start_offset
        self._seen[replica] = Seen(
            asked.offset, broker_epoch, now_ms, log.end_offset, caught_up_at_ms, standing, start_offset
        )
        has_moved = self._progress.note_replica(replica, asked.offset)
        is_outside = replica not in self._committed.in_sync
        return Heard(None, self._count(now_ms) or has_moved, has_deleted, is_outside)

    def learn(self, committed: Committed, now_ms: int) -> bool:
        """What the metadata says by now; an older version, or the same, says nothing: whoever answers reads may have
        been deposed. Who is marked as of another version of the state may have no longer what he said, and says it
        again (RULES K8). Whether the high watermark moved."""
        if committed.version <= self._committed.version:
            return False
        is_written = committed.state_version != self._committed.state_version
        void = committed.marked - committed.in_sync if is_written else frozenset[int]()
        if committed.in_sync != self._committed.in_sync:
            self._joined_at_ms = {one: self._joined_at_ms.get(one, now_ms) for one in committed.in_sync}
        self._committed, self._proposed = committed, None
        for replica, seen in [*self._seen.items()]:
            if replica in void or seen.broker_epoch != committed.broker_epochs.get(replica):
                del self._seen[replica]
                self._progress.note_replica(replica, NO_OFFSET)
        return self._count(now_ms)

    def propose(self, now_ms: int) -> Proposal | None:
        """The ISR to write, if another one is wanted: from now on it counts. As long as nobody knows what became of
        the last one, it is that one again."""
        self._ends.note(self._progress.written.offset, now_ms)
        if self._proposed is None:
            committed = self._committed
            joining = [one for one in sorted(committed.replicas) if self._may_join(one, now_ms)]
            added = {one: self._seen[one].broker_epoch for one in joining}
            late = {one for one in committed.in_sync if self._is_late(one, now_ms)}
            if added or late:
                in_sync = (committed.in_sync - late) | added.keys()
                self._proposed = Proposal(committed.version, in_sync, added)
        self._count(now_ms)
        return self._proposed

    def lags(self, now_ms: int) -> dict[int, FollowerLag]:
        """Of all other replicas, by broker id."""
        return {one: self._lag(one, now_ms) for one in sorted(self._committed.replicas - {self._broker_id})}

    def _lag(self, replica: int, now_ms: int) -> FollowerLag:
        seen, end_offset = self._seen.get(replica), self._progress.written.offset
        known_offset = max(0, self._end_of(replica))
        if known_offset >= end_offset:
            return FollowerLag(0, 0)
        since_ms = self._began_at_ms if seen is None else max(self._began_at_ms, self._reached_at_ms(seen))
        return FollowerLag(end_offset - known_offset, now_ms - since_ms)

    def _check(self, replica: int, broker_epoch: int) -> None:
        """Reassignments begin no epoch: a follower may know of one that this leader has yet to learn."""
        if replica not in self._committed.replicas:
            raise UnknownLeaderEpoch(f"broker {replica} is no replica here yet")
        if broker_epoch != (known := self._committed.broker_epochs.get(replica)):
            raise StaleBrokerEpoch(f"broker {replica} is in epoch {known}, not {broker_epoch}")

    def _count(self, now_ms: int) -> bool:
        """Wait for whoever may be in the ISR, and for who is about to join it: a leader that hears of nobody else would
        otherwise always be ahead (Partition.maybeIncrementLeaderHW). Whether the high watermark moved."""
        joining = {one for one in self._seen if self._is_eligible(one) and self._is_close(one, now_ms)}
        others = (self.maximal_isr | joining) - {self._broker_id}
        return self._progress.set_in_sync(others, is_enough=self.is_enough)

    def _may_join(self, replica: int, now_ms: int) -> bool:
        """Whether the follower has all that was acknowledged in this epoch, and all that the leader began with: that
        may be more than its high watermark says (KAFKA-7128); and is not late, so that it would leave again at once:
        below min.insync.replicas the high watermark stands still."""
        if replica in self._committed.in_sync or not self._is_eligible(replica):
            return False
        reached = max(self._progress.high_watermark.offset, self.epoch_start)
        return self._end_of(replica) >= reached and not self._is_late(replica, now_ms)

    def _is_eligible(self, replica: int) -> bool:
        """It serves, and that very life has fetched (KIP-841, KIP-903)."""
        seen, committed = self._seen.get(replica), self._committed
        has_fetched = seen is not None and seen.broker_epoch == committed.broker_epochs.get(replica)
        return has_fetched and replica in committed.replicas and replica in committed.serving

    def _is_close(self, replica: int, now_ms: int) -> bool:
        """Whether a follower is one response behind, or was within `lag_max_ms` (Replica.isCaughtUp). The high
        watermark may stand still for it; for a follower that is seconds behind it would stand still for seconds."""
        seen = self._seen[replica]
        has_all = seen.end_offset >= self._progress.written.offset
        return has_all or now_ms - seen.so_far().caught_up_at_ms <= self._lag_max_ms

    def _is_late(self, replica: int, now_ms: int) -> bool:
        """Whether a replica lacks something for longer than it may; members of the ISR have `lag_max_ms` to catch up.
        A replica that has all there is is not late, however long ago it said so."""
        if replica == self._broker_id or self._end_of(replica) >= self._progress.written.offset:
            return False
        seen, joined_at_ms = self._seen.get(replica), self._joined_at_ms.get(replica, NEVER_MS)
        since_ms = joined_at_ms if seen is None else max(joined_at_ms, self._reached_at_ms(seen))
        return now_ms - since_ms > self._lag_max_ms

    def _end_of(self, replica: int) -> int:
        seen = self._seen.get(replica)
        return NO_OFFSET if seen is None else seen.end_offset

    def _reached_at_ms(self, seen: Seen) -> int:
        """The latest known time, up to its last Fetch, at which the leader had nothing that the follower lacks now."""
        seen = seen.so_far()
        return max(seen.caught_up_at_ms, min(seen.at_ms, self._ends.reached_at_ms(seen.end_offset)))


def _diverging(asked: Asked, log: LogState) -> EpochEnd | None:
    """Who has no records has none that the leader has not got. Raises OffsetOutOfRange."""
    if asked.last_epoch != NO_EPOCH:
        end = log.epochs.end_of(asked.last_epoch, log.end_offset, log.start_offset)
        return diverging_end(log.start_offset, end, asked.offset, asked.last_epoch)
    if not log.start_offset <= asked.offset <= log.end_offset:
        raise OffsetOutOfRange(f"offset {asked.offset} is not within [{log.start_offset}, {log.end_offset}]")
    return None
