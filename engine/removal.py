"""What makes a log shorter: a truncation at its end, and a log start that moves.

Both are announced in the journal before they take effect (RULES J2), so that no replay brings back what is gone. What
may go is decided by whoever asks for it.
"""

from functools import partial

from engine.errors import OffsetOutOfRange, StorageError
from engine.index import Stored
from engine.journal_format import Barrier, BarrierKind
from engine.log import Log, Mark
from engine.log_dir import LogDir, Resident, index_key
from engine.recovery import LastKnown, open_log
from engine.segment import Cut, cut_off, find_cut
from engine.set_aside import set_aside


async def truncate(log_dir: LogDir, resident: Resident, offset: int) -> None:
    """Forget for good the batch of `resident` that holds `offset`, and all behind it.

    No batch is cut in two. Appends that wait in the queue go behind the new end. The log is opened anew, so that
    whatever is derived from it is derived again. Raises StorageError, OffsetOutOfRange.
    """
    filesystem = log_dir.filesystem
    partition, key = resident.partition, (resident.partition.topic_id, resident.partition.partition)
    async with log_dir.alone():
        log = resident.log
        if offset >= log.end.offset:
            return
        cut = await _cut_at(log_dir, log, offset)
        stored = Stored(log.end.offset, {one.base_offset: log.summary_of(one) for one in log.segments[:-1]})
        log_dir.advance_points()
        await log_dir.announce([Barrier(*key, BarrierKind.TRUNCATED, *cut)])
        resident.retreat(Mark(*cut, log.end.max_timestamp_ms))
        await log_dir.run(partial(cut_off, filesystem, log.directory, cut))
        last_known = LastKnown(is_clean=True, checkpoint=log_dir.points[key], stored=stored)
        shorter = await log_dir.run(partial(open_log, filesystem, log.directory, last_known))
        await log_dir.index.take_stock(index_key(partition), shorter, stored)
        resident.resume(shorter)
        log_dir.caches.forget(log.segments)
        log.let_go()
        try:
            await log_dir.checkpoint_alone()
        except StorageError as error:  # without it a replay would cut again, and also what came meanwhile
            reason = f"appends wait for a checkpoint after the log was truncated: {error}"
            resident.close(lambda: StorageError(reason))
            raise


async def _cut_at(log_dir: LogDir, log: Log, offset: int) -> Cut:
    if offset >= log.start_offset:
        segment = log.segment_of(offset)
        path, base_offset, size_bytes = log.path_of(segment.base_offset), segment.base_offset, segment.size_bytes
        cut = await log_dir.run(lambda: find_cut(log_dir.filesystem.open(path), base_offset, size_bytes, offset))
        if cut.offset >= log.start_offset:
            return cut
    raise OffsetOutOfRange(f"offset {offset} is not behind a batch that begins above {log.start_offset}")


async def move_log_start(log_dir: LogDir, resident: Resident, offset: int, file_delete_delay_ms: int) -> None:
    """Serve nothing of `resident` below `offset` any more, and remove the segments that end there or before.

    Their files are set aside at once and deleted after the delay; readers in flight keep them open.
    Raises StorageError.
    """
    key = (resident.partition.topic_id, resident.partition.partition)
    async with log_dir.alone():
        log = resident.log
        if offset <= log.start_offset:
            return
        if offset > log.durable_offset:  # a log that ends below its start would be taken for damaged
            await log_dir.flusher.flush([log])
        await log_dir.announce([Barrier(*key, BarrierKind.LOG_START, offset)])
        gone = log.drop_below(offset)
        resident.announce_change()
        if gone:
            bases = [segment.base_offset for segment in gone]
            log_dir.caches.forget(gone)
            paths = await log_dir.run(partial(set_aside, log_dir.filesystem, log.directory, bases))
            log_dir.set_aside.add(paths, file_delete_delay_ms)
            await log_dir.index.forget(index_key(resident.partition), bases)
