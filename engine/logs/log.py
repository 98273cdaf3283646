"""A partition's log: consecutive segments, where the next batch goes, and where to read.

Appending has three parts, so that blocking work can run elsewhere while the loop stays the log's only owner: `stage`
decides where stamped batches go (loop, no I/O), `perform` does the file operations (loop or worker, touches nothing
but files), `commit` makes them part of the log (loop). A log knows nothing of durability, epochs of leaders or
readers' isolation: its partition passes the position up to which a reader may see.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from engine.api import NO_EPOCH, NO_TIMESTAMP_MS, FileRange
from engine.batches.batch import HEADER_SIZE_BYTES, BatchHeader
from engine.compacted import Dropped, Swaps
from engine.errors import CorruptMessage, NotLoaded
from engine.files.filesystem import DiskFull, File, FileSystem, preallocate
from engine.logs.aborted_indexes import AbortedIndexes
from engine.logs.chunk import Chunk
from engine.logs.cold import ColdSegments
from engine.logs.epochs import EpochHistory
from engine.logs.position import LogPosition, position_of
from engine.logs.producer_snapshot import Snapshot, write_snapshot
from engine.logs.producer_state import ProducerTable
from engine.logs.roll_policy import SEGMENT_OFFSETS_MAX, RollPolicy
from engine.logs.rolling import begin_segment, withdraw
from engine.logs.segment import Segment, find_batch, in_memory, may_follow, segment_name
from engine.logs.shortening import Shorter
from engine.logs.sparse_index import Entry, Summary
from engine.logs.staging import stage_rolling

GLANCES_MAX = 512  # headers the loop looks at to find a batch: some 0.2 ms
FRESH_BYTES = 8 * 1024 * 1024  # what was written last is in memory


class Log:
    """The segments of one partition that have files, at least one, the last of them active; and `cold` ones, that have
    not. Nothing below `start_offset` is served."""

    def __init__(
        self, filesystem: FileSystem, directory: str, segments: Sequence[Segment], start_offset: int = 0
    ) -> None:
        self.directory = directory
        self.segments = list(segments)
        self.cold = ColdSegments()
        self.tiered_to: int | None = None  # below it all is in a remote tier; None: there is none
        self.is_tier_confirmed = False  # the tier has said so to this process
        self.epochs = EpochHistory()
        self.start_offset = start_offset
        self.damaged_from: int | None = None
        self.compacted_to = 0  # below it offsets may have gaps
        self.clean_to = 0  # every record below it is the newest of its key there
        self.dropped, self.swaps = Dropped(), Swaps()
        self.replacements = self.cuts = 0  # of segments, and at its end, so far
        self.journaled_offset = self.journal_end_offset = 0  # the journal has appends up to here, durably; or soon
        self.producers = ProducerTable()
        self.aborted = AbortedIndexes()
        self.unstable: dict[int, LogPosition] = {}  # when it was opened: where transactions begin that are not decided
        self.unconfirmed: list[LogPosition] = []  # when it was opened: the high watermark, and ends of batches above it
        self.unreplicated: list[tuple[int, int]] = []  # when it was opened: transactions that had ended above that
        self.problems: list[str] = []  # found when it was opened, for the operator
        self.unindexed: list[tuple[int, Entry]] = []  # with the base offset of its segment
        self.has_spare = False  # the active segment may have been given more space than it holds
        self._filesystem = filesystem
        self._bases = [segment.base_offset for segment in self.segments]
        self.end = self._flushed = self._end_position(NO_TIMESTAMP_MS)  # behind the last batch that is committed

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def active_file(self) -> File:
        """Open as long as something written to it is not durable."""
        file = self.segments[-1].file
        assert file is not None
        return file

    def path_of(self, base_offset: int) -> str:
        return f"{self.directory}/{segment_name(base_offset)}"

    @property
    def flushed_offset(self) -> int:
        """Below it everything is durable in the segment files themselves, whatever a journal has."""
        return self._flushed.offset

    @property
    def durable_offset(self) -> int:
        """Below it everything is durable, in the segment files or in the journal."""
        return max(self._flushed.offset, self.journaled_offset)

    @property
    def covered_offset(self) -> int:
        """Below it everything is durable, or is before what the journal takes next."""
        return max(self._flushed.offset, self.journal_end_offset)

    @property
    def leans_on_journal(self) -> bool:
        """Whether something is, or may be before long, durable in the journal alone."""
        return self.journal_end_offset > self._flushed.offset

    @property
    def size_bytes(self) -> int:
        """Of the segments that have files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def local_start_offset(self) -> int:
        """From there on all has files."""
        return max(self.start_offset, self.cold.local_start_offset)

    @property
    def has_cold(self) -> bool:
        """Whether there are cold segments, known or not."""
        return self.start_offset < self.cold.local_start_offset

    @property
    def all_segments(self) -> list[Segment]:
        """The cold ones, too. StorageError: they are not known."""
        return [*self.cold.all_from(self.start_offset), *self.segments]

    @property
    def unflushed_bytes(self) -> int:
        """How much of the active segment is not."""
        flushed, end = self._flushed, self.end
        return end.position - (flushed.position if flushed.segment_base_offset == end.segment_base_offset else 0)

    def note_flushed(self, end: LogPosition) -> None:
        """The active segment of `end` was synced after everything below `end` had been written."""
        self._flushed = max(self._flushed, end)

    def _end_position(self, max_timestamp_ms: int) -> LogPosition:
        active = self.segments[-1]
        return position_of((active.end_offset, active.base_offset, active.size_bytes, max_timestamp_ms))

    def stage(
        self, batches: list[memoryview], headers: list[BatchHeader], policy: RollPolicy, now_ms: int
    ) -> list[Chunk]:
        """Where `batches`, which continue the log, will go; rolls to a new segment before one that does not fit."""
        active = self.segments[-1]
        if active.begun_ms == NO_TIMESTAMP_MS:
            active.begun_ms = now_ms
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
        """The first ones that have files, as far as they end at `offset` or before."""
        return [one for one in self.segments[:-1] if one.end_offset <= offset]

    def drop_below(self, offset: int) -> list[Segment]:
        """Begin at `offset`; returns the segments that are wholly below it, which are no part of the log any more."""
        self.start_offset = offset
        gone = self.finished_below(offset)
        del self.segments[: len(gone)], self._bases[: len(gone)]
        self.forget_older_epochs()
        return [*self.cold.drop_below(offset), *gone]

    def forget_older_epochs(self) -> None:
        """Batches below the log start share a segment with it; of cold ones nobody looks at those."""
        self.epochs = self.epochs.since(min(self._bases[0], self.start_offset))
        self.aborted.drop_below(self.cold.segments[0].base_offset if self.cold.segments else self._bases[0])

    def know_cold(self, summaries: Mapping[int, Summary], *, are_stored: bool = False) -> bool:
        """Learn what the cold segments are, by base offset, if that fits; whether it does."""
        fits = self.cold.know(summaries, self.start_offset, self.epochs.epoch_of, are_stored=are_stored)
        self.aborted.know(one.base_offset for one in self.cold.segments)  # for all that is known here
        return fits

    def drop_local_below(self, offset: int) -> list[Segment]:
        """Have no files below `offset`, where a segment begins; returns the segments that had, now cold ones."""
        gone = self.finished_below(offset)
        self.cold.take([(one, self.summary_of(one)) for one in gone], self.start_offset)
        del self.segments[: len(gone)], self._bases[: len(gone)]
        self.replacements += 1
        return gone

    def cut(self, shorter: Shorter) -> list[Segment]:
        """End there; returns the segments that are no part of the log any more, the one that was cut among them.

        What is durable in the files is as much as before, at most.
        """
        first = self._bases.index(shorter.segment.base_offset)
        gone = self._end_with(first, shorter.segment, shorter.producers)
        self.aborted.cut(shorter.segment.base_offset, shorter.aborted)
        end_offset = self.end.offset
        self.epochs.drop_from(end_offset)
        self.unindexed = [one for one in self.unindexed if one[1].offset < end_offset]
        self._flushed = min(self._flushed, self.end)
        self.journaled_offset = min(self.journaled_offset, end_offset)
        self.journal_end_offset = min(self.journal_end_offset, end_offset)
        self.clean_to, self.dropped = min(self.clean_to, end_offset), self.dropped.below(end_offset)
        if self.tiered_to is not None:
            self.tiered_to = min(self.tiered_to, end_offset)
        return gone

    def reset(self, segment: Segment) -> list[Segment]:
        """Forget everything, and go on with that segment, which is empty; returns those that were there."""
        gone = [*self.cold.segments, *self._end_with(0, segment, ProducerTable())]
        self.start_offset = self.end.offset
        self.cold = ColdSegments()
        self.aborted = AbortedIndexes()
        self.tiered_to, self.is_tier_confirmed = None, False
        self.epochs, self.dropped = EpochHistory(), Dropped()
        self.unindexed = []
        self._flushed = self.end
        self.journaled_offset = self.journal_end_offset = self.compacted_to = self.clean_to = 0
        return gone

    def _end_with(self, first: int, segment: Segment, producers: ProducerTable) -> list[Segment]:
        gone = self.segments[first:]
        self.segments[first:] = [segment]
        self._bases[first:] = [segment.base_offset]
        self.end = self._end_position(max(one.max_timestamp_ms for one in self.segments))
        self.producers = producers
        self.damaged_from = None  # what is left was served
        self.cuts += 1
        self.replacements += 1
        return gone

    def replace(self, gone: Sequence[Segment], fresh: Segment, *, has_aborted: bool = False) -> None:
        """`fresh` takes the place of these consecutive segments, from the base of the first to the end of the last."""
        first = self.segments.index(gone[0])
        assert self.segments[first : first + len(gone)] == list(gone)
        assert (fresh.base_offset, fresh.end_offset) == (gone[0].base_offset, gone[-1].end_offset)
        self.segments[first : first + len(gone)] = [fresh]
        self._bases[first : first + len(gone)] = [fresh.base_offset]
        self.aborted.replace([one.base_offset for one in gone], has_any=has_aborted)
        self.replacements += 1

    def perform(self, chunks: Sequence[Chunk]) -> None:
        """Write them. DiskFull: nothing was written, the log is as before. Any other OSError: nobody can tell."""
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
        """A segment begins only when all before it is durable: a torn tail can then be in the last one only (L5)."""
        if closing is not None:  # if it is not open, `close_file` saw to it that there is nothing to sync
            closing.fdatasync()
        if self.has_spare or chunk.allocate_bytes:
            (closing or self._open(self.segments[-1].base_offset)).trim()
        return begin_segment(self._filesystem, self.directory, chunk, self._snapshots_from)

    @property
    def _snapshots_from(self) -> int | None:
        """Each goes to the tier with the segment before it; nobody can read what is before the first with a file."""
        return None if self.tiered_to is None else self.local_start_offset

    def preallocate(self, size_bytes: int) -> str | None:
        """Take the space for an active segment that is empty; returns why not. For a worker."""
        self.has_spare = True
        return None if self.active.size_bytes else preallocate(self._open(self.active.base_offset), size_bytes)

    def commit(self, chunks: Sequence[Chunk]) -> None:
        """The chunks are in their files: they belong to the log now."""
        newest_ms = self.end.max_timestamp_ms
        for chunk in chunks:
            if chunk.rolls:
                assert chunk.file is not None
                self.aborted.finish(self.segments[-1].base_offset, chunk.base_offset)
                self.segments.append(Segment(chunk.base_offset, chunk.file))
                self._bases.append(chunk.base_offset)
                self.note_flushed(self._end_position(newest_ms))  # a segment begins when all before it is durable
                self.segments[-1].begun_ms = chunk.begun_ms
                self.has_spare = bool(chunk.allocate_bytes)
            active = self.segments[-1]
            assert active.base_offset == chunk.base_offset
            active.file = chunk.file
            if not chunk.headers:
                continue
            active.mark(chunk.headers[0].base_offset, chunk.position)
            epoch = NO_EPOCH
            for header in chunk.headers:
                if header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    self.epochs.follow(epoch, header.base_offset, active.end_offset)
                follows = header.base_offset == active.end_offset
                assert follows or may_follow(header.base_offset, active.end_offset, self.compacted_to)
                entry = active.add(header)
                if entry is not None:
                    self.unindexed.append((chunk.base_offset, entry))
                if header.max_timestamp_ms > newest_ms:
                    newest_ms = header.max_timestamp_ms
        self.end = self._end_position(newest_ms)

    def leave(self) -> None:
        """Write down the producers of now, unless there are none, and give back what space is left. For a worker;
        nothing is appended any more."""
        snapshot = Snapshot(self.end.offset, self.producers, self.active.base_offset, self.aborted.active)
        if not snapshot.is_empty:
            write_snapshot(self._filesystem, self.directory, snapshot, self._snapshots_from)
        if self.has_spare:
            self._open(self.active.base_offset).trim()

    def segment_of(self, offset: int) -> Segment:
        """The one that holds, or would hold, `offset`, which is not below the log start. StorageError: see `cold`."""
        number = bisect_right(self._bases, offset) - 1
        return self.segments[number] if number >= 0 else self.cold.of(offset)

    def has(self, segment: Segment) -> bool:
        """Whether it is a part of the log, still."""
        return self.cold.has(segment) if segment.is_cold else segment in self.segments

    def let_go(self) -> None:
        """The log was deleted: its descriptors go with the reads in flight, whoever still knows it."""
        self.segments.clear()
        self._bases.clear()
        self.cold.let_go()
        self._flushed = self.end  # whoever was to flush it has nothing to do

    def recovered(self) -> None:
        """The segments were filled, or dropped, and synced by recovery: take stock of them."""
        self._bases = [segment.base_offset for segment in self.segments]
        self.end = self._flushed = self._end_position(max(segment.max_timestamp_ms for segment in self.segments))

    def end_in(self, segment: Segment, limit: LogPosition) -> int:
        """Where the part of `segment` below `limit` ends."""
        return limit.position if segment.base_offset == limit.segment_base_offset else segment.size_bytes

    def read(self, offset: int, max_size_bytes: int, limit: LogPosition, *, at_least_one: bool) -> FileRange | None:
        """Bytes of one segment from the batch that holds `offset`, below `limit`; None when there are none to give.

        Cut by bytes, as Kafka's LogSegment.read does; but never within the first batch: Kafka replaces a first batch
        that does not fit by an empty set (ReplicaManager.readFromLog). Raises NotLoaded.
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
            raise NotLoaded from None  # a worker finds out who is wrong
        if max_size_bytes < first_size_bytes and not at_least_one:
            return None
        checked_end = min(segment.checked_end(position), end)
        size_bytes = min(max(max_size_bytes, first_size_bytes), checked_end - position)
        if size_bytes < first_size_bytes:
            raise NotLoaded
        is_fresh = segment.checked_from <= position >= segment.size_bytes - FRESH_BYTES
        if not is_fresh and not file.is_cached(position, size_bytes):
            raise NotLoaded  # sent now, it would keep the loop waiting wherever a page is missing
        return FileRange(file, position, size_bytes)

    def may_hold(self, timestamp_ms: int, limit: LogPosition) -> list[Segment]:
        """The segments below `limit` in which a record with a timestamp >= `timestamp_ms` can be. StorageError."""
        return [
            segment
            for segment in self.all_segments
            if segment.max_timestamp_ms >= timestamp_ms and segment.base_offset <= limit.segment_base_offset
        ]

    def summary_of(self, segment: Segment) -> Summary:
        """For the stored index."""
        return segment.summary(self.epochs.epoch_of(segment.end_offset - 1))

    # What can be had again

    def close_file(self, segment: Segment) -> bool:
        """Unless something is not durable in it yet: an error of the disk must not get lost."""
        if segment is self.segments[-1] and self._flushed.offset < self.end.offset:
            return False
        segment.file = None
        return True
