"""Reads of objects in an object store, or in a directory in place of one.

The key of an object is its path below the bucket, or below the directory. Retries and timeouts are those of pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import fs

from spark_connectors.locations import opened, shown


class StoreError(Exception):
    """An object could not be read."""


class StoreUnavailable(StoreError):
    """The store does not answer, or refuses. The text has the reason."""


class ObjectGone(StoreError):
    """The object does not exist (any more)."""


class ObjectDamaged(StoreError):
    """The object is damaged, or of another version."""


class Store:
    """Store at a resolved location of `spark_connectors.locations`. It is pickled to executors, without open
    connections.
    """

    def __init__(self, location: str) -> None:
        self._location = location

    def __repr__(self) -> str:
        return f"Store({self.name})"

    @property
    def name(self) -> str:
        """URL without credentials."""
        return shown(self._location)

    @property
    def root(self) -> str:
        """Prefix of the location's keys: it ends with a slash, or is empty. Raises StoreUnavailable."""
        root = self._place()[2]
        return f"{root}/" if root else ""

    def open(self, key: str) -> StoredObject:
        """Open an object. Raises ObjectGone, StoreUnavailable."""
        system, container, _ = self._place()
        return StoredObject(system, f"{container}/{key}", key)

    def read(self, key: str) -> bytes | None:
        """Content of an object; None: it does not exist. Raises StoreUnavailable."""
        try:
            with self.open(key) as found:
                return found.read_at(0, found.size_bytes)
        except ObjectGone:
            return None

    def has(self, key: str) -> bool:
        """Whether the object exists. Raises StoreUnavailable."""
        try:
            self.open(key).close()
        except ObjectGone:
            return False
        return True

    def keys_below(self, prefix: str, *, is_deep: bool = True) -> list[str]:
        """Keys below a prefix, ascending; `prefix` ends with a slash, or is empty. Without `is_deep`, keys with a
        further slash are listed as one folder. A listing is only a hint. Raises StoreUnavailable.
        """
        system, container, _ = self._place()
        selector = fs.FileSelector(f"{container}/{prefix}".rstrip("/"), recursive=is_deep, allow_not_found=True)
        with _translated_errors(prefix):
            found = [(one.path.removeprefix(f"{container}/"), one.type) for one in system.get_file_info(selector)]
        folders = [] if is_deep else [f"{path}/" for path, kind in found if kind == fs.FileType.Directory]
        return sorted([*folders, *(path for path, kind in found if kind == fs.FileType.File)])

    def _place(self) -> tuple[Any, str, str]:
        """File system, the bucket or directory of the keys in it, and the path from there to the location."""
        try:
            system, path = opened(self._location)
        except OSError as error:
            raise StoreUnavailable(str(error)) from None
        path = path.rstrip("/")
        if path.startswith("/"):
            return system, path, ""
        bucket, _, root = path.partition("/")
        return system, bucket, root


class StoredObject:
    """An open object. `with` closes it."""

    def __init__(self, system: Any, path: str, key: str) -> None:
        """Raises ObjectGone, StoreUnavailable."""
        self._system = system
        self._path = path
        self._key = key
        self._file = self._opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        size_bytes: int = self._file.size()
        return size_bytes

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Read bytes in one request; fewer only at the end. Raises ObjectGone, StoreUnavailable."""
        if position >= self.size_bytes:
            return b""
        try:
            with _translated_errors(self._key):
                data: bytes = self._file.read_at(size_bytes, position)
                return data
        except StoreUnavailable:
            self._opened().close()  # raises ObjectGone: pyarrow's S3 does not report a deleted object at a read
            raise

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> Any:
        with _translated_errors(self._key):
            return self._system.open_input_file(self._path)


@contextmanager
def _translated_errors(key: str) -> Iterator[None]:
    """Raise errors of pyarrow as errors of this module."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectGone(f"{key} is not there") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreUnavailable(f"{key} cannot be read: {error}") from error
