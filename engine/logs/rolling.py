"""The files of a segment that begins, and of one that was begun in vain. For a worker."""

from engine.files.filesystem import File, FileSystem, preallocate
from engine.logs.aborted_files import write_aborted
from engine.logs.chunk import Chunk
from engine.logs.producer_snapshot import write_snapshot
from engine.logs.segment import segment_name


def begin_segment(filesystem: FileSystem, directory: str, chunk: Chunk, snapshots_from: int | None) -> File:
    """The file `chunk` goes to; a snapshot of who produced before, whose names go down with it. With `snapshots_from`
    there is one at each roll, and those from there on stay. The index of what was aborted before comes first."""
    snapshot = chunk.snapshot
    if snapshot is not None and snapshot.aborted:
        write_aborted(filesystem, directory, snapshot.aborted_from, snapshot.aborted)
    if snapshot is not None and (not snapshot.is_empty or snapshots_from is not None):
        write_snapshot(filesystem, directory, snapshot, snapshots_from)
    file = filesystem.open(f"{directory}/{segment_name(chunk.base_offset)}", create=True)
    if chunk.allocate_bytes:
        chunk.unallocated = preallocate(file, chunk.allocate_bytes)
    filesystem.sync_dir(directory)
    return file


def withdraw(filesystem: FileSystem, directory: str, chunk: Chunk) -> None:
    """Remove the segment that was created for `chunk` in vain: later offsets may still go to the one before it."""
    if chunk.rolls and chunk.file is not None:
        filesystem.unlink(f"{directory}/{segment_name(chunk.base_offset)}")
        filesystem.sync_dir(directory)
