"""What is done to files of a directory so that it is done, or is not, whenever the power goes."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path


def put_new(path: Path, data: bytes, scratch: Path) -> bool:
    """All of it, under a name that nobody has, or nothing: False if somebody has it. What a crash leaves is in
    `scratch`, of the same file system. Raises OSError, after which it may be there."""
    part = scratch / f"put-{uuid.uuid4().hex}.part"
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)
    except FileExistsError:
        return path.read_bytes() == data  # a network file system that lost its answer tries again
    finally:
        with suppress(OSError):
            part.unlink()
    sync(path.parent)
    return True


def move(source: Path, target: Path) -> None:
    """Nothing if somebody else has moved it."""
    with suppress(FileNotFoundError):
        source.rename(target)


def make_folder(path: Path) -> None:
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """A file's bytes, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
