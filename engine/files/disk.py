"""A disk with a log dir on it: work on its files, and the moment it fails.

One failed write or fsync takes it offline for good (RULES L4): nothing is retried, because after a failed fsync the
page cache may call clean what never reached the disk. A read that fails is damage at that place and no more.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import trio

from engine.claims import Claims
from engine.errors import StorageError, UnreadableMessage
from engine.files.filesystem import DiskFull, File, FileSystem, Unreadable
from engine.files.io_workers import Lanes, WorkerPool

T = TypeVar("T")

LANES = 5  # of the pool, besides those to read


@dataclass(frozen=True, slots=True)
class DiskLanes:
    """The lanes of the pool that serve one disk, and no other: a disk that hangs keeps nobody else waiting."""

    rounds: int
    index: int
    examiner: int
    scans: int
    flushes: int
    readers: range

    @property
    def all(self) -> range:
        """Every lane of the disk."""
        return range(self.rounds, self.readers.stop)

    @classmethod
    def of(cls, number: int, readers: int) -> "DiskLanes":
        """Those of the disk with that number."""
        first = number * (LANES + readers)
        rest = first + LANES
        return cls(first, first + 1, first + 2, first + 3, first + 4, range(rest, rest + readers))


class Syncing:
    """See `Disk.syncing`. No generator: every round that is synced enters one."""

    def __init__(self, disk: "Disk", claims: Claims[File], files: Collection[File]) -> None:
        self._disk = disk
        self._claims = claims
        self._files = files

    async def __aenter__(self) -> None:
        if not self._claims.are_free(self._files):
            with trio.CancelScope(shield=True):
                while not self._claims.are_free(self._files):
                    await self._claims.released.park()
        self._disk.check_online()
        self._claims.take(self._files)

    async def __aexit__(self, *_: object) -> None:
        self._claims.release(self._files)


class Disk:
    """One entry of log.dirs as whoever works on its files sees it. `on_offline` is called once, when it fails."""

    def __init__(
        self,
        path: str,
        filesystem: FileSystem,
        pool: WorkerPool,
        lanes: DiskLanes,
        on_offline: Callable[[OSError], None],
    ) -> None:
        self.path = path
        self.filesystem = filesystem
        self.lanes = lanes
        self.offline_reason: str | None = None
        self._is_closed = False
        self._pool = pool
        self._readers = Lanes(pool, lanes.readers)
        self._on_offline = on_offline
        self._syncing: Claims[File] = Claims()

    async def run(self, job: Callable[[], T]) -> T:
        """Run file work that is not part of a round. Raises StorageError, after which the disk is offline, unless it
        is full; UnreadableMessage if a part of a file cannot be read."""
        return await self._guarded(lambda: self._readers.run(job))

    async def run_between_rounds(self, job: Callable[[], T]) -> T:
        """The same for whom appends wait: it waits for nobody."""
        return await self._guarded(lambda: self._pool.run(self.lanes.rounds, job))

    async def scan(self, job: Callable[[], T]) -> T:
        """The same for what takes long: nobody else waits for it."""
        return await self._guarded(lambda: self._pool.run(self.lanes.scans, job))

    async def run_round(self, job: Callable[[], T]) -> T:
        """File work of a round. Raises OSError: whether the disk is lost by it, the round knows."""
        return await self._pool.run(self.lanes.rounds, job)

    async def sync(self, files: Sequence[File]) -> None:
        """Make their content durable, outside of a commit batch, which never waits for these. Raises as `run` does."""
        async with self.syncing(files):
            await self._guarded(lambda: self._pool.sync(self.lanes.flushes, files))

    async def sync_round(self, files: Sequence[File]) -> None:
        """The same for those who wait for a round. Raises StorageError, after which the disk is offline."""
        async with self.syncing(files):
            await self._guarded(lambda: self._pool.sync(self.lanes.rounds, files, is_urgent=True))

    def syncing(self, files: Collection[File]) -> "Syncing":
        """Nobody else syncs one of these within the block; StorageError when another's sync of one has failed before.

        That bytes did not reach the disk, the system tells one of those who sync a descriptor. Another one, at the same
        time, would take them for durable.
        """
        return Syncing(self, self._syncing, files)

    def check_online(self) -> None:
        """Raises StorageError."""
        if self.offline_reason is not None:
            raise StorageError(self.offline_reason)
        if self._is_closed:
            raise StorageError(f"{self.path} is closed")

    async def _guarded(self, work: Callable[[], Awaitable[T]]) -> T:
        self.check_online()
        try:
            result = await work()
        except DiskFull as error:
            raise StorageError(f"{self.path}: {error.strerror}") from error
        except Unreadable as error:
            raise UnreadableMessage(f"the disk cannot read it: {error.strerror}") from error
        except OSError as error:
            self.fail(error)
            raise StorageError(f"{self.path} is offline: {error}") from error
        self.check_online()  # it may have failed meanwhile
        return result

    def close(self) -> None:
        """Begin nothing any more: its clean-shutdown marker is written."""
        self._is_closed = True

    def fail(self, error: OSError) -> None:
        """Go offline, for good."""
        if self.offline_reason is None:
            self.offline_reason = f"{self.path} is offline: {error}"
            self._on_offline(error)
