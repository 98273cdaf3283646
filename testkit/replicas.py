"""Replicas of a partition: batches of a leader, its followers, and a store that follows."""

from engine.api import Following, Marker
from engine.batches.batch import Record, build_batch, stamp
from engine.batches.markers import build_marker
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.roles import CommittedIsr, ReplicaSet
from engine.store import SegmentStore
from testkit.logs import (
    NOW_MS,
    ORDERS,
)

SMALL = LogConfig(segment_size_bytes=400)

NO_PRODUCER = -1, -1, -1


def stamped(
    offset: int, epoch: int, *values: bytes, attributes: int = 0, producer: tuple[int, int, int] = NO_PRODUCER
) -> bytes:
    records = [Record(b"k", value, NOW_MS + offset) for value in values]
    made = build_batch(records, attributes=attributes, producer=producer)
    stamp(memoryview(made), offset, epoch)
    return bytes(made)


def others(me: int, *in_sync: int, replicas: tuple[int, ...] = (), min_isr: int = 1, version: int = 1) -> ReplicaSet:
    """Replicas of a partition that `me` leads. `in_sync`, `replicas`: other brokers in the ISR, and outside it.

    All are in broker epoch 0, and serve.
    """
    known = frozenset((me, *in_sync, *replicas))
    committed = CommittedIsr(version, frozenset((me, *in_sync)), known, dict.fromkeys(known, 0), known, min_isr)
    return ReplicaSet(me, committed, 30_000)


async def following(store: SegmentStore, config: LogConfig = SMALL, epoch: int = 0) -> Partition:
    """The orders log as a follower of the leader of that epoch."""
    [log] = await store.open_partitions([Following(ORDERS, config, epoch)])
    assert isinstance(log, Partition)
    return log


def marker_at(offset: int, epoch: int, marker: Marker) -> bytes:
    batch = build_marker(marker, NOW_MS)
    stamp(memoryview(batch), offset, epoch)
    return bytes(batch)
