"""All partitions of a broker over its log dirs: opening, placing, deleting, starting and stopping.

The store only delegates: `engine.partitions.partition` has the behaviour of a partition, `engine.log_dirs.layout` the
content of a log dir. A directory of a partition that the metadata do not name is a stray: `engine.log_dirs.strays`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import trio

from engine import descriptions
from engine.api import ActiveProducer, LogDirDescription, ReadyWaiter
from engine.closing import Closing
from engine.commit.backpressure import AppendRoom, CommitBatchHold
from engine.commit.journal_format import SLOT_ID_SIZE_BYTES
from engine.compaction.cleaner import Cleaner
from engine.errors import EngineError, StoreRefused
from engine.files.filesystem import replace_small
from engine.log_config import LogConfig
from engine.log_dir_start import new_log_dir, possess, start_upkeep
from engine.log_dirs.changes import Changes
from engine.log_dirs.layout import Identity, directory_name
from engine.log_dirs.log_dir import LogDir, Shared
from engine.log_dirs.strays import Strays
from engine.log_dirs.truncation import Truncation, reset, truncate
from engine.logs.recently_used import SegmentCaches
from engine.logs.recovery.checkpoints import key_of
from engine.options import StoreDeps, StoreOptions
from engine.partition_changes import Newest, PartitionChanges, shutting_down, unknown, wanted_role
from engine.partitions.partition import Partition
from engine.partitions.waiters import Waiter
from engine.reopening import take_open
from engine.replication.exchange import ReplicaEnd, replica_end
from engine.roles import Leadership, Role, TopicIdPartition
from engine.sealed import SealedLog
from engine.stats import LogDirStatistics, PartitionStatistics, StoreStats
from engine.tier import TierableLog
from engine.upkeep.producer_expiry import expire_producers
from engine.upkeep.sealed_listing import SealedListing
from engine.upkeep.tierable import Tierable

CHANGES_MAX_S = 1.0  # greatest wait of a stop for openings and deletions that are under way


class SegmentStore:
    """Implements `engine.api.PartitionStore`. Start it with `await nursery.start(store.run)`."""

    def __init__(self, options: StoreOptions, deps: StoreDeps) -> None:
        self._options = options
        self._deps = deps
        self.producer_id_expiration_ms = options.producer_id_expiration_ms  # may be changed at any time
        self._partitions: dict[TopicIdPartition, Partition] = {}
        self.stats = StoreStats()
        self._hold = CommitBatchHold()
        self._claims = Changes()
        self._serving = trio.CancelScope()
        self._is_serving = False
        self._caches = SegmentCaches(options.open_files_max, options.loaded_indexes_max, options.dense_indexes_max)
        new_id = partial(deps.random.randbytes, SLOT_ID_SIZE_BYTES)
        self.on_closed: Callable[[TopicIdPartition], None] = lambda _: None  # on a log dir that is online
        on_problem, note_closed = deps.on_problem, self._note_closed
        self._shared = Shared(deps.pool, self._caches, self.stats, on_problem, new_id, deps.tier, note_closed)
        common = options, deps, self._hold, self._shared
        self._dirs = [
            new_log_dir(one, partial(self._went_offline, one), *common) for one in range(len(options.log_dirs))
        ]
        taking, retention_ms = partial(take_open, self._partitions), options.stray_retention_ms
        self.strays = Strays(self._dirs, self._claims, taking, retention_ms, deps.now_ms, on_problem)
        self.changes = PartitionChanges(self._partitions, self._dirs, self._claims, self._caches, deps)
        self.changes.stray_home = self.strays.home
        self._room = AppendRoom([one.commit_log.budget for one in self._dirs])
        self.cleaner = Cleaner(
            options.cleaner,
            self._partitions.values,
            self._commit_batch_count,
            deps.now_ms,
            deps.on_problem,
            self.stats.cleaner,
        )

    def _commit_batch_count(self) -> int:
        return sum(log_dir.commit_log.committer.statistics.commit_batches.count for log_dir in self._dirs)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take possession of the log dirs (StoreRefused), then serve until `close` or cancelled."""
        for log_dir in self._dirs:
            await self._possess(log_dir)
        self._is_serving = True
        try:
            await self._serve(task_status)
        finally:
            for log_dir in self._dirs:
                log_dir.served.set()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the background tasks until cancelled; tasks that must not end half-way finish their step first."""
        async with trio.open_nursery() as nursery:
            for log_dir in self._dirs:
                start_upkeep(nursery, log_dir, self._options, self._deps.now_ms)
            with self._serving:
                async with trio.open_nursery() as everywhere:
                    interval_s = self._options.producer_id_expiration_check_interval_ms / 1000
                    patience_ms, now_ms = lambda: self.producer_id_expiration_ms, self._deps.now_ms
                    everywhere.start_soon(expire_producers, self._partitions.values, patience_ms, now_ms, interval_s)
                    everywhere.start_soon(self.cleaner.run)
                    everywhere.start_soon(self.strays.serve)
                    task_status.started()

    async def _possess(self, log_dir: LogDir) -> None:
        options, deps = self._options, self._deps
        identity, new_id = Identity(options.cluster_id, options.broker_id), deps.random.randbytes(16)
        slot_size_bytes = options.journal_slot_size_bytes
        error = await possess(log_dir, deps.filesystem, identity, new_id, slot_size_bytes, deps.on_problem)
        if error is not None and all(other.disk.offline_reason is not None for other in self._dirs):
            raise StoreRefused(f"no usable log dir: {error}") from error

    def _went_offline(self, number: int, error: OSError) -> None:
        self._dirs[number].went_offline()
        self._deps.on_offline()
        if self._is_serving and all(other.disk.offline_reason is not None for other in self._dirs):
            self._deps.on_fatal(f"the last log dir went offline: {self._dirs[number].disk.path}: {error}")

    def _note_closed(self, partition: TopicIdPartition) -> None:
        self.on_closed(partition)
        self._deps.on_offline()

    @property
    def log_dirs(self) -> Sequence[LogDir]:
        """All log dirs, online or not."""
        return self._dirs

    def get(self, partition: TopicIdPartition) -> Partition:
        found = self._partitions.get(partition)
        if found is None:
            raise unknown(partition)
        found.check_led()
        return found

    def replica(self, partition: TopicIdPartition, *, follows_in: int | None = None) -> Partition:
        """An open partition, led here or not. `follows_in`: only if it follows in that epoch. Raises as `get` does."""
        if (found := self._partitions.get(partition)) is None:
            raise unknown(partition)
        found.check_open()
        if follows_in is not None:
            found.check_follows(follows_in)
        return found

    def replica_end(self, partition: TopicIdPartition, leader_epoch: int) -> ReplicaEnd:
        return replica_end(self.replica(partition, follows_in=leader_epoch).log_state)

    def had(self, partition: TopicIdPartition) -> bool:
        """Whether this broker had records of the partition, by the checkpoint of a log dir, or has a stray of it."""
        key = key_of(partition)
        return self.strays.had(key) or any(one.commit_log.had(key) for one in self._dirs)

    def accept_loss(self, partition: TopicIdPartition) -> None:
        """Forget that this broker had records of the partition, which an unclean election gave up: without a directory,
        it begins with an empty log."""
        self.strays.give_up(key_of(partition))
        if not any(directory_name(partition) in one.names for one in self._dirs):
            for one in self._dirs:
                one.commit_log.forget(key_of(partition))

    def new_waiter(self) -> ReadyWaiter:
        return Waiter()

    def find_producer(self, partition: TopicIdPartition, producer_id: int) -> ActiveProducer | None:
        known = self.get(partition).log.producers.get(producer_id)
        return descriptions.describe_producer(producer_id, known) if known is not None else None

    def active_producers(self, partition: TopicIdPartition) -> list[ActiveProducer]:
        return [descriptions.describe_producer(*one) for one in self.get(partition).log.producers]

    async def describe_log_dirs(self) -> list[LogDirDescription]:
        return [await descriptions.describe_log_dir(log_dir) for log_dir in self._dirs]

    def statistics(self) -> list[LogDirStatistics]:
        return list(map(descriptions.log_dir_statistics, self._dirs))

    def partition_statistics(self) -> Iterator[PartitionStatistics]:
        """Statistics of every partition that is open now, each computed when the iterator reaches it."""
        return map(descriptions.partition_statistics, list(self._partitions.values()))

    def tierable(self, *, is_led: bool = True) -> Iterator[TierableLog]:
        """The partitions that are led here, or those that follow, as the remote tier sees them."""
        return map(Tierable, [one for one in self._partitions.values() if (one.is_led if is_led else one.fetching)])

    def sealed(self, partition: TopicIdPartition) -> SealedLog:
        """The sealed segments of a partition. Raises as `get` does."""
        return SealedListing(self.get(partition))

    async def open_partition(self, partition: TopicIdPartition, config: LogConfig, leader_epoch: int) -> Partition:
        """Open one partition, see `open_partitions`; raises its error."""
        [opened] = await self.open_partitions([Leadership(partition, config, leader_epoch)])
        if isinstance(opened, EngineError):
            raise opened
        return opened

    async def open_partitions(
        self, wanted: Sequence[Role], *, again: Collection[TopicIdPartition] = (), newest: Newest = wanted_role
    ) -> list[Partition | EngineError]:
        """See `PartitionChanges.open`."""
        return await self.changes.open(wanted, again, newest)

    async def delete_partition(self, partition: TopicIdPartition) -> None:
        """Delete one partition, see `delete_partitions`; raises its error."""
        [error] = await self.delete_partitions([partition])
        if error is not None:
            raise error

    async def delete_partitions(self, partitions: Sequence[TopicIdPartition]) -> list[EngineError | None]:
        return await self.changes.delete(partitions)

    async def truncate_partition(self, partition: TopicIdPartition, offset: int, *, below_sealed: bool = False) -> int:
        """Truncate one partition, see `truncate_partitions`; returns the new log end, raises its error."""
        [error] = await self.truncate_partitions({partition: offset}, below_sealed=below_sealed)
        if error is not None:
            raise error
        return self.replica(partition).log_end_offset

    async def truncate_partitions(
        self, offsets: Mapping[TopicIdPartition, int], *, below_sealed: bool = False, follows_in: int | None = None
    ) -> list[EngineError | None]:
        """Truncate each partition before the batch that holds its offset. **This discards data.**

        Returns None or the error for each. Ranges that readers got before may vanish while they read. Appends are
        refused meanwhile. Sealed segments are truncated only with `below_sealed`. `follows_in`: see `replica`.
        """
        async with self._claims.lock(offsets):
            errors: dict[TopicIdPartition, EngineError | None] = {}
            wanted: dict[LogDir, list[Truncation]] = {}
            for one, offset in offsets.items():
                try:
                    found = self.replica(one, follows_in=follows_in)
                except EngineError as error:
                    errors[one] = error
                else:
                    wanted.setdefault(found.log_dir, []).append(Truncation(found, offset, below_sealed))
            for log_dir, truncations in wanted.items():
                found_errors = await truncate(log_dir, truncations)
                errors |= zip([one.resident.partition for one in truncations], found_errors, strict=True)
            return [errors[one] for one in offsets]

    async def reset_partition(
        self, partition: TopicIdPartition, offset: int, *, expects_unused: bool = False, follows_in: int | None = None
    ) -> None:
        """Discard the whole log, which goes on at `offset`. **This discards data.**

        `expects_unused`: only if the log was never used.
        """
        async with self._claims.lock([partition]):
            found = self.replica(partition, follows_in=follows_in)
            await reset(found.log_dir, found, offset, expects_unused=expects_unused)

    async def write_beside(self, path: str, name: str, content: bytes) -> None:
        """Write or replace a small file in the log dir of that path. Raises StorageError."""
        [disk] = [one.disk for one in self._dirs if one.disk.path == path]
        await disk.run(partial(replace_small, disk.filesystem, path, name, content))

    @property
    def has_room(self) -> bool:
        return bool(self._room)

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def hold_commit_batches(self) -> None:
        """Do not start commit batches for the next appends: the caller calls `write_commit_batches` soon, without
        awaiting."""
        self._hold.is_held = True

    def write_commit_batches(self) -> None:
        """Write the queued appends. A commit batch that has to wait for nothing is complete, and its appends are
        settled, when this returns; others are started."""
        self._hold.is_held = False
        for log_dir in self._dirs:
            log_dir.commit_log.committer.write_now()

    async def close(self) -> None:
        async with AsyncExitStack() as alone:
            with trio.move_on_after(CHANGES_MAX_S):  # one of them may wait for a disk that hangs
                await alone.enter_async_context(self._claims.lock_all())
            if self.changes.is_closed:
                return
            self.changes.is_closed = True
            self._serving.cancel()
            is_served, report = self._is_serving, self._deps.on_problem
            await Closing(self.cleaner, report, shutting_down, is_served=is_served).close(self._dirs)
