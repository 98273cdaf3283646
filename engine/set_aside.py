"""Files that nobody opens any more: set aside under another name, and deleted later.

Readers in flight keep them open whatever becomes of the name. The delay is Kafka's file.delete.delay.ms; what a crash
leaves is deleted when its log is next opened (engine.recovery).
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import trio

from engine.errors import StorageError
from engine.filesystem import FileSystem
from engine.footer import footer_name
from engine.segment import DELETED_SUFFIX, segment_name

DELETE_INTERVAL_S = 1


class _Due(NamedTuple):
    """A file, and when its time has come by trio's clock."""

    at_s: float
    path: str
    size_bytes: int


class SetAside:
    """What one log dir is to delete. `run` runs file work and raises StorageError when the log dir is lost."""

    def __init__(self, filesystem: FileSystem, run: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        self._filesystem = filesystem
        self._run = run
        self._due: list[_Due] = []

    @property
    def size_bytes(self) -> int:
        """The room there will be when all is deleted."""
        return sum(one.size_bytes for one in self._due)

    def add(self, files: Iterable[tuple[str, int]], delay_ms: int) -> None:
        """Delete these (path, size) after the delay."""
        due_s = trio.current_time() + delay_ms / 1000
        self._due += [_Due(due_s, path, size_bytes) for path, size_bytes in files]

    async def serve(self) -> None:
        """Delete what is due, until cancelled or the log dir is lost."""
        while True:
            await trio.sleep(DELETE_INTERVAL_S)
            now_s = trio.current_time()
            due = [one for one in self._due if one.at_s <= now_s]
            if due:
                try:
                    await self._run(partial(_delete, self._filesystem, [one.path for one in due]))
                except StorageError:
                    return
                done = set(due)
                self._due = [one for one in self._due if one not in done]


def set_aside(filesystem: FileSystem, directory: str, base_offsets: Sequence[int]) -> list[str]:
    """Rename segments, the oldest first, so that nobody opens them any more; returns what they are called now.

    Their footers go behind them. Their partition may be deleted meanwhile: then they are gone already.
    """
    paths = []
    with suppress(FileNotFoundError):
        for base_offset in base_offsets:
            path = f"{directory}/{segment_name(base_offset)}"
            filesystem.rename(path, path + DELETED_SUFFIX)
            paths.append(path + DELETED_SUFFIX)
            with suppress(FileNotFoundError):
                filesystem.unlink(f"{directory}/{footer_name(base_offset)}")
        filesystem.sync_dir(directory)
    return paths


def _delete(filesystem: FileSystem, paths: Sequence[str]) -> None:
    """For good, as far as their partition was not deleted meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            filesystem.unlink(path)
