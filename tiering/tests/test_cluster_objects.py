"""Topics and committed offsets in the store."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import trio

from tiering import cluster_objects
from tiering.cluster_objects import ClusterObjects, CommittedCopy, OffsetsCopy, TopicCopy
from tiering.errors import OtherVersion, TierDamaged
from tiering.object_store import Content, StoreUnavailable
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation

ID = bytes(16)


RETENTION = {"retention.ms": "7"}


def topic(partition_count: int = 3, configs: dict[str, str] | None = None) -> TopicCopy:
    return TopicCopy(topic_id=ID.hex(), topic="orders", partition_count=partition_count, configs=configs or {})


def offsets(offset: int) -> OffsetsCopy:
    return OffsetsCopy(at_ms=7, groups={"g": [CommittedCopy(ID.hex(), 2, offset, 1, "mine")]})


@dataclass
class Bucket:
    store: MemoryStore

    def opened(self) -> ClusterObjects:
        return ClusterObjects(self.store, "lake/", "cluster")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket(MemoryStore())


async def test_the_newest_of_a_topic_counts(bucket: Bucket) -> None:
    objects = bucket.opened()
    assert await objects.put_topic(topic())
    assert await objects.put_topic(topic(configs=RETENTION))
    assert await bucket.opened().topics() == [topic(configs=RETENTION)]
    assert len(bucket.store.objects) == 1


async def test_unchanged_topic_is_not_put_again(bucket: Bucket) -> None:
    await bucket.opened().put_topic(topic())
    puts = bucket.store.requests[Operation.PUT]
    objects = bucket.opened()
    for _ in range(2):
        assert not await objects.put_topic(topic())
    assert bucket.store.requests[Operation.PUT] == puts


async def test_a_crash_in_between_leaves_the_newer_one(bucket: Bucket) -> None:
    await bucket.opened().put_topic(topic(3))
    older = dict(bucket.store.objects)
    await bucket.opened().put_topic(topic(4))
    bucket.store.objects |= older
    assert await bucket.opened().topics() == [topic(4)]


@pytest.mark.parametrize("operation", [Operation.LIST, Operation.PUT, Operation.DELETE])
@pytest.mark.parametrize("partition_count", range(5, 10))
async def test_after_a_request_that_failed_the_newest_counts(
    bucket: Bucket, operation: Operation, partition_count: int
) -> None:
    """The failed request may have taken effect."""
    for count in (3, 4):
        await bucket.opened().put_topic(topic(count))
    objects = bucket.opened()
    bucket.store.fault = lambda asked, _key: Fault(is_reply_lost=asked is operation)
    with pytest.raises(StoreUnavailable):
        await objects.put_topic(topic(partition_count))
    bucket.store.fault = lambda _asked, _key: HEALTHY
    await objects.put_topic(topic(partition_count + 1))
    assert await bucket.opened().topics() == [topic(partition_count + 1)]


@pytest.mark.parametrize("partition_count", range(5, 10))
async def test_topic_that_is_put_late_is_older_than_the_next_put(bucket: Bucket, partition_count: int) -> None:
    """A request without a reply may take effect at any later time; the order of the digests is random."""
    objects = bucket.opened()
    async with trio.open_nursery() as bucket.store.nursery:
        bucket.store.fault = lambda asked, _key: Fault(late_s=60 if asked is Operation.PUT else None)
        with pytest.raises(StoreUnavailable):
            await objects.put_topic(topic(partition_count))
        bucket.store.fault = lambda _asked, _key: HEALTHY
        await objects.put_topic(topic(partition_count + 1))
    assert len(bucket.store.objects) == 2
    assert await bucket.opened().topics() == [topic(partition_count + 1)]


async def test_a_deleted_topic_is_forgotten(bucket: Bucket) -> None:
    objects = bucket.opened()
    await objects.put_topic(topic())
    await objects.forget_topic(ID)
    assert not bucket.store.objects
    assert await objects.put_topic(topic())


async def test_the_newest_offsets_of_each_broker_count(bucket: Bucket) -> None:
    for offset in range(6):
        await bucket.opened().put_offsets(1, offsets(offset))
    await bucket.opened().put_offsets(2, offsets(100))
    assert await bucket.opened().offsets() == [offsets(5), offsets(100)]
    assert len(bucket.store.objects) == cluster_objects.OFFSETS_KEPT + 1


async def test_nothing_is_there_at_first(bucket: Bucket) -> None:
    assert await bucket.opened().topics() == []
    assert await bucket.opened().offsets() == []


async def test_damaged_or_foreign_cluster_object_raises_tier_damaged(bucket: Bucket) -> None:
    await bucket.opened().put_topic(topic())
    [key] = bucket.store.objects
    data, moment_ms = bucket.store.objects[key]
    bucket.store.objects[key] = data.replace(b"orders", b"others"), moment_ms
    with pytest.raises(TierDamaged, match="fails its CRC"):
        await bucket.opened().topics()
    await bucket.store.put("lake/cluster/topics/x/readme", Content.of(b""))
    objects = bucket.opened()
    for _ in range(2):
        with pytest.raises(TierDamaged, match="is no topic"):
            await objects.put_topic(topic())
    await bucket.store.put("lake/cluster/offsets/0000000001/readme", Content.of(b""))
    with pytest.raises(TierDamaged, match="no committed offsets"):
        await bucket.opened().put_offsets(1, offsets(1))


async def test_another_format_is_refused(bucket: Bucket) -> None:
    later = TopicCopy(topic_id=ID.hex(), topic="orders", partition_count=1, configs={}, v=2)
    await bucket.opened().put_topic(later)
    with pytest.raises(OtherVersion):
        await bucket.opened().topics()
