"""Moves of the local start: segments that the remote tier has lose their files, and the log loses nothing.

The checkpoint has the new local start before a file is touched. State below it that is still needed is saved first: the
producers at that offset as a snapshot, leader epochs in the checkpoint, index rows in the index. The caller decides
which segments may go; a move that would lose records is refused here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from engine.errors import CorruptMessage, EngineError, OffsetOutOfRange, StorageError
from engine.files.filesystem import FileSystem
from engine.log_dirs.layout import INDEX
from engine.log_dirs.log_dir import LogDir, Resident, index_key
from engine.logs.producers.walk import Extent
from engine.logs.recovery.checkpoints import PartitionCheckpoint, key_of
from engine.logs.recovery.truncation_plan import secure_producers
from engine.logs.segments.segment import Segment
from engine.logs.segments.set_aside import set_aside


async def move_local_start(log_dir: LogDir, resident: Resident, offset: int) -> None:
    """Set aside the files below `offset`, where a segment begins; reads in flight keep their files open.

    Raises OffsetOutOfRange if the tier does not have everything below; StorageError, CorruptMessage.
    """
    for error in (await move_local_starts(log_dir, {resident: offset})).values():
        raise error


async def move_local_starts(log_dir: LogDir, offsets: Mapping[Resident, int]) -> dict[Resident, EngineError]:
    """Move the local starts of many logs with one checkpoint, because a checkpoint covers all partitions.

    Returns the error of each log that was not moved. Raises StorageError if none was moved, or a later step failed.
    """
    refused: dict[Resident, EngineError] = {}
    async with log_dir.commit_log.replacing():
        to_drop: dict[Resident, list[Segment]] = {}
        for resident, offset in offsets.items():
            with _noted(refused, resident):
                to_drop[resident] = _segments_below(log_dir, resident, offset)
        async with log_dir.commit_log.committer.between_commit_batches():
            pass  # a commit batch that began before the tier was there would delete snapshots
        secured: dict[Resident, list[Segment]] = {}
        for resident, segments in to_drop.items():
            with _noted(refused, resident):
                if segments:
                    await _secure(log_dir, resident, segments)
                    secured[resident] = segments
        if secured:
            await log_dir.disk.run(partial(_sync_names, log_dir.disk.filesystem, log_dir.disk.path))
            ends = {key_of(one.partition): segments[-1].end_offset for one, segments in secured.items()}
            await log_dir.commit_log.checkpoint_local_starts(ends)
        for resident, segments in secured.items():
            await _drop(log_dir, resident, segments)
    return refused


@contextmanager
def _noted(refused: dict[Resident, EngineError], resident: Resident) -> Iterator[None]:
    try:
        yield
    except (CorruptMessage, OffsetOutOfRange, StorageError) as error:
        refused[resident] = error


async def _drop(log_dir: LogDir, resident: Resident, to_drop: list[Segment]) -> None:
    log = resident.log
    removed = log.drop_local_below(to_drop[-1].end_offset)
    assert removed == to_drop
    log_dir.caches.forget(removed)
    bases = [segment.base_offset for segment in removed]
    paths = await log_dir.disk.run(partial(set_aside, log_dir.disk.filesystem, log.directory, bases))
    sizes_bytes = [segment.size_bytes for segment in removed]
    log_dir.deleter.add(zip(paths, sizes_bytes, strict=False), resident.config.file_delete_delay_ms)


def note_tiered(log_dir: LogDir, resident: Resident, offset: int) -> None:
    """Note that the remote tier has all finished segments below `offset`, all of them stable.

    `offset` may also be the log start, if the tier is still to get its first segment. Raises OffsetOutOfRange,
    StorageError.
    """
    log = resident.log
    if log_dir.partitions.get(resident.partition) is not resident:
        raise StorageError(f"{log.directory} is not open any more")
    finished_to = min(log.active.base_offset, resident.last_stable_offset)
    if not log.cold.local_start_offset <= offset <= max(log.start_offset, finished_to):
        raise OffsetOutOfRange(f"{log.directory} cannot be in a remote tier up to offset {offset}")
    log.tiered_to, log.is_tier_confirmed = offset, True
    log_dir.commit_log.want_checkpoint()


def note_untiered(log_dir: LogDir, resident: Resident) -> None:
    """Note that the log has no tier any more, and begins where its files begin."""
    assert not resident.log.has_cold
    resident.log.tiered_to, resident.log.is_tier_confirmed = None, False
    log_dir.commit_log.want_checkpoint()


def _segments_below(log_dir: LogDir, resident: Resident, offset: int) -> list[Segment]:
    """The segments with files below `offset`. Raises OffsetOutOfRange, StorageError."""
    log = resident.log
    if log_dir.is_closing or log_dir.partitions.get(resident.partition) is not resident:
        raise StorageError(f"{log.directory} is not open any more")
    found = log.finished_below(offset)
    if log.damaged_from is not None or log.tiered_to is None or offset > log.tiered_to:
        raise OffsetOutOfRange(f"the remote tier has {log.directory} up to offset {log.tiered_to}, not to {offset}")
    if found and found[-1].end_offset != offset:
        raise OffsetOutOfRange(f"no segment of {log.directory} begins at offset {offset}")
    return found


def _sync_names(filesystem: FileSystem, path: str) -> None:
    """Sync the names of the index files, which the index leaves to its caller. A log dir may have no index."""
    with suppress(FileNotFoundError):
        filesystem.sync_dir(f"{path}/{INDEX}")
    filesystem.sync_dir(path)


async def _secure(log_dir: LogDir, resident: Resident, to_drop: list[Segment]) -> None:
    log, offset = resident.log, to_drop[-1].end_offset
    point = log_dir.commit_log.points.get(key_of(resident.partition), PartitionCheckpoint())
    needed_from = max(log.start_offset, point.producers_from)
    segments = [Extent.of(one) for one in to_drop]
    try:
        job = partial(secure_producers, log_dir.disk.filesystem, log.directory, segments, offset, needed_from)
        await log_dir.disk.run(job)
    except CorruptMessage as error:
        reason = f"the producers below offset {offset} of {log.directory} are not known: {error}"
        raise CorruptMessage(reason) from error
    await log_dir.index.secure(index_key(resident.partition), log)
