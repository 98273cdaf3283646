"""Recovery of the producer state of a log at open: from the newest sound snapshot and the batches behind it.

Runs on a worker, on a log that is not in use yet. A snapshot is believed only if its CRC is right. Batches that a crash
took from the log are gone from the state as well. The same scan finds the transactions that are open, and those that
ended in the active segment. It also finds those that ended above the high watermark, unless the snapshot is above it.
"""

from collections.abc import Callable, Iterator

from engine.api import AbortedTransaction, Outcome
from engine.files.filesystem import FileSystem
from engine.logs.log import Log
from engine.logs.producers.snapshot import Snapshot, newest_sound, snapshot_name, snapshot_offsets
from engine.logs.producers.state import EndedTransaction, ProducerTable, rebuilt
from engine.logs.producers.walk import Extent, Produced, places_of, produced
from engine.logs.segments.sparse_index import START
from engine.logs.transactions.aborted_files import aborted_bases


def recover_producers(filesystem: FileSystem, log: Log, producers_from: int) -> None:
    """Fill `log.producers` and the log's transactions. No batch below `producers_from` matters.

    Damage that is found goes to `log.problems`.
    """
    end_offset, active_base = log.end.offset, log.active.base_offset
    if log.damaged_from is None:
        _remove_above(filesystem, log.directory, end_offset)
    else:  # the log ends too early: `producers_from` belongs to the end that it had before
        producers_from = min(producers_from, log.local_start_offset)

    def on_damage(problem: str) -> None:
        log.problems.append(f"{problem}: the state of producers is read from the log")

    found = newest_sound(filesystem, log.directory, producers_from, end_offset, on_damage, active_base)
    known = found or _nothing_before(producers_from)
    if max(known.offset, log.start_offset) < log.local_start_offset:
        log.problems.append(f"{log.directory}: the producers below offset {log.local_start_offset} are not known")

    def on_unreadable(segment: Extent, damage: Exception) -> None:
        problem = f"{log.path_of(segment.base_offset)}: {damage}: producers are known in part only"
        if problem not in log.problems:  # both scans may read a segment
            log.problems.append(problem)

    def batches_from(offset: int) -> Iterator[Produced]:
        extents = [Extent.of(one)._replace(start=one.start_for_offset(offset) or START) for one in log.segments]
        return produced(filesystem, log.directory, extents, offset, end_offset, on_unreadable)

    log.producers, ended = rebuilt(known.producers, batches_from(known.offset))
    log.aborted.know(base for base in aborted_bases(filesystem, log.directory) if base < active_base)
    log.aborted.active = aborted_since(active_base, known, ended)

    def on_unknown(segment: Extent, damage: Exception) -> None:
        log.problems.append(
            f"{log.path_of(segment.base_offset)}: where an open transaction begins is not known: {damage}"
        )

    late = []
    if log.unconfirmed:
        high_watermark = log.unconfirmed[0].offset
        if high_watermark < known.offset and _has_markers(batches_from(high_watermark), known.offset):
            ended = _ended_from(filesystem, log, min(producers_from, high_watermark), high_watermark, batches_from)
        late = [one for one in ended if one.last_offset >= high_watermark]
    log.unreplicated = [(one.first_offset, one.last_offset) for one in late]
    first_offsets = [*log.producers.open_transactions.values(), *(one.first_offset for one in late)]
    extents = list(map(Extent.of, log.segments))
    log.unstable = places_of(filesystem, log.directory, extents, first_offsets, log.compacted_to, on_unknown)


def _nothing_before(offset: int) -> Snapshot:
    return Snapshot(offset, ProducerTable(), offset)


def _has_markers(batches: Iterator[Produced], below: int) -> bool:
    return any(marker is not None and header.base_offset < below for header, marker in batches)


def _ended_from(
    filesystem: FileSystem,
    log: Log,
    producers_from: int,
    high_watermark: int,
    batches_from: Callable[[int], Iterator[Produced]],
) -> list[EndedTransaction]:
    """All transactions that ended above the high watermark, and others (ProducerStateManager.unreplicatedTxns).

    A snapshot above the high watermark does not have them any more. So the scan begins from a snapshot below it, or
    from `producers_from` of the checkpoint.
    """
    found = newest_sound(filesystem, log.directory, producers_from, high_watermark)
    known = found or _nothing_before(producers_from)
    return rebuilt(known.producers, batches_from(known.offset))[1]


def aborted_since(base_offset: int, known: Snapshot, ended: list[EndedTransaction]) -> list[AbortedTransaction]:
    """The aborted transactions with a marker at or above `base_offset`: from a snapshot, and those that ended later."""
    before = [one for one in known.aborted if one.last_offset >= base_offset]
    later = [one for one in ended if one.outcome is Outcome.ABORT and one.last_offset >= base_offset]
    return [*before, *map(EndedTransaction.aborted, later)]


def _remove_above(filesystem: FileSystem, directory: str, end: int) -> None:
    """Delete snapshots above the end of the log: it may reach their offsets again with other batches."""
    above = [offset for offset in snapshot_offsets(filesystem, directory) if offset > end]
    for offset in above:
        filesystem.unlink(f"{directory}/{snapshot_name(offset)}")
    if above:
        filesystem.sync_dir(directory)
