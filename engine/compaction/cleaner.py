"""The cleaner: compacts the logs that need it most, in the background (Kafka's LogCleaner).

It decides and waits on the event loop; workers read and write, a slice at a time. If there were appends meanwhile, it
rests between two slices, so that it takes neither the disk nor the interpreter from them. New segments replace the old
ones in one step (docs/formats/compaction.md). A pass that is disturbed starts again later.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import trio

from engine.api import TopicIdPartition
from engine.compaction.cleaning_pass import CleanerOptions, LogChanged, Pass
from engine.compaction.cleaning_plan import Work, work_on
from engine.errors import CorruptMessage, StorageError
from engine.log_config import CleanupPolicy
from engine.log_dirs.log_dir import LogDir
from engine.partitions.partition import Partition
from engine.stats import CleanerStats

LOGS_PER_TURN = 500
REST_RATIO = 1.0  # of the time that a slice took, if there were appends meanwhile


class Cleaner:
    """The cleaner of a store.

    `partitions` are all partitions of the store, `commit_batch_count` counts its commit batches, `report` gets a line
    for the operator.
    """

    def __init__(
        self,
        options: CleanerOptions,
        partitions: Callable[[], Iterable[Partition]],
        commit_batch_count: Callable[[], int],
        now_ms: Callable[[], int],
        report: Callable[[str], None],
        stats: CleanerStats,
    ) -> None:
        self._options = options
        self._partitions = partitions
        self._commit_batch_count = commit_batch_count
        self._now_ms = now_ms
        self._report = report
        self._stats = stats
        self._taken: set[TopicIdPartition] = set()
        self._pass_ended = trio.lowlevel.ParkingLot()
        self._given_up: dict[TopicIdPartition, int] = {}  # the count of truncations when damage was found
        self._reported: set[TopicIdPartition] = set()  # reported as without space for compaction
        self._free_at_s = 0.0
        self._commit_batches_seen = 0
        self._changed = trio.Event()

    def configure(self, options: CleanerOptions) -> None:
        """Change the options; a pass under way is given up."""
        if options != self._options:
            self._options = options
            self._changed.set()

    async def run(self) -> None:
        """Run the cleaner's threads, until cancelled."""
        while True:
            self._changed = trio.Event()
            async with trio.open_nursery() as nursery:
                for _ in range(self._options.threads):
                    nursery.start_soon(self._serve)
                await self._changed.wait()
                nursery.cancel_scope.cancel()

    async def wait_until_unused(self, log_dir: LogDir) -> None:
        """Wait until no partition of a log dir is being compacted. Closed partitions are not begun again."""
        while not self._taken.isdisjoint(log_dir.partitions):
            await self._pass_ended.park()

    async def _serve(self) -> None:
        while True:
            found = await self._dirtiest()
            if found is None or not await self._clean(*found):
                await trio.sleep(self._options.backoff_ms / 1000)

    async def _dirtiest(self) -> tuple[Partition, Work] | None:
        best: tuple[Partition, Work] | None = None
        dirtiest_ratio, given_up = 0.0, Counter[str]()
        for number, one in enumerate(list(self._partitions())):
            if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await trio.lowlevel.checkpoint()
            given_up[one.log_dir.disk.path] += self._is_given_up(one)
            work = self._work_on(one)
            if work is not None and await _learn_timestamps(one, work):
                work = self._work_on(one)
            if work is None:
                continue
            dirtiest_ratio = max(dirtiest_ratio, work.dirty_ratio)
            if work.is_due and (best is None or work.dirty_ratio > best[1].dirty_ratio):
                best = one, work
        self._stats.dirtiest_ratio, self._stats.given_up = dirtiest_ratio, given_up
        self._stats.looked_at_s = trio.current_time()
        return best

    def _work_on(self, one: Partition) -> Work | None:
        log = one.log
        if CleanupPolicy.COMPACT not in one.config.cleanup_policy or len(log.segments) < 2:
            return None  # the active segment is never compacted
        if log.has_cold:
            return None  # a tombstone must outlast the records it deletes, also those in cold segments
        if one.partition in self._taken or self._is_given_up(one) or not one.is_sound:
            return None
        return work_on(
            log.segments,
            one.config,
            log.start_offset,
            log.clean_to,
            one.progress.last_stable.segment_base_offset,
            self._now_ms(),
        )

    def _is_given_up(self, one: Partition) -> bool:
        """Whether damage was found in the log. A truncation or reset may remove the damage: then the cleaner tries
        again."""
        return self._given_up.get(one.partition) == one.log.truncations

    async def _clean(self, one: Partition, work: Work) -> bool:
        """Compact a log; False if nothing came of it."""
        self._taken.add(one.partition)
        truncations = one.log.truncations
        try:
            self._stats.note(await Pass(one, work, self._options, self._now_ms(), self._paced).run())
        except CorruptMessage as error:
            if one.log.truncations == truncations:  # otherwise it may have read what was being truncated
                self._given_up[one.partition] = truncations
                self._report(f"{one.log.directory} is not compacted any more: {error}")
            return False
        except StorageError as error:
            if one.log_dir.disk.offline_reason is None and one.partition not in self._reported:
                self._reported.add(one.partition)
                self._report(f"{one.log.directory} is not compacted for now: {error}")
            return False
        except LogChanged:
            return False
        finally:
            self._taken.discard(one.partition)
            self._pass_ended.unpark_all()
        self._reported.discard(one.partition)
        return True

    async def _paced(self, size_bytes: int, busy_s: float) -> None:
        """Wait after a slice, to keep to the I/O rate that is allowed for all compaction together.

        `size_bytes` were read and written, which took `busy_s`.
        """
        now_s = trio.current_time()
        self._free_at_s = max(now_s, self._free_at_s) + size_bytes / max(1.0, self._options.io_max_bytes_per_s)
        batches_before, self._commit_batches_seen = self._commit_batches_seen, self._commit_batch_count()
        rest_s = busy_s * REST_RATIO if self._commit_batches_seen != batches_before else 0.0
        await trio.sleep_until(max(self._free_at_s, now_s + rest_s))


async def _learn_timestamps(one: Partition, work: Work) -> bool:
    """Learn the timestamps that decide about lags, where headers tell none; returns whether any were missing."""
    lacking = [segment for segment in work.segments if segment.lacks_timestamps]
    with suppress(CorruptMessage, StorageError):  # compaction meets the damage too, and reports it
        for segment in lacking:
            await one.learn_timestamps(segment)
    return bool(lacking)
