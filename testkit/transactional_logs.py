"""A log with transactions: appends, ends, and what can be read."""

import trio

from engine.api import (
    Marker,
    Outcome,
    PartitionLog,
    PendingAppend,
)
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.log_config import CleanupPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from testkit.logs import NOW_MS, open_orders, read_committed
from testkit.replicas import NO_PRODUCER

DIRECTORY = "/data/orders-0"

SMALL = LogConfig(segment_size_bytes=300)

COMPACT = LogConfig(
    segment_size_bytes=300,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=60_000,
    file_delete_delay_ms=1000,
)


def now_ms() -> int:
    return NOW_MS + round(trio.current_time() * 1000)


def send(
    log: PartitionLog,
    value: bytes,
    producer: tuple[int, int, int] = NO_PRODUCER,
    *,
    key: bytes = b"k",
    plain: bool = False,
) -> PendingAppend:
    attributes = 0 if plain or producer == NO_PRODUCER else TRANSACTIONAL_BIT
    batch = build_batch([Record(key, value, NOW_MS)], attributes=attributes, producer=producer)
    return log.append(memoryview(batch), acks=-1)


async def append(log: PartitionLog, value: bytes, producer: tuple[int, int, int] = NO_PRODUCER, **how: object) -> int:
    return (await send(log, value, producer, **how).wait()).base_offset  # type: ignore[arg-type]


async def end(log: PartitionLog, producer_id: int, outcome: Outcome, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    marker = Marker(producer_id, epoch, coordinator_epoch, outcome)
    return (await log.end_transaction(marker).wait()).base_offset


async def values(log: PartitionLog, offset: int = 0) -> list[bytes | None]:
    return [one.value for one in (await read_committed(log, offset)).values()]


async def opened(store: SegmentStore, config: LogConfig | None = None, epoch: int = 0) -> Partition:
    log = await open_orders(store, config, epoch)
    assert isinstance(log, Partition)
    return log
