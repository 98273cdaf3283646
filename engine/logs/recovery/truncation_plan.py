"""The plan of a truncation: all reads that it needs, before appends have to stop.

Records below the new end do not change during appends. Blocking: called on a worker.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from engine.api import NO_OFFSET, AbortedTransaction
from engine.errors import CorruptMessage, OffsetOutOfRange
from engine.files.filesystem import File, FileSystem
from engine.logs.producers.snapshot import ASIDE_TEMPORARY, Snapshot, newest_sound, put_snapshot
from engine.logs.producers.state import ProducerTable, rebuilt
from engine.logs.producers.walk import Extent, places_of, produced
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import (
    Segment,
    TruncationPoint,
    newest_ms_at,
    segment_name,
    unlink_behind,
    walk_headers,
)
from engine.logs.segments.sparse_index import Entry, SparseIndex
from engine.logs.transactions.aborted import aborted_below
from engine.logs.transactions.aborted_files import aborted_of


class LogBeforeTruncation(NamedTuple):
    """A log before its truncation: its segments up to the one to truncate, and its producers.

    `known` is the index of the last segment below the new end. `aborted` are the entries of the aborted index of that
    segment, which ends at `end_offset`; None: its file has them.
    """

    directory: str
    start_offset: int
    segments: Sequence[Extent]
    known: tuple[SparseIndex, Entry] | None
    producers: ProducerTable
    aborted: Sequence[AbortedTransaction] | None
    end_offset: int
    compacted_to: int


class TruncationPlan(NamedTuple):
    """A log after its truncation: it ends with `segment`, whose `file` is still longer.

    `producers` are those at the new end, `unstable` the positions of their open transactions by offset, `aborted` the
    entries of the aborted index of `segment`.
    """

    directory: str
    segment: Segment
    file: File
    producers: ProducerTable
    unstable: Mapping[int, LogPosition]
    aborted: Sequence[AbortedTransaction]

    @property
    def point(self) -> TruncationPoint:
        """The place where the log ends."""
        return TruncationPoint(self.segment.end_offset, self.segment.base_offset, self.segment.size_bytes)


def plan_truncation(filesystem: FileSystem, log: LogBeforeTruncation, offset: int) -> TruncationPlan:
    """Plan the removal of the batch that holds `offset` and of all behind it. `offset` is in the last segment or behind
    it.

    Raises OffsetOutOfRange if that batch begins below the log start, CorruptMessage if no batch holds the offset, and
    OSError.
    """
    last = log.segments[-1]
    file = last.file or filesystem.open(f"{log.directory}/{segment_name(last.base_offset)}")
    segment = _segment_up_to(file, last, log.known, offset) or _segment_up_to(file, last, None, offset)
    if segment is None:
        raise CorruptMessage(f"no batch holds offset {offset} of segment {segment_name(last.base_offset)}")
    if segment.end_offset < log.start_offset:
        raise OffsetOutOfRange(f"offset {offset} is not behind a batch that begins above {log.start_offset}")
    segment.checked_from = segment.size_bytes
    producers, others = log.producers.below(offset)
    kept = [*log.segments[:-1], Extent(last.base_offset, segment.size_bytes, file)]
    if others:
        producers = producers.joined(_earlier_states(filesystem, log.directory, kept, segment.end_offset, others))
    first_offsets = producers.open_transactions.values()
    unstable = places_of(filesystem, log.directory, kept, first_offsets, log.compacted_to, _ignore_damage)
    return TruncationPlan(log.directory, segment, file, producers, unstable, _still_aborted(filesystem, log, segment))


def _still_aborted(filesystem: FileSystem, log: LogBeforeTruncation, segment: Segment) -> list[AbortedTransaction]:
    """The aborted transactions of the segment after the truncation.

    Raises CorruptMessage: a missing entry would show aborted records.
    """
    aborted = log.aborted
    if aborted is None:
        aborted = aborted_of(filesystem, log.directory, segment.base_offset, log.end_offset)
    return aborted_below(aborted, segment.end_offset)


def _segment_up_to(file: File, extent: Extent, known: tuple[SparseIndex, Entry] | None, offset: int) -> Segment | None:
    """The segment up to the batch that holds `offset`, by its headers; None if it, or `known`, is wrong."""
    segment = Segment(extent.base_offset, file)
    if known is not None:
        segment.begin_at(*known, extent.first_timestamp_ms)
    begins_at = segment.size_bytes
    with suppress(CorruptMessage):
        for at in walk_headers(file, begins_at, extent.size_bytes):
            if at.header.next_offset > offset:
                return segment
            if known is not None and at.position == begins_at and at.header.base_offset != segment.end_offset:
                return None
            segment.add(at.header, newest_ms_at(file, at))
    return None


def secure_producers(
    filesystem: FileSystem, directory: str, segments: Sequence[Extent], end_offset: int, needed_from: int
) -> None:
    """Ensure, durably, a producer snapshot at `end_offset`, where the last of these segments ends.

    The segment files will go. An empty snapshot says that there were no producers. Batches below `needed_from` do not
    matter. Raises CorruptMessage if the state cannot be found, and OSError.
    """
    known = _newest_snapshot(filesystem, directory, end_offset)
    if known.offset == end_offset:
        return
    if max(known.offset, needed_from) < segments[0].base_offset:
        raise CorruptMessage(f"no sound snapshot of offset {segments[0].base_offset} is left")
    table, _ = rebuilt(
        known.producers, produced(filesystem, directory, segments, known.offset, end_offset, _raise_damage)
    )
    put_snapshot(filesystem, directory, Snapshot(end_offset, table, aborted_from=end_offset), ASIDE_TEMPORARY)
    filesystem.sync_dir(directory)


def _newest_snapshot(filesystem: FileSystem, directory: str, end_offset: int) -> Snapshot:
    """The newest sound snapshot up to `end_offset`, or an empty one without an offset."""
    found = newest_sound(filesystem, directory, NO_OFFSET, end_offset)
    return Snapshot(NO_OFFSET, ProducerTable(), NO_OFFSET) if found is None else found


def _raise_damage(_segment: Extent, damage: Exception) -> None:
    raise damage


def _ignore_damage(_segment: Extent, _damage: Exception) -> None:
    """Ignore damage, as at the open of a log: the readable part counts."""


def _earlier_states(
    filesystem: FileSystem, directory: str, segments: Sequence[Extent], end_offset: int, wanted: set[int]
) -> ProducerTable:
    """The earlier state of the `wanted` producers, as far as it can be read."""
    known = _newest_snapshot(filesystem, directory, end_offset)
    table = ProducerTable(one for one in known.producers if one[0] in wanted)
    batches = produced(filesystem, directory, segments, known.offset, end_offset, _ignore_damage)
    return rebuilt(table, (one for one in batches if one[0].producer_id in wanted))[0]


def truncate_files(filesystem: FileSystem, plans: Sequence[TruncationPlan]) -> None:
    """Truncate the files of logs to their plans. The caller syncs the files; it may be repeated after a crash."""
    changed = [one.directory for one in plans if unlink_behind(filesystem, one.directory, one.point)]
    for directory in changed:
        filesystem.sync_dir(directory)
    for one in plans:
        if one.file.size() > one.segment.size_bytes:
            one.file.truncate(one.segment.size_bytes)


def start_empty(filesystem: FileSystem, directory: str, offset: int) -> File:
    """Remove all segments and create an empty one that begins at `offset`. The caller syncs its file.

    It may be repeated after a crash at any step.
    """
    unlink_behind(filesystem, directory, TruncationPoint(-1, -1, 0))
    filesystem.sync_dir(directory)
    file = filesystem.open(f"{directory}/{segment_name(offset)}", create=True)
    filesystem.sync_dir(directory)
    return file
