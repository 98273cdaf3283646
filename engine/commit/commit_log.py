"""The commit log of a log dir: commit batches, the journal, and the recovery points.

Durable records are in segment files up to a partition's recovery point, and above it in the journal. A checkpoint
stores the recovery points. Barriers in the journal name the changes that a replay must not undo (RULES J2). This module
knows logs, not partitions.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from engine.commit.backpressure import CommitBatchHold, QueueBudget
from engine.commit.flusher import Flusher
from engine.commit.group_committer import GroupCommitter
from engine.commit.journal import Found, Journal
from engine.commit.journal_format import Barrier, BarrierKind
from engine.commit.replay import apply_barrier
from engine.commit.syncer import Syncer
from engine.commit.writer import Writer
from engine.compaction_horizon import CompactionHorizon
from engine.errors import CorruptMessage, EngineError, StorageError
from engine.files.disk import Disk
from engine.logs.log import Log
from engine.logs.recovery.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey, write_checkpoint
from engine.logs.recovery.epochs import EpochStart
from engine.logs.recovery.recovery import LastKnown
from engine.logs.segments.sparse_index import Stored
from engine.stats import CommitStatistics

CHECKPOINT_INTERVAL_S = 60  # as log.flush.offset.checkpoint.interval.ms of Kafka
CHECKPOINT_PAUSE_S = 1


class Gaps(NamedTuple):
    """Expected gaps of a log that ends at `end_offset`: offsets below `below_offset` may be missing.

    `epochs`: leader epochs that began behind `end_offset`. `dropped`: up to where tombstones and markers may be
    missing.
    """

    end_offset: int
    below_offset: int
    epochs: tuple[EpochStart, ...]
    dropped: CompactionHorizon


@dataclass(eq=False)
class _ExpectedGaps:
    """Gaps that wait to be noted in the checkpoint, if `is_wanted()` is still true then."""

    key: PartitionKey
    gaps: Gaps
    is_wanted: Callable[[], bool]
    is_noted: bool = False
    error: EngineError | None = None

    def after(self, point: PartitionCheckpoint) -> PartitionCheckpoint:
        before = tuple(start for start in point.epochs if start.start_offset < self.gaps.end_offset)
        compacted_to = max(point.compacted_to, self.gaps.below_offset)
        return point._replace(compacted_to=compacted_to, epochs=before + self.gaps.epochs).without(self.gaps.dropped)


class Decided(NamedTuple):
    """High watermark of a log, and the first offset of its first transaction that is open, or ended above the high
    watermark."""

    high_watermark: int
    undecided_from: int


class CommitLog:
    """The commit log of one log dir. `logs`: the open logs. Arguments `names` are names of partition directories."""

    def __init__(
        self, disk: Disk, budget: QueueBudget, hold: CommitBatchHold, has_too_many_files_open: Callable[[], bool]
    ) -> None:
        self.disk = disk
        self.budget = budget
        statistics, writer = CommitStatistics(), Writer(disk)
        self.syncer = Syncer(disk, writer, statistics, has_too_many_files_open)
        self.committer = GroupCommitter(disk, budget, hold, writer, self.syncer, statistics)
        self.flusher = Flusher(disk.sync)
        self.logs: dict[PartitionKey, Log] = {}
        self._decided: dict[PartitionKey, Callable[[], Decided]] = {}
        self.points: dict[PartitionKey, PartitionCheckpoint] = {}  # for the next checkpoint
        self.journal: Journal | None = None
        self._written = Checkpoint(0, {})
        self._checkpointing = trio.Lock()
        self._expected: dict[_ExpectedGaps, None] = {}  # to be noted, in the order of the requests
        self._not_recovered: set[str] = set()
        self._released: set[str] = set()  # by this process
        self._suspect: set[str] = set()  # not opened since the journal was found damaged
        self._wanted = trio.Event()

    def possess(
        self,
        checkpoint: Checkpoint,
        found: Found,
        names: Collection[str],
        slot_size_bytes: int,
        new_id: Callable[[], bytes],
        *,
        is_clean: bool,
    ) -> None:
        """Start from the checkpoint and the journal found on disk."""
        self._written = checkpoint
        self.points = dict(checkpoint.partitions)
        self.journal = self.syncer.journal = Journal(
            self.disk.filesystem, self.disk.path, slot_size_bytes, found, new_id, self.want_checkpoint
        )
        self._not_recovered = set() if is_clean else set(names)
        self._suspect = set(names) if checkpoint.has_lost else set()

    @property
    def services(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """The background tasks that run while the log dir is served."""
        return self.keep_checkpoints, self.flusher.serve, self.committer.serve

    # Facts for the recovery of logs

    def last_known(self, key: PartitionKey, name: str, stored: Stored, *, has_others: bool) -> LastKnown:
        """The known state of a partition that is about to be opened. `has_others`: other replicas are in sync."""
        point = self.points.get(key, PartitionCheckpoint())
        return LastKnown(
            name not in self._not_recovered,
            point,
            stored,
            may_truncate=name not in self._suspect,
            has_others=has_others,
            was_released=name in self._released,
        )

    def had(self, key: PartitionKey) -> bool:
        """Whether the log dir had records of the partition, by its checkpoints."""
        return self.points.get(key, PartitionCheckpoint()).had_records

    def forget(self, key: PartitionKey) -> None:
        """Forget a partition whose directory is gone: its next log begins empty."""
        if self.points.pop(key, None) is not None:
            self.want_checkpoint()

    def adopt(self, key: PartitionKey, name: str, log: Log, decided: Callable[[], Decided]) -> None:
        """Note an opened log. A damaged one is scanned again at the next start, because only a scan finds the
        damage."""
        self.logs[key] = log
        self._decided[key] = decided
        self.note_dropped(key, log, log.dropped)
        self._suspect.discard(name)
        self._released.discard(name)
        if log.damaged_from is None:
            self._not_recovered.discard(name)
        if log.flushed_offset or log.damaged_from is not None:
            self.want_checkpoint()

    def release(self, key: PartitionKey) -> None:
        """Drop the open log of a partition, before it is deleted or opened again."""
        self.logs.pop(key, None)
        self._decided.pop(key, None)

    def disown(self, names: Collection[str]) -> None:
        """Forget directories that are gone, or that belong to partitions in other log dirs."""
        self._not_recovered.difference_update(names)
        self._suspect.difference_update(names)

    def recovered(self, name: str) -> None:
        """Note that a log was reset, so that no scan is needed."""
        self._not_recovered.discard(name)

    def scan_later(self, names: Collection[str]) -> None:
        """Note logs that were not closed in order before they became strays, so that a start scans them."""
        self._not_recovered.update(names)

    def take_back(self, key: PartitionKey, name: str, known: LastKnown) -> None:
        """Take a stray back as a log of this log dir: its checkpoint entry replaces any other."""
        self.points[key] = known.checkpoint
        if not known.is_clean:
            self._not_recovered.add(name)
        if not known.may_truncate:
            self._suspect.add(name)

    def note_released(self, names: Collection[str]) -> None:
        """Note logs that were closed and may be opened again: their files are scanned then."""
        self._not_recovered.update(names)
        self._released.update(names)

    @property
    def has_all_recovered(self) -> bool:
        """Whether no log has to be scanned at the next start, if the broker stops in order."""
        return not self._not_recovered

    # Barriers

    @asynccontextmanager
    async def between_checkpoints(self) -> AsyncIterator[None]:
        """Exclude checkpoints, and the closing of the log dir, within the block."""
        async with self._checkpointing:
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Exclude checkpoints and commit batches within the block, which is not cancelled half-way.

        For `announce` and the announced change: a checkpoint in between would end the barrier before the change.
        """
        with trio.CancelScope(shield=True):
            async with self.between_checkpoints(), self.committer.between_commit_batches():
                yield

    @asynccontextmanager
    async def replacing(self) -> AsyncIterator[None]:
        """Exclude checkpoints and truncations within the block; commit batches go on.

        The block is not cancelled half-way.
        """
        async with self._checkpointing:
            with trio.CancelScope(shield=True):
                yield

    async def replaced(self) -> None:
        """Return when no block of `replacing` runs."""
        async with self._checkpointing:
            pass

    async def announce(self, barriers: Sequence[Barrier]) -> None:
        """Make barriers durable before the changes that they announce (RULES J2); call it within `alone`.

        While the journal has no room, a checkpoint that has the changes already does the same. A reset needs the
        journal, because a replay has to repeat it. Raises StorageError.
        """
        assert self.journal is not None
        write = self.journal.reserve_barrier(barriers)
        if write is None and any(one.kind is BarrierKind.RESET for one in barriers):
            self.journal.add_slot(await self.disk.run_between_commit_batches(self.journal.make_slot))
            write = self.journal.reserve_barrier(barriers)
            if write is None:
                raise StorageError("it does not fit in a slot of the journal")
        if write is not None:
            await self.syncer.write_frame(write)
        else:
            await self.checkpoint_alone(barriers)
        for barrier in barriers:
            apply_barrier(self.points, barrier)

    # Checkpoints

    def want_checkpoint(self) -> None:
        """Request a checkpoint soon, for example after a segment was finished or a log recovered."""
        self._wanted.set()

    async def keep_checkpoints(self) -> None:
        """Write checkpoints in intervals, and make journal slots as needed, until cancelled or offline.

        After a crash, a start scans all batches above a recovery point.
        """
        while self.disk.offline_reason is None:
            assert self.journal is not None
            with trio.move_on_after(CHECKPOINT_INTERVAL_S):
                await self._wanted.wait()
            self._wanted = trio.Event()
            async with self._checkpointing:  # and no reset, which may make one, too: two would have one name
                if self.journal.needs_slot:
                    with suppress(StorageError):  # no space: next time
                        self.journal.add_slot(await self.disk.run(self.journal.make_slot))
            with suppress(StorageError):
                await self.checkpoint()
            await trio.sleep(CHECKPOINT_PAUSE_S)

    async def checkpoint(self) -> None:
        """Flush the logs that depend on the journal, write the checkpoint, and free the journal. Raises
        StorageError."""
        async with self._checkpointing:
            await self.checkpoint_alone()

    async def checkpoint_alone(self, announced: Sequence[Barrier] = ()) -> None:
        """Write a checkpoint, for callers within `alone` or `replacing`. `announced`: changes that follow it, and that
        it includes already."""
        assert self.journal is not None
        sequence, retired = self.journal.next_sequence, list(self.journal.retired)
        await self.flusher.flush([log for log in self.logs.values() if log.leans_on_journal])
        before = self._written
        points = self.advance_points()
        for barrier in announced:
            apply_barrier(points, barrier)
        after = Checkpoint(sequence, points, has_lost=bool(self._suspect))
        if after != before:
            await self.disk.run(partial(write_checkpoint, self.disk.filesystem, self.disk.path, after))
            self._written = after
        self.journal.release(retired)

    async def expect_gaps(self, key: PartitionKey, gaps: Gaps, is_wanted: Callable[[], bool]) -> bool:
        """Note expected gaps durably, if `is_wanted()` is still true then; returns whether it was. Raises StorageError.

        One checkpoint serves all requests that wait, such as those for the partitions of one Fetch.
        """
        expected = _ExpectedGaps(key, gaps, is_wanted)
        self._expected[expected] = None
        try:
            async with self._checkpointing:
                if expected in self._expected:
                    await self._note_expected()
        finally:
            self._expected.pop(expected, None)
        if expected.error is not None:
            raise expected.error
        return expected.is_noted

    async def _note_expected(self) -> None:
        """Note all waiting requests in one checkpoint. If this is cancelled, the next request does it again."""
        asked, error = [*self._expected], None
        noted = [one for one in asked if one.key in self.logs and one.is_wanted()]
        for one in noted:
            self.points[one.key] = one.after(self.points.get(one.key, PartitionCheckpoint()))
        if noted:
            try:
                await self.checkpoint_alone()
            except EngineError as failed:
                error = failed
        for one in noted:
            one.is_noted, one.error = error is None, error
        for one in asked:
            self._expected.pop(one, None)

    def note_dropped(self, key: PartitionKey, log: Log, dropped: CompactionHorizon) -> None:
        """Set up to where tombstones and markers of the log may be missing, and forget expected gaps behind its end.

        These gaps were noted for batches that were never appended; other batches will take their offsets, so a
        checkpoint follows soon. A damaged log is left as it is, since it may be whole at the next start.
        """
        if log.damaged_from is None:
            log.dropped = dropped
            log.compacted_to = min(log.compacted_to, log.end.offset)
            if (before := self.points.get(key)) is not None:
                self.points[key] = before.lacking(dropped)._replace(compacted_to=log.compacted_to)
                if self.points[key] != before:
                    self.want_checkpoint()

    async def checkpoint_local_starts(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Note durably that logs may have no files below these offsets; call it within `replacing`. Raises
        StorageError, CorruptMessage."""
        before = {key: self.points.get(key, PartitionCheckpoint()) for key in offsets}
        for key, offset in offsets.items():
            self.points[key] = before[key]._replace(local_start_offset=offset)
        try:
            await self.checkpoint_alone()
        except (StorageError, CorruptMessage):
            for key, point in before.items():
                self.points[key] = self.points[key]._replace(local_start_offset=point.local_start_offset)
            raise

    def advance_points(self) -> dict[PartitionKey, PartitionCheckpoint]:
        """Advance the checkpoint entries to the flushed offsets. A recovery point never goes back; that of a damaged
        log lies behind the begin of the damage, so that the next start notices it."""
        for key, log in self.logs.items():
            before = self.points.get(key, PartitionCheckpoint())
            if log.damaged_from is None:
                recovery_point = max(before.recovery_point, log.flushed_offset)
                expected = tuple(one for one in before.epochs if one.start_offset >= recovery_point)
                producers_from = log.producers.needed_from(recovery_point, before.producers_from)
                high_watermark, undecided_from = self._decided[key]()
                aborted_from = [one.first_offset for one in log.aborted.active]
                producers_from = min([producers_from, undecided_from, *aborted_from])
                self.points[key] = before.without(log.dropped)._replace(
                    recovery_point=recovery_point,
                    log_start_offset=log.start_offset,
                    producers_from=producers_from,
                    epochs=log.epochs.below(recovery_point) + expected,
                    epochs_to=recovery_point,
                    compacted_to=max(before.compacted_to, log.compacted_to),
                    clean_to=log.clean_to,
                    high_watermark=high_watermark,
                    tiered_to=log.tiered_to or 0,
                )
            else:
                self.points[key] = before._replace(recovery_point=max(before.recovery_point, log.damaged_from + 1))
        return dict(self.points)
