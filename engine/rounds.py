"""Group commit: what arrives while a round is in flight forms the next round.

A `Lane` serves the partitions of one log dir. Its one task drains the queue, lets each partition stage its appends,
writes, makes durable what its topics want durable, all of it in one step, and hands out the results. The loop stays the
only owner of every partition's state: a worker sees file operations and nothing else, and comes back once per round.
Small rounds are written by the loop itself (docs/decisions/0003-where-io-runs.md). `Lane._make_durable` is the only
place that makes an append of a sync topic count.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import trio

from engine.api import AppendResult, TopicPartition
from engine.batch import BatchHeader
from engine.errors import EngineError, Overloaded
from engine.filesystem import DiskFull
from engine.io_workers import WorkerPool
from engine.journal import Journal, JournalWrite
from engine.journal_format import JournalEntry
from engine.log import Chunk, Log
from engine.producer_state import Producer, ProducerTable
from engine.record_checks import Examination
from engine.stats import LaneStatistics

T = TypeVar("T")

INLINE_MAX_BYTES = 1024 * 1024  # a round up to this size is copied to the page cache by the loop: some 0.2 ms
JOURNAL_MAX_BYTES = 4 * 1024 * 1024
JOURNAL_MAX_BYTES_PER_FILE = 64 * 1024  # above it, syncing the file costs less than writing its bytes twice
ROUND_MAX_BYTES = 16 * 1024 * 1024
LARGE_ROUND = 32  # appends: behind so many, other tasks get their turn
SLOW_WRITE_S = 0.02  # the page cache is throttled: dirty pages have to reach the disk first
SLOW_FOR_S = 1.0


class Append:
    """One batch from the queue to its result; `engine.api.PendingAppend` for the caller."""

    __slots__ = (
        "_callback",
        "_error",
        "_result",
        "_wake_up",
        "duplicate_result",
        "examination",
        "header",
        "owner",
        "records",
        "size_bytes",
    )

    def __init__(self, owner: "Owner", records: memoryview, header: BatchHeader) -> None:
        self.owner = owner
        self.records: memoryview | None = records
        self.header = header
        self.examination: Examination | None = None  # of its records: it has to stand that first
        self.size_bytes = len(records)
        self.duplicate_result: AppendResult | None = None  # for a batch that the log has already
        self._result: AppendResult | None = None
        self._error: EngineError | None = None
        self._wake_up: trio.Event | None = None
        self._callback: Callable[[], None] | None = None

    def succeed(self, result: AppendResult) -> None:
        self._result = result
        self._finish()

    def fail(self, error: EngineError) -> None:
        """No effect when the result is out already: an async topic's is, when the sync of others in its round fails."""
        if self._result is None and self._error is None:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.records = None
        if self._wake_up is not None:
            self._wake_up.set()
        if self._callback is not None:
            callback, self._callback = self._callback, None  # let go of it: it knows this append
            callback()

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    @property
    def is_settled(self) -> bool:
        return self._result is not None or self._error is not None

    async def wait(self) -> AppendResult:
        if not self.is_settled:
            self._wake_up = trio.Event()
            await self._wake_up.wait()
        return self.result()

    def result(self) -> AppendResult:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


class Undo(NamedTuple):
    """What was known of a producer before the batch at `base_offset`."""

    base_offset: int
    producer_id: int
    before: Producer | None


def producers_before(table: ProducerTable, offset: int, undo: Sequence[Undo]) -> ProducerTable:
    """As they were before the batches from `offset` on."""
    before = ProducerTable(table)
    for base_offset, producer_id, one in reversed(undo):
        if base_offset >= offset:
            before.restore(producer_id, one)
    return before


class PartitionRound:
    """One partition's share of a round. `must_sync`: it counts only when it is durable."""

    __slots__ = ("appends", "chunks", "log", "must_sync", "owner", "rejected", "undo")

    def __init__(self, owner: "Owner", log: Log) -> None:
        self.owner = owner
        self.log = log
        self.appends: list[Append] = []
        self.chunks: list[Chunk] = []
        self.undo: list[Undo] = []
        self.must_sync = True
        self.rejected = False  # the disk was full before anything of it was written


class Owner(Protocol):
    """What a lane needs of a partition. All calls come from the loop; one round at a time."""

    partition: TopicPartition

    def stage(self, appends: list[Append]) -> PartitionRound | None:
        """Check and stamp against the state of now; refuse single appends, or, returning None, all of them."""

    def written(self, part: PartitionRound) -> None: ...
    def durable(self, part: PartitionRound) -> None: ...
    def failed(self, part: PartitionRound, error: str) -> None: ...


class QueueBudget:
    """Bytes all lanes together may hold, queued or in flight."""

    __slots__ = ("_lot", "_max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lot = trio.lowlevel.ParkingLot()
        self.used_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises Overloaded, unless nothing is queued: the largest batch must always find a way."""
        if self.used_bytes and self.used_bytes + size_bytes > self._max_bytes:
            raise Overloaded(f"{self.used_bytes} bytes are waiting to be written")
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        if len(self._lot) and self.has_room:
            self._lot.unpark_all()

    @property
    def has_room(self) -> bool:
        """Below half of the limit."""
        return self.used_bytes * 2 <= self._max_bytes

    async def wait_for_room(self) -> None:
        """Return at once when there is room."""
        while not self.has_room:
            await self._lot.park()


def write_round(parts: Sequence[PartitionRound]) -> None:
    """Into the page cache. An OSError says that the log dir is lost, a full disk only rejects its part."""
    for part in parts:
        try:
            part.log.perform(part.chunks)
        except DiskFull:
            part.rejected = True


class Lane:
    """The queue of a log dir's partitions and the task that serves it. `number` is its lane of the pool."""

    def __init__(
        self, number: int, pool: WorkerPool, budget: QueueBudget, on_failure: Callable[[OSError], None]
    ) -> None:
        self._number = number
        self._pool = pool
        self._budget = budget
        self._on_failure = on_failure
        self.journal: Journal | None = None
        self.has_too_many_files_open: Callable[[], bool] = lambda: False
        self._queue: deque[Append] = deque()
        self._turn = trio.Lock()  # held by a round, or by who is between two; first come, first served
        self._slow_until_s = 0.0
        self.statistics = LaneStatistics()
        self._work = trio.lowlevel.ParkingLot()
        self._pause = trio.lowlevel.ParkingLot()

    def submit(self, append: Append) -> None:
        """Raises Overloaded."""
        self._budget.take(append.size_bytes)
        self.enqueue(append)

    def enqueue(self, append: Append) -> None:
        """One that has its part of the budget."""
        self._queue.append(append)
        if self._work:  # asking is cheaper than waking nobody
            self._work.unpark()

    @asynccontextmanager
    async def between_rounds(self) -> AsyncIterator[None]:
        """No round is in flight within the block; appends queue up meanwhile."""
        try:
            async with self._turn:
                yield
        finally:
            self._pause.unpark_all()

    async def drained(self) -> None:
        """Return when everything submitted so far is answered."""
        while self._queue or self._turn.locked():
            await self._pause.park()

    async def settled(self, append: Append) -> None:
        """Return when it is answered, or refused."""
        while not append.is_settled:
            await self._pause.park()

    async def serve(self) -> None:
        """Run rounds until cancelled."""
        while True:
            while not self._queue:
                await self._work.park()
            await self._take_turn()
            taken, size_bytes = self._take()
            try:
                await self._round(taken, size_bytes)
            finally:
                self._turn.release()
                self._budget.give_back(size_bytes)
                self._pause.unpark_all()
            if sum(map(len, taken.values())) >= LARGE_ROUND:
                await trio.lowlevel.checkpoint()

    async def _take_turn(self) -> None:
        """At once if nobody waits for one: this is a step of every round."""
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()

    def _take(self) -> tuple[dict[Owner, list[Append]], int]:
        """Everything queued, up to the size of a round, by partition and in order."""
        by_owner: dict[Owner, list[Append]] = {}
        size_bytes = 0
        queue = self._queue
        while queue and (not size_bytes or size_bytes + queue[0].size_bytes <= ROUND_MAX_BYTES):
            append = queue.popleft()
            size_bytes += append.size_bytes
            by_owner.setdefault(append.owner, []).append(append)
        return by_owner, size_bytes

    async def _round(self, taken: dict[Owner, list[Append]], size_bytes: int) -> None:
        begun_s = trio.current_time()
        parts = [part for owner, appends in taken.items() if (part := owner.stage(appends)) is not None]
        try:
            await self._write(parts, size_bytes)
            self._tell_written(parts)
            waiting = [part for part in parts if part.must_sync and not part.rejected]
            await self._make_durable(waiting)
        except OSError as error:
            self._on_failure(error)
            for part in parts:
                part.owner.failed(part, f"the log dir is offline: {error}")
            return
        for part in waiting:
            part.owner.durable(part)
        self.statistics.rounds.note(trio.current_time() - begun_s)

    async def _write(self, parts: Sequence[PartitionRound], size_bytes: int) -> None:
        is_open = all(chunk.file is not None for part in parts for chunk in part.chunks)
        await self._perform(partial(write_round, parts), size_bytes, may_wait=not is_open)

    async def _perform(self, write: Callable[[], None], size_bytes: int, *, may_wait: bool = False) -> None:
        """On the loop if it takes no time worth a trip to a worker; not for a while after one that took long."""
        begun_s = trio.current_time()
        if may_wait or size_bytes > INLINE_MAX_BYTES or begun_s < self._slow_until_s:
            await self._pool.run(self._number, write)
        else:
            write()
        now_s = trio.current_time()
        if now_s - begun_s > SLOW_WRITE_S:
            self._slow_until_s = now_s + SLOW_FOR_S

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
        write = self._reserve(parts)
        if write is None:
            await self._pool.sync(self._number, [part.log.active_file for part in parts], is_urgent=True)
            for part in parts:
                part.log.note_flushed(part.log.end)
        else:
            await self.write_journal(write)
        self.statistics.syncs.note(trio.current_time() - begun_s)

    def _reserve(self, parts: Sequence[PartitionRound]) -> JournalWrite | None:
        """A place in the journal, if the round suits it: bytes are written twice there, but synced at once."""
        size_bytes = sum(chunk.size_bytes for part in parts for chunk in part.chunks)
        if self.journal is None or size_bytes > min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * len(parts)):
            return None
        if self.has_too_many_files_open():
            return None  # a file can be closed only when its bytes are durable in it
        if any(chunk.rolls for part in parts for chunk in part.chunks):
            return None
        entries = [_journal_entry(part) for part in parts]
        if any(entry.base_offset > part.log.durable_offset for entry, part in zip(entries, parts, strict=True)):
            return None  # what an async round left unsynced is nowhere else: replay would find a gap before this one
        write = self.journal.reserve(entries)
        if write is not None:
            for part in parts:
                part.log.journaled_offset = part.log.end.offset
        return write

    async def run(self, job: Callable[[], T]) -> T:
        """File work between two rounds, with nobody else's before it."""
        return await self._pool.run(self._number, job)

    async def write_journal(self, write: JournalWrite) -> None:
        """Write and sync a frame; for rounds, and for errands between them. Raises OSError."""
        await self._perform(write.write, write.size_bytes)
        await self._pool.sync(self._number, [write.file], is_urgent=True)


def _journal_entry(part: PartitionRound) -> JournalEntry:
    [chunk] = part.chunks
    partition = part.owner.partition
    return JournalEntry(
        partition.topic_id,
        partition.partition,
        chunk.batches[0].header.leader_epoch,
        chunk.batches[0].header.base_offset,
        chunk.batches[-1].header.next_offset,
        chunk.base_offset,
        chunk.position,
        [batch.bytes for batch in chunk.batches],
    )
