"""Flusher: syncs segment files in the background, after the acknowledgements.

Topics with `flush.policy=async` are flushed after `flush.ms`, as by Kafka's log flusher, and when FLUSH_BEHIND_BYTES
are not synced. So the roll to a new segment, which waits for a sync, never waits long. Each log dir has one flusher on
the loop, and goes offline if a sync fails. It syncs a few files at a time: a commit batch that has to sync one of them
waits for no more than these, and a disk that hangs keeps no more syncs in the kernel.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from engine.errors import StorageError
from engine.files.filesystem import File
from engine.logs.log import Log

SLICE_FILES = 8  # synced together
FLUSH_BEHIND_BYTES = 8 * 1024 * 1024  # a sync of more takes the core from the loop: 32 MiB sometimes for 15 ms


class Flusher:
    """Logs with the times by which they have to be flushed. `sync` raises StorageError if the log dir is offline."""

    def __init__(self, sync: Callable[[Sequence[File]], Awaitable[None]]) -> None:
        self._sync = sync
        self._due_s: dict[Log, float] = {}
        self._next_s = float("inf")
        self._sooner = trio.Event()

    def flush_by(self, log: Log, due_s: float) -> None:
        """Flush `log` by `due_s` of trio's clock, or by an earlier time that was requested before."""
        if due_s < self._due_s.get(log, float("inf")):
            self._due_s[log] = due_s
            if due_s < self._next_s:
                self._sooner.set()

    async def serve(self) -> None:
        """Flush the logs that are due, until cancelled or the log dir is offline."""
        while True:
            self._next_s = min(self._due_s.values(), default=float("inf"))
            with trio.move_on_at(self._next_s):
                await self._sooner.wait()
            self._sooner = trio.Event()
            now_s = trio.current_time()
            due = [log for log, due_s in self._due_s.items() if due_s <= now_s]
            for log in due:
                del self._due_s[log]
            if due:
                try:
                    await self.flush(due)
                except StorageError:
                    return

    async def flush(self, logs: Sequence[Log]) -> None:
        """Sync the bytes that are written to `logs` now, a slice of files at a time. Raises StorageError."""
        for start in range(0, len(logs), SLICE_FILES):
            await self._flush_slice(logs[start : start + SLICE_FILES])

    async def _flush_slice(self, logs: Sequence[Log]) -> None:
        """Sync the bytes of each log that are written when the slice begins."""
        ends = [(log, log.end, log.truncations) for log in logs if log.end.offset > log.flushed_offset]
        if not ends:
            return
        await self._sync([log.active_file for log, _, _ in ends])
        for log, end, truncations in ends:
            if log.truncations == truncations:  # otherwise it was truncated meanwhile, perhaps below `end`
                log.note_flushed(end)
