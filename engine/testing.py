"""The filesystem's twin in memory: it forgets at a crash what was not synced, and fails on demand.

What a crash keeps is what POSIX promises and no more: file content as of the last fdatasync of that file, names as of
the last sync of their directory. With a random generator it may keep more, in the ways a real disk does: a prefix of
the unsynced writes, the last of them torn, or some of them with holes before them; unsynced names one directory at a
time. Every operation that changes something is recorded, so that a test can reopen after any prefix of them.
"""

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from engine.filesystem import DiskFull, Usage, classified
from engine.testing_loss import EverythingUnsynced, Loss, MemoryLock, Operation, RandomLoss


@dataclass(slots=True)
class Fault:
    """Makes an operation fail: the one of `kind` on a path ending in `path_suffix`, after `skip` others of that sort.

    For a write, `written_bytes` reach the file before the error. With `is_lasting` every later one fails too.
    """

    kind: str
    errno: int
    path_suffix: str = ""
    skip: int = 0
    written_bytes: int = 0
    is_lasting: bool = False
    directory: str = ""  # only below it

    def hits(self, kind: str, path: str) -> bool:
        if kind != self.kind or not (path.endswith(self.path_suffix) and path.startswith(self.directory)):
            return False
        if self.skip:
            self.skip -= 1
            return False
        return True


class _Inode:
    """A file: what programs see, what the disk has, and the changes in between."""

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Operation] = []
        self.cold = range(0)  # the part that is not in memory
        self.allocated_bytes = 0
        self.modified_ms = 0

    def change(self, operation: Operation) -> None:
        self.unsynced.append(operation)
        operation.apply_to(self.content)
        if operation.kind == "truncate":
            self.allocated_bytes = 0

    def sync(self) -> None:
        for operation in self.unsynced:
            operation.apply_to(self.durable)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        """What was not synced never will be: programs still see it, and the next sync knows nothing of it."""
        self.unsynced.clear()

    def forget(self) -> None:
        """The page cache is dropped; the size stays, and what never reached the disk reads as zeros."""
        self.content = self.durable[: len(self.content)].ljust(len(self.content), b"\0")

    def crash(self, loss: Loss) -> None:
        for operation in loss.survivors(self.unsynced):
            operation.apply_to(self.durable)
        self.unsynced.clear()
        self.content = bytearray(self.durable)


class _Directory:
    """Names as programs see them and as the disk has them."""

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}

    def size_bytes(self) -> int:
        return sum(
            entry.size_bytes() if isinstance(entry, _Directory) else max(len(entry.content), entry.allocated_bytes)
            for entry in self.entries.values()
        )

    def crash(self, loss: Loss) -> None:
        if not loss.keeps_names(self.entries != self.durable):
            self.entries = dict(self.durable)
        self.durable = dict(self.entries)
        for entry in self.entries.values():
            entry.crash(loss)


def _files(path: str, directory: _Directory) -> Iterator[tuple[str, bytes]]:
    for name, entry in directory.entries.items():
        if isinstance(entry, _Directory):
            yield from _files(f"{path}/{name}", entry)
        else:
            yield f"{path}/{name}", bytes(entry.content)


class MemoryFile:
    """See `engine.filesystem.File`."""

    __slots__ = ("_filesystem", "_inode", "_life")

    def __init__(self, filesystem: "MemoryFileSystem", inode: _Inode) -> None:
        self._filesystem = filesystem
        self._inode = inode
        self._life = filesystem.crashes

    @property
    def path(self) -> str:
        """Where it was made."""
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
        self._filesystem.trip("read", self._inode.path)
        if not self.is_cached(position, size_bytes):
            self._inode.cold = range(0)
        return bytes(self._inode.content[position : position + size_bytes])

    def read_cached(self, position: int, size_bytes: int) -> bytes | None:
        return self.read_at(position, size_bytes) if self.is_cached(position, size_bytes) else None

    def is_cached(self, position: int, size_bytes: int) -> bool:
        cold = self._inode.cold
        return position >= cold.stop or position + size_bytes <= cold.start

    def read_ahead(self, position: int, size_bytes: int) -> None:
        self._check_alive()

    def write_at(self, buffers: Sequence[memoryview | bytes | bytearray], position: int) -> None:
        self._check_alive()
        data = b"".join(buffers)
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
        self._check_alive()
        try:
            self._filesystem.trip("fdatasync", self._inode.path)
        except OSError:
            self._inode.fail_sync()
            raise
        self._record("fdatasync", 0, b"")

    def sync_and_forget(self) -> None:
        self.fdatasync()
        self._inode.forget()

    def truncate(self, size_bytes: int) -> None:
        self._check_alive()
        self._filesystem.trip("truncate", self._inode.path)
        self._record("truncate", size_bytes, b"")

    def allocate(self, size_bytes: int) -> None:
        """Space is no content: a crash does not matter to it, and nothing is recorded."""
        self._check_alive()
        self._inode.allocated_bytes = size_bytes
        self._filesystem.trip("allocate", self._inode.path)

    def trim(self) -> None:
        self._check_alive()
        self._inode.allocated_bytes = 0

    def _record(self, kind: str, position: int, data: bytes) -> None:
        self._filesystem.do(Operation(kind, self._inode.path, self._inode.number, position, data))


@dataclass
class MemoryFileSystem:
    """See `engine.filesystem.FileSystem`; paths are absolute."""

    operations: list[Operation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    crashes: int = 0
    capacity_bytes: int = 1 << 60  # what `usage` tells; a full disk is a Fault
    now_ms: Callable[[], int] = lambda: 1 << 60  # nothing is old by its file unless a test says so
    _root: _Directory = field(default_factory=_Directory)
    _inodes: dict[int, _Inode] = field(default_factory=dict)
    _locks: set[str] = field(default_factory=set)

    @classmethod
    def replayed(cls, operations: Sequence[Operation]) -> Self:
        """A filesystem to which exactly these operations happened."""
        filesystem = cls()
        for operation in operations:
            filesystem.do(operation)
        return filesystem

    def crash(self, rng: random.Random | None = None) -> None:
        """Power off and on again. Files and locks held before are dead."""
        self.lose(EverythingUnsynced() if rng is None else RandomLoss(rng))

    def lose(self, loss: Loss) -> None:
        """A crash that takes what `loss` says."""
        self.crashes += 1
        self._locks = set()
        self._root.crash(loss)

    def end_process(self) -> None:
        """`kill -9`: locks are gone, the page cache stays."""
        self._locks.clear()

    def find_fault(self, kind: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.hits(kind, path):
                if not fault.is_lasting:
                    self.faults.remove(fault)
                return fault
        return None

    def trip(self, kind: str, path: str) -> None:
        """Raise if a fault is planned here."""
        if self.faults and (fault := self.find_fault(kind, path)) is not None:
            raise OSError(fault.errno, "injected")

    def do(self, operation: Operation) -> None:
        """Record and apply one change."""
        self.operations.append(operation)
        getattr(self, f"_do_{operation.kind}")(operation)

    def _do_write(self, operation: Operation) -> None:
        inode = self._inodes[operation.inode]
        inode.change(operation)
        inode.modified_ms = self.now_ms()

    _do_truncate = _do_write

    def _do_fdatasync(self, operation: Operation) -> None:
        self._inodes[operation.inode].sync()

    def _do_create(self, operation: Operation) -> None:
        directory, name = self._parent(operation.path)
        inode = self._inodes[operation.inode] = _Inode(operation.inode, operation.path)
        directory.entries[name] = inode

    def _do_make_dir(self, operation: Operation) -> None:
        directory, name = self._parent(operation.path)
        if name in directory.entries:
            raise FileExistsError(operation.path)
        directory.entries[name] = _Directory()

    def _do_rename(self, operation: Operation) -> None:
        source, old = self._parent(operation.path)
        target, new = self._parent(operation.target)
        node = source.entries.pop(old)
        target.entries[new] = node
        if isinstance(node, _Inode):
            node.path = operation.target

    def _do_unlink(self, operation: Operation) -> None:
        directory, name = self._parent(operation.path)
        del directory.entries[name]

    _do_remove_dir = _do_unlink

    def _do_sync_dir(self, operation: Operation) -> None:
        directory = self._directory(operation.path)
        directory.durable = dict(directory.entries)

    def _node(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._root
        for name in path.strip("/").split("/"):
            if name:
                node = node.entries.get(name) if isinstance(node, _Directory) else None
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._node(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if create and self._node(path) is None:
            fault = self.find_fault("create", path)
            if fault is not None:
                raise classified(OSError(fault.errno, errno.errorcode[fault.errno]), nothing_written=True)
            self.do(Operation("create", path, len(self._inodes) + 1))
        return MemoryFile(self, self._inode(path))

    def make_dir(self, path: str) -> None:
        fault = self.find_fault("make_dir", path)
        if fault is not None:
            raise classified(OSError(fault.errno, errno.errorcode[fault.errno]), nothing_written=True)
        self.do(Operation("make_dir", path))

    def list_dir(self, path: str) -> list[str]:
        node = self._node(path)
        return sorted(node.entries) if isinstance(node, _Directory) else []

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def size(self, path: str) -> int:
        return self.open(path).size()

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

    def lock(self, path: str) -> MemoryLock:
        self.open(path, create=True)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, path)
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def drop_cache(self) -> None:
        """Nothing is in memory until it was read once."""
        for inode in self._inodes.values():
            inode.cold = range(len(inode.content))

    def evict(self, path: str, part: range) -> None:
        """This part of a file is not in memory until some of it was read."""
        self._inode(path).cold = part

    # For tests that look at, or damage, what is on disk

    def files(self) -> dict[str, bytes]:
        """Everything programs see, by path."""
        return dict(_files("", self._root))

    def content(self, path: str) -> bytes:
        """The bytes of a file as programs see them."""
        return bytes(self._inode(path).content)

    def allocated_bytes(self, path: str) -> int:
        """Of a file, beyond what it grew to by itself; 0 when nothing was allocated."""
        return self._inode(path).allocated_bytes

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Overwrite bytes on the disk behind everybody's back."""
        node = self._inode(path)
        node.content[position : position + len(data)] = data
        node.durable = bytearray(node.content)
