"""Moves of the log start, and the deletion of the segments below it.

A barrier in the journal precedes each move (RULES J2), so that no replay brings records back. The caller decides which
records may go.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple

from engine.commit.journal_format import Barrier, BarrierKind
from engine.commit.writer import files_synced_by_writing
from engine.log_dirs.log_dir import LogDir, Resident, index_key
from engine.logs.segments.segment import Segment
from engine.logs.segments.set_aside import set_aside
from engine.stats import Reason

SET_ASIDE_TOGETHER_MAX = 16  # logs in one job of a worker


class Move(NamedTuple):
    """A move of a log start to `offset`. `reasons`: why each segment goes, if the log start is not the reason."""

    resident: Resident
    offset: int
    reasons: Sequence[Reason] = ()


class _RemovedSegments(NamedTuple):
    """Segments with files that a log has lost. The tier deletes its copies itself."""

    resident: Resident
    directory: str
    segments: Sequence[Segment]


async def move_log_starts(log_dir: LogDir, moves: Sequence[Move]) -> None:
    """Move log starts, and remove the segments that end at or below them.

    One barrier covers all of them. Behind it the files are set aside, and deleted after the topic's delay; reads in
    flight keep them open. An offset above the high watermark, or not durable, is ignored. Raises StorageError.
    """
    if not moves:
        return
    # A log that ends below its start would count as damaged. The flush comes first, so that appends wait for little.
    await log_dir.commit_log.flusher.flush([one.resident.log for one in moves if not _is_durable(one)])
    async with log_dir.commit_log.alone():
        moves = [one for one in moves if _can_move(log_dir, one)]
        ahead = [one for one in moves if one.offset > one.resident.log.start_offset]
        if ahead:
            await log_dir.commit_log.announce([_barrier(one) for one in ahead])
        moved = [_drop(log_dir, one) for one in moves]
    for start in range(0, len(moved), SET_ASIDE_TOGETHER_MAX):
        await _set_aside(log_dir, [one for one in moved[start : start + SET_ASIDE_TOGETHER_MAX] if one.segments])


def _can_move(log_dir: LogDir, move: Move) -> bool:
    """Whether the log still has the offset: it may have been deleted meanwhile, or truncated, and appended to again."""
    resident = move.resident
    is_there = log_dir.partitions.get(resident.partition) is resident and move.offset <= resident.high_watermark
    return is_there and _is_durable(move)


def _is_durable(move: Move) -> bool:
    return move.offset <= move.resident.log.durable_offset


def _barrier(move: Move) -> Barrier:
    partition = move.resident.partition
    return Barrier(partition.topic_id, partition.partition, BarrierKind.LOG_START, move.offset)


def _drop(log_dir: LogDir, move: Move) -> _RemovedSegments:
    log = move.resident.log
    segments = log.drop_below(max(move.offset, log.start_offset))
    log_dir.caches.forget(segments)
    reasons = chain(move.reasons, repeat(Reason.LOG_START))
    for segment, reason in zip(segments, reasons, strict=False):
        log_dir.stats.note_removed(reason, segment.size_bytes)
    move.resident.announce_change()
    return _RemovedSegments(move.resident, log.directory, [one for one in segments if not one.is_cold])


async def _set_aside(log_dir: LogDir, moved: Sequence[_RemovedSegments]) -> None:
    """Set aside files while appends go on. If the log dir is closing, the next open of the log removes them."""
    async with log_dir.commit_log.between_checkpoints():
        if log_dir.is_closing:
            return
        # Another partition may have the directory of one that was deleted, and a reset log files of the same names.
        moved = [one for one in moved if log_dir.partitions.get(one.resident.partition) is one.resident]
        moved = [one for one in moved if one.resident.log.start_offset >= one.segments[-1].end_offset]
        by_directory = [(one.directory, [segment.base_offset for segment in one.segments]) for one in moved]
        found = await log_dir.disk.run(lambda: [set_aside(log_dir.disk.filesystem, *one) for one in by_directory])
    for one, paths in zip(moved, found, strict=True):
        sizes_bytes = [segment.size_bytes for segment in one.segments]
        delay_ms = one.resident.config.file_delete_delay_ms
        log_dir.deleter.add(zip(paths, sizes_bytes, strict=False), delay_ms)
        bases = [segment.base_offset for segment in one.segments]
        await log_dir.index.forget(index_key(one.resident.partition), bases)


async def roll(log_dir: LogDir, resident: Resident, end_offset: int) -> bool:
    """Begin a segment at the end of a log, so that all before it may go; False if the log end is not `end_offset` any
    more.

    Raises StorageError.
    """
    await log_dir.commit_log.flusher.flush([resident.log])  # so that appends wait for little
    async with log_dir.commit_log.alone():
        if resident.log.end.offset != end_offset or log_dir.partitions.get(resident.partition) is not resident:
            return False
        part = resident.stage_roll()
        async with log_dir.disk.syncing(files_synced_by_writing([part])):
            await log_dir.disk.run_between_commit_batches(partial(part.log.perform, part.chunks))
        resident.rolled(part)
        return True
