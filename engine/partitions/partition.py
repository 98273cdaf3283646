"""A partition on this broker: a facade over its log, its progress, its role, and waiting requests.

Every method runs on the loop, so offset assignment, epochs and the high watermark need no lock (RULES L2). `append`
does the checks that need no state and queues; `stage`, called at the start of a commit batch, does the rest in one
step.
"""

from collections.abc import Callable, Sequence

import trio

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
)
from engine.commit.appends import Append, PartitionShare
from engine.commit.commit_log import Gaps
from engine.commit.flusher import FLUSH_BEHIND_BYTES
from engine.compaction_horizon import NOT_COMPACTED, Compacted, CompactionHorizon
from engine.errors import NotLeaderOrFollower, OffsetOutOfRange, StorageError
from engine.log_config import LogConfig
from engine.log_dirs.log_dir import LogDir
from engine.log_dirs.log_starts import Move, move_log_starts
from engine.logs.log import Log
from engine.logs.recovery.checkpoints import key_of
from engine.logs.recovery.epochs import EpochStart
from engine.logs.recovery.truncation_plan import TruncationPlan
from engine.logs.segments.roll_policy import RollPolicy
from engine.logs.segments.segment import Segment
from engine.logs.staging import empty_chunk
from engine.partitions.append_queue import AppendQueue
from engine.partitions.confirmed_reads import ConfirmedReads
from engine.partitions.follower import Follower
from engine.partitions.leader import Leader
from engine.partitions.replica import Replica
from engine.partitions.txn_verification import UnverifiedAppend
from engine.reading.key_indexer import outgrows_tail
from engine.replication.epoch_checks import check_leader_epoch, check_newer
from engine.replication.fetch_state import FetchState
from engine.replication.replicas import Replicas
from engine.roles import ReplicaSet

UP_TO_HIGH_WATERMARK = -1  # of DeleteRecords
NEVER_MS = 2**63 - 1  # Kafka's default of flush.ms


class Partition(Replica):
    """Implements `engine.api.PartitionLog` for callers and `engine.commit.appends.Owner` for its group committer."""

    __slots__ = ("_append_queue",)

    def __init__(self, partition: TopicIdPartition, log: Log, log_dir: LogDir, now_ms: Callable[[], int]) -> None:
        super().__init__(partition, log, log_dir, now_ms)
        self._append_queue = AppendQueue(self, log, log_dir)

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
        check_newer(leader_epoch, self.log.epochs, self.leader_epoch, self.partition.topic)
        self.config = config
        self._index_keys()
        if isinstance(self._role, Leader) and leader_epoch == self._role.epoch:
            self._role.configure(config)
            return
        replicas = self._begin_to_lead(leader_epoch, others)
        role = Leader(self.partition, leader_epoch, config, self.progress, self._pending, self._now_ms, replicas)
        if replicas is not None and others is not None and others.confirming is not None:
            role.reads = ConfirmedReads(replicas, others.confirming)
        self._take_role(role)
        self.log.epochs.note(leader_epoch, self.log.end.offset)

    def _begin_to_lead(self, leader_epoch: int, others: ReplicaSet | None) -> Replicas | None:
        """Prepare to lead in an epoch that begins at the log end; returns the replicas, None if there are no others."""
        dropped = self.log.dropped.led_from(self.log.end.offset, leader_epoch)
        self.log_dir.commit_log.note_dropped(key_of(self.partition), self.log, dropped)
        self.progress.has_others = others is not None
        if others is None:
            self.progress.lead(())
            return None
        broker_id, committed, lag_max_ms, confirming = others
        self._lag_clock_ms = self._now_ms if confirming is None else confirming.waiting.clock.boot_ms
        return Replicas(broker_id, leader_epoch, self.progress, committed, self._lag_clock_ms(), lag_max_ms)

    def follow(self, config: LogConfig, leader_epoch: int, unclean_since: int = NO_EPOCH) -> None:
        """Follow the leader of that epoch; call it between commit batches. Waiting appends fail.

        `unclean_since`: leader epoch of the last unclean election, or NO_EPOCH.
        """
        self.config = config
        if isinstance(self._role, Follower) and leader_epoch == self._role.epoch:
            self._role.configure(config)
            return
        self._take_role(Follower(leader_epoch, config, FetchState(leader_epoch, self.log_state, unclean_since)))
        self.progress.begin_to_follow()

    def _take_role(self, role: Leader | Follower) -> None:
        self._pending.fail(NotLeaderOrFollower("another leader epoch began before all replicas had it"))
        self._end_reads()
        self._role = role
        self.log_dir.role_changes += 1
        self.announce_change()

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
        self._is_being_truncated = True
        self.log_dir.keys.abandon(self._reader)
        self._reader.segment_replaced(self.log.active)
        if isinstance(self._role, Leader):
            self.log.epochs.note(self._role.epoch, self.log.end.offset)
        self._pending.fail(NotLeaderOrFollower("the log was truncated below it"), self.log.end.offset)
        self.announce_change()

    def resume(self) -> None:
        self._is_being_truncated = False
        self._index_keys()
        self.announce_change()

    def segment_replaced(self, fresh: Segment) -> None:
        """Note that `fresh` has replaced other segments in the log."""
        self._reader.segment_replaced(fresh)
        self._index_keys()

    # Interface for callers

    @property
    def leader_epoch(self) -> int:
        return NO_EPOCH if self._role is None else self._role.epoch

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
    def has_cold(self) -> bool:
        return self.log.has_cold

    @property
    def has_key_index(self) -> bool:
        return self.config.index_keys

    @property
    def batch_size_max_bytes(self) -> int:
        return min(self.config.max_message_size_bytes, self.config.segment_size_bytes)

    async def aborted_in(self, segment: Segment) -> Sequence[AbortedTransaction]:
        return await self._reader.aborted_between(segment, segment.base_offset, segment.end_offset)

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
        role = self._role
        if not isinstance(role, Leader) or self._takes_no_appends:
            raise self._why_closed()
        is_joining = joining is not None
        append = role.admit(self, records, acks=acks, allow_zstd=allow_zstd, origin=origin, is_joining=is_joining)
        if joining is not None and isinstance(append, UnverifiedAppend):
            return self._append_queue.join(append, joining)
        return self._append_queue.queue(append)

    def end_transaction(self, marker: Marker) -> PendingAppend:
        return self._append_queue.queue(self.leading().admit_marker(self, marker))

    def queue(self, append: Append) -> PendingAppend:
        """Queue an append that the leader has admitted. Raises as `append` does."""
        return self._append_queue.queue(append)

    def replicate(
        self, records: memoryview, *, begins_segment: bool = False, compacted: Compacted = NOT_COMPACTED
    ) -> PendingAppend:
        """Append records that a follower fetched from its leader, unchanged.

        `begins_segment`: they begin a segment on the leader, and so do they here. The append is settled when it is
        durable. Raises CorruptMessage; OffsetOutOfRange if the records do not continue this log, or if gaps or missing
        tombstones were not expected (see `expect_compacted`).
        """
        role = self._role
        if not isinstance(role, Follower) or self._takes_no_appends:
            raise self._why_closed()
        return self._append_queue.queue(role.admit(self, records, compacted, begins_segment=begins_segment))

    async def expect_gaps(
        self, below_offset: int, epochs: Sequence[EpochStart] = (), dropped: CompactionHorizon = NOT_COMPACTED.dropped
    ) -> None:
        """Note durably that the log may have gaps below an offset, before batches with gaps are appended: a start has
        to know. Raises StorageError, and NotLeaderOrFollower if the role changes meanwhile."""
        role, key, end_offset = self._role, key_of(self.partition), self.log.end.offset
        gaps = Gaps(end_offset, below_offset, tuple(epochs), dropped)
        is_noted = await self.log_dir.commit_log.expect_gaps(key, gaps, lambda: self._role is role)
        if not is_noted or self._role is not role:
            raise NotLeaderOrFollower("another leader epoch began before its gaps were noted")
        self.log.epochs.expect(epochs)
        self.log.compacted_to = max(self.log.compacted_to, below_offset)
        self.log.dropped = self.log.dropped.merged_with(dropped)

    async def expect_compacted(self, records: memoryview, compacted: Compacted) -> None:
        """Call `expect_gaps` for records to be replicated, if they have gaps, or if the leader tells of more missing
        tombstones or markers. Raises CorruptMessage, and as `expect_gaps` does."""
        role = self._role
        if not isinstance(role, Follower):
            raise self._why_closed()
        below_offset, epochs, dropped = role.missing(records, self.log.end.offset, compacted)
        if below_offset or not self.log.dropped.covers(dropped):
            await self.expect_gaps(below_offset, epochs, dropped)

    def ended(self, marker: Marker) -> None:
        self._append_queue.ended(marker)

    def offset_of(self, spec: int, isolation: Isolation) -> OffsetAtTimestamp:
        self.check_open()
        if spec == OffsetSpec.LATEST:
            self.check_has_latest()
        return self._reads.offset_of(spec, isolation, has_tier=self.config.remote_storage)

    async def offset_for_timestamp(self, timestamp_ms: int, isolation: Isolation) -> OffsetAtTimestamp:
        self.check_open()
        return await self._reads.offset_for_timestamp(timestamp_ms, isolation, has_tier=self.config.remote_storage)

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
        role, progress = self._role, self.progress
        leader_high_watermark = role.leader_high_watermark if isinstance(role, Follower) else 0
        before_offset = min(offset, max(leader_high_watermark, progress.high_watermark.offset), progress.durable.offset)
        if before_offset > self.log.start_offset:
            progress.reach(before_offset)
            return Move(self, before_offset)
        return None

    async def find_records(self, wanted: RecordFilter, offset: int, count_max: int) -> FoundRecords:
        self.check_open()
        return await self._reads.find_records(wanted, offset, count_max)

    # Interface for the group committer

    def stage(self, appends: list[Append]) -> PartitionShare | None:
        if self._closed is not None or self._role is None or self._is_being_truncated:
            for append in appends:
                self.log.producers.turn_away(append.header)
                append.settle(self._why_closed())
            return None
        part = self._role.stage(self, self.log, appends)
        if part is not None and self.progress.durable.offset < part.before_offset:
            part.must_sync = True  # it follows batches that wait for a sync
        return part

    def written(self, part: PartitionShare) -> None:
        self._commit(part)
        if part.undo:
            self.log.producers.trim()
        if not part.must_sync:
            self.durable(part)
            self._flush_later()

    def _commit(self, part: PartitionShare) -> None:
        progress = self.progress
        if part.started or part.ended:
            self.log.aborted.active += part.aborted
            started = [at for at in part.places() if at.offset in part.started]
            progress.note_transactions(started, [(one.first_offset, one.last_offset) for one in part.ended])
        self.log.commit(part.chunks)
        part.end = self.log.end
        if progress.has_others:
            progress.note_written(part.end, part.batch_ends(progress.written.max_timestamp_ms))
            self.announce_change()  # followers may have it before it is durable here (RULES K16)
        else:
            progress.note_written(part.end)

    def durable(self, part: PartitionShare) -> None:
        """Advance the high watermark, then answer the appends: a client that gets its reply may read at once."""
        self._advance(part)
        self._answer(part)

    def _advance(self, part: PartitionShare) -> None:
        """Note that `part` is durable; the high watermark may move."""
        before, stable_in = self.progress.high_watermark, self.progress.last_stable.segment_base_offset
        has_moved = self.progress.note_durable(part.end)
        if self.config.index_keys and outgrows_tail(before, self.progress.high_watermark):
            self._index_keys()
        if part.rolls:
            self.log_dir.note_unallocated(part.chunks[-1].unallocated)
            self.log_dir.commit_log.want_checkpoint()
        if part.rolls or self.progress.last_stable.segment_base_offset != stable_in:
            self.log_dir.want_seal(self)
        if self.log.unindexed:
            self.log_dir.index_later(self, part.end.offset)
        self._reader.appended(part.chunks)
        if has_moved and self._waiters:
            self.announce_change()

    def stage_roll(self) -> PartitionShare:
        part = PartitionShare(self, self.log)
        part.stage([empty_chunk(self.log.end.offset, RollPolicy.of(self.config))], self.log.producers)
        return part

    def rolled(self, part: PartitionShare) -> None:
        self._commit(part)
        self._advance(part)

    def _want_seal(self) -> None:
        self.log_dir.want_seal(self)

    def _flush_later(self) -> None:
        interval_ms = 0 if self.log.unflushed_bytes >= FLUSH_BEHIND_BYTES else self.config.flush_interval_ms
        if interval_ms < NEVER_MS:
            self.log_dir.commit_log.flusher.flush_by(self.log, trio.current_time() + interval_ms / 1000)

    def _answer(self, part: PartitionShare) -> None:
        if self._closed is not None:
            for append in part.appends:
                append.settle(self._closed())
            return
        start_offset, high_watermark = self.log.start_offset, self.progress.high_watermark.offset
        for append in part.appends:
            result = append.result(start_offset)
            if append.wants_all and result.last_offset >= high_watermark:
                self._pending.add(append, result, trio.current_time())
            else:
                append.settle(result)
        if self._pending:
            self._pending.settle_reached(self.progress)

    def failed(self, part: PartitionShare, error: str) -> None:
        for _, producer_id, before in reversed(part.undo):
            self.log.producers.restore(producer_id, before)
        for append in part.appends:
            self.log.producers.turn_away(append.header)
            append.settle(StorageError(error))
        self._pending.fail(StorageError(error), part.base_offset)
