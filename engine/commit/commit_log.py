"""The commit log of a log dir: rounds, the journal, and how far everything is known to be durable.

What is durable is in segment files up to a partition's recovery point, and above it in the journal. A checkpoint writes
the points down; barriers say in the journal what a replay must not undo (RULES J2). It knows logs, not partitions.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from engine.commit.appends import Attendance, QueueBudget
from engine.commit.flusher import Flusher
from engine.commit.group_committer import GroupCommitter
from engine.commit.journal import Found, Journal
from engine.commit.journal_format import Barrier, BarrierKind
from engine.commit.replay import end_by
from engine.commit.syncer import Syncer
from engine.commit.writer import Writer
from engine.compacted import Dropped
from engine.errors import CorruptMessage, EngineError, StorageError
from engine.files.disk import Disk
from engine.logs.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey, write_checkpoint
from engine.logs.epochs import EpochStart
from engine.logs.log import Log
from engine.logs.recovery import LastKnown
from engine.logs.sparse_index import Stored
from engine.stats import CommitStatistics

CHECKPOINT_INTERVAL_S = 60  # as log.flush.offset.checkpoint.interval.ms of Kafka
CHECKPOINT_PAUSE_S = 1


class Gaps(NamedTuple):
    """Offsets below `below_offset` may be missing; `epochs` began behind `end_offset`, where the log ends. `dropped`:
    what else may be."""

    end_offset: int
    below_offset: int
    epochs: tuple[EpochStart, ...]
    dropped: Dropped


@dataclass(eq=False)
class _ExpectedGaps:
    """They are to be noted in the checkpoint, if that is wanted still."""

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
    """Which records of a log count, and from where on there are some of which that depends on what is undecided yet."""

    high_watermark: int
    undecided_from: int


class CommitLog:
    """Of one log dir. `logs` are those that are open; `names` are of partition directories."""

    def __init__(
        self, disk: Disk, budget: QueueBudget, attendance: Attendance, has_too_many_files_open: Callable[[], bool]
    ) -> None:
        self.disk = disk
        self.budget = budget
        statistics, writer = CommitStatistics(), Writer(disk)
        self.syncer = Syncer(disk, writer, statistics, has_too_many_files_open)
        self.committer = GroupCommitter(disk, budget, attendance, writer, self.syncer, statistics)
        self.flusher = Flusher(disk.sync)
        self.logs: dict[PartitionKey, Log] = {}
        self._decided: dict[PartitionKey, Callable[[], Decided]] = {}
        self.points: dict[PartitionKey, PartitionCheckpoint] = {}  # for the next checkpoint
        self.journal: Journal | None = None
        self._written = Checkpoint(0, {})
        self._checkpointing = trio.Lock()
        self._expected: dict[_ExpectedGaps, None] = {}  # to be noted, in the order in which they were told
        self._not_recovered: set[str] = set()
        self._let_go: set[str] = set()  # by this process
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
        """Start from what was on disk."""
        self._written = checkpoint
        self.points = dict(checkpoint.partitions)
        self.journal = self.syncer.journal = Journal(
            self.disk.filesystem, self.disk.path, slot_size_bytes, found, new_id, self.want_checkpoint
        )
        self._not_recovered = set() if is_clean else set(names)
        self._suspect = set(names) if checkpoint.has_lost else set()

    @property
    def services(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What runs for as long as it is served."""
        return self.keep_checkpoints, self.flusher.serve, self.committer.serve

    # What recovery may believe

    def last_known(self, key: PartitionKey, name: str, stored: Stored, *, has_others: bool) -> LastKnown:
        """Of a partition that is about to be opened; `has_others`: other replicas are in sync."""
        point = self.points.get(key, PartitionCheckpoint())
        is_clean, may_cut, was_let_go = name not in self._not_recovered, name not in self._suspect, name in self._let_go
        return LastKnown(is_clean, point, stored, may_cut=may_cut, has_others=has_others, was_let_go=was_let_go)

    def had(self, key: PartitionKey) -> bool:
        """Whether the log dir had records of it, as far as checkpoints tell."""
        return self.points.get(key, PartitionCheckpoint()).had_records

    def forget(self, key: PartitionKey) -> None:
        """A partition whose directory is gone: the next one of it begins as a new one."""
        if self.points.pop(key, None) is not None:
            self.want_checkpoint()

    def adopt(self, key: PartitionKey, name: str, log: Log, decided: Callable[[], Decided]) -> None:
        """It was opened. Damage that a scan has found takes a scan to find again."""
        self.logs[key] = log
        self._decided[key] = decided
        self.lacks(key, log, log.dropped)
        self._suspect.discard(name)
        self._let_go.discard(name)
        if log.damaged_from is None:
            self._not_recovered.discard(name)
        if log.flushed_offset or log.damaged_from is not None:
            self.want_checkpoint()

    def release(self, key: PartitionKey) -> None:
        """It is about to be deleted."""
        self.logs.pop(key, None)
        self._decided.pop(key, None)

    def disown(self, names: Collection[str]) -> None:
        """These are gone, or left-overs of partitions that live elsewhere."""
        self._not_recovered.difference_update(names)
        self._suspect.difference_update(names)

    def recovered(self, name: str) -> None:
        """It has begun anew: there is nothing left to scan."""
        self._not_recovered.discard(name)

    def scan_later(self, names: Collection[str]) -> None:
        """Logs that were strays, from a time when they were not let go of in order."""
        self._not_recovered.update(names)

    def take_back(self, key: PartitionKey, name: str, known: LastKnown) -> None:
        """A stray is a log of this log dir again: its checkpoint entry replaces any other."""
        self.points[key] = known.checkpoint
        if not known.is_clean:
            self._not_recovered.add(name)
        if not known.may_cut:
            self._suspect.add(name)

    def let_go(self, names: Collection[str]) -> None:
        """These were closed, and may be opened once more: their files are scanned then."""
        self._not_recovered.update(names)
        self._let_go.update(names)

    @property
    def has_all_recovered(self) -> bool:
        """No partition has to be scanned at the next start if this one ends in order."""
        return not self._not_recovered

    # Barriers

    @asynccontextmanager
    async def between_checkpoints(self) -> AsyncIterator[None]:
        """No checkpoint is taken within the block, and the log dir is not let go of."""
        async with self._checkpointing:
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """And no round is in flight; the block is not cancelled half-way.

        For `announce` and what it announces: a checkpoint in between would end the barrier before it took effect.
        """
        with trio.CancelScope(shield=True):
            async with self.between_checkpoints(), self.committer.between_rounds():
                yield

    @asynccontextmanager
    async def replacing(self) -> AsyncIterator[None]:
        """No checkpoint is taken, and no log made shorter, within the block; rounds go on.

        Once begun it is not cancelled half-way.
        """
        async with self._checkpointing:
            with trio.CancelScope(shield=True):
                yield

    async def replaced(self) -> None:
        """Return when nobody is within `replacing`."""
        async with self._checkpointing:
            pass

    async def announce(self, barriers: Sequence[Barrier]) -> None:
        """Make it durable that this will happen, before it does (RULES J2); within `alone`. Raises StorageError.

        While the journal has no room, a checkpoint with the barriers behind it does the same; but for a reset, which a
        replay has to do again.
        """
        assert self.journal is not None
        write = self.journal.reserve_barrier(barriers)
        if write is None and any(one.kind is BarrierKind.RESET for one in barriers):
            self.journal.add_slot(await self.disk.run_between_rounds(self.journal.make_slot))
            write = self.journal.reserve_barrier(barriers)
            if write is None:
                raise StorageError("it does not fit in a slot of the journal")
        if write is not None:
            await self.syncer.write_frame(write)
        else:
            await self.checkpoint_alone(barriers)
        for barrier in barriers:
            end_by(self.points, barrier)

    # Checkpoints

    def want_checkpoint(self) -> None:
        """A segment was finished or a log recovered: do not wait for the next regular checkpoint."""
        self._wanted.set()

    async def keep_checkpoints(self) -> None:
        """Write one now and then, and make journal slots as they are needed, until cancelled or offline.

        What is above a recovery point counts as a tail after a crash.
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
        """Flush what leans on the journal, write down how far everything is durable, and free the journal.

        Raises StorageError.
        """
        async with self._checkpointing:
            await self.checkpoint_alone()

    async def checkpoint_alone(self, announced: Sequence[Barrier] = ()) -> None:
        """The same for who is `alone`, or `replacing`; `announced` is what is about to happen."""
        assert self.journal is not None
        sequence, retired = self.journal.next_sequence, list(self.journal.retired)
        await self.flusher.flush([log for log in self.logs.values() if log.leans_on_journal])
        before = self._written
        points = self.advance_points()
        for barrier in announced:
            end_by(points, barrier)
        after = Checkpoint(sequence, points, has_lost=bool(self._suspect))
        if after != before:
            await self.disk.run(partial(write_checkpoint, self.disk.filesystem, self.disk.path, after))
            self._written = after
        self.journal.release(retired)

    async def expect_gaps(self, key: PartitionKey, gaps: Gaps, is_wanted: Callable[[], bool]) -> bool:
        """Have it durable that they may be there, if that is wanted still when it is its turn; whether it was. Raises
        StorageError.

        One checkpoint is for all that have asked meanwhile, as the partitions of one fetch do.
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
        """Within `replacing`. If it is cancelled, the next one that asked does it again."""
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

    def lacks(self, key: PartitionKey, log: Log, dropped: Dropped) -> None:
        """And no more, though more was noted: that has not come, nor have gaps that were expected there. Soon, as what
        comes from now on stands where that would have. Not of what is damaged, which may be whole at the next start."""
        if log.damaged_from is None:
            log.dropped = dropped
            log.compacted_to = min(log.compacted_to, log.end.offset)
            if (before := self.points.get(key)) is not None:
                self.points[key] = before.lacking(dropped)._replace(compacted_to=log.compacted_to)
                if self.points[key] != before:
                    self.want_checkpoint()

    async def checkpoint_local_starts(self, offsets: Mapping[PartitionKey, int]) -> None:
        """Have it durable that there may be no files below; within `replacing`. Raises StorageError, CorruptMessage."""
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
        """As far as it is flushed now. Points never go back, and that of a damaged log tells that it is."""
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
