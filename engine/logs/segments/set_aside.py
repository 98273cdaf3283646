"""Segments that are set aside: renamed to `.deleted`, and deleted later. Blocking: called on a worker.

Reads in flight keep the files open. Files that a crash leaves are deleted at the next open
(engine.logs.recovery.recovery).
"""

from collections.abc import Sequence
from contextlib import suppress

from engine.files.filesystem import FileSystem
from engine.logs.segments.footer import footer_name
from engine.logs.segments.segment import DELETED_SUFFIX, segment_name
from engine.logs.transactions.aborted import aborted_index_name


def set_aside(filesystem: FileSystem, directory: str, base_offsets: Sequence[int]) -> list[str]:
    """Rename segments to `.deleted`, oldest first, so that no new read opens them; returns the new paths.

    Their footers and aborted indexes are deleted. If the partition was deleted meanwhile, there is nothing to do.
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
    """Delete segments that were set aside; a missing file is no error."""
    for path in paths:
        with suppress(FileNotFoundError):
            filesystem.unlink(path)
