"""All partitions of a broker over its log dirs: opening, placing, deleting, starting and stopping.

It routes and orchestrates; what a partition does is in `partition`, what a log dir has on disk in `layout`. A
directory on disk whose partition nobody opens is left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial

import trio

from engine import descriptions
from engine.api import ActiveProducer, LogDirDescription, ReadyWaiter
from engine.commit.appends import Attendance, QueueBudget, Room
from engine.commit.commit_log import CommitLog
from engine.commit.journal_format import SLOT_ID_SIZE_BYTES
from engine.compaction.cleaner import Cleaner
from engine.errors import EngineError, NotLeaderOrFollower, StorageError, StoreRefused, UnknownPartition
from engine.errors import UnreadableMessage as Unreadable
from engine.files.disk import Disk, DiskLanes
from engine.index.keeper import IndexKeeper
from engine.log_config import LogConfig
from engine.log_dirs.changes import Changes
from engine.log_dirs.homes import home_of, resolve_homes
from engine.log_dirs.layout import INDEX, Identity, directory_name, prepare, remove_strays
from engine.log_dirs.log_dir import LogDir, Shared
from engine.log_dirs.openings import Known, delete_logs, in_jobs, open_logs
from engine.log_dirs.truncation import Truncation, reset, truncate
from engine.logs.checkpoints import IsKnown
from engine.logs.log import Log
from engine.logs.recently_used import SegmentCaches
from engine.logs.recovery import LastKnown
from engine.options import StoreOptions, StoreWorld
from engine.partitions.opening import opening_of
from engine.partitions.partition import Partition
from engine.partitions.waiters import Waiter
from engine.roles import Leadership, Role, TopicPartition
from engine.sealed import SealedLog
from engine.stats import LogDirStatistics, PartitionStatistics, StoreStats
from engine.tier import TierableLog
from engine.upkeep.producer_expiry import expire_producers
from engine.upkeep.retention_keeper import RetentionKeeper
from engine.upkeep.sealed_listing import SealedListing
from engine.upkeep.sealing import Sealer
from engine.upkeep.tierable import Tierable

BATCH_MAX = 256  # partitions opened or deleted before somebody else has a turn


class SegmentStore:
    """Implements `engine.api.PartitionStore`. Start it with `await nursery.start(store.run)`."""

    def __init__(self, options: StoreOptions, world: StoreWorld) -> None:
        self._options = options
        self._world = world
        self.producer_id_expiration_ms = options.producer_id_expiration_ms  # may be changed at any time
        self._partitions: dict[TopicPartition, Partition] = {}
        self.stats = StoreStats()
        self._attendance = Attendance()
        self._changes = Changes()
        self._serving = trio.CancelScope()
        self._served = trio.Event()
        self._is_serving = False
        self._is_closed = False
        self._caches = SegmentCaches(options.open_files_max, options.loaded_indexes_max, options.dense_indexes_max)
        new_id = partial(world.random.randbytes, SLOT_ID_SIZE_BYTES)
        self._shared = Shared(world.pool, self._caches, self.stats, world.on_problem, new_id, world.tier)
        self._dirs = [self._new_dir(number, path) for number, path in enumerate(options.log_dirs)]
        self._room = Room([one.commit_log.budget for one in self._dirs])
        self.cleaner = Cleaner(
            options.cleaner,
            self._partitions.values,
            self._round_count,
            world.now_ms,
            world.on_problem,
            self.stats.cleaner,
        )

    def _new_dir(self, number: int, path: str) -> LogDir:
        world, options = self._world, self._options
        lanes = DiskLanes.of(number, options.reader_lanes)
        disk = Disk(path, world.filesystem, world.pool, lanes, partial(self._went_offline, number))
        index = IndexKeeper(
            f"{path}/{INDEX}", world.filesystem, world.open_index, world.pool, lanes.index, world.on_problem
        )
        budget = QueueBudget(options.queue_max_bytes // len(options.log_dirs))
        commit_log = CommitLog(disk, budget, self._attendance, lambda: self._caches.files.is_crowded)
        return LogDir(disk, commit_log, index, self._shared)

    def _round_count(self) -> int:
        return sum(log_dir.commit_log.committer.statistics.rounds.count for log_dir in self._dirs)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take possession of the log dirs (StoreRefused), then serve until `close` or cancelled."""
        for log_dir in self._dirs:
            await self._possess(log_dir)
        self._is_serving = True
        try:
            await self._serve(task_status)
        finally:
            self._served.set()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        """What goes on behind everybody's back, until cancelled; what must not end half-way is done then."""
        with self._serving:
            async with trio.open_nursery() as nursery:
                for log_dir in self._dirs:
                    retention = RetentionKeeper(log_dir, self._options.retention, self._world.now_ms)
                    sealer = Sealer(log_dir, self._options.sealing)
                    log_dir.want_seal = sealer.want
                    keepers = retention.watch_space, retention.serve, sealer.serve, sealer.scrub
                    for serve in (*keepers, *log_dir.services):
                        nursery.start_soon(serve)
                interval_s = self._options.producer_id_expiration_check_interval_ms / 1000
                patience_ms, now_ms = lambda: self.producer_id_expiration_ms, self._world.now_ms
                nursery.start_soon(expire_producers, self._partitions.values, patience_ms, now_ms, interval_s)
                nursery.start_soon(self.cleaner.run)
                task_status.started()

    async def _possess(self, log_dir: LogDir) -> None:
        identity = Identity(self._options.cluster_id, self._options.broker_id)
        arguments = self._world.filesystem, log_dir.disk.path, identity, self._world.random.randbytes(16)
        try:
            prepared = await log_dir.disk.run(partial(prepare, *arguments))
        except (StorageError, Unreadable) as error:
            log_dir.disk.fail(OSError(str(error)))  # also when the disk is full: it is not ours
            if all(other.disk.offline_reason is not None for other in self._dirs):
                raise StoreRefused(f"no usable log dir: {error}") from error
            return
        log_dir.possess(prepared, self._options.journal_slot_size_bytes)
        for problem in prepared.journal.problems:
            self._world.on_problem(problem)
        await log_dir.index.open()

    def _went_offline(self, number: int, error: OSError) -> None:
        self._dirs[number].went_offline()
        self._world.on_offline()
        if self._is_serving and all(other.disk.offline_reason is not None for other in self._dirs):
            self._world.on_fatal(f"the last log dir went offline: {self._dirs[number].disk.path}: {error}")

    def get(self, partition: TopicPartition) -> Partition:
        found = self._partitions.get(partition)
        if found is None:
            raise _unknown(partition)
        found.check_led()
        return found

    def replica(self, partition: TopicPartition, *, follows_in: int | None = None) -> Partition:
        """Led here or not, or one that follows in that epoch. Raises as `get` does."""
        if (found := self._partitions.get(partition)) is None:
            raise _unknown(partition)
        found.check_open()
        if follows_in is not None:
            found.check_follows(follows_in)
        return found

    def new_waiter(self) -> ReadyWaiter:
        return Waiter()

    def find_producer(self, partition: TopicPartition, producer_id: int) -> ActiveProducer | None:
        known = self.get(partition).log.producers.get(producer_id)
        return descriptions.describe_producer(producer_id, known) if known is not None else None

    def active_producers(self, partition: TopicPartition) -> list[ActiveProducer]:
        return [descriptions.describe_producer(*one) for one in self.get(partition).log.producers]

    async def describe_log_dirs(self) -> list[LogDirDescription]:
        return [await descriptions.describe_log_dir(log_dir) for log_dir in self._dirs]

    def statistics(self) -> list[LogDirStatistics]:
        return list(map(descriptions.log_dir_statistics, self._dirs))

    def partition_statistics(self) -> Iterator[PartitionStatistics]:
        """Of every partition that is open now, as they are when they are asked for."""
        return map(descriptions.partition_statistics, list(self._partitions.values()))

    def tierable(self, *, is_led: bool = True) -> Iterator[TierableLog]:
        """Those that are led here, or those that follow, as a remote tier sees them."""
        return map(Tierable, [one for one in self._partitions.values() if (one.is_led if is_led else one.fetching)])

    def sealed(self, partition: TopicPartition) -> SealedLog:
        """What may be read of it elsewhere. Raises as `get` does."""
        return SealedListing(self.get(partition))

    async def open_partition(self, partition: TopicPartition, config: LogConfig, leader_epoch: int) -> Partition:
        """One of `open_partitions`; raises its error."""
        [opened] = await self.open_partitions([Leadership(partition, config, leader_epoch)])
        if isinstance(opened, EngineError):
            raise opened
        return opened

    async def open_partitions(self, wanted: Sequence[Role]) -> list[Partition | EngineError]:
        opened: list[Partition | EngineError] = []
        for start in range(0, len(wanted), BATCH_MAX):
            some = wanted[start : start + BATCH_MAX]
            async with self._changes.of(one.partition for one in some):
                opened += await self._open_some(some)
        return opened

    async def _open_some(self, wanted: Sequence[Role]) -> list[Partition | EngineError]:
        if self._is_closed:
            return [_shutting_down() for _ in wanted]
        failed: dict[TopicPartition, EngineError] = {}
        missing: dict[LogDir, list[Role]] = {log_dir: [] for log_dir in self._dirs}
        for one in wanted:
            if one.partition not in self._partitions:
                try:
                    missing[home_of(self._dirs, directory_name(one.partition), one.leader_epoch, missing)].append(one)
                except StorageError as error:
                    failed[one.partition] = error

        async def open_there(log_dir: LogDir) -> None:
            failed.update(await self._assume(log_dir, wanted))
            known = [(one, log_dir.last_known(one.partition, has_others=one.has_others)) for one in missing[log_dir]]
            for some in in_jobs(known):
                failed.update(await self._open_in(log_dir, some))

        async with trio.open_nursery() as nursery:
            for log_dir in self._dirs:
                nursery.start_soon(open_there, log_dir)
        return [failed.get(one.partition) or self._sound(one.partition) for one in wanted]

    def _sound(self, partition: TopicPartition) -> Partition | EngineError:
        try:
            return self.replica(partition)
        except EngineError as error:
            return error

    async def _assume(self, log_dir: LogDir, wanted: Sequence[Role]) -> dict[TopicPartition, EngineError]:
        """Those that are open already; what is on its way to the disk carries the epoch in which it was staged."""
        failed: dict[TopicPartition, EngineError] = {}
        known = [(found, one) for one in wanted if (found := self._partitions.get(one.partition)) is not None]
        here = [(found, one) for found, one in known if found.log_dir is log_dir]
        async with log_dir.commit_log.committer.between_rounds() if here else nullcontext():
            for found, one in here:
                try:
                    found.check_open()
                    found.assume(one)
                except EngineError as error:
                    failed[one.partition] = error
        return failed

    async def _open_in(self, log_dir: LogDir, wanted: Sequence[Known]) -> dict[TopicPartition, EngineError]:
        """Those that cannot be opened, and why."""
        failed: dict[TopicPartition, EngineError] = {}
        try:
            logs = await open_logs(log_dir, wanted)
        except StorageError as error:
            return dict.fromkeys((one.partition for one, _ in wanted), error)
        for (one, last_known), log in zip(wanted, logs, strict=True):
            try:
                if isinstance(log, StorageError):
                    raise log
                await self._take_in(log_dir, one, log, last_known)
            except EngineError as error:
                failed[one.partition] = error
        return failed

    async def _take_in(self, log_dir: LogDir, wanted: Role, log: Log, last_known: LastKnown) -> None:
        for problem in descriptions.problems_of(log):
            self._world.on_problem(problem)
        if wanted.config.preallocate and log.damaged_from is None:
            log_dir.note_unallocated(await log_dir.disk.run(partial(log.preallocate, wanted.config.segment_size_bytes)))
        opened = Partition(wanted.partition, log, log_dir, self._world.now_ms)
        opened.opening = opening_of(log, last_known)
        try:
            opened.assume(wanted)  # refused, it is not served at all
            await log_dir.adopt(opened, last_known)
        except EngineError:
            self._caches.forget(log.segments)
            raise
        self._partitions[wanted.partition] = opened

    async def delete_partition(self, partition: TopicPartition) -> None:
        """One of `delete_partitions`; raises its error."""
        [error] = await self.delete_partitions([partition])
        if error is not None:
            raise error

    async def delete_partitions(self, partitions: Sequence[TopicPartition]) -> list[EngineError | None]:
        errors: list[EngineError | None] = []
        for start in range(0, len(partitions), BATCH_MAX):
            some = partitions[start : start + BATCH_MAX]
            async with self._changes.of(some):
                errors += await self._delete_some(some)
        return errors

    async def _delete_some(self, partitions: Sequence[TopicPartition]) -> list[EngineError | None]:
        if self._is_closed:
            return [_shutting_down() for _ in partitions]
        failed: dict[TopicPartition, EngineError] = {}
        doomed: dict[LogDir, list[Partition]] = {}
        for one in partitions:
            found = self._partitions.pop(one, None)
            if found is None:
                failed[one] = _unknown(one)
            else:
                found.close(partial(UnknownPartition, f"{one.topic}-{one.partition} was deleted"))
                doomed.setdefault(found.log_dir, []).append(found)
        for log_dir, there in doomed.items():
            try:
                await delete_logs(log_dir, [one.partition for one in there])
                await log_dir.let_go([found.log for found in there])
            except StorageError as error:
                failed |= {one.partition: error for one in there}
        return [failed.get(one) for one in partitions]

    async def truncate_partition(self, partition: TopicPartition, offset: int, *, below_sealed: bool = False) -> int:
        """One of `truncate_partitions`, with the new end; raises its error."""
        [error] = await self.truncate_partitions({partition: offset}, below_sealed=below_sealed)
        if error is not None:
            raise error
        return self.replica(partition).log_end_offset

    async def truncate_partitions(
        self, offsets: Mapping[TopicPartition, int], *, below_sealed: bool = False, follows_in: int | None = None
    ) -> list[EngineError | None]:
        """Forget for good the batches that hold these offsets and all behind them; an error for each that was refused.

        What readers were given before may be gone while they read it. Appends are refused meanwhile. What is sealed is
        cut only with `below_sealed`. `follows_in`: as of `replica`.
        """
        async with self._changes.of(offsets):
            errors: dict[TopicPartition, EngineError | None] = {}
            wanted: dict[LogDir, list[Truncation]] = {}
            for one, offset in offsets.items():
                try:
                    found = self.replica(one, follows_in=follows_in)
                except EngineError as error:
                    errors[one] = error
                else:
                    wanted.setdefault(found.log_dir, []).append(Truncation(found, offset, below_sealed))
            for log_dir, some in wanted.items():
                found_errors = await truncate(log_dir, some)
                errors |= zip([one.resident.partition for one in some], found_errors, strict=True)
            return [errors[one] for one in offsets]

    async def reset_partition(
        self, partition: TopicPartition, offset: int, *, expects_unused: bool = False, follows_in: int | None = None
    ) -> None:
        """Forget all of it for good: its log goes on at `offset`. With `expects_unused`, if that is nothing."""
        async with self._changes.of([partition]):
            found = self.replica(partition, follows_in=follows_in)
            await reset(found.log_dir, found, offset, expects_unused=expects_unused)

    async def remove_strays(self, is_known: IsKnown) -> None:
        """Remove what is left on disk of partitions that `is_known` denies. Call it before any open.

        A topic's metadata goes before its files: a crash in between leaves some; and replicas may have moved. A log dir
        that is or goes offline keeps its own. Raises StoreRefused if two of them have records of a partition."""
        async with self._changes.of_all():
            for log_dir in self._dirs:
                job = partial(remove_strays, self._world.filesystem, log_dir.disk.path, sorted(log_dir.names), is_known)
                with suppress(StorageError):
                    await log_dir.forget(await log_dir.disk.run(job), is_known)
            await resolve_homes(self._dirs)

    @property
    def has_room(self) -> bool:
        return bool(self._room)

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def hold_rounds(self) -> None:
        """Wake nobody for what is appended from now on: the caller calls `write_rounds`, soon, without awaiting."""
        self._attendance.is_held = True

    def write_rounds(self) -> None:
        """Have what was appended written: what waits for nothing, at once, and settled. Otherwise it is begun."""
        self._attendance.is_held = False
        for log_dir in self._dirs:
            log_dir.commit_log.committer.write_now()

    async def close(self) -> None:
        async with self._changes.of_all():
            if self._is_closed:
                return
            self._is_closed = True
            for log_dir in self._dirs:
                log_dir.is_closing = True
            for log_dir in self._dirs:
                await log_dir.examiner.drained()
                await log_dir.commit_log.committer.drained()
            self._serving.cancel()
            for partition in self._partitions.values():
                partition.close(_shutting_down)
            if self._is_serving:
                await self._served.wait()  # a keeper that is shielded would write behind the clean marker
            for log_dir in self._dirs:
                await log_dir.shut_down()


def _unknown(partition: TopicPartition) -> EngineError:
    return UnknownPartition(f"{partition.topic}-{partition.partition} is not on this broker")


def _shutting_down() -> EngineError:
    return NotLeaderOrFollower("the broker is shutting down")
