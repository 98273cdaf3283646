"""A log dir at run time: its rounds, its recovery points, and what is done on its disk behind them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol

import trio

from engine.api import LogConfig, TopicPartition
from engine.appends import Attendance, PartitionRound, QueueBudget
from engine.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey, write_checkpoint
from engine.disk import Disk
from engine.errors import EngineError, StorageError
from engine.examination import Examiner
from engine.flusher import Flusher
from engine.index import partition_key
from engine.index_keeper import IndexKeeper
from engine.io_workers import WorkerPool
from engine.journal import Journal
from engine.journal_format import Barrier
from engine.key_index import KeyIndexer
from engine.layout import Prepared, directory_name, write_clean_marker
from engine.log import Log, Mark
from engine.recently_used import SegmentCaches
from engine.recovery import LastKnown
from engine.replay import end_by
from engine.rounds import Lane
from engine.set_aside import SetAside
from engine.stats import StoreStats

CHECKPOINT_INTERVAL_S = 60  # as log.flush.offset.checkpoint.interval.ms of Kafka
CHECKPOINT_PAUSE_S = 1


class Resident(Protocol):
    """A partition as its log dir sees it."""

    partition: TopicPartition
    log: Log
    config: LogConfig

    @property
    def high_watermark(self) -> int: ...
    @property
    def is_sound(self) -> bool:
        """Whether it is served, and nothing of it is known to be damaged."""

    def close(self, error: Callable[[], EngineError]) -> None: ...
    def announce_change(self) -> None:
        """Tell those who wait."""

    def retreat(self, end: Mark) -> None:
        """Show nothing at or above `end` any more."""

    def resume(self, log: Log) -> None:
        """`log` was opened in place of the one that was cut."""

    def stage_roll(self) -> PartitionRound:
        """A round that appends nothing, and begins a segment; between rounds."""

    def rolled(self, part: PartitionRound) -> None:
        """It is written."""


class LogDir:
    """One entry of log.dirs."""

    def __init__(
        self,
        disk: Disk,
        pool: WorkerPool,
        budget: QueueBudget,
        attendance: Attendance,
        index: IndexKeeper,
        caches: SegmentCaches,
        on_problem: Callable[[str], None],
        new_id: Callable[[], bytes],
        stats: StoreStats,
    ) -> None:
        self.disk = disk
        self.path = disk.path
        self.filesystem = disk.filesystem
        self.run, self.sync, self.fail = disk.run, disk.sync, disk.fail
        self.budget = budget
        self.lane = Lane(disk, budget, attendance)
        self.lane.has_too_many_files_open = lambda: caches.files.is_crowded
        self.examiner = Examiner(self.lane, pool, disk.lanes.examiner, budget)
        self.flusher = Flusher(self.sync)
        self.caches = caches
        self.on_problem = on_problem
        self.index = index
        index.on_replaced = self._index_was_replaced
        self.keys = KeyIndexer(index)
        self.set_aside = SetAside(disk.filesystem, self.run)
        self.stats = stats
        self.partitions: dict[TopicPartition, Resident] = {}
        self.names: set[str] = set()  # of partition directories, opened or not
        self.points: dict[PartitionKey, PartitionCheckpoint] = {}  # for the next checkpoint
        self.want_seal: Callable[[Resident], None] = lambda _: None  # something of it may be finished
        self.is_closing = False
        self.is_nearly_full = False
        self._new_id = new_id
        self._prepared: Prepared | None = None
        self._written = Checkpoint(0, {})
        self.journal: Journal | None = None
        self._checkpointing = trio.Lock()
        self._not_recovered: set[str] = set()
        self._suspect: set[str] = set()  # not opened since the journal was found damaged
        self._wanted = trio.Event()
        self._has_told_unallocated = False

    def possess(self, prepared: Prepared, journal_slot_size_bytes: int) -> None:
        """Start from what `layout.prepare` found."""
        self._prepared = prepared
        self._written = prepared.checkpoint
        self.points = dict(prepared.checkpoint.partitions)
        self.journal = self.lane.journal = Journal(
            self.filesystem, self.path, journal_slot_size_bytes, prepared.journal, self._new_id, self.want_checkpoint
        )
        self.names = set(prepared.partition_names)
        self._not_recovered = set() if prepared.is_clean else set(prepared.partition_names)
        self._suspect = set(prepared.partition_names) if prepared.checkpoint.has_lost else set()

    @property
    def offline_reason(self) -> str | None:
        return self.disk.offline_reason

    async def let_go(self, logs: Sequence[Log]) -> None:
        """Nobody is served from these any more. Who closes a deleted file last waits while the kernel takes back what
        it has in memory, 0.2 s a GiB: a worker.
        """
        files = [segment.file for log in logs for segment in log.segments]
        for log in logs:
            self.caches.forget(log.segments)
            log.let_go()
        with suppress(StorageError):
            await self.run(files.clear)

    def went_offline(self) -> None:
        """Every partition answers with StorageError from now on."""
        reason = str(self.offline_reason)
        self.index.stop()
        for resident in self.partitions.values():
            resident.close(lambda: StorageError(reason))

    def note_unallocated(self, why: str | None) -> None:
        """A segment did not get its space in advance: told once, it grows as any other."""
        if why is not None and not self._has_told_unallocated:
            self._has_told_unallocated = True
            self.on_problem(f"{self.path}: segments are not preallocated: {why}")

    @property
    def services(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What runs for as long as it is served."""
        parts = self.flusher, self.set_aside, self.index, self.keys, self.examiner, self.lane
        return self.keep_checkpoints, *(part.serve for part in parts)

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
            async with self.between_checkpoints(), self.lane.between_rounds():
                yield

    @asynccontextmanager
    async def replacing(self) -> AsyncIterator[None]:
        """No checkpoint is taken, and no log made shorter, within the block; rounds go on.

        Once begun it is not cancelled half-way.
        """
        async with self._checkpointing:
            with trio.CancelScope(shield=True):
                yield

    async def settled(self) -> None:
        """Return when nobody is within `replacing`."""
        async with self._checkpointing:
            pass

    async def announce(self, barriers: Sequence[Barrier]) -> None:
        """Make it durable that this will happen, before it does (RULES J2); within `alone`. Raises StorageError.

        While the journal has no room, a checkpoint with the barriers behind it does the same.
        """
        assert self.journal is not None
        write = self.journal.reserve_barrier(barriers)
        if write is not None:
            await self.lane.write_journal(write)
        else:
            await self.checkpoint_alone(barriers)
        for barrier in barriers:
            end_by(self.points, barrier)

    # Checkpoints and the index

    def last_known(self, partition: TopicPartition) -> LastKnown:
        """What recovery may believe about a partition that is about to be opened."""
        name = directory_name(partition)
        found = self.points.get((partition.topic_id, partition.partition), PartitionCheckpoint())
        return LastKnown(
            is_clean=name not in self._not_recovered,
            checkpoint=found,
            may_cut=name not in self._suspect,
            stored=self.index.take_stored(index_key(partition)),
        )

    async def adopt(self, resident: Resident, last_known: LastKnown) -> None:
        """A partition was opened, and recovered if need be. Damage that a scan has found takes a scan to find again."""
        name = directory_name(resident.partition)
        if resident.log.damaged_from is None:
            await self.index.take_stock(index_key(resident.partition), resident.log, last_known.stored)
        self.disk.check_online()  # if it failed meanwhile, it has closed those it knew
        self.partitions[resident.partition] = resident
        self.want_seal(resident)
        self.names.add(name)
        self._suspect.discard(name)
        if resident.log.damaged_from is None:
            self._not_recovered.discard(name)
        if resident.log.flushed_offset or resident.log.damaged_from is not None:
            self.want_checkpoint()

    async def abandon(self, partitions: Sequence[TopicPartition]) -> None:
        """They were deleted."""
        await self.index.forget_partitions(list(map(index_key, partitions)))
        self.disown(list(map(directory_name, partitions)))
        for one in partitions:
            self.points.pop((one.topic_id, one.partition), None)

    async def forget(self, names: Sequence[str], is_known: Callable[[bytes], bool]) -> None:
        """The partitions `names`, of topics that `is_known` denies, are no longer on disk."""
        self.disown(names)
        self.points = {key: point for key, point in self.points.items() if is_known(key[0])}
        await self.index.forget_unknown(is_known)

    def disown(self, names: Sequence[str]) -> None:
        """The partition directories `names` are gone, or left-overs of partitions that live elsewhere."""
        self.names.difference_update(names)
        self._not_recovered.difference_update(names)
        self._suspect.difference_update(names)

    def want_checkpoint(self) -> None:
        """A segment was finished or a log recovered: do not wait for the next regular checkpoint."""
        self._wanted.set()

    async def keep_checkpoints(self) -> None:
        """Write one now and then, and make journal slots as they are needed, until cancelled or offline.

        What is above a recovery point counts as a tail after a crash.
        """
        while self.offline_reason is None:
            assert self.journal is not None
            with trio.move_on_after(CHECKPOINT_INTERVAL_S):
                await self._wanted.wait()
            self._wanted = trio.Event()
            if self.journal.needs_slot:
                with suppress(StorageError):  # no space: next time
                    self.journal.add_slot(await self.run(self.journal.make_slot))
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
        """The same for who is `alone`; `announced` is what is about to happen."""
        assert self.journal is not None
        sequence, retired = self.journal.next_sequence, list(self.journal.retired)
        await self.flusher.flush([one.log for one in self.partitions.values() if one.log.leans_on_journal])
        before = self._written
        points = self.advance_points()
        for barrier in announced:
            end_by(points, barrier)
        after = Checkpoint(sequence, points, has_lost=bool(self._suspect))
        if after != before:
            await self.run(partial(write_checkpoint, self.filesystem, self.path, after))
            self._written = after
        self.journal.release(retired)

    def advance_points(self) -> dict[PartitionKey, PartitionCheckpoint]:
        """As far as it is flushed now. Points never go back, and that of a damaged log tells that it is."""
        for resident in self.partitions.values():
            log = resident.log
            key = (resident.partition.topic_id, resident.partition.partition)
            before = self.points.get(key, PartitionCheckpoint())
            if log.damaged_from is None:
                recovery_point = max(before.recovery_point, log.flushed_offset)
                epochs = log.epochs.below(recovery_point)
                producers_from = log.producers.needed_from(recovery_point, before.producers_from)
                offsets = recovery_point, log.start_offset, producers_from
                self.points[key] = PartitionCheckpoint(*offsets, epochs, log.compacted_to, log.clean_to)
            else:
                self.points[key] = before._replace(recovery_point=max(before.recovery_point, log.damaged_from + 1))
        return dict(self.points)

    def index_later(self, resident: Resident) -> None:
        """Store what the log of a partition has gathered, behind the answer to the round."""
        self.index.note(index_key(resident.partition), resident.log)

    def _index_was_replaced(self) -> None:
        for resident in self.partitions.values():
            for segment in resident.log.segments:
                segment.summarised_size_bytes = 0

    # The end

    async def shut_down(self) -> None:
        """Everything is answered: flush it, say so on disk and let go of the dir."""
        is_online = self.offline_reason is None
        sound = [one for one in self.partitions.values() if is_online and one.log.damaged_from is None]
        await self.index.close({index_key(one.partition): one.log for one in sound})
        if is_online:
            with suppress(StorageError):  # the next start scans it
                await self.flusher.flush([one.log for one in self.partitions.values()])
                await self.run(partial(_leave, [one.log for one in sound]))
                await self.checkpoint()
                if not self._not_recovered:  # a partition nobody opened since a crash still needs its scan
                    await self.run(partial(write_clean_marker, self.filesystem, self.path))
        if self._prepared is not None:
            self._prepared.lock.release()


def _leave(logs: Sequence[Log]) -> None:
    for log in logs:
        log.leave()


def index_key(partition: TopicPartition) -> bytes:
    """What the index of a log dir calls it."""
    return partition_key(partition.topic_id, partition.partition)
