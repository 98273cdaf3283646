"""A finished segment from end to end: read and checked in slices, a worker's job each, by whoever has time."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from engine.batches.batch import BatchHeader
from engine.errors import CorruptMessage
from engine.files.filesystem import File, FileSystem
from engine.log_dirs.log_dir import LogDir, Resident
from engine.logs.footer import FooterDamaged, Tally
from engine.logs.loading import Part, check
from engine.logs.segment import Segment, may_follow

T = TypeVar("T")

SLICE_BYTES = 256 * 1024


class Gone(Exception):
    """The segment is no part of a log any more."""


class Watcher:
    """Sees what is read, on the worker that reads it."""

    def batch(self, header: BatchHeader) -> None:
        """The next one; it is right."""

    def slice(self, file: File, position: int, end: int) -> None:
        """The batches between these positions were seen."""


async def read_whole(
    log_dir: LogDir,
    resident: Resident,
    segment: Segment,
    pause: Callable[[int], Awaitable[None]],
    watcher: Watcher | None = None,
) -> tuple[File, Tally]:
    """`pause` is told of each slice how many bytes it was. Returns the file that was read, and what was counted.

    Raises CorruptMessage when something is wrong with it, StorageError, and Gone.
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
    """On a worker; raises Gone rather than an error that says no more than that."""
    try:
        found = await log_dir.disk.run(partial(_unless_gone, job))
    except (CorruptMessage, FooterDamaged):
        check_there(log_dir, resident, segment)
        raise
    except Gone:
        check_there(log_dir, resident, segment)
        raise CorruptMessage("a file of it, or beside it, is gone") from None
    check_there(log_dir, resident, segment)
    return found


def _unless_gone(job: Callable[[], T]) -> T:
    """That a file is not there is no failure of the disk: it was set aside meanwhile, or is missing."""
    try:
        return job()
    except FileNotFoundError:
        raise Gone from None


def check_there(log_dir: LogDir, resident: Resident, segment: Segment) -> None:
    """Raises Gone."""
    is_there = log_dir.partitions.get(resident.partition) is resident and not log_dir.is_closing
    if not is_there or segment not in resident.log.segments:
        raise Gone


def _open(filesystem: FileSystem, path: str) -> File:
    try:
        return filesystem.open(path)
    except FileNotFoundError:
        raise CorruptMessage("the file is gone") from None
