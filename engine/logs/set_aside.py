"""Segments that nobody opens any more: set aside under another name, and deleted later. File work for a worker.

Readers in flight keep them open whatever becomes of the name. What a crash leaves is deleted when their log is next
opened (engine.logs.recovery).
"""

from collections.abc import Sequence
from contextlib import suppress

from engine.files.filesystem import FileSystem
from engine.logs.aborted import aborted_index_name
from engine.logs.footer import footer_name
from engine.logs.segment import DELETED_SUFFIX, segment_name


def set_aside(filesystem: FileSystem, directory: str, base_offsets: Sequence[int]) -> list[str]:
    """Rename segments, the oldest first, so that nobody opens them any more; returns what they are called now.

    Their footers and aborted indexes go behind them. Their partition may be deleted meanwhile: then they are gone.
    """
    paths = []
    with suppress(FileNotFoundError):
        for base_offset in base_offsets:
            path = f"{directory}/{segment_name(base_offset)}"
            filesystem.rename(path, path + DELETED_SUFFIX)
            paths.append(path + DELETED_SUFFIX)
            for beside in (footer_name(base_offset), aborted_index_name(base_offset)):
                with suppress(FileNotFoundError):
                    filesystem.unlink(f"{directory}/{beside}")
        filesystem.sync_dir(directory)
    return paths


def delete(filesystem: FileSystem, paths: Sequence[str]) -> None:
    """For good, as far as their partition was not deleted meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            filesystem.unlink(path)
