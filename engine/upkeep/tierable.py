"""A partition as the remote tier sees it: implements `engine.tier.TierableLog`.

Each segment is read again, batch by batch, and compared with its footer, before the tier gets it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import trio
from crc32c import crc32c

from engine.api import NO_TIMESTAMP_MS, TopicIdPartition
from engine.batches.batch import BatchHeader
from engine.errors import CorruptMessage, StorageError, UnreadableMessage
from engine.files.filesystem import File, FileSystem
from engine.log_config import LogConfig
from engine.log_dirs.local_starts import move_local_start, note_tiered, note_untiered
from engine.log_dirs.log_starts import Move, move_log_starts
from engine.logs.producers.snapshot import Snapshot, SnapshotDamaged, encode_snapshot, read_snapshot
from engine.logs.producers.walk import Extent
from engine.logs.recovery.checkpoints import PartitionCheckpoint, key_of
from engine.logs.recovery.truncation_plan import secure_producers
from engine.logs.segments.footer import Footer, FooterDamaged, encode, read_footer
from engine.logs.segments.segment import Segment
from engine.logs.segments.sparse_index import Summary
from engine.logs.transactions.aborted import encode_aborted
from engine.logs.transactions.aborted_files import aborted_of
from engine.partitions.partition import Partition
from engine.tier import INDEX_ROW, CopiedSegment, CopyLag, SegmentFacts
from engine.upkeep.full_scan import SLICE_BYTES, SegmentRemoved, Watcher, check_there, read_whole, run_on
from engine.upkeep.sealed_files import sealed_files


class Tierable:
    """The view of an open partition for the tier. A partition that is reopened gets another one."""

    def __init__(self, opened: Partition) -> None:
        self._opened = opened
        self._log_dir = opened.log_dir

    @property
    def partition(self) -> TopicIdPartition:
        return self._opened.partition

    @property
    def is_open(self) -> bool:
        return self._opened.is_sound and self._log_dir.partitions.get(self.partition) is self._opened

    @property
    def config(self) -> LogConfig:
        return self._opened.config

    @property
    def leader_epoch(self) -> int:
        return self._opened.leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self._opened.log.start_offset

    @property
    def local_start_offset(self) -> int:
        return self._opened.log.local_start_offset

    @property
    def tiered_to(self) -> int | None:
        return self._opened.log.tiered_to

    @property
    def is_tier_confirmed(self) -> bool:
        return self._opened.log.is_tier_confirmed

    @property
    def knows_cold(self) -> bool:
        log = self._opened.log
        return not log.has_cold or bool(log.cold.segments)

    def to_copy(self) -> list[tuple[int, int]]:
        return [(segment.base_offset, segment.end_offset) for segment in self._waiting()]

    def copy_lag(self) -> CopyLag:
        waiting = list(self._waiting())
        if not waiting:
            return CopyLag()
        size_bytes = sum(segment.size_bytes for segment in waiting)
        return CopyLag(len(waiting), size_bytes, waiting[0].base_offset, waiting[-1].end_offset)

    def _waiting(self) -> Iterator[Segment]:
        log = self._opened.log
        if self._opened.is_sound:
            yield from sealed_files(self._opened, max(log.start_offset, log.tiered_to or 0))

    async def copy(self, base_offset: int) -> CopiedSegment:
        segment = self._segment(base_offset)
        watcher = _CopyCollector(base_offset)
        try:
            await self._opened.learn_timestamps(segment)
            footer = await self._footer(segment)
            file = await self._read(segment, footer, watcher)
            aborted = await self._aborted(segment)
            producers = await self._producers_at(segment)
        except SegmentRemoved:
            raise self._removed_error(base_offset) from None
        epochs = self._opened.log.epochs.below(segment.end_offset)
        facts = self._facts(segment, footer, has_aborted=bool(aborted))
        rows = bytes(watcher.rows)
        return CopiedSegment(facts, file, watcher.checksum, encode(footer), rows, aborted, epochs, producers)

    async def _read(self, segment: Segment, footer: Footer, watcher: Watcher) -> File:
        """Read and check a segment. Raises CorruptMessage, StorageError, SegmentRemoved."""
        try:
            file, tally = await read_whole(self._log_dir, self._opened, segment, _yield_to_loop, watcher)
            if not tally.is_of(footer, self.partition, segment.base_offset, segment.size_bytes):
                raise CorruptMessage("its content differs from its footer")
        except CorruptMessage as error:
            self._found_damaged(segment, error)
            raise
        return file

    async def facts_of(self, base_offset: int) -> SegmentFacts:
        segment = self._segment(base_offset)
        try:
            footer = await self._footer(segment)
        except SegmentRemoved:
            raise self._removed_error(base_offset) from None
        return self._facts(segment, footer, has_aborted=base_offset in self._opened.log.aborted.bases)

    def note_tiered(self, offset: int) -> None:
        note_tiered(self._log_dir, self._opened, offset)

    async def drop_local(self, offset: int) -> None:
        await move_local_start(self._log_dir, self._opened, offset)

    async def give_up_cold(self) -> None:
        start = self.local_start_offset
        await move_log_starts(self._log_dir, [Move(self._opened, start)])
        if self.log_start_offset < start:
            raise StorageError(f"{self._opened.log.directory} does not begin at {start} yet")

    def note_untiered(self) -> None:
        note_untiered(self._log_dir, self._opened)

    def know_cold(self, segments: Mapping[int, SegmentFacts]) -> bool:
        return self._opened.log.know_cold({base: _summary(facts) for base, facts in segments.items()})

    # Parts of it

    def _segment(self, base_offset: int) -> Segment:
        """The sealed segment at that base offset. Raises StorageError."""
        found = next((one for one in self._opened.log.segments[:-1] if one.base_offset == base_offset), None)
        if found is None or not found.is_sealed:
            raise self._removed_error(base_offset)
        return found

    def _removed_error(self, base_offset: int) -> StorageError:
        return StorageError(f"{self._opened.log.path_of(base_offset)} is no sealed segment of the log (any more)")

    async def _footer(self, segment: Segment) -> Footer:
        """Read a footer. Raises CorruptMessage, StorageError, SegmentRemoved."""
        directory = self._opened.log.directory
        job = partial(read_footer, self._log_dir.disk.filesystem, directory, segment.base_offset)
        try:
            return await run_on(self._log_dir, self._opened, segment, job)
        except FooterDamaged as damage:
            segment.is_sealed = False  # the segment will be read again, and get another footer
            self._log_dir.want_seal(self._opened)
            raise CorruptMessage(f"its footer: {damage}") from damage

    async def _aborted(self, segment: Segment) -> bytes:
        """The aborted index of a segment, empty without one. Raises CorruptMessage, StorageError, SegmentRemoved."""
        log = self._opened.log
        if segment.base_offset not in log.aborted.bases:
            return b""
        where = self._log_dir.disk.filesystem, log.directory
        job = partial(aborted_of, *where, segment.base_offset, segment.end_offset)
        return encode_aborted(await run_on(self._log_dir, self._opened, segment, job))

    async def _producers_at(self, segment: Segment) -> bytes:
        """The producer snapshot at the end of a segment, empty without producers. Raises as `_aborted`."""
        log, log_dir = self._opened.log, self._log_dir
        check_there(log_dir, self._opened, segment)
        point = log_dir.commit_log.points.get(key_of(self.partition), PartitionCheckpoint())
        needed_from = max(log.start_offset, point.producers_from)
        extents = [Extent.of(one) for one in log.finished_below(segment.end_offset)]
        where = log_dir.disk.filesystem, log.directory
        job = partial(_producers, *where, extents, segment.end_offset, needed_from)
        async with log_dir.commit_log.replacing():  # dropping files makes such a snapshot, too
            return await run_on(log_dir, self._opened, segment, job)

    def _facts(self, segment: Segment, footer: Footer, *, has_aborted: bool) -> SegmentFacts:
        epoch = self._opened.log.epochs.epoch_of(segment.end_offset - 1)
        return SegmentFacts(
            segment.base_offset,
            segment.end_offset,
            segment.size_bytes,
            footer.records,
            max(footer.first_timestamp_ms, segment.first_timestamp_ms),
            max(footer.max_timestamp_ms, segment.max_timestamp_ms),  # its headers may have told less
            epoch,
            footer.digest,
            has_aborted,
            NO_TIMESTAMP_MS if footer.min_timestamp_ms is None else footer.min_timestamp_ms,
        )

    def _found_damaged(self, segment: Segment, error: CorruptMessage) -> None:
        segment.is_damaged = True
        segment.is_condemned |= isinstance(error, UnreadableMessage)
        segment.doubt()
        self._log_dir.stats.damage_found += 1
        path = self._opened.log.path_of(segment.base_offset)
        self._log_dir.on_problem(f"{path} is damaged, and not copied to the tier: {error}")


class _CopyCollector(Watcher):
    """Collects the index rows and the checksum of a segment for the tier, while it is read."""

    def __init__(self, base_offset: int) -> None:
        self.rows = bytearray()
        self.checksum = 0
        self._segment = Segment(base_offset)

    def batch(self, header: BatchHeader) -> None:
        entry = self._segment.add(header, header.max_timestamp_ms)
        if entry is not None:
            self.rows += INDEX_ROW.pack(*entry)

    def slice(self, file: File, position: int, end: int) -> None:
        while position < end:
            data = file.read_at(position, min(SLICE_BYTES, end - position))
            if not data:
                raise CorruptMessage("it has become shorter")
            self.checksum = crc32c(data, self.checksum)
            position += len(data)


async def _yield_to_loop(_read_bytes: int) -> None:
    await trio.lowlevel.checkpoint()


def _producers(
    filesystem: FileSystem, directory: str, segments: Sequence[Extent], end_offset: int, needed_from: int
) -> bytes:
    secure_producers(filesystem, directory, segments, end_offset, needed_from)
    try:
        table = read_snapshot(filesystem, directory, end_offset).producers
    except SnapshotDamaged as damage:
        raise CorruptMessage(f"the producers before offset {end_offset} are not known: {damage}") from damage
    return encode_snapshot(Snapshot(end_offset, table, aborted_from=end_offset)) if table else b""


def _summary(facts: SegmentFacts) -> Summary:
    return Summary(
        facts.size_bytes,
        facts.end_offset,
        facts.first_timestamp_ms,
        facts.max_timestamp_ms,
        facts.leader_epoch,
    )
