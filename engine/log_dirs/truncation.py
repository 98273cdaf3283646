"""What makes logs shorter at their end.

Announced in the journal before it takes effect (RULES J2), so that no replay brings back what is gone.
"""

from functools import partial

from engine.commit.journal_format import Barrier, BarrierKind
from engine.errors import OffsetOutOfRange, StorageError
from engine.log_dirs.log_dir import LogDir, Resident, index_key
from engine.logs.log import Log
from engine.logs.position import LogPosition
from engine.logs.recovery import LastKnown, open_log
from engine.logs.segment import Cut, cut_off, find_cut
from engine.logs.sparse_index import Stored


async def truncate(log_dir: LogDir, resident: Resident, offset: int) -> None:
    """Forget for good the batch of `resident` that holds `offset`, and all behind it.

    No batch is cut in two. Appends that wait in the queue go behind the new end. The log is opened anew, so that
    whatever is derived from it is derived again. Raises StorageError, OffsetOutOfRange.
    """
    filesystem = log_dir.disk.filesystem
    partition, key = resident.partition, (resident.partition.topic_id, resident.partition.partition)
    async with log_dir.commit_log.alone():
        log = resident.log
        if offset >= log.end.offset:
            return
        cut = await _cut_at(log_dir, log, offset)
        stored = Stored(log.end.offset, {one.base_offset: log.summary_of(one) for one in log.segments[:-1]})
        log_dir.commit_log.advance_points()
        await log_dir.commit_log.announce([Barrier(*key, BarrierKind.TRUNCATED, *cut)])
        resident.retreat(LogPosition(*cut, log.end.max_timestamp_ms))
        await log_dir.disk.run(partial(cut_off, filesystem, log.directory, cut))
        last_known = LastKnown(is_clean=True, checkpoint=log_dir.commit_log.points[key], stored=stored)
        shorter = await log_dir.disk.run(partial(open_log, filesystem, log.directory, last_known))
        await log_dir.index.take_stock(index_key(partition), shorter, stored)
        resident.resume(shorter)
        log_dir.commit_log.logs[key] = shorter
        await log_dir.let_go([log])
        try:
            await log_dir.commit_log.checkpoint_alone()
        except StorageError as error:  # without it a replay would cut again, and also what came meanwhile
            reason = f"appends wait for a checkpoint after the log was truncated: {error}"
            resident.close(lambda: StorageError(reason))
            raise


async def _cut_at(log_dir: LogDir, log: Log, offset: int) -> Cut:
    if offset >= log.start_offset:
        segment = log.segment_of(offset)
        path, base_offset, size_bytes = log.path_of(segment.base_offset), segment.base_offset, segment.size_bytes
        cut = await log_dir.disk.run(
            lambda: find_cut(log_dir.disk.filesystem.open(path), base_offset, size_bytes, offset)
        )
        if cut.offset >= log.start_offset:
            return cut
    raise OffsetOutOfRange(f"offset {offset} is not behind a batch that begins above {log.start_offset}")
