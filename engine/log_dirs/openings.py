"""Opening and deleting many partitions of a log dir together: one job, and few syncs, for all of them.

A partition by itself would cost four syncs to make and three to delete, each a trip to the disk; together they share
these trips. What is promised is that of one: a partition is served when it is durable by all its names, and its
deletion is announced in the journal before it begins (RULES L7, J2). Nothing here knows what a partition serves.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from engine.api import Role, TopicPartition
from engine.commit.journal_format import Barrier, BarrierKind
from engine.errors import StorageError
from engine.log_dirs.layout import NewDir, delete_partition_dirs, finish_partition_dirs, open_partition_dirs
from engine.log_dirs.log_dir import LogDir
from engine.logs.log import Log
from engine.logs.recovery import LastKnown

Known = tuple[Role, LastKnown]


def in_jobs(wanted: Sequence[Known]) -> Iterator[Sequence[Known]]:
    """What has to be scanned may take long: a worker gets it one by one."""
    quick = []
    for one in wanted:
        if one[1].is_clean:
            quick.append(one)
        else:
            yield [one]
    if quick:
        yield quick


async def open_logs(log_dir: LogDir, wanted: Sequence[Known]) -> list[Log | StorageError]:
    """In this order, made where they are not there. Raises StorageError."""
    named = [(one.partition, last_known) for one, last_known in wanted]
    is_quick = all(last_known.is_clean for _, last_known in wanted)
    run = log_dir.disk.run if is_quick else log_dir.disk.scan
    found = await run(partial(open_partition_dirs, log_dir.disk.filesystem, log_dir.disk.path, named))
    new = [one for one in found if isinstance(one, NewDir)]
    if new:
        await log_dir.disk.sync([one.metadata for one in new])
        await log_dir.disk.run(partial(finish_partition_dirs, log_dir.disk.filesystem, log_dir.disk.path, new))
    return [one.log if isinstance(one, NewDir) else one for one in found]


async def delete_logs(log_dir: LogDir, partitions: Sequence[TopicPartition]) -> None:
    """Nobody is served any more from these, open until now. Raises StorageError."""
    async with log_dir.commit_log.alone():
        with suppress(StorageError):  # a disk too full for it must not keep what would make room
            await log_dir.commit_log.announce(
                [Barrier(one.topic_id, one.partition, BarrierKind.DELETED) for one in partitions]
            )
        log_dir.release(partitions)
    await log_dir.disk.run(partial(delete_partition_dirs, log_dir.disk.filesystem, log_dir.disk.path, partitions))
    await log_dir.abandon(partitions)
