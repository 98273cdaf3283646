"""Replication of a partition: the answers of a leader to its followers, and the fetches of a follower.

The pure state machines of `engine.replication` decide; this module applies them to the log. Every method runs on the
loop, in one step, except for loads.
"""

from collections.abc import Callable

from engine.api import NO_OFFSET, Isolation, ReadResult, WaitingAppends
from engine.errors import EngineError, NotLeaderOrFollower, OffsetNotAvailable, OffsetOutOfRange, UnknownLeaderEpoch
from engine.log_config import LogConfig
from engine.log_dirs.log_dir import LogDir
from engine.log_dirs.truncation import is_unused
from engine.logs.log import Log
from engine.logs.segments.position import LogPosition
from engine.partitions.availability import Availability
from engine.partitions.follower import Follower
from engine.partitions.leader import Leader
from engine.partitions.pending_acks import PendingAcks
from engine.partitions.reads import Reads
from engine.reading.key_indexer import outgrows_tail
from engine.reading.reader import LogReader
from engine.replica_log import AsOf, FollowerFetchResult, SessionFetch
from engine.replication.exchange import FollowerFetch, LeaderReply, LogState
from engine.replication.fetch_state import Action, FetchState
from engine.replication.progress import Progress
from engine.replication.replicas import FollowerLag, Proposal, Replicas
from engine.roles import CommittedIsr, TopicIdPartition


class Replica(Availability):
    """The part of `Partition` that knows the other replicas, if there are any."""

    __slots__ = ("_lag_clock_ms", "_now_ms", "_pending", "_reader", "_reads", "config", "progress")

    def __init__(self, partition: TopicIdPartition, log: Log, log_dir: LogDir, now_ms: Callable[[], int]) -> None:
        super().__init__(partition, log, log_dir)
        self.config = LogConfig()
        confirmed, *ends = log.unconfirmed or [log.end]
        self.progress = Progress(
            log.end,
            confirmed,
            ends,
            has_others=bool(log.unconfirmed),
            unstable=log.unstable,
            ended=log.unreplicated,
        )
        log.unconfirmed, log.unstable, log.unreplicated = [], {}, []
        self._pending = PendingAcks()
        self._now_ms = now_ms
        self._lag_clock_ms = now_ms  # a leader with confirmed reads has a monotonic clock
        self._reader = LogReader(partition, log, log_dir.reading)
        self._reads = Reads(log, log_dir, self.progress, self._reader)

    @property
    def undecided_from(self) -> int:
        """The first offset of the first transaction that is open, or ended above the high watermark; else the log
        end."""
        return self.progress.undecided_from

    @property
    def log_state(self) -> LogState:
        """The state of the log for the state machines of replication."""
        log, progress = self.log, self.progress
        sealed_to = next((one.end_offset for one in reversed(log.segments) if one.is_sealed), 0)
        return LogState(
            log.epochs,
            log.start_offset,
            log.end.offset,
            progress.durable.offset,
            progress.high_watermark.offset,
            sealed_to,
            log.local_start_offset,
            replaced_to=max(log.compacted_to, log.dropped.replaced_to),
            replaced_in=log.dropped.replaced_in,
            has_open_transactions=bool(log.producers.open_transactions),
            is_unused=is_unused(log),
            is_damaged=log.damaged_from is not None,
        )

    @property
    def waiting_appends(self) -> WaitingAppends:
        """Statistics of the appends whose requests wait for other replicas."""
        return self._pending.waiting

    def stopped_waiting(self) -> None:
        self._pending.stopped_waiting(self.progress)

    def close(self, error: Callable[[], EngineError]) -> None:
        """Close the partition: from now on every call, and every append not yet answered, gets the error."""
        if self._closed is None or self._is_suspended:
            self._is_suspended = False
            self._shut(error)

    def suspend(self) -> None:
        """Suspend the partition until `resume_service`: the metadata give it a role that it could not take yet
        (decision 44). Waiting appends and reads fail, and a follower does not fetch."""
        if self._closed is None:
            self._is_suspended = True
            name = f"{self.partition.topic}-{self.partition.partition}"
            self._shut(lambda: NotLeaderOrFollower(f"{name} waits for its role: {self.log_dir.disk.path} is behind"))

    def resume_service(self) -> bool:
        """End a suspension; returns whether there was one. The caller gives the partition a role in the same step. A
        follower loses its role, so that it asks its leader anew."""
        was_suspended, self._is_suspended = self._is_suspended, False
        if was_suspended:
            self._closed = None
            self._role = None if isinstance(self._role, Follower) else self._role
            self.log_dir.role_changes += 1
            self.announce_change()
        return was_suspended

    def _shut(self, error: Callable[[], EngineError]) -> None:
        self._closed = error
        self.log_dir.role_changes += 1
        self._pending.fail(error())
        self._end_reads()
        self.announce_change()

    def put_offline(self, error: Callable[[], EngineError]) -> None:
        """Close the partition while its log dir is online, and report it as an offline replica."""
        self.close(error)
        self.log_dir.note_closed(self.partition)

    # As their leader

    @property
    def replicas(self) -> Replicas | None:
        """The replicas as this leader knows them; None if this is the only one. Raises as `leading` does."""
        return self.leading().replicas

    @property
    def has_enough_in_sync(self) -> bool:
        role = self._role
        return not isinstance(role, Leader) or role.replicas is None or role.replicas.is_enough

    @property
    def is_current(self) -> bool:
        role = self._role
        if not isinstance(role, Leader) or self._is_suspended:
            return False
        return role.reads is None or role.reads.is_current

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        role = self._role
        if not isinstance(role, Leader) or self._closed is not None:
            on_confirmed(False)
        elif role.reads is None:
            on_confirmed(True)
        else:
            role.reads.wait(on_confirmed)
            self.announce_change()  # a Fetch that waits for records is answered: the next one confirms the read

    def _end_reads(self) -> None:
        if isinstance(self._role, Leader) and self._role.reads is not None:
            self._role.reads.end()

    def fetched_by(
        self,
        replica: int,
        broker_epoch: int,
        *,
        leader_epoch: int,
        offset: int,
        last_epoch: int,
        log_start_offset: int,
        as_of: AsOf,
        session_fetch: SessionFetch | None = None,
    ) -> FollowerFetchResult:
        """Note the Fetch of a follower, see `engine.replica_log.ReplicaLog`."""
        asked = FollowerFetch(leader_epoch, offset, last_epoch, NO_OFFSET, log_start_offset)
        replicas = self._known_replicas()
        before, stable = self.progress.high_watermark, self.progress.last_stable
        result = replicas.fetched(replica, broker_epoch, asked, self.log_state, self._lag_clock_ms(), session_fetch)
        if (reads := self.leading().reads) is not None:
            reads.fetched(replica, as_of, session_fetch)
        if result.has_moved:
            self._note_high_watermark_moved(before, stable)
        elif result.has_deleted:
            self.announce_change()
        return result

    @property
    def low_watermark(self) -> int:
        """The smallest log start of the replicas, see `engine.replica_log.ReplicaLog`."""
        replicas, start_offset = self.leading().replicas, self.log.start_offset
        return start_offset if replicas is None else replicas.low_watermark(start_offset)

    def stopped_fetching_by(self, replica: int, session_fetch: SessionFetch | None = None) -> None:
        """Note that a follower no longer fetches, see `engine.replica_log.ReplicaLog`."""
        role = self._role
        if isinstance(role, Leader):
            for one in (role.replicas, role.reads):
                if one is not None:
                    one.stopped_fetching(replica, session_fetch)

    def check_fetch_counts(self, replica: int) -> None:
        """Check a follower's Fetch after it has waited, see `engine.replica_log.ReplicaLog`."""
        try:
            self._known_replicas().check_fetch_counts(replica)
        except UnknownLeaderEpoch:
            self.stopped_fetching_by(replica)
            raise

    def check_has_latest(self) -> None:
        """Raise OffsetNotAvailable if the high watermark has not reached the begin of the leader epoch yet."""
        role = self._role
        if isinstance(role, Leader) and role.replicas is not None and not role.replicas.has_latest:
            raise OffsetNotAvailable("the high watermark is not where the leader epoch begins yet")

    def learn(self, committed: CommittedIsr) -> None:
        """Take over a new committed ISR from the metadata. Raises as `leading` does."""
        before, stable = self.progress.high_watermark, self.progress.last_stable
        replicas = self._known_replicas()
        version = replicas.version
        if replicas.learn(committed, self._lag_clock_ms()):
            self._note_high_watermark_moved(before, stable)
        elif replicas.version != version:
            self.announce_change()  # earlier Fetches may no longer count: followers in sessions are noted again
        if (reads := self.leading().reads) is not None:
            reads.check()  # there may be fewer successors

    def propose(self) -> Proposal | None:
        """The ISR to write into the metadata; None: no change. Raises as `leading` does."""
        before, stable = self.progress.high_watermark, self.progress.last_stable
        proposal = self._known_replicas().propose(self._lag_clock_ms())
        if self.progress.high_watermark is not before:  # it no longer waits for a follower that left the ISR
            self._note_high_watermark_moved(before, stable)
        return proposal

    def follower_lags(self) -> dict[int, FollowerLag]:
        """Lags of the followers by broker id; empty if this is the only replica. Raises as `leading` does."""
        replicas = self.replicas
        return {} if replicas is None else replicas.lags(self._lag_clock_ms())

    def read(self, offset: int, max_size_bytes: int, isolation: Isolation, *, at_least_one: bool) -> ReadResult:
        """Read records, see `engine.api.PartitionLog`."""
        if self._closed is not None:
            raise self._closed()
        try:
            return self._reads.read_records(offset, max_size_bytes, isolation, at_least_one=at_least_one)
        except OffsetOutOfRange as error:
            raise self._offset_error(offset, error) from None

    async def load(self, offset: int, max_size_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> object:
        self.check_open()
        try:
            return await self._reads.load(offset, max_size_bytes, isolation)
        except OffsetOutOfRange as error:
            raise self._offset_error(offset, error) from None

    def _offset_error(self, offset: int, error: OffsetOutOfRange) -> EngineError:
        """The error for an offset that is not in the log.

        Consumers reset their position upon OffsetOutOfRange. A successor may have an offset behind the log end, so this
        leader must be confirmed first. Offsets below the log start are gone on every replica (RULES K24).
        """
        reads = self._role.reads if isinstance(self._role, Leader) else None
        if offset <= self.log.end.offset or reads is None or reads.is_confirmed_of_late:
            return error
        name = f"{self.partition.topic}-{self.partition.partition}"
        return NotLeaderOrFollower(f"another broker may lead {name} by now; here {error}")

    def read_for_replica(self, offset: int, max_size_bytes: int, *, at_least_one: bool) -> ReadResult:
        self.check_led()
        limit, isolation = self.progress.written, Isolation.READ_UNCOMMITTED
        found = self._reads.read_records(offset, max_size_bytes, isolation, at_least_one=at_least_one, limit=limit)
        log = self.log
        is_whole = offset >= max(log.compacted_to, log.clean_to, log.dropped.tombstones_to, log.dropped.markers_to)
        return found if is_whole else self._reads.with_compacted(offset, found)

    async def load_for_replica(self, offset: int, max_size_bytes: int) -> object:
        self.check_led()
        return await self._reads.load(offset, max_size_bytes, Isolation.READ_UNCOMMITTED, self.progress.written)

    def _known_replicas(self) -> Replicas:
        replicas = self.replicas
        if replicas is None:
            raise NotLeaderOrFollower(f"{self.partition.topic}-{self.partition.partition} has no other replicas here")
        return replicas

    # As a follower

    @property
    def fetching(self) -> FetchState | None:
        """The fetch state of a follower; None: it does not follow, or takes no records now."""
        role = self._role
        return role.fetching if isinstance(role, Follower) and not self._is_shut else None

    def ask(self) -> FollowerFetch | None:
        """The next Fetch to the leader; None: not now."""
        fetching = self.fetching
        return None if fetching is None else fetching.ask(self.log_state)

    def answered(self, asked: FollowerFetch, answer: LeaderReply) -> Action | None:
        """The action upon the leader's answer, after which the caller calls `FetchState.done`; None: none."""
        fetching = self.fetching
        return None if fetching is None else fetching.answered(asked, answer, self.log_state)

    def note_leader(self, high_watermark: int) -> None:
        """Note the leader's high watermark, in a follower."""
        if isinstance(self._role, Follower):
            self._role.leader_high_watermark = high_watermark
        before, stable = self.progress.high_watermark, self.progress.last_stable
        if self.progress.follow(high_watermark):
            self._note_high_watermark_moved(before, stable)

    @property
    def lag(self) -> int:
        """The number of offsets between a follower's log end and the leader's high watermark; 0 if it does not
        follow."""
        role = self._role
        return max(0, role.leader_high_watermark - self.log.end.offset) if isinstance(role, Follower) else 0

    # Either

    def _note_high_watermark_moved(self, before: LogPosition, stable: LogPosition) -> None:
        """Act upon a high watermark that other replicas have moved. `before`, `stable`: HW and LSO before that."""
        progress = self.progress
        if outgrows_tail(before, progress.high_watermark):
            self._index_keys()
        if progress.last_stable.segment_base_offset != stable.segment_base_offset:
            self._want_seal()
        if self._pending:
            self._pending.settle_reached(progress)
        self.announce_change()

    def _want_seal(self) -> None:
        """Start sealing: more segments may be finished and without open transactions. `Partition` implements it."""
        raise NotImplementedError

    def _index_keys(self) -> None:
        if self.config.index_keys:
            self.log_dir.keys.want(self._reader, self.progress.high_watermark)
