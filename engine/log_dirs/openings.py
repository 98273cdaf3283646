"""Opening and deleting many partitions of a log dir together: one job, and few syncs, for all of them.

To make one partition costs four syncs, and to delete it three; together the partitions share them. The promises for
each partition hold: it is served only when all its names are durable, and a barrier in the journal precedes its
deletion (RULES L7, J2). This module does not know roles.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from engine.api import Role, TopicIdPartition
from engine.commit.journal_format import Barrier, BarrierKind
from engine.errors import StorageError
from engine.log_dirs.layout import NewDir, delete_partition_dirs, finish_partition_dirs, open_partition_dirs
from engine.log_dirs.log_dir import LogDir
from engine.logs.log import Log
from engine.logs.recovery.recovery import LastKnown

Known = tuple[Role, LastKnown]


def split_into_jobs(wanted: Sequence[Known]) -> Iterator[Sequence[Known]]:
    """Split openings into jobs of a worker: one for each log that needs a scan, which may take long, and one for the
    rest."""
    quick = []
    for one in wanted:
        if one[1].is_clean:
            quick.append(one)
        else:
            yield [one]
    if quick:
        yield quick


async def open_logs(log_dir: LogDir, wanted: Sequence[Known]) -> list[Log | StorageError]:
    """Open logs, in this order; missing ones are created. Raises StorageError."""
    named = [(one.partition, last_known) for one, last_known in wanted]
    is_quick = all(last_known.is_clean for _, last_known in wanted)
    run = log_dir.disk.run if is_quick else log_dir.disk.scan
    found = await run(partial(open_partition_dirs, log_dir.disk.filesystem, log_dir.disk.path, named))
    new = [one for one in found if isinstance(one, NewDir)]
    if new:
        await log_dir.disk.sync([one.metadata for one in new])
        await log_dir.disk.run(partial(finish_partition_dirs, log_dir.disk.filesystem, log_dir.disk.path, new))
    return [one.log if isinstance(one, NewDir) else one for one in found]


async def delete_logs(log_dir: LogDir, partitions: Sequence[TopicIdPartition]) -> None:
    """Delete the logs of open partitions, which are not served any more. Raises StorageError."""
    async with log_dir.commit_log.alone():
        with suppress(StorageError):  # a full disk must not prevent the deletion that frees space
            await log_dir.commit_log.announce(
                [Barrier(one.topic_id, one.partition, BarrierKind.DELETED) for one in partitions]
            )
        log_dir.release(partitions)
    await log_dir.disk.run(partial(delete_partition_dirs, log_dir.disk.filesystem, log_dir.disk.path, partitions))
    await log_dir.abandon(partitions)
