"""A directory as an object store: the tier's only access to files. An object is a file of the same name.

Several brokers may use one directory, also over NFS: put-if-absent is `link`, which is atomic there, too. A crash
leaves a file below `.incoming`, never a part of an object.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

from crc32c import crc32c

from engine.tier import File
from tiering.object_store import (
    LIST_MAX,
    SLICE_BYTES,
    Content,
    FilePart,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
    Workers,
)
from tiering.stores.pacing import evenly

T = TypeVar("T")

INCOMING = ".incoming"
LEFT_OVER_S = 86_400  # a put that takes longer has failed
SYNC_BYTES = 4 * 1024 * 1024  # written between two syncs: other users of the disk wait for all of it
MAKE_TRIES_MAX = 10  # if other processes keep removing the directory because it is empty
_NEEDS_OPERATOR = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})


class DirectoryStore:
    """Implements `tiering.object_store.ObjectStore`. `new_name` gives unique file names; `open_file` opens for
    reads."""

    def __init__(
        self, root: str, workers: Workers, new_name: Callable[[], str], open_file: Callable[[str], File]
    ) -> None:
        self._root = root
        self._workers = workers
        self._new_name = new_name
        self._open_file = open_file

    async def put(self, key: str, content: Content, *, if_absent: bool = False) -> None:
        incoming = f"{self._root}/{INCOMING}/{self._new_name()}"
        await self._run(partial(_put, self._root, key, content, incoming, if_absent))

    async def get(self, key: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        found = await self._run(partial(_get, self._root, key, start, size_bytes))
        if found is None:
            raise ObjectMissing(key)
        return found

    async def get_part(self, key: str, start: int, size_bytes: int) -> FilePart:
        found = await self._run(partial(_get_part, self._root, key, start, size_bytes, self._open_file))
        if found is None:
            raise ObjectMissing(key)
        return found

    async def head(self, key: str) -> ObjectInfo | None:
        return await self._run(partial(_head, self._root, key))

    async def delete(self, key: str) -> None:
        await self._run(partial(_delete, self._root, key))

    async def list_after(self, prefix: str, after: str = "", count_max: int = LIST_MAX) -> Sequence[ObjectInfo]:
        return await self._run(partial(_list, self._root, prefix, after, count_max))

    def close(self) -> None:
        """Do nothing: a disk answers, or its thread is lost."""

    async def prepare(self) -> None:
        """Create the directory, unless it exists, and remove files that crashes have left."""
        await self._run(partial(_prepare, self._root))

    async def _run(self, job: Callable[[], T]) -> T:
        try:
            return await self._workers.run(job)
        except OSError as error:
            kind = StoreRefused if error.errno in _NEEDS_OPERATOR else StoreUnavailable
            raise kind(f"{self._root}: {error.strerror}") from error


def _put(root: str, key: str, content: Content, incoming: str, if_absent: bool) -> None:
    path = f"{root}/{key}"
    try:
        _write(incoming, content)
        for _ in range(MAKE_TRIES_MAX):
            _make_directories(root, os.path.dirname(path))
            with suppress(FileNotFoundError):  # it was empty, and another process has removed it
                if if_absent:
                    os.link(incoming, path)
                else:
                    os.rename(incoming, path)
                break
        else:
            raise StoreUnavailable(f"{path}: its directory does not stay")
        _sync_directory(os.path.dirname(path))
    except FileExistsError:
        raise ObjectExists(key) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(incoming)


def _write(incoming: str, content: Content) -> None:
    descriptor = os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    try:
        unsynced_bytes = 0
        for data in evenly(content):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            unsynced_bytes += len(data)
            if unsynced_bytes >= SYNC_BYTES:
                os.fdatasync(descriptor)
                unsynced_bytes = 0
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_directories(root: str, directory: str) -> None:
    """Create directories durably."""
    if directory == root or os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    _make_directories(root, parent)
    with suppress(FileExistsError, FileNotFoundError):  # a failure shows when the directory is used
        os.mkdir(directory)
        _sync_directory(parent)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_there(root: str) -> None:
    """Raise StoreUnavailable if the root is not a store, for example a file system that is not mounted, in which all is
    missing."""
    if not os.path.isdir(f"{root}/{INCOMING}"):
        raise StoreUnavailable(f"{root} is not there, or not an object store")


def _get(root: str, key: str, start: int, size_bytes: int | None) -> bytes | None:
    try:
        with open(f"{root}/{key}", "rb") as file:
            file.seek(start)
            return file.read(-1 if size_bytes is None else size_bytes)
    except (FileNotFoundError, IsADirectoryError):
        _check_there(root)
        return None


def _get_part(root: str, key: str, start: int, size_bytes: int, open_file: Callable[[str], File]) -> FilePart | None:
    """Open a part of an object, and announce its read to the disk."""
    try:
        file = open_file(f"{root}/{key}")
    except (FileNotFoundError, IsADirectoryError):
        _check_there(root)
        return None
    size_bytes = max(0, min(size_bytes, file.size() - start))
    file.read_ahead(start, size_bytes)
    return FilePart(file, start, size_bytes)


def _head(root: str, key: str) -> ObjectInfo | None:
    try:
        with open(f"{root}/{key}", "rb") as file:
            status, checksum = os.fstat(file.fileno()), 0
            while data := file.read(SLICE_BYTES):
                checksum = crc32c(data, checksum)
    except (FileNotFoundError, IsADirectoryError):
        _check_there(root)
        return None
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, checksum)


def _delete(root: str, key: str) -> None:
    """Delete an object, and the directories that are empty then."""
    directory = os.path.dirname(f"{root}/{key}")
    _check_there(root)
    with suppress(FileNotFoundError):
        os.unlink(f"{root}/{key}")
        _sync_directory(directory)
        while directory != root:
            try:
                os.rmdir(directory)
            except OSError:
                return  # it is in use
            directory = os.path.dirname(directory)


def _list(root: str, prefix: str, after: str, count_max: int) -> list[ObjectInfo]:
    _check_there(root)
    above = os.path.dirname(prefix)
    found = _walk(root, f"{above}/" if above else "", prefix, after)
    return list(islice(found, min(count_max, LIST_MAX)))


def _walk(root: str, above: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Objects in the order of their keys, in which a directory sorts with its slash."""
    try:
        with os.scandir(f"{root}/{above}") as entries:
            names = {f"{above}{one.name}{'/' if one.is_dir() else ''}": one for one in entries}
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in sorted(names.items()):
        if name == f"{INCOMING}/" or (not name.startswith(prefix) and not prefix.startswith(name)):
            continue
        if name.endswith("/"):
            if name > after or after.startswith(name):
                yield from _walk(root, name, prefix, after)
        elif name > after and name.startswith(prefix):
            with suppress(FileNotFoundError):
                status = entry.stat()
                yield ObjectInfo(name, status.st_size, status.st_mtime_ns // 1_000_000)


def _prepare(root: str) -> None:
    os.makedirs(f"{root}/{INCOMING}", mode=0o750, exist_ok=True)
    _sync_directory(root)
    _sync_directory(os.path.dirname(os.path.abspath(root)))
    with os.scandir(f"{root}/{INCOMING}") as entries:
        for one in entries:
            with suppress(FileNotFoundError):
                if time.time() - one.stat().st_mtime > LEFT_OVER_S:
                    os.unlink(one.path)
