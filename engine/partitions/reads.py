"""Reads of a partition: the limit of each isolation level, and the aborted transactions of read_committed."""

from typing import cast

from engine.api import (
    NO_TIMESTAMP_MS,
    AbortedTransaction,
    EpochEnd,
    FileRange,
    FoundRecords,
    Isolation,
    OffsetAtTimestamp,
    OffsetSpec,
    ReadResult,
    RecordFilter,
)
from engine.compaction_horizon import Compacted, CompactionHorizon
from engine.errors import ColdNotLoaded, CorruptMessage, NotLoaded, OffsetOutOfRange, StorageError
from engine.log_dirs.log_dir import LogDir
from engine.logs.log import Log
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import Segment
from engine.reading.reader import NOT_FOUND, LogReader
from engine.reading.search import find_records
from engine.replication.epoch_checks import diverging_end
from engine.replication.progress import Progress
from engine.tier import ColdFile


class Reads:
    """Reads of one open partition. Errors are those of `engine.api.PartitionLog`."""

    __slots__ = ("_log", "_log_dir", "_progress", "_reader")

    def __init__(self, log: Log, log_dir: LogDir, progress: Progress, reader: LogReader) -> None:
        self._log = log
        self._log_dir = log_dir
        self._progress = progress
        self._reader = reader

    @property
    def last_stable_offset(self) -> int:
        """The LSO, at least the log start: an open transaction may begin before it
        (UnifiedLog.maybeIncrementFirstUnstableOffset)."""
        return max(self._progress.last_stable.offset, self._log.start_offset)

    def _limit(self, isolation: Isolation) -> LogPosition:
        progress = self._progress
        return progress.last_stable if isolation is Isolation.READ_COMMITTED else progress.high_watermark

    def read_records(
        self,
        offset: int,
        max_size_bytes: int,
        isolation: Isolation,
        *,
        at_least_one: bool,
        is_loaded: bool = False,
        limit: LogPosition | None = None,
    ) -> ReadResult:
        """Read as `PartitionLog.read` does. `limit`: the end of the readable log, instead of that of the isolation."""
        self._check_readable(offset)
        log = self._log
        if limit is None:
            limit = self._limit(isolation)
        aborted = None
        try:
            found = log.find_range(offset, max_size_bytes, limit, at_least_one=at_least_one, is_loaded=is_loaded)
            if isolation is Isolation.READ_COMMITTED:
                aborted = [] if found is None or not log.aborted else self._aborted_in(offset, found, limit)
            records = [] if found is None else self._ranges(offset, found) if log.cold.segments else [found]
        except OSError as error:
            if offset >= log.local_start_offset:  # segments below it are not on the disk
                self._log_dir.disk.fail(error)
            raise StorageError(f"offset {offset} cannot be read: {error}") from error
        except NotLoaded:
            if offset < log.local_start_offset:
                raise ColdNotLoaded from None
            raise
        return ReadResult(
            records=records,
            size_bytes=0 if found is None else found.size_bytes,
            high_watermark=self._progress.high_watermark.offset,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted=aborted,
            begins_segment=found is not None and not found.position,
        )

    def with_compacted(self, offset: int, found: ReadResult) -> ReadResult:
        """Add the traces of compaction to records read from `offset` on: the leader epochs that began there, perhaps
        some more, and the offsets below which tombstones and markers may be missing."""
        if not found.size_bytes:
            return found
        segment, end = self._log.segment_of(offset), found.records[0].position + found.size_bytes
        below_offset = segment.end_offset if segment.is_cold else _offset_behind(segment, end)
        log, epoch_starts = self._log, self._log.epochs.since(offset).below(below_offset)
        dropped = log.dropped.merged_with(CompactionHorizon(replaced_to=log.compacted_to))
        compacted = Compacted(epoch_starts, dropped, log.swaps.count, log.swaps.gone_by)
        return found._replace(compacted=compacted)

    def _ranges(self, offset: int, found: FileRange) -> list[FileRange]:
        """The file ranges for the socket; the parts of a cold segment are in several files of the cache."""
        if offset >= self._log.local_start_offset:
            return [found]
        return cast("ColdFile", found.file).parts(found.position, found.size_bytes)

    def _aborted_in(self, offset: int, found: FileRange, limit: LogPosition) -> list[AbortedTransaction]:
        """The aborted transactions that touch the records found from `offset` on, and perhaps more, up to the next
        entry of the segment's index (LogSegment.fetchUpperBoundOffset). Raises NotLoaded."""
        segment = self._log.segment_of(offset)
        to_offset = min(limit.offset, _offset_behind(segment, found.position + found.size_bytes))
        return self._log.aborted.overlapping(segment.base_offset, offset, to_offset)

    def _check_readable(self, offset: int) -> None:
        """Raise CorruptMessage or OffsetOutOfRange unless the offset may be read.

        Offsets between the high watermark and the log end are no error: an earlier leader may have shown them (RULES
        K17).
        """
        start_offset, damaged_from = self._log.start_offset, self._log.damaged_from
        end_offset = self._progress.written.offset
        if damaged_from is not None and offset >= damaged_from:
            raise CorruptMessage(f"the log is damaged from offset {damaged_from} on")
        if not start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within [{start_offset}, {end_offset}]")

    async def load(
        self, offset: int, max_size_bytes: int, isolation: Isolation, limit: LogPosition | None = None
    ) -> object:
        """Load as `PartitionLog.load` does. `limit`: see `read`."""
        self._check_readable(offset)
        if limit is None:
            limit = self._limit(isolation)
        if offset >= limit.offset:
            return None
        held = await self._reader.load(offset, max_size_bytes, limit)
        if isolation is Isolation.READ_COMMITTED and self._log.aborted and offset >= self._log.start_offset:
            segment = self._log.segment_of(offset)
            await self._reader.aborted_between(segment, offset, min(segment.end_offset, limit.offset))
        return held

    def offset_of(self, spec: int, isolation: Isolation, *, has_tier: bool) -> OffsetAtTimestamp:
        """The offset of an OffsetSpec except MAX_TIMESTAMP.

        NOT_FOUND for LATEST_TIERED and EARLIEST_PENDING_UPLOAD without a tier, or if the tier has nothing, or nothing
        waits for the upload (UnifiedLog.fetchEarliestPendingUploadOffset).
        """
        log, limit = self._log, self._limit(isolation).offset
        if spec == OffsetSpec.LATEST:
            return OffsetAtTimestamp(max(limit, log.start_offset), NO_TIMESTAMP_MS, log.epochs.latest)
        tiered_to = max(log.tiered_to or 0, log.start_offset)
        if spec == OffsetSpec.EARLIEST:
            offset = log.start_offset
        elif spec == OffsetSpec.EARLIEST_LOCAL:
            offset = log.local_start_offset
        elif spec == OffsetSpec.LATEST_TIERED and tiered_to > log.start_offset:
            offset = tiered_to - 1
        elif spec == OffsetSpec.EARLIEST_PENDING_UPLOAD and has_tier and tiered_to < limit:
            offset = tiered_to
        else:
            return NOT_FOUND
        return OffsetAtTimestamp(offset, NO_TIMESTAMP_MS, log.epochs.epoch_of(offset))

    async def offset_for_timestamp(
        self, timestamp_ms: int, isolation: Isolation, *, has_tier: bool
    ) -> OffsetAtTimestamp:
        """Find an offset by timestamp. As in Kafka, MAX_TIMESTAMP searches all records up to the high watermark, and is
        NOT_FOUND if the record is not below the limit of the isolation."""
        limit = self._limit(isolation)
        if timestamp_ms >= 0:
            return await self._reader.offset_for_timestamp(timestamp_ms, limit)
        if timestamp_ms != OffsetSpec.MAX_TIMESTAMP:
            return self.offset_of(timestamp_ms, isolation, has_tier=has_tier)
        found = await self._reader.offset_of_greatest_timestamp(self._progress.high_watermark)
        return found if found.offset < limit.offset else NOT_FOUND

    def check_divergence(self, end: EpochEnd, offset: int, last_epoch: int, isolation: Isolation) -> ReadResult | None:
        """Check a reader for log divergence, see `PartitionLog.check_divergence`. `end`: the known end of that
        epoch."""
        diverging = diverging_end(self._log.start_offset, end, offset, last_epoch)
        if diverging is None:
            return None
        found = self.read_records(self._log.start_offset, 0, isolation, at_least_one=False)
        return found._replace(diverging=diverging)

    async def find_records(self, wanted: RecordFilter, offset: int, count_max: int) -> FoundRecords:
        limit = self._limit(Isolation.READ_COMMITTED)
        return await find_records(self._log_dir.index, self._reader, wanted, offset, count_max, limit)


def _offset_behind(segment: Segment, position: int) -> int:
    """The first offset that the index shows behind that position; otherwise the end of the segment."""
    behind = None if segment.index is None else segment.index.offset_behind(position)
    return segment.end_offset if behind is None else behind
