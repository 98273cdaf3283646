"""The disk of a log dir: work on its files, and its failure.

A failed write or sync takes the disk offline for good (RULES L4). No write is retried: after a failed sync, the page
cache may call pages clean that never reached the disk. A failed read is damage at that place only.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import trio

from engine.claims import Claims
from engine.errors import StorageError, UnreadableMessage
from engine.files.filesystem import DiskFull, File, FileSystem, Unreadable
from engine.files.io_workers import WorkerPool, Workers

T = TypeVar("T")

WORKERS = 5  # workers of the pool for one disk, besides its reading workers


@dataclass(frozen=True, slots=True)
class DiskWorkers:
    """The workers of the pool that serve one disk only: a disk that hangs does not block others."""

    commits: int
    index: int
    record_validator: int
    scans: int
    flushes: int
    readers: range

    @property
    def all(self) -> range:
        """All workers of the disk."""
        return range(self.commits, self.readers.stop)

    @classmethod
    def of(cls, number: int, readers: int) -> "DiskWorkers":
        """The workers of disk number `number`, counted from 0, with `readers` reading workers."""
        first = number * (WORKERS + readers)
        rest = first + WORKERS
        return cls(first, first + 1, first + 2, first + 3, first + 4, range(rest, rest + readers))


class Syncing:
    """The context manager of `Disk.syncing`. It is no generator, because every synced commit batch enters one."""

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
    """The disk of a log dir, for all work on its files. `on_offline` is called once, when the disk fails."""

    def __init__(
        self,
        path: str,
        filesystem: FileSystem,
        pool: WorkerPool,
        workers: DiskWorkers,
        on_offline: Callable[[OSError], None],
    ) -> None:
        self.path = path
        self.filesystem = filesystem
        self.workers = workers
        self.offline_reason: str | None = None
        self._is_closed = False
        self._pool = pool
        self._readers = Workers(pool, workers.readers)
        self._on_offline = on_offline
        self._syncing: Claims[File] = Claims()

    async def run(self, job: Callable[[], T]) -> T:
        """Run file work outside of commit batches.

        Raises StorageError, after which the disk is offline, unless it is full; UnreadableMessage if a part of a file
        cannot be read.
        """
        return await self._guarded(lambda: self._readers.run(job))

    async def run_between_commit_batches(self, job: Callable[[], T]) -> T:
        """Run urgent file work for which appends wait, in the worker of commit batches. Raises as `run`."""
        return await self._guarded(lambda: self._pool.run(self.workers.commits, job))

    async def scan(self, job: Callable[[], T]) -> T:
        """Run file work that may take long, in a worker of its own. Raises as `run`."""
        return await self._guarded(lambda: self._pool.run(self.workers.scans, job))

    async def run_commit_batch(self, job: Callable[[], T]) -> T:
        """Run the file work of a commit batch. Raises OSError: the commit batch decides whether the disk is lost."""
        return await self._pool.run(self.workers.commits, job)

    async def sync(self, files: Sequence[File]) -> None:
        """Make the content of files durable, outside of commit batches, which do not wait for it. Raises as `run`."""
        async with self.syncing(files):
            await self._guarded(lambda: self._pool.sync(self.workers.flushes, files))

    async def sync_commit_batch(self, files: Sequence[File]) -> None:
        """Make the content of files durable for a commit batch. Raises StorageError, after which the disk is
        offline."""
        async with self.syncing(files):
            await self._guarded(lambda: self._pool.sync(self.workers.commits, files, is_urgent=True))

    def syncing(self, files: Collection[File]) -> "Syncing":
        """Exclude other syncs of these files within the block. Raises StorageError if another sync of one has failed
        before.

        The kernel reports a lost write to only one of the concurrent syncs of a descriptor. The other one would take
        the bytes for durable.
        """
        return Syncing(self, self._syncing, files)

    def check_online(self) -> None:
        """Raise StorageError if the disk is offline or closed."""
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
        """Start no more work, because the clean-shutdown marker is written."""
        self._is_closed = True

    def fail(self, error: OSError) -> None:
        """Take the disk offline for good."""
        if self.offline_reason is None:
            self.offline_reason = f"{self.path} is offline: {error}"
            self._on_offline(error)
