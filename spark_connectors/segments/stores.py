"""Objects, to be read: the one door of segments to an object store, or to a directory that is one.

An object's key is its path below the bucket, or below the directory. What a store does not answer is asked again as
often, and waited for as long, as pyarrow does.
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
    """What was not read."""


class StoreUnavailable(StoreError):
    """The store does not answer, or refuses; its text has the reason."""


class ObjectGone(StoreError):
    """There is no such object (any more)."""


class ObjectDamaged(StoreError):
    """It is not what was put, or was put by another version."""


class Store:
    """At a location as `spark_connectors.locations` has them, resolved. It is pickled to executors: nothing of it is
    open."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __repr__(self) -> str:
        return f"Store({self.name})"

    @property
    def name(self) -> str:
        """A URL without credentials."""
        return shown(self._location)

    @property
    def root(self) -> str:
        """What the keys of the location begin with: it ends with a slash, or is empty. Raises StoreUnavailable."""
        root = self._place()[2]
        return f"{root}/" if root else ""

    def open(self, key: str) -> StoredObject:
        """Raises ObjectGone, StoreUnavailable."""
        system, container, _ = self._place()
        return StoredObject(system, f"{container}/{key}", key)

    def read(self, key: str) -> bytes | None:
        """All of it; None: there is no such object. Raises StoreUnavailable."""
        try:
            with self.open(key) as found:
                return found.read_at(0, found.size_bytes)
        except ObjectGone:
            return None

    def has(self, key: str) -> bool:
        """Raises StoreUnavailable."""
        try:
            self.open(key).close()
        except ObjectGone:
            return False
        return True

    def keys_below(self, prefix: str, *, is_deep: bool = True) -> list[str]:
        """Ascending; `prefix` ends with a slash, or is empty. Without `is_deep` those that have another slash are told
        as one, up to there. A listing is a hint, no more. Raises StoreUnavailable."""
        system, container, _ = self._place()
        selector = fs.FileSelector(f"{container}/{prefix}".rstrip("/"), recursive=is_deep, allow_not_found=True)
        with _told(prefix):
            found = [(one.path.removeprefix(f"{container}/"), one.type) for one in system.get_file_info(selector)]
        folders = [] if is_deep else [f"{path}/" for path, kind in found if kind == fs.FileType.Directory]
        return sorted([*folders, *(path for path, kind in found if kind == fs.FileType.File)])

    def _place(self) -> tuple[Any, str, str]:
        """The file system, what in it the keys are below, and the path from there to the location."""
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
    """Open. `with` closes it."""

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
        """In one request; fewer bytes only at its end. Raises ObjectGone, StoreUnavailable."""
        if position >= self.size_bytes:
            return b""
        try:
            with _told(self._key):
                data: bytes = self._file.read_at(size_bytes, position)
                return data
        except StoreUnavailable:
            self._opened().close()  # of one that has gone since, pyarrow's S3 does not tell that when it is read
            raise

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> Any:
        with _told(self._key):
            return self._system.open_input_file(self._path)


@contextmanager
def _told(key: str) -> Iterator[None]:
    """By an error of this module, what pyarrow does not do."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectGone(f"{key} is not there") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreUnavailable(f"{key} cannot be read: {error}") from error
