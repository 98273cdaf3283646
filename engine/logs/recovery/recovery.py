"""Opening a log: find its sound batches, and tell a torn tail from damage (RULES L5).

If the index has a summary that fits to a segment, the segment is not read. Of the others, the headers are walked. After
an unclean stop, every batch from the segment of the recovery point on is checked by its CRC, whatever the index says.

Bytes that are no batch are truncated only where a crash can have left them: after an unclean stop, in the last segment,
at or above the recovery point. The truncation is reported. Anywhere else acknowledged records may be lost: the log is
opened up to there and marked as damaged, and nothing on disk changes. Runs on a worker; no log in use is changed.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.batches.batch import BatchHeader, has_right_crc
from engine.errors import CorruptMessage
from engine.files.filesystem import ASIDE_SUFFIX, File, FileSystem, Unreadable
from engine.logs.log import Log
from engine.logs.producers.recovery import recover_producers
from engine.logs.recovery.checkpoints import PartitionCheckpoint
from engine.logs.segments.footer import SUFFIX as FOOTER_SUFFIX
from engine.logs.segments.footer import FooterDamaged, footer_name, read_footer
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import (
    DELETED_SUFFIX,
    Segment,
    may_follow,
    newest_ms_at,
    segment_bases,
    segment_name,
    walk_headers,
)
from engine.logs.segments.sparse_index import Stored
from engine.logs.segments.swap import finish_swaps
from engine.logs.transactions.aborted import SUFFIX as ABORTED_SUFFIX


class LastKnown(NamedTuple):
    """The state of a partition from the log dir, before its log is opened."""

    is_clean: bool
    checkpoint: PartitionCheckpoint = PartitionCheckpoint()
    stored: Stored = Stored()
    may_truncate: bool = True  # False if the journal has lost frames: a torn tail may be their only copy
    was_released: bool = False  # this process had the log open before, with everything durable
    has_others: bool = False  # other replicas: records above the high watermark may have to be truncated, or to wait


def create_log(filesystem: FileSystem, directory: str) -> Log:
    """Create the first segment of a new partition. Its directory exists; the caller syncs it."""
    file = filesystem.open(f"{directory}/{segment_name(0)}", create=True)
    return Log(filesystem, directory, [Segment(0, file)])


def open_log(filesystem: FileSystem, directory: str, last_known: LastKnown) -> Log:
    """Open a log as far as it can be served. `damaged_from` is set if records are missing or damaged."""
    finish_swaps(filesystem, directory)
    bases = segment_bases(filesystem, directory)
    first_offset = last_known.checkpoint.first_local_offset
    if not bases and not last_known.checkpoint.local_start_offset:
        log = create_log(filesystem, directory)
        filesystem.sync_dir(directory)
        if last_known.checkpoint.recovery_point > 0:
            log.damaged_from = 0
        return log
    is_missing = not bases or bases[0] > first_offset  # the first segment
    bases = [first_offset] if is_missing else _tidied(filesystem, directory, bases, first_offset)
    log = _known_log(filesystem, directory, bases, last_known)
    if is_missing:
        log.damaged_from = first_offset
        return log
    segments = log.segments
    sound = 0
    is_damaged = False
    while sound < len(segments) and not is_damaged:
        is_damaged = not _load_segment(filesystem, log, sound, last_known)
        sound += 1
    del log.segments[sound:]
    is_damaged = _note_footers(filesystem, log, bases, is_damaged=is_damaged)
    if not last_known.is_clean:
        filesystem.open(
            log.path_of(log.active.base_offset)
        ).fdatasync()  # content of the page cache must be durable before it is served
        filesystem.sync_dir(directory)  # and so must the names of files that a killed process had just made
        log.has_spare = True  # only a clean stop frees it for sure
    log.recovered()
    log.forget_older_epochs()
    if is_damaged or log.end.offset < max(last_known.checkpoint.recovery_point, first_offset):
        log.damaged_from = log.end.offset
    else:
        log.dropped = log.dropped.below(log.end.offset)  # what was noted, but has not come yet, is not missing
        log.compacted_to = min(log.compacted_to, log.end.offset)
    if last_known.has_others:
        log.unconfirmed = _ends_from(filesystem, log, last_known.checkpoint.high_watermark)
    recover_producers(filesystem, log, last_known.checkpoint.producers_from)
    return log


def _known_log(filesystem: FileSystem, directory: str, bases: Sequence[int], last_known: LastKnown) -> Log:
    """A log with everything that is known without reading; its segments are still empty."""
    checkpoint = last_known.checkpoint
    start_offset, local_start_offset = checkpoint.log_start_offset, checkpoint.local_start_offset
    log = Log(filesystem, directory, [Segment(base) for base in bases], start_offset)
    log.cold.local_start_offset = local_start_offset
    log.compacted_to, log.clean_to = checkpoint.compacted_to, checkpoint.clean_to
    log.dropped = checkpoint.dropped
    if local_start_offset or checkpoint.tiered_to:
        log.tiered_to = checkpoint.tiered_to
    for one in checkpoint.known_epochs:
        if one.start_offset < max(log.compacted_to, local_start_offset):  # first batches may be compacted away
            log.epochs.note(*one)
    log.epochs.expect(checkpoint.expected_epochs)
    log.know_cold(last_known.stored.summaries, are_stored=True)
    return log


def _ends_from(filesystem: FileSystem, log: Log, offset: int) -> list[LogPosition]:
    """The last batch boundary at or below `offset`, and all boundaries behind it."""
    first = log.segment_of(max(offset, log.local_start_offset))
    newest_ms = max((one.max_timestamp_ms for one in log.segments if one.base_offset < first.base_offset), default=-1)
    found = [LogPosition(first.base_offset, first.base_offset, 0, newest_ms)]
    for segment in log.segments:
        if segment.base_offset < first.base_offset:
            continue
        file = filesystem.open(log.path_of(segment.base_offset))
        for at in walk_headers(file, 0, segment.size_bytes):
            newest_ms = max(newest_ms, newest_ms_at(file, at))
            end = at.position + at.header.size_bytes
            if at.header.next_offset <= offset:
                found.clear()
            found.append(LogPosition(at.header.next_offset, segment.base_offset, end, newest_ms))
    found[0] = found[0]._replace(offset=max(found[0].offset, log.start_offset))  # the log start may lie within a batch
    return found


def _tidied(filesystem: FileSystem, directory: str, bases: list[int], first_offset: int) -> list[int]:
    """Delete files that a move of the log start or local start has left, oldest first; returns the base offsets that
    count."""
    left = [name for name in filesystem.list_dir(directory) if name.endswith(DELETED_SUFFIX)]
    removed = [base for base, end in pairwise(bases) if end <= first_offset]
    for name in [*left, *map(segment_name, removed)]:
        filesystem.unlink(f"{directory}/{name}")
    if left or removed:
        filesystem.sync_dir(directory)
    return bases[len(removed) :]


def _note_footers(filesystem: FileSystem, log: Log, bases: Sequence[int], *, is_damaged: bool) -> bool:
    """Note which segments are sealed; returns True if the log is damaged.

    A footer of the active segment is removed, and so are footers and aborted indexes without segments.
    """
    names = [name for name in filesystem.list_dir(log.directory) if FOOTER_SUFFIX in name or ABORTED_SUFFIX in name]
    sealed = {int(name.partition(".")[0]) for name in names if name.endswith(FOOTER_SUFFIX)}
    removed = [name for name in names if name.endswith(ASIDE_SUFFIX) or int(name.partition(".")[0]) not in bases]
    for segment in log.segments:
        segment.is_sealed = segment.base_offset in sealed
    if log.active.is_sealed and not is_damaged:
        name = footer_name(log.active.base_offset)
        try:
            footer = read_footer(filesystem, log.directory, log.active.base_offset)
            is_damaged = footer.size_bytes != log.active.size_bytes
        except FooterDamaged as damage:
            log.problems.append(f"{log.directory}/{name}: {damage}")
        if not is_damaged:
            removed.append(name)
            log.active.is_sealed = False
    for name in removed:
        filesystem.unlink(f"{log.directory}/{name}")
    if removed:
        filesystem.sync_dir(log.directory)
    return is_damaged


def _load_segment(filesystem: FileSystem, log: Log, number: int, last_known: LastKnown) -> bool:
    """Believe or scan one segment; False if the log is damaged within it or directly behind it."""
    segment = log.segments[number]
    is_last = number == len(log.segments) - 1
    next_base = None if is_last else log.segments[number + 1].base_offset
    path = log.path_of(segment.base_offset)
    if _believe(log, segment, filesystem.size(path), next_base, last_known):
        return True
    file = filesystem.open(path)
    verify = not last_known.is_clean and (next_base is None or next_base > last_known.checkpoint.recovery_point)
    if verify:
        file.sync_and_forget()
    if _scan(log, segment, file, last_known, verify=verify):
        return next_base is None or segment.end_offset == next_base
    if (
        last_known.is_clean
        or not last_known.may_truncate
        or not is_last
        or segment.is_damaged
        or segment.end_offset < last_known.checkpoint.recovery_point
    ):
        return False
    torn_bytes = file.size() - segment.size_bytes
    log.problems.append(
        f"{path}: {torn_bytes} bytes behind offset {segment.end_offset} are no whole batch, as a crash leaves them: "
        "truncated"
    )
    file.truncate(segment.size_bytes)
    return True


def _believe(log: Log, segment: Segment, size_bytes: int, next_base: int | None, last_known: LastKnown) -> bool:
    """Believe the summary of the index, if nothing on disk contradicts it, instead of walking the segment."""
    checkpoint = last_known.checkpoint
    summary = last_known.stored.summaries.get(segment.base_offset)
    if summary is None or summary.size_bytes != size_bytes:
        return False
    if next_base is None:
        is_sound = last_known.is_clean and summary.end_offset >= checkpoint.recovery_point
    else:
        is_sound = summary.end_offset == next_base and (last_known.is_clean or next_base <= checkpoint.recovery_point)
    epochs = [one for one in checkpoint.known_epochs if one.start_offset < summary.end_offset]
    knows_epochs = not summary.size_bytes or (epochs and epochs[-1].epoch == summary.leader_epoch)
    if not is_sound or not knows_epochs:
        return False
    for one in epochs:
        log.epochs.note(*one)
    segment.believe(summary)
    return True


def _scan(log: Log, segment: Segment, file: File, last_known: LastKnown, *, verify: bool) -> bool:
    """Add each batch to the segment; False at the first bytes that are not the next batch."""
    try:
        for at in walk_headers(file, 0, file.size()):
            if not _continues(log, segment, at.header, last_known.checkpoint.epochs_to):
                return False
            if verify:
                stored = file.read_at(at.position, at.header.size_bytes)
                if len(stored) < at.header.size_bytes or not has_right_crc(memoryview(stored), at.header):
                    return False
            log.epochs.follow(at.header.leader_epoch, at.header.base_offset, segment.end_offset)
            entry = segment.add(at.header, newest_ms_at(file, at))
            if entry is not None and entry.offset >= last_known.stored.indexed_to:
                log.unindexed.append((segment.base_offset, entry))
    except CorruptMessage:
        return False
    except Unreadable as error:
        segment.is_damaged = True  # a crash does not cause this: acknowledged records may be behind it
        log.problems.append(f"{log.path_of(segment.base_offset)}, behind offset {segment.end_offset}: {error}")
        return False
    finally:
        segment.checked_from = 0 if verify else segment.size_bytes
    return True


def _continues(log: Log, segment: Segment, header: BatchHeader, epochs_to: int) -> bool:
    """Whether a batch may be the next one of the log.

    Below `epochs_to` the leader epochs are known: the batches that compaction left may not show where an epoch began.
    """
    if header.next_offset <= log.compacted_to:
        if header.next_offset <= epochs_to:
            is_right_epoch = header.leader_epoch == log.epochs.epoch_of(header.next_offset - 1)
        else:
            is_right_epoch = header.leader_epoch >= log.epochs.latest
        return (
            may_follow(header.base_offset, segment.end_offset, log.compacted_to)
            and 0 <= header.record_count <= header.last_offset_delta + 1
            and is_right_epoch
        )
    return (
        header.base_offset == segment.end_offset
        and header.record_count == header.last_offset_delta + 1 > 0
        and header.leader_epoch >= log.epochs.latest
    )
