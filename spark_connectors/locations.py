"""Locations of files and objects: a path, or a URL of pyarrow's file systems.

A URL may contain a password, and settings behind a question mark. No error and no log line shows them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

_LOCAL: Final = re.compile(r"^file:(//)?/")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CREDENTIALS: Final = re.compile(  # the second alternative is for a secret with unescaped slashes
    r"^([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/@]*@|[^/]*:.*@)"
)
_FILE_SYSTEMS_KEPT: Final = 8  # in a process; a file system of S3 has connections


def resolved(location: str) -> str:
    """The location for processes with any working directory. Raises ValueError if it cannot be used."""
    location = _LOCAL.sub("/", location)  # as Hadoop reads such URLs: a blank is a character like any other
    if not _SCHEME.match(location):
        location = str(Path(location).absolute())
    try:
        opened(location)
    except OSError as error:
        raise ValueError(str(error)) from None
    return location


def opened(location: str) -> tuple[Any, str]:
    """File system and path of a resolved location. Raises OSError."""
    try:
        return _file_systems.of(location)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).replace(location, shown(location))
        raise OSError(f"{shown(location)} is no place for files: {reason}") from None


def shown(location: str) -> str:
    """A resolved location as a URL without credentials and settings, for messages."""
    if not _SCHEME.match(location):
        return f"file://{location}".rstrip("/")
    return _CREDENTIALS.sub(r"\1", location, count=1).partition("?")[0].rstrip("/")


class _FileSystemCache:
    """File systems of this process. They are pickled as an empty cache, because executors get this by value."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, str]] = {}

    def __reduce__(self) -> tuple[type[_FileSystemCache], tuple[()]]:
        return _FileSystemCache, ()

    def of(self, location: str) -> tuple[Any, str]:
        found = self._found.get(location)
        if found is None:
            found = fs.FileSystem.from_uri(location)
            while len(self._found) >= _FILE_SYSTEMS_KEPT:
                self._found.pop(next(iter(self._found)), None)
            self._found[location] = found
        return found


_file_systems = _FileSystemCache()
