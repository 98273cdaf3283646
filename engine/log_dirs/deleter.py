"""Delayed deletion of files that were set aside (Kafka's file.delete.delay.ms)."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import trio

from engine.errors import StorageError
from engine.files.disk import Disk
from engine.logs.segments.set_aside import delete

DELETE_INTERVAL_S = 1


class _PendingDeletion(NamedTuple):
    """A file, and the time of its deletion by trio's clock."""

    at_s: float
    path: str
    size_bytes: int


class Deleter:
    """The files that one log dir is to delete."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[_PendingDeletion] = []

    @property
    def size_bytes(self) -> int:
        """Total size of these files."""
        return sum(one.size_bytes for one in self._due)

    def add(self, files: Iterable[tuple[str, int]], delay_ms: int) -> None:
        """Delete these files, (path, size in bytes), after `delay_ms`."""
        due_s = trio.current_time() + delay_ms / 1000
        self._due += [_PendingDeletion(due_s, path, size_bytes) for path, size_bytes in files]

    async def serve(self) -> None:
        """Delete files that are due, until cancelled, or until the log dir goes offline."""
        while True:
            await trio.sleep(DELETE_INTERVAL_S)
            now_s = trio.current_time()
            due = [one for one in self._due if one.at_s <= now_s]
            if due:
                try:
                    await self._disk.run(partial(delete, self._disk.filesystem, [one.path for one in due]))
                except StorageError:
                    return
                done = set(due)
                self._due = [one for one in self._due if one not in done]
