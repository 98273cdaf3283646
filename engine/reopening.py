"""Release of partitions that were closed while their log dir is online, so that their logs can be opened again.

The next opening reads the files as after a crash. So all appended batches are first made durable in them, and a
checkpoint notes that. An announced truncation that is not complete is completed before that checkpoint, because the
checkpoint ends its barrier (RULES J2).
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from engine.api import TopicIdPartition
from engine.errors import EngineError, UnknownPartition
from engine.log_dirs.layout import directory_name
from engine.log_dirs.log_dir import LogDir
from engine.partitions.partition import Partition


async def release_closed(
    partitions: dict[TopicIdPartition, Partition], again: Collection[TopicIdPartition]
) -> dict[TopicIdPartition, EngineError]:
    """Remove the closed ones of `again` from `partitions`; return the error of each that has to stay closed."""
    failed: dict[TopicIdPartition, EngineError] = {}
    by_log_dir: dict[LogDir, list[Partition]] = {}
    for one in again:
        if (found := partitions.get(one)) is not None and found.is_closed:
            by_log_dir.setdefault(found.log_dir, []).append(found)
    for log_dir, closed in by_log_dir.items():
        try:
            await _release(log_dir, closed)
        except EngineError as error:
            failed |= {one.partition: error for one in closed}
        else:
            for found in closed:
                del partitions[found.partition]
    return failed


async def _release(log_dir: LogDir, closed: Sequence[Partition]) -> None:
    """Make the logs of closed partitions durable, and release them. Raises StorageError."""
    log_dir.disk.check_online()
    commit_log = log_dir.commit_log
    partitions = [one.partition for one in closed]
    async with commit_log.replacing():
        async with commit_log.committer.between_commit_batches():
            pass  # appends that were staged before the partition was closed are written
        for one in partitions:
            if (work := log_dir.unfinished.get(one)) is not None:
                await work()
        await commit_log.checkpoint_alone()
        log_dir.release(partitions)
        commit_log.note_released(list(map(directory_name, partitions)))
    await log_dir.close_logs([one.log for one in closed])


def take_open(
    partitions: dict[TopicIdPartition, Partition], wanted: Iterable[TopicIdPartition]
) -> dict[LogDir, list[Partition]]:
    """Close the open ones of `wanted`, which the metadata do not name, and remove them from `partitions`.

    Returns them by log dir. Closed ones stay in `partitions`: an announced truncation may have to be completed first.
    """
    taken: dict[LogDir, list[Partition]] = {}
    for one in wanted:
        found = partitions.get(one)
        if found is not None and not found.is_closed:
            del partitions[one]
            found.close(partial(UnknownPartition, f"{one.topic}-{one.partition} is not in the metadata"))
            taken.setdefault(found.log_dir, []).append(found)
    return taken
