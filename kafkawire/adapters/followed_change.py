"""The newest change of the metadata that this broker has followed, remembered in its log dirs over a restart.

A start compares it with the metadata store. So it notices a store that was rolled back while brokers were stopped, or
before they were restarted. The format is in docs/formats/log-dir.md.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import structlog
import trio

from coordinator.metadata.history import HistoryPosition
from engine.errors import StorageError
from engine.files.checked_text import body_of, with_crc
from engine.files.filesystem import read_small

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from engine.files.filesystem import FileSystem
    from engine.store import SegmentStore

NAME: Final = "followed-change"
VERSION_LINE: Final = "version=1"
INTERVAL_S: Final = 10.0  # between two writes of the file
CLOSE_MAX_S: Final = 0.5

_log = structlog.get_logger(__name__)


class MetadataFollower(Protocol):
    """The control plane, which knows the newest change that this broker has followed."""

    @property
    def followed(self) -> HistoryPosition:
        """The newest followed change."""
        ...

    async def wait_for_image_after(self, version: int) -> object:
        """Return when there is an image with a greater change number."""
        ...


class FollowedChange:
    """Writes the file of each log dir when there is a newer change: at the start, then at most every ten seconds, and
    at an orderly stop. A log dir that does not answer does not delay the others."""

    def __init__(self, cluster: MetadataFollower, store: SegmentStore) -> None:
        self._cluster = cluster
        self._store = store
        self._closing = trio.Event()
        self._closed = trio.Event()

    async def run(self) -> None:
        """Write the files until `close`."""
        async with trio.open_nursery() as nursery:
            for one in self._store.statistics():
                nursery.start_soon(self._keep, one.path)
        self._closed.set()

    async def close(self) -> None:
        """Wait for the last write, at most `CLOSE_MAX_S`."""
        self._closing.set()
        with trio.move_on_after(CLOSE_MAX_S):
            await self._closed.wait()

    async def _keep(self, path: str) -> None:
        """Write the file of one log dir until `close`. A log dir that fails is offline until the next start."""
        with suppress(StorageError):
            last_written = await self._write(path, None)
            while not self._closing.is_set():
                with trio.move_on_after(INTERVAL_S):
                    await self._closing.wait()
                await self._until_newer(last_written.change)
                last_written = await self._write(path, last_written)

    async def _until_newer(self, change: int) -> None:
        async with trio.open_nursery() as nursery:
            for wait in (self._closing.wait, partial(self._cluster.wait_for_image_after, change)):
                nursery.start_soon(_end_after, wait, nursery.cancel_scope)

    async def _write(self, path: str, last_written: HistoryPosition | None) -> HistoryPosition:
        followed = self._cluster.followed
        if followed != last_written:
            await self._store.write_beside(path, NAME, encode(followed))
        return followed


async def _end_after(wait: Callable[[], Awaitable[object]], scope: trio.CancelScope) -> None:
    await wait()
    scope.cancel()


def last_followed(filesystem: FileSystem, log_dirs: Iterable[str]) -> HistoryPosition | None:
    """The newest change that any log dir remembers. A file that is missing, unreadable or damaged is ignored."""
    found = [one for path in log_dirs if (one := _read(filesystem, path)) is not None]
    return max(found, key=lambda one: (one.generation, one.change), default=None)


def _read(filesystem: FileSystem, path: str) -> HistoryPosition | None:
    try:
        content = read_small(filesystem, f"{path}/{NAME}")
        return None if content is None else decode(content)
    except (OSError, ValueError) as error:
        _log.warning("followed change not readable", path=f"{path}/{NAME}", reason=str(error))
        return None


def encode(followed: HistoryPosition) -> bytes:
    """The content of the file."""
    body = (
        f"{VERSION_LINE}\ngeneration={followed.generation}\nhistory={followed.history_id}\n"
        f"change={followed.change}\ndigest={followed.digest}\n"
    ).encode()
    return with_crc(body)


def decode(content: bytes) -> HistoryPosition:
    """Parse the content of the file. Raises ValueError if it is damaged, or of another version."""
    body = body_of(content)
    if body is None:
        raise ValueError("it is damaged")
    first, *lines = body.decode().splitlines()
    if first != VERSION_LINE:
        raise ValueError(f"it begins with {first!r}: written by another version")
    values = dict(line.partition("=")[::2] for line in lines)
    try:
        return HistoryPosition(int(values["generation"]), values["history"], int(values["change"]), values["digest"])
    except KeyError as error:
        raise ValueError(f"it has no {error}") from error
