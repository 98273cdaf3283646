"""Descriptions of log dirs, producers and partitions for operators and metrics. All functions only read."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import trio

from engine.api import ActiveProducer, LogDirDescription
from engine.errors import StorageError
from engine.log_dirs.log_dir import LogDir
from engine.logs.log import Log
from engine.logs.producers.state import Producer
from engine.partitions.partition import Partition
from engine.stats import LogDirStatistics, PartitionStatistics


async def describe_log_dir(log_dir: LogDir) -> LogDirDescription:
    """Return the space and partition sizes of a log dir; only its path if it is offline, or goes offline now."""
    disk = log_dir.disk
    if disk.offline_reason is None:
        with suppress(StorageError):
            usage = await disk.run(partial(disk.filesystem.usage, disk.path))
            sizes = {partition: resident.log.size_bytes for partition, resident in log_dir.partitions.items()}
            lags = {partition: one.lag for partition, one in log_dir.partitions.items() if one.lag}
            return LogDirDescription(disk.path, True, usage.total_bytes, usage.available_bytes, sizes, lags)
    return LogDirDescription(disk.path, False)


def describe_producer(producer_id: int, known: Producer) -> ActiveProducer:
    return ActiveProducer(
        producer_id,
        known.epoch,
        known.last_sequence,
        known.timestamp_ms,
        known.coordinator_epoch,
        known.transaction_from,
    )


def log_dir_statistics(log_dir: LogDir) -> LogDirStatistics:
    logs = [resident.log for resident in log_dir.partitions.values()]
    unflushed_bytes = sum(log.unflushed_bytes for log in logs)
    disk, commits = log_dir.disk, log_dir.commit_log.committer.statistics
    identity = log_dir.directory_id, log_dir.names
    strays = len(log_dir.strays), sum(one.size_bytes for one in log_dir.strays.values())
    behind_s = None if log_dir.behind_since_s is None else trio.current_time() - log_dir.behind_since_s
    counted = len(logs), unflushed_bytes, commits
    return LogDirStatistics(disk.path, disk.offline_reason, *counted, *identity, *strays, behind_s)


def partition_statistics(one: Partition) -> PartitionStatistics:
    log, offsets = one.log, (one.log_start_offset, one.log_end_offset, one.high_watermark, one.last_stable_offset)
    oldest_ms, size = log.producers.oldest_transaction_ms, (len(log.segments), log.size_bytes)
    return PartitionStatistics(one.partition.topic, one.partition.partition, *offsets, oldest_ms, *size)


def problems_of(log: Log) -> Iterator[str]:
    """Problems of an opened log, as messages for the operator."""
    yield from log.problems
    if log.damaged_from is not None:
        yield f"{log.directory} is damaged from offset {log.damaged_from} on: it takes no appends"
