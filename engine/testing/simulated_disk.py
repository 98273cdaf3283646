"""A simulated disk in memory: a crash loses unsynced writes, and operations fail on demand.

A crash keeps what POSIX promises, and no more: the content of a file as of its last fdatasync, and names as of the last
sync of their directory. With a random generator it may keep more, as a real disk does: a prefix of the unsynced writes,
the last one torn; or some of them, with holes before them; unsynced names one directory at a time. Every change is
recorded, so that a test can reopen a log dir after any prefix of the changes.
"""

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from engine.files.filesystem import DiskFull, File, Unreadable, Usage, classified, read_error
from engine.testing.simulated_delays import DelayedPool
from engine.testing.simulated_inodes import Directory, Inode, files_below
from engine.testing.simulated_loss import EverythingUnsynced, Loss, Operation, RandomLoss, SimulatedLock

SECTOR_BYTES = 4096
EVICTED_SHARE = 0.5  # of the files


@dataclass(slots=True)
class Fault:
    """A fault that makes an operation fail: of `kind`, on a path ending in `path_suffix`, after `skip` others of that
    sort.

    Of a write, `written_bytes` reach the file before the error. With `is_lasting`, every later one fails too.
    """

    kind: str
    errno: int
    path_suffix: str = ""
    skip: int = 0
    written_bytes: int = 0
    is_lasting: bool = False
    directory: str = ""  # only below this directory

    def hits(self, kind: str, path: str) -> bool:
        if kind != self.kind or not (path.endswith(self.path_suffix) and path.startswith(self.directory)):
            return False
        if self.skip:
            self.skip -= 1
            return False
        return True


class SimulatedFile:
    """A file of the simulated disk, with the contract of `engine.files.filesystem.File`."""

    __slots__ = ("_filesystem", "_inode", "_life", "_losses_reported")

    def __init__(self, filesystem: "SimulatedFileSystem", inode: Inode) -> None:
        self._filesystem = filesystem
        self._inode = inode
        self._life = filesystem.crashes
        self._losses_reported = inode.lost_writes - (not inode.is_loss_reported)

    @property
    def path(self) -> str:
        """The path at which it was created."""
        return self._inode.path

    def _check_alive(self) -> None:
        assert self._life == self._filesystem.crashes, "a file opened before the crash is used after it"

    def fileno(self) -> None:
        return None

    def size(self) -> int:
        self._check_alive()
        return len(self._inode.content)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check_alive()
        fault = self._filesystem.find_fault("read", self._inode.path)
        if fault is not None:
            raise read_error(OSError(fault.errno, "injected"))
        bad = self._filesystem.bad_sectors.get(self._inode.path, range(0))
        if max(position, bad.start) < min(position + size_bytes, bad.stop):
            raise Unreadable(errno.EIO, "injected")
        if not self.is_cached(position, size_bytes):
            self._inode.warm(position, position + size_bytes)
        return bytes(self._inode.content[position : position + size_bytes])

    def read_cached(self, position: int, size_bytes: int) -> bytes | None:
        if not self.is_cached(position, size_bytes):
            return None
        try:
            return self.read_at(position, size_bytes)
        except Unreadable:
            return None

    def is_cached(self, position: int, size_bytes: int) -> bool:
        cold = self._inode.cold
        return position >= cold.stop or position + size_bytes <= cold.start

    def cached_size(self, position: int, size_bytes: int) -> int:
        if self.is_cached(position, size_bytes):
            return size_bytes
        return max(0, self._inode.cold.start - position)

    def read_ahead(self, position: int, size_bytes: int) -> None:
        self._check_alive()

    def write_at(self, buffers: Sequence[memoryview | bytes | bytearray], position: int) -> None:
        self._check_alive()
        data = b"".join(buffers)
        bad = self._filesystem.bad_sectors.get(self._inode.path, range(0))
        if bad and position <= bad.start and bad.stop <= position + max(len(data), SECTOR_BYTES):
            del self._filesystem.bad_sectors[self._inode.path]  # the disk replaces the bad sector
        fault = self._filesystem.find_fault("write", self._inode.path)
        if fault is None:
            self._record("write", position, data)
            return
        if fault.written_bytes:
            self._record("write", position, data[: fault.written_bytes])
        elif fault.errno == errno.ENOSPC:
            raise DiskFull(fault.errno, errno.errorcode[fault.errno])
        raise OSError(fault.errno, "injected")

    def fdatasync(self) -> None:
        self.end_sync(self.begin_sync())

    def begin_sync(self) -> int:
        """Begin a sync that takes time; returns the state for `end_sync`."""
        self._check_alive()
        if (fault := self._filesystem.find_fault("fdatasync", self._inode.path)) is not None:
            self._inode.fail_sync(fault.errno)
        return self._inode.changes

    def end_sync(self, change_count: int) -> None:
        """End a sync. A lost write is reported to the first ended sync of each descriptor, and to no other (Linux'
        errseq_t)."""
        self._check_alive()
        if self._losses_reported < self._inode.lost_writes:
            self._losses_reported = self._inode.lost_writes
            self._inode.is_loss_reported = True
            self._filesystem.loss_reported(self._inode.path)
            raise OSError(self._inode.loss_errno, "injected")
        self._record("fdatasync", change_count, b"")

    def sync_and_forget(self) -> None:
        self.fdatasync()
        self._inode.forget()

    def truncate(self, size_bytes: int) -> None:
        self._check_alive()
        self._filesystem.trip("truncate", self._inode.path)
        self._record("truncate", size_bytes, b"")

    def allocate(self, size_bytes: int) -> None:
        """Reserve space; it is no content, so a crash does not change it, and it is not recorded."""
        self._check_alive()
        self._inode.allocated_bytes = size_bytes
        self._filesystem.trip("allocate", self._inode.path)

    def trim(self) -> None:
        self._check_alive()
        self._inode.allocated_bytes = 0

    def _record(self, kind: str, position: int, data: bytes) -> None:
        self._filesystem.do(Operation(kind, self._inode.path, self._inode.number, position, data))


def begin_sync(files: Sequence[File]) -> Callable[[], None]:
    """Begin syncs of many files at once, as the kernel does.

    Returns a function that ends them, and raises the OSError of one.
    """
    started = [(file, file.begin_sync()) for file in files if isinstance(file, SimulatedFile)]
    assert len(started) == len(files)

    def end() -> None:
        errors = []
        for file, number in started:
            try:
                file.end_sync(number)
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    return end


class SimulatedPool(DelayedPool):
    """A pool whose jobs run on the event loop, with syncs beside them, so that a file may have two syncs at once:
    deterministic."""

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        end = begin_sync(files)
        await self.delays.wait_for_sync(worker)
        end()


@dataclass
class SimulatedFileSystem:
    """A simulated disk, with the contract of `engine.files.filesystem.FileSystem`; paths are absolute."""

    operations: list[Operation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    crashes: int = 0
    bad_sectors: dict[str, range] = field(default_factory=dict)  # by path, the part of a file that the disk cannot read
    capacity_bytes: int = 1 << 60  # capacity in `usage`; a full disk is a Fault
    now_ms: Callable[[], int] = lambda: 1 << 60  # no file is old unless a test says so
    _root: Directory = field(default_factory=Directory)
    _inodes: dict[int, Inode] = field(default_factory=dict)
    _locks: set[str] = field(default_factory=set)

    @classmethod
    def replayed(cls, operations: Sequence[Operation]) -> Self:
        """A filesystem after exactly these operations."""
        filesystem = cls()
        for operation in operations:
            filesystem.do(operation)
        return filesystem

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power and start again. Files and locks held before are dead."""
        self.lose(EverythingUnsynced() if rng is None else RandomLoss(rng))

    def lose(self, loss: Loss) -> None:
        """Crash with the losses of `loss`."""
        self.crashes += 1
        self._locks = set()
        self._root.crash(loss)

    def end_process(self) -> None:
        """End the process as `kill -9`: locks are gone, the page cache stays."""
        self._locks.clear()

    def find_fault(self, kind: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.hits(kind, path):
                if not fault.is_lasting:
                    self.faults.remove(fault)
                return fault
        return None

    def loss_reported(self, path: str) -> None:
        """Called when a sync has reported that writes to a file are lost."""

    def trip(self, kind: str, path: str) -> None:
        """Raise OSError if a fault is due here."""
        if self.faults and (fault := self.find_fault(kind, path)) is not None:
            raise OSError(fault.errno, "injected")

    def do(self, operation: Operation) -> None:
        """Record and apply a change."""
        self.operations.append(operation)
        getattr(self, f"_do_{operation.kind}")(operation)

    def _do_write(self, operation: Operation) -> None:
        inode = self._inodes[operation.inode]
        inode.change(operation)
        inode.modified_ms = self.now_ms()

    _do_truncate = _do_write

    def _do_fdatasync(self, operation: Operation) -> None:
        self._inodes[operation.inode].sync(operation.position)

    def _do_create(self, operation: Operation) -> None:
        directory, name = self._parent(operation.path)
        inode = self._inodes[operation.inode] = Inode(operation.inode, operation.path)
        directory.entries[name] = inode

    def _do_make_dir(self, operation: Operation) -> None:
        directory, name = self._parent(operation.path)
        if name in directory.entries:
            raise FileExistsError(operation.path)
        directory.entries[name] = Directory()

    def _do_rename(self, operation: Operation) -> None:
        source, old = self._parent(operation.path)
        target, new = self._parent(operation.target)
        node = source.entries.pop(old)
        target.entries[new] = node
        if isinstance(node, Inode):
            node.path = operation.target

    def _do_unlink(self, operation: Operation) -> None:
        directory, name = self._parent(operation.path)
        del directory.entries[name]

    _do_remove_dir = _do_unlink

    def _do_sync_dir(self, operation: Operation) -> None:
        directory = self._directory(operation.path)
        directory.durable = dict(directory.entries)

    def _node(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for name in path.strip("/").split("/"):
            if name:
                node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        if create and self._node(path) is None:
            fault = self.find_fault("create", path)
            if fault is not None:
                raise classified(OSError(fault.errno, errno.errorcode[fault.errno]), nothing_written=True)
            self.do(Operation("create", path, len(self._inodes) + 1))
        elif self.faults and (fault := self.find_fault("open", path)) is not None:
            raise classified(OSError(fault.errno, errno.errorcode[fault.errno]), nothing_written=True)
        return SimulatedFile(self, self._inode(path))

    def make_dir(self, path: str) -> None:
        fault = self.find_fault("make_dir", path)
        if fault is not None:
            raise classified(OSError(fault.errno, errno.errorcode[fault.errno]), nothing_written=True)
        self.do(Operation("make_dir", path))

    def list_dir(self, path: str) -> list[str]:
        node = self._node(path)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def _trip_if_there(self, kind: str, path: str) -> None:
        if self._node(path) is None:
            raise FileNotFoundError(errno.ENOENT, path)
        self.trip(kind, path)

    def rename(self, source: str, target: str) -> None:
        self._trip_if_there("rename", source)
        self.do(Operation("rename", source, target=target))

    def unlink(self, path: str) -> None:
        self._trip_if_there("unlink", path)
        self.do(Operation("unlink", path))

    def remove_dir(self, path: str) -> None:
        self.trip("remove_dir", path)
        assert not self.list_dir(path)
        self.do(Operation("remove_dir", path))

    def sync_dir(self, path: str) -> None:
        self.trip("sync_dir", path)
        self.do(Operation("sync_dir", path))

    def usage(self, path: str) -> Usage:
        used_bytes = self._root.size_bytes()
        return Usage(self.capacity_bytes, used_bytes, max(0, self.capacity_bytes - used_bytes))

    def lock(self, path: str) -> SimulatedLock:
        self.open(path, create=True)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, path)
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    def drop_cache(self) -> None:
        """Empty the page cache."""
        for inode in self._inodes.values():
            inode.cold = range(len(inode.content))

    def evict(self, path: str, part: range) -> None:
        """Take this part of a file out of the page cache, until it is read."""
        self._inode(path).cold = part

    def evict_some(self, draw: random.Random) -> None:
        """Take some files, or a part of each, out of the page cache, also files without a name."""
        for inode in self._inodes.values():
            if inode.content and draw.random() < EVICTED_SHARE:
                size_bytes = len(inode.content)
                start = draw.choice((0, draw.randrange(size_bytes)))
                inode.cold = range(start, draw.choice((size_bytes, draw.randint(start, size_bytes))))

    # For tests that inspect, or damage, the content of the disk

    def files(self) -> dict[str, bytes]:
        """The content of all files by path, as programs see it."""
        return dict(files_below("", self._root))

    def content(self, path: str) -> bytes:
        """The content of a file, as programs see it."""
        return bytes(self._inode(path).content)

    def allocated_bytes(self, path: str) -> int:
        """The space reserved for a file, in bytes; 0 without any."""
        return self._inode(path).allocated_bytes

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Overwrite bytes on the disk, as damage."""
        node = self._inode(path)
        node.content[position : position + len(data)] = data
        node.durable = bytearray(node.content)
