"""A log dir at run time: its disk, commit log and index, and its partitions."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from engine.api import AbortedTransaction, TopicIdPartition
from engine.commit.appends import PartitionShare
from engine.commit.commit_log import CommitLog, Decided
from engine.commit.record_validation import RecordValidator
from engine.errors import EngineError, StorageError
from engine.files.disk import Disk
from engine.files.io_workers import WorkerPool
from engine.index.rows import partition_key
from engine.index.stored_index import StoredIndex
from engine.log_config import LogConfig
from engine.log_dirs.deleter import Deleter
from engine.log_dirs.layout import Prepared, directory_name, write_clean_marker
from engine.log_dirs.stray_files import Stray
from engine.logs.log import Log
from engine.logs.recently_used import SegmentCaches
from engine.logs.recovery.checkpoints import IsKnown, key_of
from engine.logs.recovery.recovery import LastKnown
from engine.logs.recovery.truncation_plan import TruncationPlan
from engine.logs.segments.segment import Segment
from engine.reading.key_indexer import KeyIndexer
from engine.reading.reader import ReadingParts
from engine.stats import StoreStats
from engine.tier import SegmentTier


class Resident(Protocol):
    """A partition as its log dir sees it."""

    partition: TopicIdPartition
    log: Log

    @property
    def config(self) -> LogConfig: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def undecided_from(self) -> int:
        """The first offset of an open transaction, or of one that ended above the high watermark; the log end without
        one."""

    @property
    def is_sound(self) -> bool:
        """Whether the partition is served, and no damage is known."""

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition, and so decides where the log starts."""

    @property
    def lag(self) -> int:
        """How many records a follower knows that it lacks."""

    async def learn_timestamps(self, segment: Segment) -> None:
        """Search the records of a segment for timestamps if its headers tell none. Raises CorruptMessage,
        StorageError."""

    async def aborted_in(self, segment: Segment) -> Sequence[AbortedTransaction]:
        """The aborted transactions that touch a segment, all of which is stable. Raises CorruptMessage,
        StorageError."""

    def close(self, error: Callable[[], EngineError]) -> None: ...
    def put_offline(self, error: Callable[[], EngineError]) -> None:
        """Close the partition, on a log dir that is online, and report it."""

    def announce_change(self) -> None:
        """Wake waiting reads."""

    def truncate(self, plan: TruncationPlan) -> list[Segment]:
        """Truncate the log between commit batches, and refuse appends; returns the segments that it has lost."""

    def reset(self, segment: Segment) -> list[Segment]:
        """Replace all segments by `segment`, which is empty; otherwise as `truncate`."""

    def resume(self) -> None:
        """Accept appends again."""

    def stage_roll(self) -> PartitionShare:
        """Stage a commit batch without appends that begins a segment, between commit batches."""

    def rolled(self, part: PartitionShare) -> None:
        """Note that the staged roll is written."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Dependencies that all log dirs of a store share.

    `on_problem` gets texts for the operator; `note_closed` is called for each partition that is closed on an online log
    dir.
    """

    pool: WorkerPool
    caches: SegmentCaches
    stats: StoreStats
    on_problem: Callable[[str], None]
    new_id: Callable[[], bytes]
    tier: SegmentTier
    note_closed: Callable[[TopicIdPartition], None] = lambda _: None


Work = Callable[[], Awaitable[None]]


class LogDir:
    """A log dir: an entry of log.dirs."""

    def __init__(self, disk: Disk, commit_log: CommitLog, index: StoredIndex, shared: Shared) -> None:
        self.disk = disk
        self.commit_log = commit_log
        self.index = index
        index.on_replaced = self._index_was_replaced
        self.caches = shared.caches
        self.stats = shared.stats
        self.on_problem = shared.on_problem
        self.note_closed = shared.note_closed
        self.record_validator = RecordValidator(
            commit_log.committer, shared.pool, disk.workers.record_validator, commit_log.budget
        )
        self.keys = KeyIndexer(index)
        self.deleter = Deleter(disk)
        self.reading = ReadingParts(disk, commit_log, index, shared.caches, shared.tier, shared.on_problem)
        self.partitions: dict[TopicIdPartition, Resident] = {}
        self.names: set[str] = set()  # of partition directories, open or not
        self.want_seal: Callable[[Resident], None] = lambda _: None  # a segment may be finished
        self.role_changes = 0  # count of role changes and closed partitions, for tasks that depend on roles
        self.serving = trio.CancelScope()
        self.served = trio.Event()  # set when no service of `serve` runs any more
        self.is_closing = False
        self.is_nearly_full = False
        self.strays: dict[str, Stray] = {}  # by the names of their directories
        self.behind_since_s: float | None = None  # trio's time since which the host waits for it (decision 44)
        self.unfinished: dict[TopicIdPartition, Work] = {}  # truncations of closed partitions, to be repeated
        self._new_id = shared.new_id
        self._prepared: Prepared | None = None
        self._has_reported_unallocated = False

    def possess(self, prepared: Prepared, journal_slot_size_bytes: int) -> None:
        """Start from the result of `layout.prepare`."""
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
        """The id of the log dir, wherever it is mounted; empty before `possess`."""
        return "" if self._prepared is None else self._prepared.directory_id

    @property
    def was_read(self) -> bool:
        """Whether this process has read the log dir at its start."""
        return self._prepared is not None

    def may_hold(self, name: str) -> bool:
        """Whether a partition directory of that name may be there."""
        return not self.was_read or name in self.names

    @property
    def services(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """The background services of the log dir."""
        parts = self.deleter, self.index, self.keys, self.record_validator
        return *self.commit_log.services, *(part.serve for part in parts)

    async def serve(self, tasks: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Run the services and `tasks`, until `serving` is cancelled."""
        try:
            with self.serving:
                async with trio.open_nursery() as nursery:
                    for serve in (*tasks, *self.services):
                        nursery.start_soon(serve)
        finally:
            self.served.set()

    async def close_logs(self, logs: Sequence[Log]) -> None:
        """Close logs that are not served any more.

        The last close of a deleted file blocks while the kernel frees its cached pages, 0.2 s for each GiB: a worker
        does it.
        """
        segments = [segment for log in logs for segment in (*log.cold.segments, *log.segments)]
        for log in logs:
            log.drop_all()
        await self.close_segments(segments)

    async def close_segments(self, segments: Sequence[Segment]) -> None:
        """Close segments that their logs have lost; otherwise as `close_logs`."""
        files = [segment.file for segment in segments]
        self.caches.forget(segments)
        with suppress(StorageError):
            await self.disk.run(files.clear)

    def went_offline(self) -> None:
        """Close every partition: from now on each answers with StorageError."""
        reason = str(self.disk.offline_reason)
        self.index.stop()
        for resident in self.partitions.values():
            resident.close(lambda: StorageError(reason))

    def note_unallocated(self, why: str | None) -> None:
        """Report once that preallocation failed; segments then grow with their appends."""
        if why is not None and not self._has_reported_unallocated:
            self._has_reported_unallocated = True
            self.on_problem(f"{self.disk.path}: segments are not preallocated: {why}")

    # Opening and closing of partitions

    def last_known(self, partition: TopicIdPartition, *, has_others: bool) -> LastKnown:
        """The state that recovery may believe about a partition that is about to be opened."""
        stored = self.index.take_stored(index_key(partition))
        return self.commit_log.last_known(key_of(partition), directory_name(partition), stored, has_others=has_others)

    async def reload_stored(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Read the stored index again for partitions that are about to be reopened, so that `last_known` has it."""
        if partitions:
            await self.index.reload_stored(list(map(index_key, partitions)))

    async def adopt(self, resident: Resident, last_known: LastKnown) -> None:
        """Take over a partition that was opened, and recovered if necessary. Raises StorageError."""
        partition, log = resident.partition, resident.log
        if log.damaged_from is None:
            await self.index.reconcile(index_key(partition), log, last_known.stored)
        self.disk.check_online()  # if it failed meanwhile, it has closed those it knew
        self.partitions[partition] = resident
        self.names.add(directory_name(partition))
        key, name = key_of(partition), directory_name(partition)
        self.commit_log.adopt(key, name, log, lambda: Decided(resident.high_watermark, resident.undecided_from))
        self.want_seal(resident)

    def release(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Stop all work on partitions that are about to be deleted."""
        for one in partitions:
            del self.partitions[one]
            self.unfinished.pop(one, None)
            self.commit_log.release(key_of(one))

    async def abandon(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Forget partitions that were deleted."""
        await self.index.forget_partitions(list(map(index_key, partitions)))
        self.disown(list(map(directory_name, partitions)))
        for one in partitions:
            self.commit_log.points.pop(key_of(one), None)

    async def forget(self, names: Sequence[str], is_known: IsKnown) -> None:
        """Forget the partitions `names`, which are no longer on disk, and the state of those that `is_known` denies."""
        self.disown(names)
        points = self.commit_log.points
        for key in [key for key in points if not is_known(*key)]:
            del points[key]
            self.commit_log.want_checkpoint()  # a partition that comes back later is another one
        await self.index.forget_unknown(is_known)

    def disown(self, names: Sequence[str]) -> None:
        """Forget directory names that are gone, or that are a rest of a partition in another log dir."""
        self.names.difference_update(names)
        self.commit_log.disown(names)

    def _index_was_replaced(self) -> None:
        for resident in self.partitions.values():
            for segment in (*resident.log.cold.segments, *resident.log.segments):
                segment.summarised_size_bytes = 0
            self.index.note_cold(index_key(resident.partition), resident.log)

    # Shutdown

    async def shut_down(self) -> None:
        """Flush, write checkpoint and clean-shutdown marker, and unlock the log dir, after all requests are
        answered."""
        disk, commit_log = self.disk, self.commit_log
        is_online = disk.offline_reason is None
        sound = [one for one in self.partitions.values() if is_online and one.log.damaged_from is None]
        await self.index.close({index_key(one.partition): one.log for one in sound})
        if is_online:
            with suppress(StorageError):  # the next start scans it
                await commit_log.flusher.flush([one.log for one in self.partitions.values()])
                await disk.run(partial(_end_in_order, [one.log for one in sound]))
                await commit_log.checkpoint()
                if commit_log.has_all_recovered:  # a partition that was not opened since a crash still needs its scan
                    await disk.run(partial(write_clean_marker, disk.filesystem, disk.path))
        if self._prepared is not None:
            self._prepared.lock.release()


def _end_in_order(logs: Sequence[Log]) -> None:
    for log in logs:
        log.end_in_order()


def index_key(partition: TopicIdPartition) -> bytes:
    """The key of a partition in the index of its log dir."""
    return partition_key(partition.topic_id, partition.partition)
