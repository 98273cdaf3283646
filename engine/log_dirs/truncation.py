"""Truncation and reset of logs: in place, many at once.

A barrier in the journal precedes the change (RULES J2), so that no replay brings records back. All reads come before
it, and the files are truncated after it. Other logs wait only while the barrier is written and the change takes effect
in memory. Appends to the truncated logs are refused until a checkpoint has been written. If the checkpoint fails, these
logs are closed.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from engine.api import AbortedTransaction
from engine.commit.journal_format import Barrier, BarrierKind
from engine.errors import CorruptMessage, EngineError, OffsetOutOfRange, StorageError, UnreadableMessage
from engine.files.filesystem import FileSystem, Unreadable
from engine.log_dirs.layout import directory_name
from engine.log_dirs.log_dir import LogDir, Resident, Work, index_key
from engine.logs.log import Log
from engine.logs.producers.state import ProducerTable
from engine.logs.producers.walk import Extent
from engine.logs.recovery.checkpoints import key_of
from engine.logs.recovery.truncation_plan import (
    LogBeforeTruncation,
    TruncationPlan,
    plan_truncation,
    start_empty,
    truncate_files,
)
from engine.logs.segments.segment import Segment

TOGETHER_MAX = 16  # logs in one job of a worker: more would block the disk, and the core, for others


class Truncation(NamedTuple):
    """A truncation of a log to before the batch that holds `offset`. `below_sealed`: sealed segments may be
    truncated."""

    resident: Resident
    offset: int
    below_sealed: bool = False


class _Planned(NamedTuple):
    """A log, and the plan of its truncation."""

    resident: Resident
    plan: TruncationPlan

    @property
    def barrier(self) -> Barrier:
        return Barrier(*key_of(self.resident.partition), BarrierKind.TRUNCATED, *self.plan.point)


async def truncate(log_dir: LogDir, wanted: Sequence[Truncation]) -> list[EngineError | None]:
    """Remove the batches that hold these offsets, and all behind them; returns an error for each log that is unchanged.

    A batch is removed as a whole. Appends are refused meanwhile. OffsetOutOfRange: the offset is below the log start,
    or below the end of a sealed segment. CorruptMessage: the beginning of the batch cannot be found.
    """
    async with log_dir.commit_log.replacing():
        found = await _plans(log_dir, wanted)
        planned = [one for one in found if isinstance(one, _Planned)]
        try:
            if planned:
                await _truncate(log_dir, planned)
        except StorageError as error:
            return [error if isinstance(one, _Planned) else one for one in found]
        return [None if isinstance(one, _Planned) else one for one in found]


async def _plans(log_dir: LogDir, wanted: Sequence[Truncation]) -> list[_Planned | EngineError | None]:
    """The plan of each truncation, or its error; None if the log already ends there."""
    found: list[_Planned | EngineError | None] = []
    for start in range(0, len(wanted), TOGETHER_MAX):
        chunk = wanted[start : start + TOGETHER_MAX]
        inputs = [_planning_input(one) for one in chunk]
        try:
            plans = await log_dir.disk.run(partial(_plan_all, log_dir.disk.filesystem, inputs))
        except StorageError as error:
            plans = [error] * len(inputs)
        for one, plan in zip(chunk, plans, strict=True):
            found.append(_Planned(one.resident, plan) if isinstance(plan, TruncationPlan) else plan)
    return found


def _planning_input(one: Truncation) -> EngineError | tuple[LogBeforeTruncation, int] | None:
    """The arguments of `plan_truncation`, or an error; None if the log ends at the offset, or before."""
    if one.offset >= one.resident.log.end.offset:
        return None
    return _why_not(one) or (_before_truncation(one), one.offset)


def _why_not(one: Truncation) -> EngineError | None:
    log = one.resident.log
    if one.offset < log.start_offset:
        return OffsetOutOfRange(f"offset {one.offset} is below the log start {log.start_offset}")
    if one.offset < log.local_start_offset:
        return OffsetOutOfRange(f"offset {one.offset} is below the local start {log.local_start_offset}")
    sealed = [segment for segment in log.segments if segment.is_sealed and segment.end_offset > one.offset]
    if sealed and not one.below_sealed:
        return OffsetOutOfRange(f"offset {one.offset} is below {sealed[-1].end_offset}, the end of the sealed segments")
    return None


def _before_truncation(one: Truncation) -> LogBeforeTruncation:
    log = one.resident.log
    last = log.segment_of(one.offset)
    segments = [segment for segment in log.segments if segment.base_offset <= last.base_offset]
    known = None if last.index is None else last.index.below(one.offset)
    return LogBeforeTruncation(
        log.directory,
        log.start_offset,
        [*map(Extent.of, segments)],
        known,
        ProducerTable(log.producers),
        _aborted(log, last),
        last.end_offset,
        log.compacted_to,
    )


def _aborted(log: Log, last: Segment) -> Sequence[AbortedTransaction] | None:
    if last is log.active:
        return [*log.aborted.active]
    return None if last.base_offset in log.aborted.bases else ()


def _plan_all(
    filesystem: FileSystem, inputs: Sequence[EngineError | tuple[LogBeforeTruncation, int] | None]
) -> Sequence[EngineError | TruncationPlan | None]:
    return [_plan_one(filesystem, *one) if isinstance(one, tuple) else one for one in inputs]


def _plan_one(filesystem: FileSystem, log: LogBeforeTruncation, offset: int) -> EngineError | TruncationPlan:
    try:
        return plan_truncation(filesystem, log, offset)
    except (CorruptMessage, OffsetOutOfRange) as error:
        return error
    except Unreadable as error:
        return UnreadableMessage(f"the disk cannot read where offset {offset} lies: {error.strerror}")


async def _truncate(log_dir: LogDir, planned: Sequence[_Planned]) -> None:
    """Carry out plans within `replacing`. Raises StorageError."""
    async with log_dir.commit_log.committer.between_commit_batches():
        log_dir.commit_log.advance_points()
        await log_dir.commit_log.announce([one.barrier for one in planned])
        removed = [segment for one in planned for segment in one.resident.truncate(one.plan)]
    again = [(one.resident, partial(_truncate_files, log_dir, [one])) for one in planned]
    async with _carried_out(log_dir, again, removed):
        await _truncate_files(log_dir, planned)


async def _truncate_files(log_dir: LogDir, planned: Sequence[_Planned]) -> None:
    """Truncate the files; it may be repeated."""
    for start in range(0, len(planned), TOGETHER_MAX):
        chunk = planned[start : start + TOGETHER_MAX]
        await log_dir.disk.run(partial(truncate_files, log_dir.disk.filesystem, [one.plan for one in chunk]))
        await log_dir.disk.sync([one.plan.file for one in chunk])
        for one in chunk:
            one.resident.log.note_flushed(one.resident.log.end)
    await log_dir.index.truncate({index_key(one.resident.partition): one.resident.log for one in planned})


def is_unused(log: Log) -> bool:
    """Whether a reset would discard nothing."""
    return log.end.offset == log.start_offset and not log.producers


async def reset(log_dir: LogDir, resident: Resident, offset: int, *, expects_unused: bool = False) -> None:
    """Discard all of a log; it goes on at `offset` (UnifiedLog.truncateFullyAndStartAt).

    `expects_unused`: if there is anything to discard, OffsetOutOfRange is raised. Raises StorageError.
    """
    partition, log = resident.partition, resident.log
    async with log_dir.commit_log.replacing():
        async with log_dir.commit_log.committer.between_commit_batches():
            if expects_unused and not is_unused(log):
                raise OffsetOutOfRange(f"{partition.topic}-{partition.partition} is not empty any more")
            await log_dir.commit_log.announce([Barrier(*key_of(partition), BarrierKind.RESET, offset)])
            removed = resident.reset(Segment(offset))
        async with _carried_out(log_dir, [(resident, partial(_empty, log_dir, resident, offset))], removed):
            await _empty(log_dir, resident, offset)
        log_dir.commit_log.recovered(directory_name(partition))


async def _empty(log_dir: LogDir, resident: Resident, offset: int) -> None:
    """Replace all files by an empty segment; it may be repeated."""
    partition, log = resident.partition, resident.log
    job = partial(start_empty, log_dir.disk.filesystem, log.directory, offset)
    await log_dir.disk.sync([await log_dir.disk.run(job)])
    await log_dir.index.forget_partitions([index_key(partition)])  # also the rows of segments in the tier, known or not
    await log_dir.index.truncate({index_key(partition): log})


@asynccontextmanager
async def _carried_out(
    log_dir: LogDir, residents: Sequence[tuple[Resident, Work]], removed: Sequence[Segment]
) -> AsyncIterator[None]:
    """Carry out a change behind its barrier, within the block: then write a checkpoint, and accept appends again.

    If that fails, the logs are closed: a replay would truncate new appends. Their work is kept, so that the next open
    in this process repeats it.
    """
    try:
        yield
        await log_dir.commit_log.checkpoint_alone()
    except (StorageError, CorruptMessage) as error:
        reason = f"appends wait for a checkpoint after the log was truncated: {error}"
        for one, work in residents:
            log_dir.unfinished[one.partition] = work
            one.put_offline(lambda: StorageError(reason))
        raise StorageError(reason) from error
    for one, _ in residents:
        one.resume()
    await log_dir.close_segments(removed)
