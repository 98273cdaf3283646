"""Syncs written commit batches: in the journal, or in the segment files.

`Syncer.sync` is the only place that makes an append with `flush.policy=sync` durable.
"""

from collections.abc import Callable, Mapping, Sequence

import trio

from engine.commit.appends import PartitionShare
from engine.commit.journal import Journal, JournalWrite
from engine.commit.journal_format import JournalEntry
from engine.commit.journaling import journal_entries, journalable, worth_the_journal
from engine.commit.writer import Writer
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.logs.log import Log
from engine.stats import CommitStatistics


class Syncer:
    """Syncs of one disk. It writes one journal frame, and syncs a file once, at a time."""

    def __init__(
        self,
        disk: Disk,
        writer: Writer,
        statistics: CommitStatistics,
        has_too_many_files_open: Callable[[], bool],
    ) -> None:
        self._disk = disk
        self._writer = writer
        self._statistics = statistics
        self._has_too_many_files_open = has_too_many_files_open
        self.journal: Journal | None = None

    async def sync(self, parts: Sequence[PartitionShare]) -> None:
        """Make the parts durable with one request to the disk. Finished segments are durable already (`Log.perform`).

        Raises StorageError, after which the disk is offline.
        """
        started_s = trio.current_time()
        unsynced = [part for part in parts if part.end.offset > part.log.flushed_offset]
        journaled, write = self._reserve(unsynced)
        synced = [part for part in unsynced if part.log not in journaled] if len(journaled) < len(unsynced) else []
        files = list({part.log.active_file: None for part in synced})
        if write is not None:
            await self._write_frame(write)
            files.append(write.file)
        if files:
            await self._disk.sync_commit_batch(files)
        for part in synced:
            part.log.note_flushed(part.end)
        for log, end_offset in journaled.items():
            log.journaled_offset = end_offset
        self._statistics.syncs.note(trio.current_time() - started_s)

    def _reserve(self, parts: Sequence[PartitionShare]) -> tuple[Mapping[Log, int], JournalWrite | None]:
        """Reserve a place in the journal for the logs that suit it; the files of the other logs have to be synced.

        Returns the log end of each journaled log, and the write. A log is journaled with all its bytes or not at all.
        """
        if self.journal is None or self._has_too_many_files_open():
            return {}, None  # a file can be closed only when its bytes are durable in it
        suited = worth_the_journal(journalable(parts))
        if not suited:
            return {}, None
        entries: list[JournalEntry] = []
        for of_log in suited:
            for part in of_log:
                entries += journal_entries(part)
        write = self.journal.reserve(entries)
        if write is None:
            return {}, None
        ends = {of_log[-1].log: of_log[-1].end.offset for of_log in suited}
        for log, end_offset in ends.items():
            log.journal_end_offset = end_offset
        return ends, write

    async def write_frame(self, write: JournalWrite) -> None:
        """Write and sync a frame of barriers, between commit batches. Raises as `sync` does."""
        self._disk.check_online()
        await self._write_frame(write)
        await self._disk.sync_commit_batch([write.file])

    async def _write_frame(self, write: JournalWrite) -> None:
        try:
            await self._writer.perform(write.write, write.size_bytes)
        except OSError as error:  # the slot has its space already, so only a failed disk raises this
            self._disk.fail(error)
            raise StorageError(f"the log dir is offline: {error}") from error
