"""A log dir at run time: its disk, its commit log and its index put together, and the partitions that lie there."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from engine.api import AbortedTransaction, TopicPartition
from engine.commit.appends import PartitionRound
from engine.commit.commit_log import CommitLog, Decided
from engine.commit.examination import Examiner
from engine.errors import EngineError, StorageError
from engine.files.disk import Disk
from engine.files.io_workers import WorkerPool
from engine.index.keeper import IndexKeeper
from engine.index.rows import partition_key
from engine.log_config import LogConfig
from engine.log_dirs.deleter import Deleter
from engine.log_dirs.layout import Prepared, directory_name, write_clean_marker
from engine.log_dirs.stray_files import Stray
from engine.logs.checkpoints import IsKnown, key_of
from engine.logs.log import Log
from engine.logs.recently_used import SegmentCaches
from engine.logs.recovery import LastKnown
from engine.logs.segment import Segment
from engine.logs.shortening import Shorter
from engine.reading.key_indexer import KeyIndexer
from engine.reading.reader import ReadingParts
from engine.stats import StoreStats
from engine.tier import SegmentTier


class Resident(Protocol):
    """A partition as its log dir sees it."""

    partition: TopicPartition
    log: Log
    config: LogConfig

    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def undecided_from(self) -> int:
        """Where the first transaction begins that is open, or ended above the high watermark; the end without one."""

    @property
    def is_sound(self) -> bool:
        """Whether it is served, and nothing of it is known to be damaged."""

    @property
    def is_led(self) -> bool:
        """Whether it is this broker's to decide where the log starts."""

    @property
    def lag(self) -> int:
        """How many records a follower knows to lack."""

    async def aborted_in(self, segment: Segment) -> Sequence[AbortedTransaction]:
        """Those that touch a segment all of which is stable. Raises CorruptMessage, StorageError."""

    def close(self, error: Callable[[], EngineError]) -> None: ...
    def put_offline(self, error: Callable[[], EngineError]) -> None:
        """Close it, on a log dir that is online, and tell so."""

    def announce_change(self) -> None:
        """Tell those who wait."""

    def cut(self, shorter: Shorter) -> list[Segment]:
        """End the log there, between rounds, and take no appends; returns the segments it does without."""

    def reset(self, segment: Segment) -> list[Segment]:
        """The same, with nothing but that segment left, which is empty."""

    def resume(self) -> None:
        """Take appends again."""

    def stage_roll(self) -> PartitionRound:
        """A round that appends nothing, and begins a segment; between rounds."""

    def rolled(self, part: PartitionRound) -> None:
        """It is written."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all log dirs of a store have in common. `on_problem` is told what an operator should look at; `note_closed`
    of each partition that is closed on a log dir that is online."""

    pool: WorkerPool
    caches: SegmentCaches
    stats: StoreStats
    on_problem: Callable[[str], None]
    new_id: Callable[[], bytes]
    tier: SegmentTier
    note_closed: Callable[[TopicPartition], None] = lambda _: None


Work = Callable[[], Awaitable[None]]


class LogDir:
    """One entry of log.dirs."""

    def __init__(self, disk: Disk, commit_log: CommitLog, index: IndexKeeper, shared: Shared) -> None:
        self.disk = disk
        self.commit_log = commit_log
        self.index = index
        index.on_replaced = self._index_was_replaced
        self.caches = shared.caches
        self.stats = shared.stats
        self.on_problem = shared.on_problem
        self.note_closed = shared.note_closed
        self.examiner = Examiner(commit_log.committer, shared.pool, disk.lanes.examiner, commit_log.budget)
        self.keys = KeyIndexer(index)
        self.deleter = Deleter(disk)
        self.reading = ReadingParts(disk, commit_log, index, shared.caches, shared.tier, shared.on_problem)
        self.partitions: dict[TopicPartition, Resident] = {}
        self.names: set[str] = set()  # of partition directories, opened or not
        self.want_seal: Callable[[Resident], None] = lambda _: None  # something of it may be finished
        self.role_changes = 0  # of its partitions, and how many were closed: who goes by what they were looks again
        self.serving = trio.CancelScope()
        self.served = trio.Event()  # nothing of what `serve` has started runs any more
        self.is_closing = False
        self.is_nearly_full = False
        self.strays: dict[str, Stray] = {}  # by the names of their directories
        self.behind_since_s: float | None = None  # by trio's clock: since then the host waits for it (decision 44)
        self.unfinished: dict[TopicPartition, Work] = {}  # of truncations: closed until it is done, and a checkpoint
        self._new_id = shared.new_id
        self._prepared: Prepared | None = None
        self._has_told_unallocated = False

    def possess(self, prepared: Prepared, journal_slot_size_bytes: int) -> None:
        """Start from what `layout.prepare` found."""
        self._prepared = prepared
        self.names = set(prepared.partition_names)
        self.commit_log.possess(
            prepared.checkpoint,
            prepared.journal,
            prepared.partition_names,
            journal_slot_size_bytes,
            self._new_id,
            is_clean=prepared.is_clean,
        )
        self.commit_log.scan_later(prepared.to_scan)

    @property
    def directory_id(self) -> str:
        """Of the log dir, wherever it is mounted; none before it is possessed."""
        return "" if self._prepared is None else self._prepared.directory_id

    @property
    def was_read(self) -> bool:
        """Whether this process knows what was there when it started."""
        return self._prepared is not None

    def may_hold(self, name: str) -> bool:
        """Whether a partition directory of that name may be there."""
        return not self.was_read or name in self.names

    @property
    def services(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What runs for as long as it is served."""
        parts = self.deleter, self.index, self.keys, self.examiner
        return *self.commit_log.services, *(part.serve for part in parts)

    async def serve(self, keepers: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Run the services and what else looks after the partitions, until `serving` is cancelled."""
        try:
            with self.serving:
                async with trio.open_nursery() as nursery:
                    for serve in (*keepers, *self.services):
                        nursery.start_soon(serve)
        finally:
            self.served.set()

    async def let_go(self, logs: Sequence[Log]) -> None:
        """Nobody is served from these any more. Who closes a deleted file last waits while the kernel takes back what
        it has in memory, 0.2 s a GiB: a worker.
        """
        segments = [segment for log in logs for segment in (*log.cold.segments, *log.segments)]
        for log in logs:
            log.let_go()
        await self.let_go_of(segments)

    async def let_go_of(self, segments: Sequence[Segment]) -> None:
        """The same for segments that are no part of their logs any more."""
        files = [segment.file for segment in segments]
        self.caches.forget(segments)
        with suppress(StorageError):
            await self.disk.run(files.clear)

    def went_offline(self) -> None:
        """Every partition answers with StorageError from now on."""
        reason = str(self.disk.offline_reason)
        self.index.stop()
        for resident in self.partitions.values():
            resident.close(lambda: StorageError(reason))

    def note_unallocated(self, why: str | None) -> None:
        """A segment did not get its space in advance: told once, it grows as any other."""
        if why is not None and not self._has_told_unallocated:
            self._has_told_unallocated = True
            self.on_problem(f"{self.disk.path}: segments are not preallocated: {why}")

    # Partitions come and go

    def last_known(self, partition: TopicPartition, *, has_others: bool) -> LastKnown:
        """What recovery may believe about a partition that is about to be opened."""
        stored = self.index.take_stored(index_key(partition))
        return self.commit_log.last_known(key_of(partition), directory_name(partition), stored, has_others=has_others)

    async def look_again(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are about to be opened once more: `last_known` tells the same again."""
        if partitions:
            await self.index.look_again(list(map(index_key, partitions)))

    async def adopt(self, resident: Resident, last_known: LastKnown) -> None:
        """A partition was opened, and recovered if need be. Raises StorageError."""
        partition, log = resident.partition, resident.log
        if log.damaged_from is None:
            await self.index.take_stock(index_key(partition), log, last_known.stored)
        self.disk.check_online()  # if it failed meanwhile, it has closed those it knew
        self.partitions[partition] = resident
        self.names.add(directory_name(partition))
        key, name = key_of(partition), directory_name(partition)
        self.commit_log.adopt(key, name, log, lambda: Decided(resident.high_watermark, resident.undecided_from))
        self.want_seal(resident)

    def release(self, partitions: Sequence[TopicPartition]) -> None:
        """They are about to be deleted: nothing more is done about them."""
        for one in partitions:
            del self.partitions[one]
            self.unfinished.pop(one, None)
            self.commit_log.release(key_of(one))

    async def abandon(self, partitions: Sequence[TopicPartition]) -> None:
        """They were deleted."""
        await self.index.forget_partitions(list(map(index_key, partitions)))
        self.disown(list(map(directory_name, partitions)))
        for one in partitions:
            self.commit_log.points.pop(key_of(one), None)

    async def forget(self, names: Sequence[str], is_known: IsKnown) -> None:
        """The partitions `names`, which `is_known` denies, are no longer on disk."""
        self.disown(names)
        points = self.commit_log.points
        for key in [key for key in points if not is_known(*key)]:
            del points[key]
            self.commit_log.want_checkpoint()  # one that comes back later is not the one that was here
        await self.index.forget_unknown(is_known)

    def disown(self, names: Sequence[str]) -> None:
        """The partition directories `names` are gone, or left-overs of partitions that live elsewhere."""
        self.names.difference_update(names)
        self.commit_log.disown(names)

    def index_later(self, resident: Resident, end_offset: int) -> None:
        """Store what the log of a partition has gathered below an offset, behind the answer to the round."""
        self.index.note(index_key(resident.partition), resident.log, end_offset)

    def _index_was_replaced(self) -> None:
        for resident in self.partitions.values():
            for segment in (*resident.log.cold.segments, *resident.log.segments):
                segment.summarised_size_bytes = 0
            self.index.note_cold(index_key(resident.partition), resident.log)

    # The end

    async def shut_down(self) -> None:
        """Everything is answered: flush it, say so on disk and let go of the dir."""
        disk, commit_log = self.disk, self.commit_log
        is_online = disk.offline_reason is None
        sound = [one for one in self.partitions.values() if is_online and one.log.damaged_from is None]
        await self.index.close({index_key(one.partition): one.log for one in sound})
        if is_online:
            with suppress(StorageError):  # the next start scans it
                await commit_log.flusher.flush([one.log for one in self.partitions.values()])
                await disk.run(partial(_leave, [one.log for one in sound]))
                await commit_log.checkpoint()
                if commit_log.has_all_recovered:  # a partition nobody opened since a crash still needs its scan
                    await disk.run(partial(write_clean_marker, disk.filesystem, disk.path))
        if self._prepared is not None:
            self._prepared.lock.release()


def _leave(logs: Sequence[Log]) -> None:
    for log in logs:
        log.leave()


def index_key(partition: TopicPartition) -> bytes:
    """What the index of a log dir calls it."""
    return partition_key(partition.topic_id, partition.partition)
