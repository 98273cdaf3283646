"""Atomic operations on files of a directory, which survive a power failure."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path


def put_new(path: Path, data: bytes, scratch: Path) -> bool:
    """Create a file with all of the data under an unused name, or nothing. False: the name is used for other data. A
    crash may leave a file in `scratch`, which is in the same file system. Raises OSError; then the file may exist.
    """
    part = scratch / f"put-{uuid.uuid4().hex}.part"
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)
    except FileExistsError:
        return path.read_bytes() == data  # a network file system repeats a request whose answer it has lost
    finally:
        with suppress(OSError):
            part.unlink()
    sync(path.parent)
    return True


def move(source: Path, target: Path) -> None:
    """Move a file. Do nothing if another run has moved it."""
    with suppress(FileNotFoundError):
        source.rename(target)


def make_folder(path: Path) -> None:
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """Sync the bytes of a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
