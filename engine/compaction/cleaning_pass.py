"""A compaction pass over a log: read the keys of the dirty part, then rewrite the segments, group by group.

The log stays in use. File operations by name run while the partition cannot be deleted or truncated. If the log has
changed since the pass began, the pass ends, and only its work is lost.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from engine.compaction.cleaning import Target, begin_target, clean_slice, read_keys
from engine.compaction.cleaning_plan import Work, groups
from engine.compaction.rules import NewestOffsets, Rules
from engine.compaction_horizon import CompactionHorizon
from engine.errors import StorageError
from engine.files.filesystem import File, FileSystem
from engine.log_dirs.log_dir import index_key
from engine.logs.producers.state import Producer
from engine.logs.segments.segment import Segment
from engine.logs.segments.swap import drop_cleaned, swap_in
from engine.partitions.partition import Partition
from engine.stats import PassStats

SYNC_BYTES = 8 * 1024 * 1024  # written but not synced, at most: a long write-back would delay other syncs


@dataclass(frozen=True, slots=True)
class CleanerOptions:
    """The log.cleaner keys of the broker, with Kafka's defaults."""

    threads: int = 1  # logs compacted at once; 0 turns the cleaner off
    dedupe_buffer_size_bytes: int = 128 * 1024 * 1024
    dedupe_buffer_load_factor: float = 0.9
    io_buffer_size_bytes: int = 512 * 1024
    io_max_bytes_per_s: float = float("inf")
    backoff_ms: int = 15_000


class LogChanged(Exception):
    """The log has changed since the pass began."""


class Pass:
    """A pass over one log. `paced` is awaited after each slice, with (bytes read and written, seconds that it took)."""

    def __init__(
        self,
        one: Partition,
        work: Work,
        options: CleanerOptions,
        now_ms: int,
        paced: Callable[[int, float], Awaitable[None]],
    ) -> None:
        self._one = one
        self._work = work
        self._options = options
        self._now_ms = now_ms
        self._paced = paced
        self._stats = PassStats()
        self._log = one.log
        self._truncations = one.log.truncations
        self._log_dir = one.log_dir
        self._filesystem = one.log_dir.disk.filesystem

    async def run(self) -> PassStats:
        """Compact the log. Raises Disturbed, StorageError, and CorruptMessage if a CRC does not match."""
        options, work, started_s = self._options, self._work, trio.current_time()
        room_bytes = options.dedupe_buffer_size_bytes * options.dedupe_buffer_load_factor / max(1, options.threads)
        newest = NewestOffsets(room_bytes, work.first_dirty_offset)
        for segment in work.segments:
            if segment.end_offset > work.first_dirty_offset and not newest.is_full:
                await self._read(segment, newest)
        last_offsets = {producer_id: _last_offset(one) for producer_id, one in self._log.producers}
        rules = Rules(newest, self._now_ms, self._one.config.delete_retention_ms, last_offsets)
        known = [one for one in work.segments if one.base_offset < newest.end_offset]
        for group in groups(known, self._one.config):
            await self._clean(group, rules)
        self._check_unchanged()
        self._log.clean_to = newest.end_offset
        self._log_dir.commit_log.want_checkpoint()
        self._stats.buffer_ratio = newest.fill_ratio
        self._stats.duration_s = trio.current_time() - started_s
        return self._stats

    async def _read(self, segment: Segment, newest: NewestOffsets) -> None:
        newest.transactions.expect(await self._one.aborted_in(segment))
        file, position, end = await self._opened(segment), 0, segment.size_bytes
        while position < end and not newest.is_full:
            before, started_s = position, trio.current_time()
            position = await self._slice(partial(read_keys, file, position, end, newest=newest))
            await self._paced(position - before, trio.current_time() - started_s)

    async def _clean(self, group: Sequence[Segment], rules: Rules) -> None:
        """Rewrite a group of segments as one segment. It is discarded if nothing has changed."""
        await self._check_room(sum(one.size_bytes for one in group))
        rules.begin_group()
        base_offset = group[0].base_offset
        async with self._log_dir.commit_log.replacing():
            self._check_unchanged()
            begin = partial(begin_target, self._filesystem, self._log.directory, base_offset, group[-1].end_offset)
            target = await self._log_dir.disk.run(begin)
        try:
            for segment in group:
                await self._copy(segment, rules, target)
            if target.is_changed or len(group) > 1:
                await self._log_dir.disk.sync([target.file])
                await self._swap(group, target, rules)
        finally:
            with suppress(LogChanged, StorageError):
                await self._drop(base_offset)

    async def _copy(self, segment: Segment, rules: Rules, target: Target) -> None:
        rules.transactions.expect(await self._one.aborted_in(segment))
        file, position, end = await self._opened(segment), 0, segment.size_bytes
        synced_bytes = target.segment.size_bytes
        while position < end:
            before, started_s, size_bytes = position, trio.current_time(), target.segment.size_bytes
            position = await self._slice(partial(clean_slice, file, position, end, rules=rules, target=target))
            written_bytes = target.segment.size_bytes - size_bytes
            self._stats.read_bytes += position - before
            self._stats.written_bytes += written_bytes
            await self._paced(position - before + written_bytes, trio.current_time() - started_s)
            if target.segment.size_bytes - synced_bytes >= SYNC_BYTES:
                synced_bytes = target.segment.size_bytes
                await self._log_dir.disk.sync([target.file])

    async def _slice(self, job: Callable[..., int]) -> int:
        self._check_unchanged()
        return await self._log_dir.disk.run(partial(job, size_bytes=self._options.io_buffer_size_bytes))

    async def _opened(self, segment: Segment) -> File:
        path = self._log.path_of(segment.base_offset)
        file = segment.file or await self._log_dir.disk.run(partial(_open_if_there, self._filesystem, path))
        if file is None:
            raise LogChanged
        return file

    async def _swap(self, group: Sequence[Segment], target: Target, rules: Rules) -> None:
        one, log, log_dir, key = self._one, self._log, self._log_dir, index_key(self._one.partition)
        base_offsets = [segment.base_offset for segment in group]
        async with log_dir.commit_log.replacing():
            self._check_unchanged()
            if not all(segment in log.segments for segment in group):
                raise LogChanged
            if log.has_cold:
                raise LogChanged  # earlier segments have lost their files since the pass began
            if log.tiered_to is not None:
                log.tiered_to = min(log.tiered_to, base_offsets[0])  # the tier has more, but not of this log
            log.compacted_to = max(log.compacted_to, target.end_offset, rules.newest.end_offset)
            replaced_to = rules.transactions.aborted_to
            log.dropped = log.dropped.merged_with(CompactionHorizon(rules.tombstones_to, rules.markers_to, replaced_to))
            await log_dir.index.give_up(key, base_offsets)
            await log_dir.commit_log.checkpoint_alone()
            job = partial(swap_in, self._filesystem, log.directory, base_offsets, rules.kept)
            log.swaps.is_under_way = True
            try:
                paths = await log_dir.disk.run(job)
                log.replace(group, target.segment, has_aborted=bool(rules.kept))
            finally:
                log.swaps.is_under_way = False
            # A follower that knows a lower count may have copied the old segments.
            log.swaps.note(rules.stamped_ms, rules.dropped_ms, rules.delete_retention_ms)
            log_dir.caches.forget(group)
            sizes_bytes = [segment.size_bytes for segment in group]
            log_dir.deleter.add(zip(paths, sizes_bytes, strict=True), one.config.file_delete_delay_ms)
            await log_dir.index.give_up(key, base_offsets)  # also entries found in them meanwhile
            log_dir.index.note_segment(key, log, target.segment, target.entries)
            one.segment_replaced(target.segment)
            log_dir.want_seal(one)

    async def _drop(self, base_offset: int) -> None:
        async with self._log_dir.commit_log.replacing():
            self._check_unchanged()
            await self._log_dir.disk.run(partial(drop_cleaned, self._filesystem, self._log.directory, base_offset))

    async def _check_room(self, size_bytes: int) -> None:
        """Raise StorageError without enough space: a half written append would take the log dir offline."""
        usage = await self._log_dir.disk.run(partial(self._filesystem.usage, self._log_dir.disk.path))
        if usage.available_bytes < 2 * size_bytes:
            raise StorageError(f"{usage.available_bytes} bytes of space left, to compact {size_bytes}")

    def _check_unchanged(self) -> None:
        one = self._one
        if self._log_dir.partitions.get(one.partition) is not one or self._log.truncations != self._truncations:
            raise LogChanged


def _last_offset(known: Producer) -> int:
    """The offset of the producer's last batch, which has its sequence; without one, of its last marker, which has its
    epoch."""
    return known.batches[-1].last_offset if known.batches else known.last_offset


def _open_if_there(filesystem: FileSystem, path: str) -> File | None:
    try:
        return filesystem.open(path)
    except FileNotFoundError:
        return None
