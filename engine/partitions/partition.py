"""A partition on this broker: the parts that do its work, and the interface that its callers see.

The parts share a `PartitionState`. `PartitionCommits` takes appends through the commit batches, `LedFollowers` serves
the followers of a leader, `Reads` reads. Every method runs on the loop, so offset assignment, epochs and the high
watermark need no lock (RULES L2). `append` does the checks that need no state and queues; `PartitionCommits.stage`,
called at the start of a commit batch, does the rest in one step.
"""

from collections.abc import Callable, Sequence

from engine.api import (
    NO_EPOCH,
    AbortedTransaction,
    EpochEnd,
    Following,
    FoundRecords,
    Isolation,
    Joining,
    Marker,
    OffsetAtTimestamp,
    OffsetSpec,
    Origin,
    PendingAppend,
    ReadResult,
    RecordFilter,
    Role,
    TopicIdPartition,
    WaitingAppends,
)
from engine.commit.appends import Append, PartitionShare
from engine.commit.commit_log import Gaps
from engine.compaction_horizon import NOT_COMPACTED, Compacted, CompactionHorizon
from engine.errors import EngineError, NotLeaderOrFollower, OffsetOutOfRange
from engine.log_config import LogConfig
from engine.log_dirs.log_dir import LogDir
from engine.log_dirs.log_starts import Move, move_log_starts
from engine.logs.log import Log
from engine.logs.recovery.checkpoints import key_of
from engine.logs.recovery.epochs import EpochStart
from engine.logs.recovery.truncation_plan import TruncationPlan
from engine.logs.segments.segment import Segment
from engine.partitions.append_at_offset import AppendAtOffset
from engine.partitions.commits import PartitionCommits
from engine.partitions.confirmed_reads import ConfirmedReads
from engine.partitions.follower import Follower
from engine.partitions.leader import Leader
from engine.partitions.led_followers import LedFollowers
from engine.partitions.opening import Opening
from engine.partitions.reads import Reads
from engine.partitions.state import PartitionState
from engine.replication.epoch_checks import check_leader_epoch, check_newer
from engine.replication.exchange import LogState
from engine.replication.fetch_state import FetchState
from engine.replication.replicas import Replicas
from engine.roles import ReplicaSet

UP_TO_HIGH_WATERMARK = -1  # of DeleteRecords


class Partition:
    """Implements `engine.api.PartitionLog` and `engine.replica_log.ReplicaLog` for callers, and
    `engine.log_dirs.log_dir.Resident` for its log dir.

    `followers`: for a leader. `changes`: for waiters. `opening`: findings of the opening of its log.
    """

    __slots__ = (
        "_commits",
        "_reads",
        "_state",
        "changes",
        "followers",
        "log",
        "log_dir",
        "opening",
        "partition",
        "progress",
    )

    def __init__(self, partition: TopicIdPartition, log: Log, log_dir: LogDir, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self.log = log
        self.log_dir = log_dir
        self.opening: Opening | None = None
        state = self._state = PartitionState(partition, log, log_dir, now_ms, self._want_seal)
        self.changes = state.changes
        self.progress = state.progress
        self._commits = PartitionCommits(state)
        self._reads = Reads(log, log_dir, state.progress, state.reader)
        self.followers = LedFollowers(state, self._reads)

    def _want_seal(self) -> None:
        self.log_dir.want_seal(self)

    # Life

    def assume(self, role: Role) -> None:
        """Take a role; see `lead`, `follow`."""
        if isinstance(role, Following):
            self.follow(role.config, role.leader_epoch, role.unclean_since)
        else:
            self.lead(role.config, role.leader_epoch, role.others)

    def lead(self, config: LogConfig, leader_epoch: int, others: ReplicaSet | None = None) -> None:
        """Lead in a leader epoch acquired durably; call it between commit batches. Appends queued before are
        refused."""
        state = self._state
        check_newer(leader_epoch, self.log.epochs, self.leader_epoch, self.partition.topic)
        state.config = config
        state.index_keys()
        if isinstance(state.role, Leader) and leader_epoch == state.role.epoch:
            state.role.configure(config)
            return
        replicas = self._begin_to_lead(leader_epoch, others)
        role = Leader(self.partition, leader_epoch, config, self.progress, state.pending, state.now_ms, replicas)
        if replicas is not None and others is not None and others.confirming is not None:
            role.reads = ConfirmedReads(replicas, others.confirming)
        state.take_role(role)
        self.log.epochs.note(leader_epoch, self.log.end.offset)

    def _begin_to_lead(self, leader_epoch: int, others: ReplicaSet | None) -> Replicas | None:
        """Prepare to lead in an epoch that begins at the log end; returns the replicas, None if there are no others."""
        dropped = self.log.dropped.led_from(self.log.end.offset, leader_epoch)
        self.log_dir.commit_log.note_dropped(key_of(self.partition), self.log, dropped)
        self.progress.has_others = others is not None
        if others is None:
            self.progress.lead(())
            return None
        state = self._state
        broker_id, committed, lag_max_ms, confirming = others
        state.lag_clock_ms = state.now_ms if confirming is None else confirming.waiting.clock.boot_ms
        return Replicas(broker_id, leader_epoch, self.progress, committed, state.lag_clock_ms(), lag_max_ms)

    def follow(self, config: LogConfig, leader_epoch: int, unclean_since: int = NO_EPOCH) -> None:
        """Follow the leader of that epoch; call it between commit batches. Waiting appends fail.

        `unclean_since`: leader epoch of the last unclean election, or NO_EPOCH.
        """
        state = self._state
        state.config = config
        if isinstance(state.role, Follower) and leader_epoch == state.role.epoch:
            state.role.configure(config)
            return
        state.take_role(Follower(leader_epoch, config, FetchState(leader_epoch, state.log_state, unclean_since)))
        self.progress.begin_to_follow()

    def truncate(self, plan: TruncationPlan) -> list[Segment]:
        removed = self.log.truncate(plan)
        self.progress.truncate(self.log.end, plan.unstable)
        self._note_truncated()
        return removed

    def reset(self, segment: Segment) -> list[Segment]:
        removed = self.log.reset(segment)
        self.progress.reset(self.log.end)
        self._note_truncated()
        return removed

    def _note_truncated(self) -> None:
        state = self._state
        state.is_being_truncated = True
        self.log_dir.keys.abandon(state.reader)
        state.reader.segment_replaced(self.log.active)
        if isinstance(state.role, Leader):
            self.log.epochs.note(state.role.epoch, self.log.end.offset)
        state.pending.fail(NotLeaderOrFollower("the log was truncated below it"), self.log.end.offset)
        self.changes.announce()

    def resume(self) -> None:
        self._state.is_being_truncated = False
        self._state.index_keys()
        self.changes.announce()

    def segment_replaced(self, fresh: Segment) -> None:
        """Note that `fresh` has replaced other segments in the log."""
        self._state.reader.segment_replaced(fresh)
        self._state.index_keys()

    def stage_roll(self) -> PartitionShare:
        return self._commits.stage_roll()

    def rolled(self, part: PartitionShare) -> None:
        self._commits.rolled(part)

    def announce_change(self) -> None:
        self.changes.announce()

    def close(self, error: Callable[[], EngineError]) -> None:
        """Close the partition: from now on every call, and every append not yet answered, gets the error."""
        state = self._state
        if state.closed is None or state.is_suspended:
            state.is_suspended = False
            state.shut(error)

    def put_offline(self, error: Callable[[], EngineError]) -> None:
        """Close the partition while its log dir is online, and report it as an offline replica."""
        self.close(error)
        self.log_dir.note_closed(self.partition)

    def suspend(self) -> None:
        """Suspend the partition until `resume_service`: the metadata give it a role that it could not take yet
        (decision 44). Waiting appends and reads fail, and a follower does not fetch."""
        state = self._state
        if state.closed is None:
            state.is_suspended = True
            path = self.log_dir.disk.path
            state.shut(lambda: NotLeaderOrFollower(f"{state.name} waits for its role: {path} is behind"))

    def resume_service(self) -> bool:
        """End a suspension; returns whether there was one. The caller gives the partition a role in the same step."""
        return self._state.end_suspension()

    # Availability

    @property
    def is_sound(self) -> bool:
        return self._state.closed is None and self.log.damaged_from is None

    @property
    def is_led(self) -> bool:
        """Whether this broker leads it. False if it is suspended: it may have another leader by now."""
        return isinstance(self._state.role, Leader) and not self._state.is_suspended

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good: its log has to be opened again."""
        return self._state.closed is not None and not self._state.is_suspended

    @property
    def is_suspended(self) -> bool:
        return self._state.is_suspended

    def check_open(self) -> None:
        self._state.check_open()

    def check_led(self) -> None:
        self._state.check_led()

    def check_follows(self, leader_epoch: int) -> None:
        """Raise NotLeaderOrFollower unless it follows in that leader epoch."""
        role = self._state.role
        if not isinstance(role, Follower) or role.epoch != leader_epoch:
            raise NotLeaderOrFollower(f"{self._state.name} does not follow in epoch {leader_epoch}")

    @property
    def has_enough_in_sync(self) -> bool:
        role = self._state.role
        return not isinstance(role, Leader) or role.replicas is None or role.replicas.is_enough

    @property
    def is_current(self) -> bool:
        role = self._state.role
        if not isinstance(role, Leader) or self._state.is_suspended:
            return False
        return role.reads is None or role.reads.is_current

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        self._state.confirm(on_confirmed)

    # As a follower

    @property
    def fetching(self) -> FetchState | None:
        """The fetch state of a follower; None: it does not follow, or takes no records now."""
        role = self._state.role
        return role.fetching if isinstance(role, Follower) and not self._state.is_shut else None

    def note_leader(self, high_watermark: int) -> None:
        """Note the leader's high watermark, in a follower."""
        role = self._state.role
        if isinstance(role, Follower):
            role.leader_high_watermark = high_watermark
        before, stable = self.progress.high_watermark, self.progress.last_stable
        if self.progress.follow(high_watermark):
            self._state.high_watermark_moved(before, stable)

    @property
    def lag(self) -> int:
        """The number of offsets between a follower's log end and the leader's high watermark; 0 if it does not
        follow."""
        role = self._state.role
        return max(0, role.leader_high_watermark - self.log.end.offset) if isinstance(role, Follower) else 0

    # For callers

    @property
    def leader_epoch(self) -> int:
        role = self._state.role
        return NO_EPOCH if role is None else role.epoch

    @property
    def config(self) -> LogConfig:
        return self._state.config

    @property
    def log_state(self) -> LogState:
        """The state of the log for the state machines of replication."""
        return self._state.log_state

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.end.offset

    @property
    def high_watermark(self) -> int:
        return self.progress.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        return self._reads.last_stable_offset

    @property
    def undecided_from(self) -> int:
        """The first offset of the first transaction that is open, or ended above the high watermark; else the log
        end."""
        return self.progress.undecided_from

    @property
    def has_cold(self) -> bool:
        return self.log.has_cold

    @property
    def has_key_index(self) -> bool:
        return self._state.config.index_keys

    @property
    def batch_size_max_bytes(self) -> int:
        config = self._state.config
        return min(config.max_message_size_bytes, config.segment_size_bytes)

    async def learn_timestamps(self, segment: Segment) -> None:
        await self._state.reader.learn_timestamps(segment)

    async def aborted_in(self, segment: Segment) -> Sequence[AbortedTransaction]:
        return await self._state.reader.aborted_between(segment, segment.base_offset, segment.end_offset)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        check_leader_epoch(current_leader_epoch, self.leader_epoch)

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        allow_zstd: bool = True,
        origin: Origin = Origin.CLIENT,
        joining: Joining | None = None,
    ) -> PendingAppend:
        commits = self._commits
        is_joining = joining is not None
        append = self._state.leading().admit(
            commits, records, acks=acks, allow_zstd=allow_zstd, origin=origin, is_joining=is_joining
        )
        return commits.queue(append, joining)

    def end_transaction(self, marker: Marker) -> PendingAppend:
        return self._commits.queue(self._state.leading().admit_marker(self._commits, marker))

    def admit_kept(self, records: memoryview) -> AppendAtOffset:
        """Do the checks of a batch that keeps its offsets, for `queue`. Raises as `append` does."""
        return self._state.leading().admit_kept(self._commits, records)

    def queue(self, append: Append) -> PendingAppend:
        """Queue an append that the leader has admitted. Raises as `append` does."""
        return self._commits.queue(append)

    def replicate(
        self, records: memoryview, *, begins_segment: bool = False, compacted: Compacted = NOT_COMPACTED
    ) -> PendingAppend:
        """Append records that a follower fetched from its leader, unchanged.

        `begins_segment`: they begin a segment on the leader, and so do they here. The append is settled when it is
        durable. Raises CorruptMessage; OffsetOutOfRange if the records do not continue this log, or if gaps or missing
        tombstones were not expected (see `expect_compacted`).
        """
        role, commits = self._state.role, self._commits
        if not isinstance(role, Follower) or self._state.takes_no_appends:
            raise self._state.why_closed()
        return commits.queue(role.admit(commits, records, compacted, begins_segment=begins_segment))

    async def expect_gaps(
        self, below_offset: int, epochs: Sequence[EpochStart] = (), dropped: CompactionHorizon = NOT_COMPACTED.dropped
    ) -> None:
        """Note durably that the log may have gaps below an offset, before batches with gaps are appended: a start has
        to know. Raises StorageError, and NotLeaderOrFollower if the role changes meanwhile."""
        state = self._state
        role, key, end_offset = state.role, key_of(self.partition), self.log.end.offset
        gaps = Gaps(end_offset, below_offset, tuple(epochs), dropped)
        is_noted = await self.log_dir.commit_log.expect_gaps(key, gaps, lambda: state.role is role)
        if not is_noted or state.role is not role:
            raise NotLeaderOrFollower("another leader epoch began before its gaps were noted")
        self.log.epochs.expect(epochs)
        self.log.compacted_to = max(self.log.compacted_to, below_offset)
        self.log.dropped = self.log.dropped.merged_with(dropped)

    async def expect_compacted(self, records: memoryview, compacted: Compacted) -> None:
        """Call `expect_gaps` for records to be replicated, if they have gaps, or if the leader tells of more missing
        tombstones or markers. Raises CorruptMessage, and as `expect_gaps` does."""
        role = self._state.role
        if not isinstance(role, Follower):
            raise self._state.why_closed()
        below_offset, epochs, dropped = role.missing(records, self.log.end.offset, compacted)
        if below_offset or not self.log.dropped.covers(dropped):
            await self.expect_gaps(below_offset, epochs, dropped)

    @property
    def waiting_appends(self) -> WaitingAppends:
        """Statistics of the appends whose requests wait for other replicas."""
        return self._state.pending.waiting

    def read(
        self,
        offset: int,
        max_size_bytes: int,
        isolation: Isolation,
        *,
        at_least_one: bool,
        is_loaded: bool = False,
    ) -> ReadResult:
        if self._state.closed is not None:
            raise self._state.closed()
        try:
            return self._reads.read_records(
                offset, max_size_bytes, isolation, at_least_one=at_least_one, is_loaded=is_loaded
            )
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
        role = self._state.role
        reads = role.reads if isinstance(role, Leader) else None
        if offset <= self.log.end.offset or reads is None or reads.is_confirmed_of_late:
            return error
        return NotLeaderOrFollower(f"another broker may lead {self._state.name} by now; here {error}")

    def offset_of(self, spec: int, isolation: Isolation) -> OffsetAtTimestamp:
        self.check_open()
        if spec == OffsetSpec.LATEST:
            self.followers.check_has_latest()
        return self._reads.offset_of(spec, isolation, has_tier=self._state.config.remote_storage)

    async def offset_for_timestamp(self, timestamp_ms: int, isolation: Isolation) -> OffsetAtTimestamp:
        self.check_open()
        return await self._reads.offset_for_timestamp(
            timestamp_ms, isolation, has_tier=self._state.config.remote_storage
        )

    def check_divergence(self, offset: int, last_epoch: int, isolation: Isolation) -> ReadResult | None:
        return self._reads.check_divergence(self.end_offset_for_epoch(last_epoch), offset, last_epoch, isolation)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        self.check_open()
        return self.log.epochs.end_of(leader_epoch, self.log.end.offset, self.log.start_offset)

    async def delete_records(self, before_offset: int) -> int:
        self.check_open()
        if before_offset == UP_TO_HIGH_WATERMARK:
            before_offset = self.progress.high_watermark.offset
        if not 0 <= before_offset <= self.progress.high_watermark.offset:
            raise OffsetOutOfRange(f"offset {before_offset} is not within [0, {self.progress.high_watermark.offset}]")
        await move_log_starts(self.log_dir, [Move(self, before_offset)])
        self.check_open()
        return self.log.start_offset

    def leaders_log_start(self, offset: int) -> Move | None:
        """The move of the log start to that of the leader (RULES K20), as far as the log is durable and below the high
        watermark here; the new start may be within a batch. None: the log start stays."""
        role, progress = self._state.role, self.progress
        leader_high_watermark = role.leader_high_watermark if isinstance(role, Follower) else 0
        before_offset = min(offset, max(leader_high_watermark, progress.high_watermark.offset), progress.durable.offset)
        if before_offset > self.log.start_offset:
            progress.reach(before_offset)
            return Move(self, before_offset)
        return None

    async def find_records(self, wanted: RecordFilter, offset: int, count_max: int) -> FoundRecords:
        self.check_open()
        return await self._reads.find_records(wanted, offset, count_max)
