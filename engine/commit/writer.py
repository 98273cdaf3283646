"""Writes commit batches to the page cache: on the loop if that is quicker than a trip to a worker (decisions/0003)."""

from collections.abc import Callable, Sequence
from functools import partial

import trio

from engine.commit.appends import PartitionShare
from engine.files.disk import Disk
from engine.files.filesystem import DiskFull, File

INLINE_MAX_BYTES = 1024 * 1024  # the loop copies at most so many to the page cache: some 0.2 ms
SLOW_WRITE_S = 0.02  # the page cache is throttled: dirty pages have to reach the disk first
SLOW_FOR_S = 1.0


class Writer:
    """Writes of one disk. Every method raises OSError if the log dir is lost; a full disk only rejects parts."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._slow_until_s = 0.0

    def write_if_quick(self, parts: Sequence[PartitionShare], size_bytes: int, now_s: float) -> bool:
        """Write the parts on the loop and return True, or return False if a file has to be opened or created first, or
        if the disk is slow."""
        if self._is_slow(size_bytes, now_s):
            return False
        for part in parts:
            if part.rolls or part.chunks[0].file is None:
                return False
        write_commit_batch(parts)
        self._note(trio.current_time() - now_s)
        return True

    async def write(self, parts: Sequence[PartitionShare], size_bytes: int) -> None:
        """Write any parts. Raises StorageError, too, if an earlier sync of a file that it has to sync failed."""
        write = partial(write_commit_batch, parts)
        if all(chunk.file is not None for part in parts for chunk in part.chunks):
            await self.perform(write, size_bytes)
            return
        async with self._disk.syncing(files_synced_by_writing(parts)):
            await self.perform(write, size_bytes, may_wait=True)

    async def perform(self, write: Callable[[], None], size_bytes: int, *, may_wait: bool = False) -> None:
        """Run a write, on the loop or on a worker. `may_wait`: it may wait for the disk, so it runs on a worker."""
        started_s = trio.current_time()
        if may_wait or self._is_slow(size_bytes, started_s):
            await self._disk.run_commit_batch(write)
        else:
            write()
        self._note(trio.current_time() - started_s)

    def _is_slow(self, size_bytes: int, now_s: float) -> bool:
        return size_bytes > INLINE_MAX_BYTES or now_s < self._slow_until_s

    def _note(self, duration_s: float) -> None:
        """Note the duration of a write: after a slow one, workers do the writes for SLOW_FOR_S."""
        if duration_s > SLOW_WRITE_S:
            self._slow_until_s = trio.current_time() + SLOW_FOR_S


def write_commit_batch(parts: Sequence[PartitionShare]) -> None:
    """Write a commit batch to the page cache. A full disk only rejects the part; another OSError loses the log dir."""
    for part in parts:
        try:
            part.log.perform(part.chunks)
        except DiskFull:
            part.rejected = True


def files_synced_by_writing(parts: Sequence[PartitionShare]) -> list[File]:
    """The files of segments that end in these parts; the write syncs them, since they may have unsynced bytes."""
    return [file for part in parts if part.rolls and (file := part.log.active.file) is not None]
