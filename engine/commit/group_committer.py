"""Group commit: bytes that are written while a sync is in flight become durable with the next one.

A `GroupCommitter` serves the partitions of one log dir. A commit batch is the appends that are queued at a moment: each
partition stages its appends, and all are written in one step. One sync at a time makes durable all commit batches that
were written before it began, which are then answered in their order. If it fails, later commit batches are undone
first. Only the loop changes the state of partitions: a worker sees nothing but file operations.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import trio

from engine.commit.appends import Append, Owner, PartitionShare
from engine.commit.backpressure import CommitBatchHold, QueueBudget
from engine.commit.syncer import Syncer
from engine.commit.writer import Writer
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.stats import CommitStatistics

COMMIT_BATCH_MAX_BYTES = 16 * 1024 * 1024
OVERLAP_MIN_BYTES = 64 * 1024  # at least so many are written while a sync is in flight, fewer after it
LARGE_COMMIT_BATCH = 32  # appends: after a commit batch with so many, other tasks get their turn


class Staged(NamedTuple):
    """A commit batch whose batches have their offsets."""

    parts: list[PartitionShare]
    appends: int
    size_bytes: int
    started_s: float


class WrittenBatch(NamedTuple):
    """A commit batch that is written. `parts`: those that need a sync."""

    parts: list[PartitionShare]
    staged: Staged


class BetweenCommitBatches:
    """A block that has the turn of a commit batch. It is no generator: async generators cannot be compiled."""

    def __init__(self, committer: "GroupCommitter") -> None:
        self._committer = committer

    async def __aenter__(self) -> None:
        await self._committer.wait_for_turn()

    async def __aexit__(self, *_: object) -> None:
        self._committer.give_turn()


class GroupCommitter:
    """The queue of a log dir's partitions and the tasks that serve it."""

    def __init__(
        self,
        disk: Disk,
        budget: QueueBudget,
        hold: CommitBatchHold,
        writer: Writer,
        syncer: Syncer,
        statistics: CommitStatistics,
    ) -> None:
        self._disk = disk
        self._budget = budget
        self._hold = hold
        self._writer = writer
        self._syncer = syncer
        self.statistics = statistics
        self._queue: deque[Append] = deque()
        self._queued_bytes = 0
        self._hurried = 0  # number of queued appends that need no sync
        self._staged: Staged | None = None  # to be written by the task that writes
        self._written: deque[WrittenBatch] = deque()  # not durable yet, and no sync of them has begun
        self._is_syncing = False
        self._is_served = False
        # Held while a commit batch is written, or by a `between_commit_batches` block; first come, first served. It is
        # no lock, because only the task that took a lock can release it.
        self._turn = trio.Semaphore(1)
        self._to_write = trio.lowlevel.ParkingLot()
        self._to_sync = trio.lowlevel.ParkingLot()
        self._pause = trio.lowlevel.ParkingLot()

    def enqueue(self, append: Append) -> None:
        """Queue an append that has taken its room in the budget."""
        self._queue.append(append)
        self._queued_bytes += append.size_bytes
        self._hurried += append.hurries
        if not self._hold.is_held:
            self._wake()

    def _wake(self) -> None:
        """Wake a task to write the queue, unless it is cheaper to wait for the sync in flight."""
        if not self._is_syncing:
            self._to_sync.unpark()
        elif self._is_worth_writing:
            self._to_write.unpark()

    @property
    def _is_worth_writing(self) -> bool:
        """Whether the queue is written now. While a sync is in flight, few bytes wait: one large write is cheaper than
        several small ones."""
        return not self._is_syncing or self._hurried > 0 or self._queued_bytes >= OVERLAP_MIN_BYTES

    @property
    def _has_unsynced(self) -> bool:
        """Whether a written commit batch is not answered yet."""
        return self._is_syncing or bool(self._written)

    def between_commit_batches(self) -> "BetweenCommitBatches":
        """Exclude commit batches within the block (async with); appends are queued meanwhile."""
        return BetweenCommitBatches(self)

    async def wait_for_turn(self) -> None:
        """Return when no commit batch is in flight; none begins until `give_turn`."""
        await self._take_turn()
        try:
            while self._has_unsynced and self._is_served:
                await self._pause.park()
        except BaseException:
            self.give_turn()
            raise

    async def drained(self) -> None:
        """Return when each queued append is answered."""
        while self._queue or not self._turn.value or self._has_unsynced:
            await self._pause.park()

    async def released(self, append: Append) -> None:
        """Return when no job reads the records of the append any more. Its answer may still wait for other replicas."""
        while not append.is_released:
            await self._pause.park()

    # Commit batches

    async def serve(self) -> None:
        """Run commit batches until cancelled. One task syncs, and writes between two syncs; the other one does writes
        that take long, or that begin while a sync is in flight.
        """
        self._is_served = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve_writes)
                await self._serve_syncs()
        finally:
            self._is_served = False
            if self._staged is not None:  # no task will write it, and other tasks wait for its turn
                staged, self._staged = self._staged, None
                self._end(staged)
                self.give_turn()
            self._pause.unpark_all()

    async def _serve_writes(self) -> None:
        while True:
            while self._staged is None and not (self._queue and self._is_worth_writing):
                await self._to_write.park()
            await self._write_next()

    async def _write_next(self) -> None:
        """Write the staged commit batch, or stage and write one. This is a function of its own so that no local
        variable keeps a commit batch in memory until the next one."""
        if self._staged is None:
            await self._take_turn()
            self._staged = self._stage()  # perhaps empty: the queue may have been written meanwhile
        staged = self._staged
        try:
            await self._writer.write(staged.parts, staged.size_bytes)
        except OSError as error:
            self._failed(staged, error)
        except StorageError as error:
            self._refuse(staged.parts, str(error))
            self._end(staged)
        else:
            self._note_written(staged)
        finally:
            self._staged = None
            self.give_turn()

    def write_now(self) -> None:
        """Write the queue at once if that waits for nothing, and answer appends that need no sync; otherwise wake the
        task that writes."""
        if not self._queue or not self._is_worth_writing:
            return
        if not self._turn.value or not self._is_served:
            self._to_write.unpark()
            return
        self._turn.acquire_nowait()
        staged = self._stage()
        try:
            is_written = self._writer.write_if_quick(staged.parts, staged.size_bytes, staged.started_s)
        except OSError as error:
            self._failed(staged, error)
        else:
            if is_written:
                self._note_written(staged)
            else:
                self._staged = staged
                self._to_write.unpark()
        finally:
            if self._staged is None:  # otherwise the staged commit batch keeps the turn
                self.give_turn()

    async def _take_turn(self) -> None:
        """Take the turn, without a trip through the scheduler if it is free."""
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()

    def give_turn(self) -> None:
        """Give the turn to the next task that waits for it, and wake a task to write the queue."""
        self._turn.release()
        if self._queue:
            self._wake()
        if self._pause:
            self._pause.unpark_all()

    def _stage(self) -> Staged:
        """Stage the queued appends by partition, in order, up to COMMIT_BATCH_MAX_BYTES."""
        started_s = trio.current_time()
        by_owner: dict[Owner, list[Append]] = {}
        size_bytes = count = 0
        queue = self._queue
        while queue and (not size_bytes or size_bytes + queue[0].size_bytes <= COMMIT_BATCH_MAX_BYTES):
            append = queue.popleft()
            size_bytes += append.size_bytes
            self._hurried -= append.hurries
            count += 1
            if append.owner in by_owner:
                by_owner[append.owner].append(append)
            else:
                by_owner[append.owner] = [append]
        self._queued_bytes -= size_bytes
        parts = [part for owner, appends in by_owner.items() if (part := owner.stage(appends)) is not None]
        return Staged(parts, count, size_bytes, started_s)

    def _note_written(self, staged: Staged) -> None:
        """Answer the parts that need no sync, and queue the others for the next sync."""
        waiting = []
        for part in staged.parts:
            if part.rejected:
                part.owner.failed(part, "no space, or no file descriptor, is left for it")
                continue
            part.owner.written(part)
            if part.must_sync:
                waiting.append(part)
        if waiting:
            self._written.append(WrittenBatch(waiting, staged))
            self._to_sync.unpark()
        else:
            self._end(staged)

    def _end(self, staged: Staged) -> None:
        """Count a finished or failed commit batch, and give its room back."""
        self.statistics.commit_batches.note(trio.current_time() - staged.started_s)
        self._budget.give_back(staged.size_bytes)

    def _failed(self, staged: Staged, error: OSError) -> None:
        self._disk.fail(error)
        self._refuse(staged.parts, f"the log dir is offline: {error}")
        self._end(staged)

    @staticmethod
    def _refuse(parts: Sequence[PartitionShare], error: str) -> None:
        """Undo parts, the last first, so that each partition returns to the state before its part."""
        for part in reversed(parts):
            part.owner.failed(part, error)

    # Durability

    async def _serve_syncs(self) -> None:
        while True:
            self.write_now()
            if not self._written:
                await self._to_sync.park()
            elif await self._sync_next() >= LARGE_COMMIT_BATCH:
                await trio.lowlevel.checkpoint()

    async def _sync_next(self) -> int:
        """Sync all commit batches that are written now, up to COMMIT_BATCH_MAX_BYTES, and answer them; returns the
        number of their appends."""
        written: list[WrittenBatch] = []
        size_bytes = 0
        while self._written and (
            not size_bytes or size_bytes + self._written[0].staged.size_bytes <= COMMIT_BATCH_MAX_BYTES
        ):
            written.append(self._written.popleft())
            size_bytes += written[-1].staged.size_bytes
        parts = [part for one in written for part in one.parts]
        self._is_syncing = True
        try:
            await self._syncer.sync(parts)
        except StorageError as error:
            self._undo(written, str(error))
        else:
            for part in parts:
                part.owner.durable(part)
        finally:
            self._is_syncing = False
        self._synced(written)
        return sum(one.staged.appends for one in written)

    def _undo(self, written: Sequence[WrittenBatch], error: str) -> None:
        """Undo commit batches whose sync failed; those written since are lost, too, and are undone first."""
        later = [*self._written]
        self._written.clear()
        for one in reversed([*written, *later]):
            self._refuse(one.parts, error)
        self._synced(later)

    def _synced(self, written: Sequence[WrittenBatch]) -> None:
        for one in written:
            self._end(one.staged)
        if self._pause:
            self._pause.unpark_all()
