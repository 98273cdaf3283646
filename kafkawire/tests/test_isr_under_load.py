"""The ISR under a constant load stays as it is, and a follower that returns joins it once (RULES K17)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest
import trio

from engine.batches.batch import Record, build_batch
from engine.files.filesystem import File
from engine.testing.simulated_disk import SimulatedPool
from kafkawire import testing
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, leaders
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_replication import TOPIC, acknowledged, create, in_sync, kill, state

LAG_MAX_S = 1
SYNC_S = 0.02
RECORD = bytes(10_000)
# A follower copies one batch at a time.
SMALL = {
    "replica_lag_time_max_ms": str(1000 * LAG_MAX_S),
    "replica_fetch_max_bytes": str(len(RECORD)),
    "replica_fetch_response_max_bytes": str(len(RECORD)),
}
PARTITIONS, PRODUCERS = 6, 48


class SlowPool(SimulatedPool):
    """A pool whose syncs take a while."""

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await trio.sleep(SYNC_S)
        await super().sync(worker, files, is_urgent=is_urgent)


@pytest.fixture(autouse=True)
def slow_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "SimulatedPool", SlowPool)


class Load:
    """Producers that send a batch, wait for the reply, and send the next one."""

    def __init__(self, cluster: MemoryCluster, acks: int) -> None:
        self._cluster = cluster
        self._acks = acks
        self.errors: list[int] = []
        self.sent = 0

    async def produce(self, leader: int, partition: int, pause_s: float = 0) -> None:
        """Produce to one partition until cancelled."""
        client = self._cluster.connect(leader)
        for number in count():
            batch = build_batch([Record(b"%d" % number, RECORD)])
            data = TopicProduceData(
                name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))]
            )
            reply = await client.call(ProduceRequest(acks=self._acks, timeout_ms=20_000, topic_data=[data]), 9)
            row = reply.responses[0].partition_responses[0]  # type: ignore[attr-defined]
            self.errors += [row.error_code] if row.error_code else []
            self.sent += 1
            await trio.sleep(pause_s)


@asynccontextmanager
async def under_way() -> AsyncIterator[trio.Nursery]:
    """A nursery for tasks that end with the block."""
    async with trio.open_nursery() as tasks:
        yield tasks
        tasks.cancel_scope.cancel()


def isr_changes(cluster: MemoryCluster) -> int:
    """The count of ISR changes on all running brokers."""
    metrics = [one.broker.metrics.replication for one in cluster.brokers.values()]
    return sum(one.isr_shrinks + one.isr_expands for one in metrics)


async def test_followers_that_are_always_several_responses_behind_stay_in_the_isr() -> None:
    """Acks=all and many producers: the followers lack the records in flight."""
    async with open_cluster(**SMALL) as (cluster, _):
        assert await create_topic(cluster, 1, TOPIC, PARTITIONS, 3) == 0
        await trio.sleep(2)
        led_by, load = await leaders(cluster, 1, TOPIC), Load(cluster, acks=-1)
        async with under_way() as tasks:
            for number in range(PRODUCERS):
                partition = number % PARTITIONS
                tasks.start_soon(load.produce, led_by[partition], partition)
            await trio.sleep(6 * LAG_MAX_S)
            assert isr_changes(cluster) == 0
        assert not load.errors
        assert load.sent > 10 * PRODUCERS


@pytest.mark.parametrize("min_isr", ["1", "2"])
async def test_a_follower_that_is_back_under_a_load_joins_once_and_stays(min_isr: str) -> None:
    """The load has acks=1, and more than one batch for each sync. With min.insync.replicas=2 the high watermark stands
    still meanwhile, and the follower has all committed records long before it has caught up."""
    async with open_cluster(**SMALL) as (cluster, nursery):
        await create(cluster, min_insync_replicas=min_isr)
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        others = [one for one in BROKERS if one != leader]
        load = Load(cluster, acks=1)
        await kill(cluster, *others)
        await in_sync(cluster, leader)
        async with under_way() as tasks:
            tasks.start_soon(load.produce, leader, 0, 1.5 * SYNC_S)
            await trio.sleep(3 * LAG_MAX_S)
            before = isr_changes(cluster)
            await nursery.start(cluster.serve, others[0], SMALL)
            await in_sync(cluster, leader, others[0])
            await trio.sleep(5 * LAG_MAX_S)
            assert isr_changes(cluster) == before + 1
        assert not load.errors
