"""A partition's log: consecutive segments, where the next batch goes, and where to read.

An append has three steps, so that blocking work can run elsewhere while the event loop stays the log's only owner.
`stage` decides where batches go (loop, no I/O), `perform` does the file operations (loop or worker; it touches nothing
but files), `commit` makes the batches part of the log (loop). A log does not know durability rules, leader epochs of
roles or isolation levels: its partition passes the position up to which a reader may see.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from engine.api import NO_EPOCH, NO_TIMESTAMP_MS, FileRange
from engine.batches.batch import HEADER_SIZE_BYTES, BatchHeader
from engine.batches.timestamps import newest_of_stored
from engine.compaction_horizon import CompactionHorizon, Swaps
from engine.errors import CorruptMessage, NotLoaded
from engine.files.filesystem import DiskFull, File, FileSystem, preallocate
from engine.logs.producers.snapshot import Snapshot, write_snapshot
from engine.logs.producers.state import ProducerTable
from engine.logs.recovery.epochs import EpochHistory
from engine.logs.recovery.truncation_plan import TruncationPlan
from engine.logs.segments.chunk import Chunk
from engine.logs.segments.cold import ColdSegments
from engine.logs.segments.position import LogPosition, position_of
from engine.logs.segments.roll_policy import SEGMENT_OFFSETS_MAX, RollPolicy
from engine.logs.segments.rolling import begin_segment, withdraw
from engine.logs.segments.segment import Segment, find_batch, in_memory, may_follow, segment_name
from engine.logs.segments.sparse_index import Entry, Summary
from engine.logs.staging import stage_rolling
from engine.logs.transactions.aborted_indexes import AbortedIndexes

GLANCES_MAX = 512  # headers that the loop reads to find a batch: some 0.2 ms
FRESH_BYTES = 8 * 1024 * 1024  # the newest bytes are in the page cache


class Log:
    """The log of one partition: `segments` that have files, the last one active, and `cold` segments without files.

    There is at least one segment with a file. Nothing below `start_offset` is served.
    """

    def __init__(
        self, filesystem: FileSystem, directory: str, segments: Sequence[Segment], start_offset: int = 0
    ) -> None:
        self.directory = directory
        self.segments = list(segments)
        self.cold = ColdSegments()
        self.tiered_to: int | None = None  # below it the remote tier has everything; None: no tier
        self.is_tier_confirmed = False  # whether the tier has confirmed `tiered_to` to this process
        self.epochs = EpochHistory()
        self.start_offset = start_offset
        self.damaged_from: int | None = None
        self.compacted_to = 0  # below it offsets may have gaps
        self.clean_to = 0  # every record below it is the newest of its key there
        self.dropped, self.swaps = CompactionHorizon(), Swaps()
        self.replacements = self.truncations = 0  # counts of replaced segments, and of truncations
        self.journaled_offset = self.journal_end_offset = 0  # end of journaled appends: durable; being written
        self.producers = ProducerTable()
        self.aborted = AbortedIndexes()
        self.unstable: dict[int, LogPosition] = {}  # at open: where the undecided transactions begin
        self.unconfirmed: list[LogPosition] = []  # at open: the high watermark, and ends of batches above it
        self.unreplicated: list[tuple[int, int]] = []  # at open: transactions (first, last) that ended above it
        self.problems: list[str] = []  # found at open, for the operator
        self.unindexed: list[tuple[int, Entry]] = []  # with the base offset of its segment
        self.has_spare = False  # the active segment may have more space than it uses
        self._filesystem = filesystem
        self._bases = [segment.base_offset for segment in self.segments]
        self.end = self._flushed = self._end_position(NO_TIMESTAMP_MS)  # behind the last batch that is committed

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def active_file(self) -> File:
        """The file of the active segment, which is open while anything written to it is not durable."""
        file = self.segments[-1].file
        assert file is not None
        return file

    def path_of(self, base_offset: int) -> str:
        return f"{self.directory}/{segment_name(base_offset)}"

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is durable in the segment files, without the journal."""
        return self._flushed.offset

    @property
    def durable_offset(self) -> int:
        """The offset below which everything is durable, in the segment files or in the journal."""
        return max(self._flushed.offset, self.journaled_offset)

    @property
    def covered_offset(self) -> int:
        """The offset below which everything is durable, or is in a journal frame that is being written."""
        return max(self._flushed.offset, self.journal_end_offset)

    @property
    def leans_on_journal(self) -> bool:
        """Whether records are, or will soon be, durable in the journal alone."""
        return self.journal_end_offset > self._flushed.offset

    @property
    def size_bytes(self) -> int:
        """Size of the segments that have files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def local_start_offset(self) -> int:
        """The first offset that has a segment file."""
        return max(self.start_offset, self.cold.local_start_offset)

    @property
    def has_cold(self) -> bool:
        """Whether there are cold segments, known or not."""
        return self.start_offset < self.cold.local_start_offset

    @property
    def all_segments(self) -> list[Segment]:
        """All segments, cold ones included. Raises StorageError if the cold ones are not known."""
        return [*self.cold.all_from(self.start_offset), *self.segments]

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes of the active segment are not synced."""
        flushed, end = self._flushed, self.end
        return end.position - (flushed.position if flushed.segment_base_offset == end.segment_base_offset else 0)

    def note_flushed(self, end: LogPosition) -> None:
        """Note that the active segment of `end` was synced after everything below `end` had been written."""
        self._flushed = max(self._flushed, end)

    def _end_position(self, max_timestamp_ms: int) -> LogPosition:
        active = self.segments[-1]
        return position_of((active.end_offset, active.base_offset, active.size_bytes, max_timestamp_ms))

    def stage(
        self, batches: list[memoryview], headers: list[BatchHeader], policy: RollPolicy, now_ms: int
    ) -> list[Chunk]:
        """Decide where `batches`, which continue the log, will go; a new segment begins before a batch that does not
        fit."""
        active = self.segments[-1]
        if active.started_ms == NO_TIMESTAMP_MS:
            active.started_ms = now_ms
        end, size_bytes = active.size_bytes, sum(map(len, batches))
        if (
            end + size_bytes > policy.segment_size_bytes
            or headers[-1].next_offset - active.base_offset > SEGMENT_OFFSETS_MAX
            or self.aborted.is_full
        ):
            return self._stage_rolling(batches, headers, policy, now_ms)
        for header in headers:
            if policy.is_old(active, header, now_ms, self.directory):
                return self._stage_rolling(batches, headers, policy, now_ms)
        return [Chunk(active.base_offset, active.file, end, batches, headers, size_bytes)]

    def _stage_rolling(
        self, batches: Sequence[memoryview], headers: Sequence[BatchHeader], policy: RollPolicy, now_ms: int
    ) -> list[Chunk]:
        active, is_full = self.segments[-1], self.aborted.is_full

        def is_over(header: BatchHeader) -> bool:
            return is_full or policy.is_old(active, header, now_ms, self.directory)

        return stage_rolling(active, batches, headers, is_over, policy, now_ms)

    def finished_below(self, offset: int) -> list[Segment]:
        """The first segments with files that end at or below `offset`, without the active one."""
        return [one for one in self.segments[:-1] if one.end_offset <= offset]

    def drop_below(self, offset: int) -> list[Segment]:
        """Move the log start to `offset`; returns the segments wholly below it, which the log has lost."""
        self.start_offset = offset
        removed = self.finished_below(offset)
        del self.segments[: len(removed)], self._bases[: len(removed)]
        self.forget_older_epochs()
        return [*self.cold.drop_below(offset), *removed]

    def forget_older_epochs(self) -> None:
        """Forget leader epochs and aborted indexes below the first segment.

        Batches below the log start that share a segment with it keep their epochs. Those in cold segments are never
        read.
        """
        self.epochs = self.epochs.since(min(self._bases[0], self.start_offset))
        self.aborted.drop_below(self.cold.segments[0].base_offset if self.cold.segments else self._bases[0])

    def know_cold(self, summaries: Mapping[int, Summary], *, are_stored: bool = False) -> bool:
        """Learn the cold segments from summaries by base offset; False if these do not fit."""
        fits = self.cold.know(summaries, self.start_offset, self.epochs.epoch_of, are_stored=are_stored)
        self.aborted.know(one.base_offset for one in self.cold.segments)  # each may have one, as far as is known here
        return fits

    def drop_local_below(self, offset: int) -> list[Segment]:
        """Turn the segments below `offset`, where a segment begins, into cold ones; returns them, so that their files
        can go."""
        removed = self.finished_below(offset)
        self.cold.take([(one, self.summary_of(one)) for one in removed], self.start_offset)
        del self.segments[: len(removed)], self._bases[: len(removed)]
        self.replacements += 1
        return removed

    def truncate(self, plan: TruncationPlan) -> list[Segment]:
        """Truncate the log to `plan`; returns the segments that the log has lost, the truncated one included.

        The durable end and the other known offsets go down to the new end.
        """
        first = self._bases.index(plan.segment.base_offset)
        removed = self._end_with(first, plan.segment, plan.producers)
        self.aborted.truncate(plan.segment.base_offset, plan.aborted)
        end_offset = self.end.offset
        self.epochs.drop_from(end_offset)
        self.unindexed = [one for one in self.unindexed if one[1].offset < end_offset]
        self._flushed = min(self._flushed, self.end)
        self.journaled_offset = min(self.journaled_offset, end_offset)
        self.journal_end_offset = min(self.journal_end_offset, end_offset)
        self.clean_to, self.dropped = min(self.clean_to, end_offset), self.dropped.below(end_offset)
        if self.tiered_to is not None:
            self.tiered_to = min(self.tiered_to, end_offset)
        return removed

    def reset(self, segment: Segment) -> list[Segment]:
        """Discard all records and go on with `segment`, which is empty; returns the segments that were there."""
        removed = [*self.cold.segments, *self._end_with(0, segment, ProducerTable())]
        self.start_offset = self.end.offset
        self.cold = ColdSegments()
        self.aborted = AbortedIndexes()
        self.tiered_to, self.is_tier_confirmed = None, False
        self.epochs, self.dropped = EpochHistory(), CompactionHorizon()
        self.unindexed = []
        self._flushed = self.end
        self.journaled_offset = self.journal_end_offset = self.compacted_to = self.clean_to = 0
        return removed

    def _end_with(self, first: int, segment: Segment, producers: ProducerTable) -> list[Segment]:
        removed = self.segments[first:]
        self.segments[first:] = [segment]
        self._bases[first:] = [segment.base_offset]
        self.end = self._end_position(max(one.max_timestamp_ms for one in self.segments))
        self.producers = producers
        self.damaged_from = None  # the rest was served before
        self.truncations += 1
        self.replacements += 1
        return removed

    def replace(self, removed: Sequence[Segment], fresh: Segment, *, has_aborted: bool = False) -> None:
        """Put `fresh` in the place of consecutive segments; it has the base offset of the first and the end of the
        last."""
        first = self.segments.index(removed[0])
        assert self.segments[first : first + len(removed)] == list(removed)
        assert (fresh.base_offset, fresh.end_offset) == (removed[0].base_offset, removed[-1].end_offset)
        self.segments[first : first + len(removed)] = [fresh]
        self._bases[first : first + len(removed)] = [fresh.base_offset]
        self.aborted.replace([one.base_offset for one in removed], has_any=has_aborted)
        self.replacements += 1

    def perform(self, chunks: Sequence[Chunk]) -> None:
        """Write chunks to their files. DiskFull: nothing was written. After any other OSError the files' content is
        unknown."""
        closing = self.segments[-1].file
        is_untouched = True
        try:
            for chunk in chunks:
                if chunk.file is None:
                    chunk.file = self._begin_next(closing, chunk) if chunk.rolls else self._open(chunk.base_offset)
                closing = chunk.file
                if chunk.batches:
                    chunk.file.write_at(chunk.batches, chunk.position)
                is_untouched = False
        except DiskFull as error:
            if not is_untouched:
                raise OSError(error.errno, error.strerror) from error
            withdraw(self._filesystem, self.directory, chunks[0])
            raise

    def _open(self, base_offset: int) -> File:
        return self._filesystem.open(self.path_of(base_offset))

    def _begin_next(self, closing: File | None, chunk: Chunk) -> File:
        """Begin the next segment after all before it is durable: only the last segment can have a torn tail (L5)."""
        if closing is not None:  # if the file is closed, `close_file` has ensured that all is synced
            closing.fdatasync()
        if self.has_spare or chunk.allocate_bytes:
            (closing or self._open(self.segments[-1].base_offset)).trim()
        return begin_segment(self._filesystem, self.directory, chunk, self._snapshots_from)

    @property
    def _snapshots_from(self) -> int | None:
        """The offset from which all producer snapshots are kept; None without a tier.

        Each of them goes to the tier with the segment before it. None before the first segment file can be needed.
        """
        return None if self.tiered_to is None else self.local_start_offset

    def preallocate(self, size_bytes: int) -> str | None:
        """Preallocate space for an empty active segment; returns the reason if that fails. Blocking: for a worker."""
        self.has_spare = True
        return None if self.active.size_bytes else preallocate(self._open(self.active.base_offset), size_bytes)

    def commit(self, chunks: Sequence[Chunk]) -> None:
        """Make chunks that are in their files part of the log."""
        newest_ms = self.end.max_timestamp_ms
        for chunk in chunks:
            if chunk.rolls:
                assert chunk.file is not None
                self.aborted.finish(self.segments[-1].base_offset, chunk.base_offset)
                self.segments.append(Segment(chunk.base_offset, chunk.file))
                self._bases.append(chunk.base_offset)
                self.note_flushed(self._end_position(newest_ms))  # a segment begins when all before it is durable
                self.segments[-1].started_ms = chunk.started_ms
                self.has_spare = bool(chunk.allocate_bytes)
            active = self.segments[-1]
            assert active.base_offset == chunk.base_offset
            active.file = chunk.file
            if not chunk.headers:
                continue
            active.mark(chunk.headers[0].base_offset, chunk.position)
            epoch = NO_EPOCH
            for number, header in enumerate(chunk.headers):
                if header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    self.epochs.follow(epoch, header.base_offset, active.end_offset)
                follows = header.base_offset == active.end_offset
                assert follows or may_follow(header.base_offset, active.end_offset, self.compacted_to)
                batch_ms = header.max_timestamp_ms
                if batch_ms < header.base_timestamp_ms:
                    batch_ms = newest_of_stored(chunk.batches[number], header)
                entry = active.add(header, batch_ms)
                if entry is not None:
                    self.unindexed.append((chunk.base_offset, entry))
                if batch_ms > newest_ms:
                    newest_ms = batch_ms
        self.end = self._end_position(newest_ms)

    def end_in_order(self) -> None:
        """Write a producer snapshot, unless it would be empty, and free unused preallocated space.

        Blocking: for a worker, after the last append.
        """
        snapshot = Snapshot(self.end.offset, self.producers, self.active.base_offset, self.aborted.active)
        if not snapshot.is_empty:
            write_snapshot(self._filesystem, self.directory, snapshot, self._snapshots_from)
        if self.has_spare:
            self._open(self.active.base_offset).trim()

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds, or would hold, `offset`, which is not below the log start. Raises StorageError as
        `cold.of`."""
        number = bisect_right(self._bases, offset) - 1
        return self.segments[number] if number >= 0 else self.cold.of(offset)

    def has(self, segment: Segment) -> bool:
        """Whether the log still has this segment."""
        return self.cold.has(segment) if segment.is_cold else segment in self.segments

    def drop_all(self) -> None:
        """Drop all segments, since the log was deleted. Reads in flight keep their files open."""
        self.segments.clear()
        self._bases.clear()
        self.cold.drop_all()
        self._flushed = self.end  # a flush that is still to come has nothing to do

    def recovered(self) -> None:
        """Take stock of the segments after recovery has filled, dropped and synced them."""
        self._bases = [segment.base_offset for segment in self.segments]
        self.end = self._flushed = self._end_position(max(segment.max_timestamp_ms for segment in self.segments))

    def end_in(self, segment: Segment, limit: LogPosition) -> int:
        """The position in `segment` where the part below `limit` ends."""
        return limit.position if segment.base_offset == limit.segment_base_offset else segment.size_bytes

    def find_range(
        self, offset: int, max_size_bytes: int, limit: LogPosition, *, at_least_one: bool, is_loaded: bool = False
    ) -> FileRange | None:
        """Find the bytes of one segment from the batch that holds `offset`, below `limit`; None if there are none.

        The range ends at `max_size_bytes`, even within a batch, as in Kafka's LogSegment.read, but never within the
        first batch: Kafka replaces a first batch that does not fit by an empty set (ReplicaManager.readFromLog).
        `is_loaded`: the range also ends where the page cache has no more. Raises NotLoaded.
        """
        if offset >= limit.offset or (not at_least_one and max_size_bytes < HEADER_SIZE_BYTES):
            return None
        segment = self.segment_of(offset)
        file, start = segment.file, segment.start_for_offset(offset)
        if file is None or start is None:
            raise NotLoaded
        end = self.end_in(segment, limit)
        try:
            position, first_size_bytes = find_batch(in_memory(file), start, end, offset, self.compacted_to, GLANCES_MAX)
        except CorruptMessage:
            raise NotLoaded from None  # a worker finds out whether the index or the batch is wrong
        if max_size_bytes < first_size_bytes and not at_least_one:
            return None
        checked_end = min(segment.checked_end(position), end)
        size_bytes = min(max(max_size_bytes, first_size_bytes), checked_end - position)
        if size_bytes < first_size_bytes:
            raise NotLoaded
        is_fresh = segment.checked_from <= position >= segment.size_bytes - FRESH_BYTES
        if not is_fresh and not file.is_cached(position, size_bytes):  # a missing page would block the event loop
            size_bytes = file.cached_size(position, size_bytes) if is_loaded else 0
            if size_bytes < first_size_bytes:
                raise NotLoaded
        return FileRange(file, position, size_bytes)

    def below(self, limit: LogPosition) -> list[Segment]:
        """The segments that begin below `limit`, cold ones included. Raises StorageError."""
        return [one for one in self.all_segments if one.base_offset <= limit.segment_base_offset]

    def summary_of(self, segment: Segment) -> Summary:
        """The summary of `segment` that the index stores."""
        return segment.summary(self.epochs.epoch_of(segment.end_offset - 1))

    # Caches of segments

    def close_file(self, segment: Segment) -> bool:
        """Close the file of `segment`; False while it has unsynced bytes, because a disk error would get lost."""
        if segment is self.segments[-1] and self._flushed.offset < self.end.offset:
            return False
        segment.file = None
        return True
