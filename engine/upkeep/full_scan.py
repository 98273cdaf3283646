"""A full scan of a finished segment: read and checked in slices, each a job of a worker."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from engine.batches.batch import BatchHeader
from engine.errors import CorruptMessage
from engine.files.filesystem import File, FileSystem
from engine.log_dirs.log_dir import LogDir, Resident
from engine.logs.recovery.loading import Part, check
from engine.logs.segments.footer import FooterDamaged, Tally
from engine.logs.segments.segment import Segment, may_follow

T = TypeVar("T")

SLICE_BYTES = 256 * 1024


class SegmentRemoved(Exception):
    """The segment is no longer part of a log."""


class Watcher:
    """Follows a full scan, on the worker that reads."""

    def batch(self, header: BatchHeader) -> None:
        """Called for each batch, in order; it is sound."""

    def slice(self, file: File, position: int, end: int) -> None:
        """Called behind the batches between these positions."""


async def read_whole(
    log_dir: LogDir,
    resident: Resident,
    segment: Segment,
    pause: Callable[[int], Awaitable[None]],
    watcher: Watcher | None = None,
) -> tuple[File, Tally]:
    """Read and check a whole segment; returns the file that was read, and the tally of its batches.

    `pause` is awaited after each slice, with its size in bytes. Raises CorruptMessage if it is damaged, StorageError,
    SegmentRemoved.
    """
    log, end = resident.log, segment.size_bytes
    opener = partial(_open, log_dir.disk.filesystem, log.path_of(segment.base_offset))
    epochs = log.epochs.below(segment.end_offset)
    part = Part(opener, None, segment.base_offset, end, None, epochs, log.compacted_to)
    tally, position = Tally(), 0
    file = await run_on(log_dir, resident, segment, part.open)
    while position < end:
        job = partial(_read_slice, file, position, part, tally, watcher or Watcher())
        before, position = position, await run_on(log_dir, resident, segment, job)
        await pause(position - before)
    begins_right = may_follow(tally.first_offset, segment.base_offset, log.compacted_to)
    if end and (not begins_right or tally.last_offset != segment.end_offset - 1):
        raise CorruptMessage(f"it ends with offset {tally.last_offset}, not with {segment.end_offset - 1}")
    return file, tally


def _read_slice(file: File, position: int, part: Part, tally: Tally, watcher: Watcher) -> int:
    def note(header: BatchHeader) -> None:
        tally.add(header)
        watcher.batch(header)

    end, _ = check(file, position, part, SLICE_BYTES, note)
    watcher.slice(file, position, end)
    return end


async def run_on(log_dir: LogDir, resident: Resident, segment: Segment, job: Callable[[], T]) -> T:
    """Run a job on a worker. Raises SegmentRemoved, in place of errors that only say that the segment is gone."""
    try:
        found = await log_dir.disk.run(partial(_unless_removed, job))
    except (CorruptMessage, FooterDamaged):
        check_there(log_dir, resident, segment)
        raise
    except SegmentRemoved:
        check_there(log_dir, resident, segment)
        raise CorruptMessage("a file of it, or beside it, is gone") from None
    check_there(log_dir, resident, segment)
    return found


def _unless_removed(job: Callable[[], T]) -> T:
    """Run a job; a missing file raises SegmentRemoved: it was set aside meanwhile, or is missing, and the disk
    has not failed."""
    try:
        return job()
    except FileNotFoundError:
        raise SegmentRemoved from None


def check_there(log_dir: LogDir, resident: Resident, segment: Segment) -> None:
    """Raise SegmentRemoved if the segment is no longer part of an open log."""
    is_there = log_dir.partitions.get(resident.partition) is resident and not log_dir.is_closing
    if not is_there or segment not in resident.log.segments:
        raise SegmentRemoved


def _open(filesystem: FileSystem, path: str) -> File:
    try:
        return filesystem.open(path)
    except FileNotFoundError:
        raise CorruptMessage("the file is gone") from None
