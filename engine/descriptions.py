"""What an operator is told of log dirs and producers: how large the partitions are, how full a disk is, who writes.

Looks only, and keeps nothing.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from engine.api import ActiveProducer, LogDirDescription
from engine.errors import StorageError
from engine.log_dir import LogDir
from engine.producer_state import Producer


async def describe_log_dir(log_dir: LogDir) -> LogDirDescription:
    """One that is offline, or goes offline now, has no more to it than its path."""
    if log_dir.offline_reason is None:
        with suppress(StorageError):
            usage = await log_dir.run(partial(log_dir.filesystem.usage, log_dir.path))
            sizes = {partition: resident.log.size_bytes for partition, resident in log_dir.partitions.items()}
            return LogDirDescription(log_dir.path, True, usage.total_bytes, usage.available_bytes, sizes)
    return LogDirDescription(log_dir.path, False)


def describe_producers(producers: Iterable[tuple[int, Producer]]) -> list[ActiveProducer]:
    """In the order of their last batch."""
    return [
        ActiveProducer(producer_id, known.epoch, known.batches[-1].last_sequence, known.batches[-1].timestamp_ms)
        for producer_id, known in producers
    ]
