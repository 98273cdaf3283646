"""Disks that hang and answer again, while leaders change, topics come and go, and producers write (decision 44)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio

from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, settled, until
from kafkawire.tests.test_replication import TOPIC, equal, in_sync, led_by_another, produce, state, values
from kafkawire.tests.test_repudiation import TWO_DIRS
from kafkawire.tests.test_slow_log_dirs import broker, check_roles, create, delete, partition, workers

if TYPE_CHECKING:
    from random import Random

STEPS = 20
TOPICS_MAX = 4
STEP_MAX_S = 20.0


class Disturbed:
    """A cluster with a topic that stays, under random faults. At most one broker has a disk that hangs."""

    def __init__(self, cluster: MemoryCluster, rng: Random) -> None:
        self.cluster = cluster
        self._rng = rng
        self._hanging: tuple[int, str] | None = None
        self._topics: list[str] = []
        self._count = 0
        self.acknowledged: list[bytes] = []

    async def step(self) -> None:
        """Inject a random fault, and let some time pass."""
        await self._rng.choice(
            (self._hang, self._hang, self.mend, self._change_topics, self._change_topics, self._expire)
        )()
        await trio.sleep(self._rng.choice((0.0, 0.3, 2.5, STEP_MAX_S)))

    async def _hang(self) -> None:
        await self.mend()
        self._hanging = self._rng.choice(BROKERS), self._rng.choice(("/a", "/b"))
        broker_id, path = self._hanging
        self.cluster.deps_of(broker_id).delays.hang(workers(self.cluster, path, broker_id).all)

    async def mend(self) -> None:
        if self._hanging is not None:
            broker_id, path = self._hanging
            self.cluster.deps_of(broker_id).delays.set(workers(self.cluster, path, broker_id).all)
            self._hanging = None

    async def _change_topics(self) -> None:
        """Create or delete topics; their names are used again."""
        if len(self._topics) == TOPICS_MAX or (self._topics and self._rng.random() < 0.5):
            await delete(self.cluster, self._topics.pop(self._rng.randrange(len(self._topics))))
        else:
            name = self._rng.choice([f"t{number}" for number in range(TOPICS_MAX) if f"t{number}" not in self._topics])
            orders = [self._rng.sample(BROKERS, 3) for _ in range(2)]
            await create(self.cluster, name, *orders)
            self._topics.append(name)

    async def _expire(self) -> None:
        """Expire the leader's session; the broker registers again."""
        leader = state(self.cluster).leader
        if leader in BROKERS:
            self.cluster.ensemble.expire(self.cluster.deps_of(leader).sessions[-1])
            with trio.move_on_after(STEP_MAX_S):
                await led_by_another(self.cluster, leader)

    async def write(self) -> None:
        """Produce until cancelled."""
        while True:
            value = b"%d" % self._count
            self._count += 1
            leader = state(self.cluster).leader
            if leader in BROKERS and not (await produce(self.cluster, value, to=leader)).error_code:
                self.acknowledged.append(value)
            await trio.sleep(0.2)


async def watch(cluster: MemoryCluster, broker_id: int) -> None:
    coordinator = broker(cluster, broker_id).coordinator
    while True:
        image = await coordinator.wait_for_image_after(coordinator.image.version)
        check_roles(cluster, broker_id, image)


def served(cluster: MemoryCluster, broker_id: int) -> bool:
    """Whether the broker has all its partitions in their roles, and no changes wait."""
    image, host = broker(cluster, broker_id).coordinator.image, broker(cluster, broker_id)._host
    assert host is not None
    logs = [
        partition(cluster, broker_id, one.name, number)
        for one in image.topics.values()
        for number in range(len(one.partitions))
    ]
    is_open = all(one is not None and not one.is_suspended and not one.is_closed for one in logs)
    is_reported_online = not any(state.offline for one in image.topics.values() for state in one.partitions)
    return is_open and is_reported_online and not host.not_served() and not any(host.store.changes._coming.values())


@pytest.mark.parametrize("seed", range(4))
async def test_no_stale_role_serves_and_nothing_acknowledged_is_lost(seed: int) -> None:
    async with open_cluster(3, MemoryCluster(seed), **TWO_DIRS) as (cluster, _), trio.open_nursery() as watching:
        await settled(cluster)
        await create(cluster, TOPIC, (1, 2, 3))
        disturbed = Disturbed(cluster, random.Random(seed))
        for broker_id in BROKERS:
            watching.start_soon(watch, cluster, broker_id)
        watching.start_soon(disturbed.write)
        try:
            for _ in range(STEPS):
                await disturbed.step()
        finally:
            await disturbed.mend()
        watching.cancel_scope.cancel()
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        found = await values(cluster)
        assert [one for one in found if one in {*disturbed.acknowledged}] == disturbed.acknowledged
        assert len(disturbed.acknowledged) > STEPS

        async def is_served() -> bool:
            return all(served(cluster, broker_id) for broker_id in BROKERS)

        await until(is_served)
