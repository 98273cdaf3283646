"""Group commit: what arrives while a round is in flight forms the next round.

A `GroupCommitter` serves the partitions of one log dir. Its one task drains the queue, lets each partition stage its
appends, writes, makes durable what its topics want durable, all of it in one step, and hands out the results. The loop
stays the only owner of every partition's state: a worker sees file operations and nothing else, and comes back once per
round. Small rounds are written by the loop itself (docs/decisions/0003-where-io-runs.md).
`GroupCommitter._make_durable` is the only place that makes an append of a sync topic count.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from engine.commit.appends import Append, Attendance, Owner, PartitionRound, QueueBudget
from engine.commit.journal import Journal, JournalWrite
from engine.commit.journal_format import JournalEntry
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.filesystem import DiskFull
from engine.stats import CommitStatistics

T = TypeVar("T")

INLINE_MAX_BYTES = 1024 * 1024  # a round up to this size is copied to the page cache by the loop: some 0.2 ms
JOURNAL_MAX_BYTES = 4 * 1024 * 1024
JOURNAL_MAX_BYTES_PER_FILE = 64 * 1024  # above it, syncing the file costs less than writing its bytes twice
ROUND_MAX_BYTES = 16 * 1024 * 1024
LARGE_ROUND = 32  # appends: behind so many, other tasks get their turn
SLOW_WRITE_S = 0.02  # the page cache is throttled: dirty pages have to reach the disk first
SLOW_FOR_S = 1.0


def write_round(parts: Sequence[PartitionRound]) -> None:
    """Into the page cache. An OSError says that the log dir is lost, a full disk only rejects its part."""
    for part in parts:
        try:
            part.log.perform(part.chunks)
        except DiskFull:
            part.rejected = True


class Staged(NamedTuple):
    """A round whose batches have their offsets."""

    parts: list[PartitionRound]
    appends: int
    size_bytes: int
    begun_s: float


class BetweenRounds:
    """A block that takes the turn of a round, and wakes afterwards who waits for the end of one."""

    def __init__(self, turn: trio.Semaphore, pause: trio.lowlevel.ParkingLot) -> None:
        self._turn = turn
        self._pause = pause

    async def __aenter__(self) -> None:
        try:
            await self._turn.acquire()
        except BaseException:
            self._pause.unpark_all()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._turn.release()
        self._pause.unpark_all()


class GroupCommitter:
    """The queue of a log dir's partitions and the task that serves it."""

    def __init__(
        self, disk: Disk, budget: QueueBudget, attendance: Attendance, has_too_many_files_open: Callable[[], bool]
    ) -> None:
        self._disk = disk
        self._budget = budget
        self._attendance = attendance
        self.journal: Journal | None = None
        self._has_too_many_files_open = has_too_many_files_open
        self._queue: deque[Append] = deque()
        self._staged: Staged | None = None  # for the task to go on with
        self._is_served = False
        # Held by a round, or by who is between two; first come, first served. No lock, which only a task can give back.
        self._turn = trio.Semaphore(1)
        self._slow_until_s = 0.0
        self.statistics = CommitStatistics()
        self._work = trio.lowlevel.ParkingLot()
        self._pause = trio.lowlevel.ParkingLot()

    def submit(self, append: Append) -> None:
        """Raises Overloaded."""
        self._budget.take(append.size_bytes)
        self.enqueue(append)

    def enqueue(self, append: Append) -> None:
        """One that has its part of the budget."""
        self._queue.append(append)
        if not self._attendance.is_held:
            self._wake()

    def _wake(self) -> None:
        if self._work:  # asking is cheaper than waking nobody
            self._work.unpark()

    def between_rounds(self) -> "BetweenRounds":
        """No round is in flight within the block (async with); appends queue up meanwhile."""
        return BetweenRounds(self._turn, self._pause)

    async def drained(self) -> None:
        """Return when everything submitted so far is answered."""
        while self._queue or not self._turn.value:
            await self._pause.park()

    async def settled(self, append: Append) -> None:
        """Return when it is answered, or refused."""
        while not append.is_settled:
            await self._pause.park()

    # Rounds

    async def serve(self) -> None:
        """Run rounds until cancelled."""
        self._is_served = True
        try:
            while True:
                while not self._queue and self._staged is None:
                    await self._work.park()
                if await self._next_round() >= LARGE_ROUND:
                    await trio.lowlevel.checkpoint()
        finally:
            self._is_served = False
            if self._staged is not None:  # nobody goes on with it, and others wait for the turn it holds
                staged, self._staged = self._staged, None
                self._end(staged)

    async def _next_round(self) -> int:
        """Returns of how many appends. A call of its own: nothing of a round may stay here until the next one."""
        if self._staged is None:
            await self._take_turn()
            self._staged = self._stage()  # perhaps of nothing: what was queued may have been written meanwhile
        staged = self._staged
        try:
            await self._round(staged)
        finally:
            self._staged = None
            self._end(staged)
        return staged.appends

    def write_now(self) -> None:
        """What is queued, if it waits for nothing, not even for durability; else the task goes on with it."""
        if not self._queue:
            return
        if not self._turn.value or not self._is_served:
            self._wake()
            return
        self._turn.acquire_nowait()
        staged = self._stage()
        if not self._is_quick(staged):
            self._staged = staged
            self._wake()
            return
        try:
            write_round(staged.parts)
            self._tell_written(staged.parts)
        except OSError as error:
            self._failed(staged, error)
        else:
            duration_s = trio.current_time() - staged.begun_s
            self._note_write(duration_s)
            self.statistics.rounds.note(duration_s)
        self._end(staged)

    async def _take_turn(self) -> None:
        """At once if nobody waits for one: this is a step of every round."""
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()

    def _stage(self) -> Staged:
        """Everything queued, up to the size of a round, by partition and in order."""
        begun_s = trio.current_time()
        by_owner: dict[Owner, list[Append]] = {}
        size_bytes = count = 0
        queue = self._queue
        while queue and (not size_bytes or size_bytes + queue[0].size_bytes <= ROUND_MAX_BYTES):
            append = queue.popleft()
            size_bytes += append.size_bytes
            count += 1
            if append.owner in by_owner:
                by_owner[append.owner].append(append)
            else:
                by_owner[append.owner] = [append]
        parts = [part for owner, appends in by_owner.items() if (part := owner.stage(appends)) is not None]
        return Staged(parts, count, size_bytes, begun_s)

    def _is_quick(self, staged: Staged) -> bool:
        """It neither has to be durable, nor waits for a file to be opened or for a slow disk."""
        if staged.size_bytes > INLINE_MAX_BYTES or staged.begun_s < self._slow_until_s:
            return False
        return not any(part.must_sync or part.rolls or part.chunks[0].file is None for part in staged.parts)

    def _end(self, staged: Staged) -> None:
        """Whoever waits for the turn has it."""
        self._turn.release()
        self._budget.give_back(staged.size_bytes)
        if self._pause:
            self._pause.unpark_all()

    async def _round(self, staged: Staged) -> None:
        parts = staged.parts
        try:
            await self._write(parts, staged.size_bytes)
            self._tell_written(parts)
            waiting = [part for part in parts if part.must_sync and not part.rejected]
            await self._make_durable(waiting)
        except OSError as error:
            self._failed(staged, error)
            return
        except StorageError as error:
            self._refuse(staged, str(error))
            return
        for part in waiting:
            part.owner.durable(part)
        self.statistics.rounds.note(trio.current_time() - staged.begun_s)

    def _failed(self, staged: Staged, error: OSError) -> None:
        self._disk.fail(error)
        self._refuse(staged, f"the log dir is offline: {error}")

    @staticmethod
    def _refuse(staged: Staged, error: str) -> None:
        for part in staged.parts:
            part.owner.failed(part, error)

    async def _write(self, parts: Sequence[PartitionRound], size_bytes: int) -> None:
        write = partial(write_round, parts)
        if all(chunk.file is not None for part in parts for chunk in part.chunks):
            await self._perform(write, size_bytes)
            return
        async with self._disk.syncing([file for part in parts if (file := part.synced_first) is not None]):
            await self._perform(write, size_bytes, may_wait=True)

    async def _perform(self, write: Callable[[], None], size_bytes: int, *, may_wait: bool = False) -> None:
        """On the loop if it takes no time worth a trip to a worker; not for a while after one that took long."""
        begun_s = trio.current_time()
        if may_wait or size_bytes > INLINE_MAX_BYTES or begun_s < self._slow_until_s:
            await self._disk.run_round(write)
        else:
            write()
        self._note_write(trio.current_time() - begun_s)

    def _note_write(self, duration_s: float) -> None:
        if duration_s > SLOW_WRITE_S:
            self._slow_until_s = trio.current_time() + SLOW_FOR_S

    @staticmethod
    def _tell_written(parts: Sequence[PartitionRound]) -> None:
        for part in parts:
            if part.rejected:
                part.owner.failed(part, "no space, or no file descriptor, is left for it")
            else:
                part.owner.written(part)

    async def _make_durable(self, parts: Sequence[PartitionRound]) -> None:
        """One trip for the whole round; the segments it rolled away from already are durable (`Log.perform`)."""
        if not parts:
            return
        begun_s = trio.current_time()
        journaled, write = self._reserve(parts)
        synced = [part for part in parts if part not in journaled] if len(journaled) < len(parts) else []
        files = [part.log.active_file for part in synced]
        if write is not None:
            await self._perform(write.write, write.size_bytes)
            files.append(write.file)
        await self._disk.sync_round(files)
        for part in synced:
            part.log.note_flushed(part.end)
        for part in journaled:
            part.log.journaled_offset = part.end.offset
        self.statistics.syncs.note(trio.current_time() - begun_s)

    def _reserve(self, parts: Sequence[PartitionRound]) -> tuple[Collection[PartitionRound], JournalWrite | None]:
        """A place in the journal for those parts of a round that suit it; the files of the others are to be synced."""
        if self.journal is None or self._has_too_many_files_open():
            return (), None  # a file can be closed only when its bytes are durable in it
        suited = _worth_the_journal([part for part in parts if _may_be_journaled(part)])
        write = self.journal.reserve([_journal_entry(part) for part in suited]) if suited else None
        if write is None:
            return (), None
        for part in suited:
            part.log.journal_end_offset = part.end.offset
        return set(suited), write

    async def write_journal(self, write: JournalWrite) -> None:
        """Write and sync a frame, for errands between rounds. Raises StorageError."""
        self._disk.check_online()
        try:
            await self._perform(write.write, write.size_bytes)
        except OSError as error:  # the space is there: only a lost disk refuses it
            self._disk.fail(error)
            raise StorageError(f"the log dir is offline: {error}") from error
        await self._disk.sync_round([write.file])


def _may_be_journaled(part: PartitionRound) -> bool:
    """Not what has unsynced bytes of an async round before it, which a replay would miss, nor what is of two epochs."""
    first, last = part.chunks[0].headers[0], part.chunks[-1].headers[-1]
    return not part.rolls and first.base_offset <= part.log.covered_offset and first.leader_epoch == last.leader_epoch


def _worth_the_journal(parts: Sequence[PartitionRound]) -> Sequence[PartitionRound]:
    """Bytes are written twice there, but synced at once: as many parts, the smallest first, as are small on average."""
    sizes_bytes = [part.size_bytes for part in parts]
    if sum(sizes_bytes) <= min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * len(parts)):
        return parts
    chosen, total_bytes = list[PartitionRound](), 0
    for part in sorted(parts, key=lambda one: one.size_bytes):
        total_bytes += part.size_bytes
        if total_bytes > min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * (len(chosen) + 1)):
            break
        chosen.append(part)
    return chosen


def _journal_entry(part: PartitionRound) -> JournalEntry:
    [chunk] = part.chunks
    partition = part.owner.partition
    return JournalEntry(
        partition.topic_id,
        partition.partition,
        chunk.headers[0].leader_epoch,
        chunk.headers[0].base_offset,
        chunk.headers[-1].next_offset,
        chunk.base_offset,
        chunk.position,
        chunk.batches,
    )
