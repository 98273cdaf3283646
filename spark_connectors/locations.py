"""Where files and objects of connectors are: a path, or a URL as pyarrow's file systems take it.

Such a URL may have a password in it, and settings behind a question mark. Nobody is told of these: no error, no log.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

_LOCAL: Final = re.compile(r"^file:(//)?/")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CREDENTIALS: Final = re.compile(  # the second of the ways is for a secret whose slashes were not escaped
    r"^([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/@]*@|[^/]*:.*@)"
)
_FILE_SYSTEMS_KEPT: Final = 8  # of a process; one of S3 has connections


def resolved(location: str) -> str:
    """The same place for processes with other working directories. Raises ValueError for one that cannot be used."""
    location = _LOCAL.sub("/", location)  # as Hadoop reads them, to whom a blank is a character as any other
    if not _SCHEME.match(location):
        location = str(Path(location).absolute())
    try:
        opened(location)
    except OSError as error:
        raise ValueError(str(error)) from None
    return location


def opened(location: str) -> tuple[Any, str]:
    """The file system of one that was resolved, and the path in it. Raises OSError."""
    try:
        return _kept.of(location)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).replace(location, shown(location))
        raise OSError(f"{shown(location)} is no place for files: {reason}") from None


def shown(location: str) -> str:
    """As a URL without credentials and settings, for everybody to read; of one that was resolved."""
    if not _SCHEME.match(location):
        return f"file://{location}".rstrip("/")
    return _CREDENTIALS.sub(r"\1", location, count=1).partition("?")[0].rstrip("/")


class _Kept:
    """File systems of this process, which are pickled as none: what executors are sent is pickled by value."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, str]] = {}

    def __reduce__(self) -> tuple[type[_Kept], tuple[()]]:
        return _Kept, ()

    def of(self, location: str) -> tuple[Any, str]:
        found = self._found.get(location)
        if found is None:
            found = fs.FileSystem.from_uri(location)
            while len(self._found) >= _FILE_SYSTEMS_KEPT:
                self._found.pop(next(iter(self._found)), None)
            self._found[location] = found
        return found


_kept = _Kept()
