"""Reads of a partition from disk and remote tier, and the caches of its segments.

The reader runs on the loop, between the log, the stored index and the workers: it gets a start position from the index,
lets a worker read, and keeps the result with the segment. If a worker does not find a file, it was deleted meanwhile:
then no result is kept, and the caller's next read shows the deletion.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import trio

from engine.api import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP_MS, AbortedTransaction, OffsetAtTimestamp, TopicIdPartition
from engine.commit.commit_log import CommitLog
from engine.errors import (
    CorruptMessage,
    DecompressedTooLarge,
    EngineError,
    NotLoaded,
    StorageError,
    UnreadableMessage,
)
from engine.files.disk import Disk
from engine.files.filesystem import File
from engine.index.rows import partition_key
from engine.index.stored_index import StoredIndex
from engine.logs.log import Log
from engine.logs.recently_used import SegmentCaches
from engine.logs.recovery.loading import (
    FIRST_BATCH_ONLY,
    READ_AHEAD_BYTES,
    Loaded,
    Part,
    TimestampFound,
    go_on,
    greatest_timestamp,
    load,
    search_timestamp,
    timestamps_of,
)
from engine.logs.segments.chunk import Chunk
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import Segment
from engine.logs.segments.sparse_index import Entry, SparseIndex
from engine.logs.transactions.aborted import AbortedIndexDamaged, decode_aborted
from engine.logs.transactions.aborted_files import aborted_of
from engine.logs.transactions.aborted_indexes import overlapping
from engine.tier import INDEX_ROW, ColdFile, SegmentTier

NOT_FOUND = OffsetAtTimestamp(NO_OFFSET, NO_TIMESTAMP_MS, NO_EPOCH)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadingParts:
    """Dependencies that the readers of all logs of a log dir share."""

    disk: Disk
    commit_log: CommitLog
    index: StoredIndex
    caches: SegmentCaches
    tier: SegmentTier
    on_problem: Callable[[str], None]


class LogReader:
    """Reader of one log; implements `engine.logs.recently_used.SegmentHolder`. `index_key`: the partition's key in the
    stored index."""

    __slots__ = ("_caches", "_disk", "_partition", "_parts", "_reported", "index_key", "log")

    def __init__(self, partition: TopicIdPartition, log: Log, parts: ReadingParts) -> None:
        self.log = log
        self._parts = parts
        self._disk = parts.disk
        self._caches = parts.caches
        self._partition = partition
        self.index_key = partition_key(partition.topic_id, partition.partition)
        self._reported: set[int] = set()
        self._use_files(log.segments)
        self._keep_indexes(log.segments)

    def appended(self, chunks: Sequence[Chunk]) -> None:
        """Note appended chunks that are durable: from now on their files may be closed."""
        if len(chunks) == 1 and not chunks[0].rolls:
            active, caches = self.log.segments[-1], self._caches
            if active.file is not None:
                caches.files.use(self, active)
            if active.index is not None and active.index.is_dense:
                caches.dense_indexes.use(self, active)
            return
        first = self.log.segments.index(self.log.segment_of(chunks[0].base_offset))
        written = self.log.segments[max(0, first - chunks[0].rolls) :]  # with the segment that has ended
        self._use_files(written)
        self._keep_indexes(written)

    def segment_replaced(self, fresh: Segment) -> None:
        """Note that `fresh` has replaced other segments."""
        self._use_files([fresh])
        self._keep_indexes([fresh])

    def _use_files(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            if segment.file is not None:
                self._caches.files.use(self, segment)

    def _keep_indexes(self, segments: Sequence[Segment]) -> None:
        caches = self._caches
        for segment in segments:
            if segment.index is None:
                continue
            if segment is not self.log.active:
                caches.indexes.use(self, segment)
            if segment.index.is_dense:
                caches.dense_indexes.use(self, segment)

    def close_file(self, segment: Segment) -> bool:
        closed = self.log.close_file(segment)
        if not closed:
            self._parts.commit_log.flusher.flush_by(self.log, trio.current_time())
        return closed

    def drop_index(self, segment: Segment) -> bool:
        segment.index = None
        segment.marks.clear()
        self._caches.dense_indexes.forget([segment])
        return True

    def thin_index(self, segment: Segment) -> bool:
        if segment.index is not None:
            segment.index.thin()
        return True

    async def load(self, offset: int, max_size_bytes: int, limit: LogPosition) -> object:
        """Load and check the bytes and the index for the next read at `offset`. Bytes of a tier stay for as long as the
        result lives. Raises CorruptMessage if the batch there is damaged."""
        segment = self.log.segment_of(offset)
        part = await self.part_from(segment, offset, limit)
        job = partial(_load, part, offset, max_size_bytes, is_cold=segment.is_cold)
        loaded, held = await self.run(segment, job) or (None, None)
        if part.file is None and self.log.swaps.is_under_way:  # it was opened by name, which may be another file's now
            await self._parts.commit_log.replaced()
        if loaded is not None and self.log.has(segment):
            await self._keep(segment, offset, loaded)
        return held

    async def _keep(self, segment: Segment, offset: int, loaded: Loaded) -> None:
        segment.file = loaded.file
        if segment.is_cold:
            cast("ColdFile", loaded.file).note_checked(loaded.position, loaded.end)
        self._caches.files.use(self, segment)
        if loaded.is_cut_short:
            segment.doubt()
        segment.note_checked(loaded.position, loaded.end)
        segment.mark(offset, loaded.position)
        segment.mark(loaded.end_offset, loaded.end)
        if loaded.is_index_wrong:
            await self.distrust_index(segment)
        if loaded.walked is not None:
            index = self._parts.index
            index.note_entries(self.index_key, segment.base_offset, loaded.walked)
            self._complete(segment, loaded.walked)

    async def aborted_between(self, segment: Segment, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that touch these offsets; the log remembers the result.

        `from_offset` is in `segment`, and all offsets are stable. If the segment is replaced, or loses its files,
        during the read of an index, that may be missing, or belong to the new segment: then the read is repeated.
        Raises CorruptMessage if an index is damaged.
        """
        with suppress(NotLoaded):
            return self.log.aborted.overlapping(segment.base_offset, from_offset, to_offset)

        async def look_up() -> list[AbortedTransaction]:
            there = segment if self.log.has(segment) else self.log.segment_of(max(from_offset, self.log.start_offset))
            found = await self._aborted_from(there.base_offset, from_offset, to_offset)
            await self._parts.commit_log.replaced()
            return found

        aborted = await self.undisturbed(look_up)
        self.log.aborted.remember(from_offset, to_offset, aborted)
        return aborted

    async def _aborted_from(self, base_offset: int, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Search the aborted indexes, from that of the segment at `base_offset` on."""
        log = self.log
        found: list[AbortedTransaction] = []
        base, is_complete = log.aborted.next_base(base_offset), False
        while base is not None and not is_complete:
            listed, is_complete = overlapping(await self._aborted_of(log.segment_of(base)), from_offset, to_offset)
            found += listed
            base = log.aborted.next_base(base + 1)
        if not is_complete:
            found += overlapping(log.aborted.active, from_offset, to_offset)[0]
        return found

    async def _aborted_of(self, segment: Segment) -> Sequence[AbortedTransaction]:
        job: Callable[[], Sequence[AbortedTransaction]]
        if segment.is_cold:
            job = partial(_cold_aborted, self._parts.tier, self._partition, segment)
        else:
            where = self._disk.filesystem, self.log.directory
            job = partial(aborted_of, *where, segment.base_offset, segment.end_offset)
        return await self.run(segment, job) or ()  # empty: the segment was removed, and the caller repeats the search

    async def offset_for_timestamp(self, timestamp_ms: int, limit: LogPosition) -> OffsetAtTimestamp:
        """Find the first record at or after a timestamp (not an OffsetSpec). Raises CorruptMessage."""
        found = await self.undisturbed(partial(self._find_timestamp, timestamp_ms, limit))
        return NOT_FOUND if found is None else OffsetAtTimestamp(*found)

    async def offset_of_greatest_timestamp(self, limit: LogPosition) -> OffsetAtTimestamp:
        """Find the first record with the greatest timestamp; without timestamps, the first record. Raises
        CorruptMessage."""
        timestamp_ms = await self.undisturbed(partial(self._greatest_timestamp, limit))
        return await self.offset_for_timestamp(max(timestamp_ms, NO_TIMESTAMP_MS), limit)

    async def _find_timestamp(self, timestamp_ms: int, limit: LogPosition) -> TimestampFound | None:
        """Find the first record below `limit` at or after a timestamp. Raises CorruptMessage if a part that has to be
        searched is damaged."""
        for segment in self.log.below(limit):
            if not await self.may_hold(segment, timestamp_ms):
                continue
            if _start_for_timestamp(segment, timestamp_ms) is None:
                await self._complete_index(segment)
            part = self._part(segment, _start_for_timestamp(segment, timestamp_ms), limit)
            job = partial(search_timestamp, part, timestamp_ms, self.log.start_offset)
            searched = await self.run(segment, job)
            if searched is not None and searched.is_index_wrong and self.log.has(segment):
                await self.distrust_index(segment)
            if searched is not None and searched.found is not None:
                return searched.found
        return None

    async def _greatest_timestamp(self, limit: LogPosition) -> int:
        """The greatest timestamp of the records from the log start on; -1: there are none. Raises CorruptMessage.

        It is known from the appends, unless the log start has moved or compaction has removed records; then the rest is
        searched.
        """
        start_offset, greatest_ms, segments = self.log.start_offset, NO_TIMESTAMP_MS, self.log.below(limit)
        for segment in segments:
            await self.learn_timestamps(segment)
        is_whole = not self.log.local_start_offset and not self.log.compacted_to
        if is_whole and not any(one.has_searched_timestamps for one in segments):
            return limit.max_timestamp_ms
        for segment in segments:
            if segment.base_offset >= start_offset and segment.base_offset != limit.segment_base_offset:
                greatest_ms = max(greatest_ms, segment.max_timestamp_ms)
            else:
                job = partial(greatest_timestamp, self._part(segment, None, limit), start_offset)
                found_ms = await self.run(segment, job)
                greatest_ms = greatest_ms if found_ms is None else max(greatest_ms, found_ms)
        return greatest_ms

    async def may_hold(self, segment: Segment, timestamp_ms: int) -> bool:
        """Whether a segment may have a record with that timestamp, or a later one. Raises CorruptMessage."""
        if segment.max_timestamp_ms < timestamp_ms:
            await self.learn_timestamps(segment)
        return segment.max_timestamp_ms >= timestamp_ms

    async def learn_timestamps(self, segment: Segment) -> None:
        """Search the records of a segment for their timestamps if its headers tell none; the result is stored. Raises
        CorruptMessage, StorageError."""
        log = self.log
        if not segment.lacks_timestamps or not log.has(segment):
            return
        found = await self.run(segment, partial(timestamps_of, self._part(segment, None, log.end)))
        if found is None or not log.has(segment):
            return
        segment.learn_timestamps(*found)  # what was appended meanwhile has told its own
        if segment is log.active:
            segment.summarised_size_bytes = 0  # its summary is stored at a clean stop
        else:
            self._parts.index.note_summary(self.index_key, log, segment)

    async def undisturbed(self, look_up: Callable[[], Awaitable[T]]) -> T:
        """Call `look_up`, again if a segment was replaced meanwhile, and return its result."""
        while True:
            before = self.log.replacements
            found = await look_up()
            if self.log.replacements == before:
                return found

    async def part_from(self, segment: Segment, offset: int, limit: LogPosition) -> Part:
        """The segment up to `limit`, with a position to start from for the batch that holds `offset`."""
        if segment.start_for_offset(offset) is None:
            await self._complete_index(segment)
        return self._part(segment, segment.start_for_offset(offset), limit)

    def _part(self, segment: Segment, start: tuple[int, int] | None, limit: LogPosition) -> Part:
        log, base_offset = self.log, segment.base_offset
        epochs = log.epochs.below(segment.end_offset)
        end = log.end_in(segment, limit)
        opener: Callable[[], File]
        if segment.is_cold:
            opener = partial(self._parts.tier.open, self._partition, base_offset)
        else:
            opener = partial(self._disk.filesystem.open, log.path_of(base_offset))
        return Part(opener, segment.file, base_offset, end, start, epochs, log.compacted_to)

    async def _complete_index(self, segment: Segment) -> None:
        """Complete a segment's index from the stored index, or from the remote tier."""
        entries = await self._parts.index.entries(self.index_key, segment.base_offset)
        if not entries and segment.is_cold:
            look_up = partial(_cold_entries, self._parts.tier, self._partition, segment.base_offset)
            entries = await self.run(segment, look_up) or []
        if entries:
            self._complete(segment, entries)

    def _complete(self, segment: Segment, entries: Sequence[Entry]) -> None:
        if not self.log.has(segment):
            return  # it was removed meanwhile
        known = SparseIndex(segment.size_bytes) if segment.index is None else segment.index
        segment.index = known.completed(entries)
        self._keep_indexes([segment])

    async def distrust_index(self, segment: Segment) -> None:
        """Drop the indexes, after a stored entry of the segment was wrong."""
        segment.index = None
        segment.marks.clear()
        await self._parts.index.distrust(f"an entry of {self._name_of(segment)} was wrong")

    async def run(self, segment: Segment, job: Callable[[], T]) -> T | None:
        """Run a job on a worker; None: the segment was removed, or the job returned None.

        Errors of a remote tier do not take the disk offline. Raises CorruptMessage, which is also reported once for
        each segment, and StorageError.
        """
        if segment.is_condemned:
            raise CorruptMessage(f"{self._name_of(segment)} was found damaged")
        source = self._parts.tier if segment.is_cold else self._disk
        try:
            found = await source.run(partial(_unless_deleted, job))
            if found is None and await self.is_there(segment):
                raise self._removed_error(segment)
        except DecompressedTooLarge:
            raise  # no damage
        except CorruptMessage as error:
            if not await self.is_there(segment):
                return None  # its leader epochs are removed with it, so that its batches look wrong
            segment.doubt()
            if isinstance(error, UnreadableMessage) and segment is not self.log.active:
                segment.is_condemned = True  # repeated reads of bad sectors would keep the disk from others
            if segment.base_offset not in self._reported:
                self._reported.add(segment.base_offset)
                self._parts.on_problem(f"{self._name_of(segment)} is damaged: {error}")
            raise
        return found

    def _name_of(self, segment: Segment) -> str:
        """The name of a segment in messages for the operator."""
        return self.log.path_of(segment.base_offset) + (", in the remote tier," if segment.is_cold else "")

    def _removed_error(self, segment: Segment) -> EngineError:
        """The error for a segment whose file or object is gone."""
        if segment.is_cold:
            return StorageError(f"{self._name_of(segment)} is gone")
        return CorruptMessage("the file is gone")

    async def is_there(self, segment: Segment) -> bool:
        """Whether the log still has the segment, after a swap under way has ended: its name may belong to another file
        until then."""
        await self._parts.commit_log.replaced()
        return self.log.has(segment)


def _start_for_timestamp(segment: Segment, timestamp_ms: int) -> tuple[int, int] | None:
    return None if segment.index is None else segment.index.before_timestamp(timestamp_ms)


def _load(part: Part, offset: int, max_size_bytes: int, *, is_cold: bool) -> tuple[Loaded, object]:
    """Load a range; returns it, and an object that keeps the bytes of a tier in its cache.

    A reader that seeks does not wait for the tier twice: it gets one batch, and the cached bytes behind it. A
    sequential reader gets more, in fewer steps.
    """
    size_bytes = max(max_size_bytes, READ_AHEAD_BYTES)
    if not is_cold:
        return load(part, offset, size_bytes), None
    file = cast("ColdFile", part.opened())
    goes_on = part.start is not None and part.start[0] == offset
    is_enough = file.has_waited() and not goes_on
    loaded = load(part._replace(file=file), offset, FIRST_BATCH_ONLY if is_enough else size_bytes)
    loaded = go_on(loaded, part, file.here_until(loaded.position))  # so that a sequential reader needs fewer loads
    return loaded, file.hold(loaded.position, loaded.end)


def _cold_aborted(tier: SegmentTier, partition: TopicIdPartition, segment: Segment) -> Sequence[AbortedTransaction]:
    """Read the aborted index of a cold segment. Raises CorruptMessage."""
    content = tier.aborted(partition, segment.base_offset)
    try:
        return decode_aborted(content, segment.base_offset, segment.end_offset)
    except AbortedIndexDamaged as damage:
        raise CorruptMessage(f"its aborted index: {damage}") from damage


def _cold_entries(tier: SegmentTier, partition: TopicIdPartition, base_offset: int) -> list[Entry]:
    return [Entry(*row) for row in INDEX_ROW.iter_unpack(tier.index_rows(partition, base_offset))]


def _unless_deleted(job: Callable[[], T]) -> T | None:
    try:
        return job()
    except FileNotFoundError:
        return None
