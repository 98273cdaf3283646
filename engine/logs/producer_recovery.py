"""Finding out, when a log is opened, what its producers last wrote: from the newest sound snapshot and the log itself.

Runs on a worker, on a log that nobody uses yet. Snapshots are believed only up to their CRC; batches are in the log or
they are not, so what a crash took away from the log is gone from the state as well.
"""

from collections.abc import Iterator

from engine.batches.batch import BatchHeader
from engine.errors import CorruptMessage
from engine.files.filesystem import FileSystem, Unreadable
from engine.logs.log import Log
from engine.logs.producer_snapshot import newest_sound, snapshot_name, snapshot_offsets
from engine.logs.producer_state import ProducerTable, rebuilt
from engine.logs.segment import walk_headers
from engine.logs.sparse_index import START


def recover_producers(filesystem: FileSystem, log: Log, producers_from: int) -> None:
    """Fill `log.producers`. No batch below `producers_from` matters. What was found damaged goes to `log.problems`."""
    end_offset = log.end.offset
    _remove_above(filesystem, log.directory, end_offset)

    def on_damage(problem: str) -> None:
        log.problems.append(f"{problem}: the state of producers is read from the log")

    found = newest_sound(filesystem, log.directory, producers_from, end_offset, on_damage)
    table, from_offset = found or (ProducerTable(), producers_from)
    if max(from_offset, log.start_offset) < log.local_start_offset:
        log.problems.append(f"{log.directory}: what producers did below offset {log.local_start_offset} is not known")
    log.producers = rebuilt(table, _headers_from(filesystem, log, from_offset))


def _remove_above(filesystem: FileSystem, directory: str, end: int) -> None:
    """Snapshots of what the log has lost: one day it would reach their offsets again, with other batches."""
    above = [offset for offset in snapshot_offsets(filesystem, directory) if offset > end]
    for offset in above:
        filesystem.unlink(f"{directory}/{snapshot_name(offset)}")
    if above:
        filesystem.sync_dir(directory)


def _headers_from(filesystem: FileSystem, log: Log, offset: int) -> Iterator[BatchHeader]:
    for segment in log.segments:
        if segment.end_offset > offset:
            start = segment.start_for_offset(offset) or START  # known where the segment was walked just now
            file = filesystem.open(log.path_of(segment.base_offset))
            try:
                for at in walk_headers(file, start[1], segment.size_bytes):
                    if at.header.base_offset >= offset:
                        yield at.header
            except (CorruptMessage, Unreadable) as damage:
                log.problems.append(f"{log.path_of(segment.base_offset)}: {damage}: producers are known in part only")
