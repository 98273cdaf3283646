"""Creation of the files of a new segment, and their removal after a failure. Blocking: called on a worker."""

from engine.files.filesystem import File, FileSystem, preallocate
from engine.logs.producers.snapshot import write_snapshot
from engine.logs.segments.chunk import Chunk
from engine.logs.segments.segment import segment_name
from engine.logs.transactions.aborted_files import write_aborted


def begin_segment(filesystem: FileSystem, directory: str, chunk: Chunk, snapshots_from: int | None) -> File:
    """Create the segment file of `chunk`, with a producer snapshot of the state before it, and sync the directory.

    The aborted index of the segment before is written first. With `snapshots_from`, each roll writes a snapshot, and
    those from that offset on are kept.
    """
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
    """Remove the segment file that was created for `chunk` after a failed write: the segment before may go on."""
    if chunk.rolls and chunk.file is not None:
        filesystem.unlink(f"{directory}/{segment_name(chunk.base_offset)}")
        filesystem.sync_dir(directory)
