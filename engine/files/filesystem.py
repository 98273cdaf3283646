"""Access to files: the operations that the engine needs of an operating system.

`FileSystem` is small enough that `engine.testing.simulated_disk` can simulate it, and crashes that lose unsynced
writes. Paths are strings below a log dir. Nothing here retries, caches, or decides what to sync. Nothing here is async:
callers know which thread they are on.
"""

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from engine.files.page_cache import cached_pages

IOV_MAX = 1024
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_LOST = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ, errno.ENODATA)  # read errors: data are lost
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_READ_AHEAD_BYTES = 128 * 1024  # the default of Linux: so much comes into memory together, and mostly leaves together
ASIDE_SUFFIX = ".tmp"
_SPARE_MIN_BYTES = 64 * 1024  # a smaller rest is not worth a disk access, and may belong to the filesystem


class DiskFull(OSError):
    """No space, or no descriptor, and nothing was written: the caller may go on."""


class Unreadable(OSError):
    """A part of a file cannot be read: that part is damaged, and the disk may go on."""


class File(Protocol):
    """An open file. Reads and writes name their position; there is no cursor for threads to share.

    There is no close: a fetch in flight may hold the file, so the descriptor is closed with the last reference.
    """

    def fileno(self) -> int | None: ...
    def size(self) -> int: ...
    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read bytes; fewer than asked for only at the end of the file. Raises Unreadable."""

    def read_cached(self, position: int, size_bytes: int) -> bytes | None:
        """Read bytes without waiting for the disk: None, or fewer bytes, if not all of them are in the page cache."""

    def is_cached(self, position: int, size_bytes: int) -> bool:
        """Whether this part of the file is in the page cache, as far as the kernel says."""

    def cached_size(self, position: int, size_bytes: int) -> int:
        """How many bytes from `position` on, at most `size_bytes`, are in the page cache without a hole. If not all of
        them are, it may be a page less than that."""

    def read_ahead(self, position: int, size_bytes: int) -> None:
        """Announce a sequential read of this part."""

    def write_at(self, buffers: Sequence[memoryview | bytes | bytearray], position: int) -> None:
        """Write all bytes. Raises DiskFull if nothing was written, any other OSError otherwise."""

    def fdatasync(self) -> None: ...
    def sync_and_forget(self) -> None:
        """Make the content durable, and drop it from the page cache, so that the next read comes from the disk.

        After a failed sync, the page cache may hold, as clean, bytes that the disk does not have. A process that has
        just started cannot know that, and the next power cut would take records that it has served.
        """

    def truncate(self, size_bytes: int) -> None: ...
    def allocate(self, size_bytes: int) -> None:
        """Reserve disk space for so many bytes; the size stays. Raises OSError if the filesystem cannot, or is full."""

    def trim(self) -> None:
        """Free the reserved space behind the end."""


class Usage(NamedTuple):
    """Space of the filesystem that holds a directory, as for an unprivileged process."""

    total_bytes: int  # with the reserve for privileged processes
    used_bytes: int
    available_bytes: int

    @property
    def ratio(self) -> float:
        return self.used_bytes / max(1, self.used_bytes + self.available_bytes)


class DirLock(Protocol):
    """An exclusive lock, held until it is released, or until the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Names and directories. A new, renamed or removed name is durable only after `sync_dir` of its directory."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def make_dir(self, path: str) -> None: ...
    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""

    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int:
        """The size of a file, without opening it."""

    def modified_ms(self, path: str) -> int:
        """The wall clock time of the last write to a file, in ms."""

    def rename(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def usage(self, path: str) -> Usage: ...
    def lock(self, path: str) -> DirLock:
        """Take an exclusive lock on a file, which is created. Raises BlockingIOError if it is held already."""


def preallocate(file: File, size_bytes: int) -> str | None:
    """Reserve space for a file that will grow to that size; returns the error if that fails. The file can grow all the
    same."""
    try:
        file.allocate(size_bytes)
    except OSError as error:
        file.trim()  # a full disk may have reserved a part
        return str(error.strerror)
    return None


def read_small(filesystem: FileSystem, path: str) -> bytes | None:
    """The whole content of a file, or None without a file."""
    try:
        file = filesystem.open(path)
    except FileNotFoundError:
        return None
    return file.read_at(0, file.size())


def replace_small(filesystem: FileSystem, directory: str, name: str, content: bytes) -> None:
    """Replace a small file durably: also after a crash, readers see the old content or the new one."""
    write_aside(filesystem, directory, name, content).fdatasync()
    take_in_place(filesystem, directory, name)
    filesystem.sync_dir(directory)


def write_aside(filesystem: FileSystem, directory: str, name: str, content: bytes) -> File:
    """The first half of `replace_small`, to replace many files: the caller syncs the file before the second half."""
    file = filesystem.open(f"{directory}/{name}{ASIDE_SUFFIX}", create=True)
    file.truncate(0)
    file.write_at([content], 0)
    return file


def take_in_place(filesystem: FileSystem, directory: str, name: str) -> None:
    """The second half of `replace_small`: the caller syncs `directory` after it."""
    filesystem.rename(f"{directory}/{name}{ASIDE_SUFFIX}", f"{directory}/{name}")


def _find_fallocate() -> Callable[[int, int, int, int], int]:
    """Find `fallocate` in the C library.

    Python's `posix_fallocate` makes the file longer, and writes zeros if the filesystem cannot reserve space.
    """
    library = ctypes.CDLL(None, use_errno=True)
    found = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if found is None:
        return _no_fallocate
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    call: Callable[[int, int, int, int], int] = found
    return call


def _no_fallocate(_descriptor: int, _mode: int, _position: int, _size_bytes: int) -> int:
    ctypes.set_errno(errno.EOPNOTSUPP)
    return -1


_fallocate = _find_fallocate()


class PosixFile:
    """A file descriptor that lives as long as this object is referenced, for example by a fetch in flight."""

    __slots__ = ("_descriptor", "_has_cached_reads")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_cached_reads = hasattr(os, "RWF_NOWAIT")

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, position: int, size_bytes: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            if len(data) == size_bytes or not data:
                return data
            parts = [data]
            done = len(data)
            while done < size_bytes and (more := os.pread(self._descriptor, size_bytes - done, position + done)):
                parts.append(more)
                done += len(more)
            return b"".join(parts)
        except OSError as error:
            raise read_error(error) from error

    def read_cached(self, position: int, size_bytes: int) -> bytes | None:
        if not self._has_cached_reads:
            return self.read_at(position, size_bytes)
        data = bytearray(size_bytes)
        try:
            return bytes(memoryview(data)[: os.preadv(self._descriptor, [data], position, os.RWF_NOWAIT)])
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _LOST:
                return None  # the read that waits for the disk gets the error
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._has_cached_reads = False  # probably a filesystem in memory
            return self.read_at(position, size_bytes)

    def is_cached(self, position: int, size_bytes: int) -> bool:
        last = position + size_bytes - 1
        found = cached_pages(self._descriptor, position, size_bytes)
        if found is None:
            looked_at = [*range(position, last, _READ_AHEAD_BYTES), last]
        elif found <= last // mmap.PAGESIZE - position // mmap.PAGESIZE:
            return False
        else:
            looked_at = [last]  # the last page arrives last, if the range is just being read
        return all(self.read_cached(each, 1) for each in looked_at)

    def cached_size(self, position: int, size_bytes: int) -> int:
        if self.is_cached(position, size_bytes):
            return size_bytes
        known, absent = 0, size_bytes  # the bytes that are there; a part that is not all there
        while absent - known > mmap.PAGESIZE:
            middle = (known + absent) // 2
            if self.is_cached(position + known, middle - known):
                known = middle
            else:
                absent = middle
        return known

    def read_ahead(self, position: int, size_bytes: int) -> None:
        os.posix_fadvise(self._descriptor, position, size_bytes, os.POSIX_FADV_WILLNEED)

    def write_at(self, buffers: Sequence[memoryview | bytes | bytearray], position: int) -> None:
        if len(buffers) == 1:
            self._write_one(buffers[0], position, nothing_before=True)
            return
        start = position
        for index in range(0, len(buffers), IOV_MAX):
            vector = buffers[index : index + IOV_MAX]
            wanted = sum(map(len, vector))
            try:
                written = os.pwritev(self._descriptor, vector, position)
            except OSError as error:
                raise classified(error, nothing_written=position == start) from error
            if written < wanted:
                rest = memoryview(b"".join(vector))[written:]
                self._write_one(rest, position + written, nothing_before=False)
            position += wanted

    def _write_one(self, buffer: memoryview | bytes | bytearray, position: int, *, nothing_before: bool) -> None:
        view = memoryview(buffer)
        while view:
            try:
                written = os.pwrite(self._descriptor, view, position)
            except OSError as error:
                raise classified(error, nothing_written=nothing_before) from error
            if written == len(view):
                return
            nothing_before = False
            position += written
            view = view[written:]

    def fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def sync_and_forget(self) -> None:
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def allocate(self, size_bytes: int) -> None:
        while _fallocate(self._descriptor, _KEEP_SIZE, 0, size_bytes):
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))

    def trim(self) -> None:
        status = os.fstat(self._descriptor)
        if status.st_blocks * 512 >= status.st_size + _SPARE_MIN_BYTES:
            os.ftruncate(self._descriptor, status.st_size)

    def __del__(self) -> None:
        os.close(self._descriptor)


class PosixLock:
    """A lock by flock, which ends with the process in any case."""

    def __init__(self, file: PosixFile) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file = file

    def release(self) -> None:
        fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)


def is_out_of_space(error: OSError) -> bool:
    """Whether the disk is full, even if bytes were written before the error, unlike DiskFull."""
    return error.errno in _NO_SPACE


def classified(error: OSError, *, nothing_written: bool) -> OSError:
    if nothing_written and (is_out_of_space(error) or error.errno in _NO_DESCRIPTOR):
        return DiskFull(error.errno, error.strerror)
    return error


def read_error(error: OSError) -> OSError:
    """Turn the error of a read into Unreadable, if data are lost."""
    return Unreadable(error.errno, error.strerror) if error.errno in _LOST else error


class PosixFileSystem:
    """The operating system's filesystem. Files are private to the user (0600, directories 0700)."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return PosixFile(os.open(path, flags, 0o600))
        except OSError as error:
            raise classified(error, nothing_written=True) from error

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            raise classified(error, nothing_written=True) from error

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> Usage:
        found = os.statvfs(path)
        sizes = (found.f_blocks, found.f_blocks - found.f_bfree, found.f_bavail)
        return Usage(*(blocks * found.f_frsize for blocks in sizes))

    def lock(self, path: str) -> "PosixLock":
        return PosixLock(self.open(path, create=True))
