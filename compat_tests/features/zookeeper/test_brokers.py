"""Control planes of several brokers on a real ensemble: equal metadata, and the time and requests that it takes."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import trio

from coordinator.api import BrokerEndpoint
from coordinator.cluster_manager import ClusterManager, ClusterManagerSettings
from coordinator.metadata.loading import load
from coordinator.metadata_store.zookeeper import ZooKeeperSettings, ZooKeeperStore, open_zookeeper
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeHost, FakeValidator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from compat_tests.harness.zookeeper import ZooKeeperEnsemble
    from coordinator.api import ClusterImage

TOPICS, PARTITIONS = 10, 1_000  # of each
# CPU time of this process, which three brokers share, as other processes take time as well.
LOADED_WITHIN_S = 3.0
SETTLED_WITHIN_S = 2.0
PATIENCE_S = 60.0
WATCHES = 3  # of one broker


@dataclass
class Member:
    """The control plane of a broker."""

    store: ZooKeeperStore
    host: FakeHost
    coordinator: ClusterManager
    scope: trio.CancelScope

    async def die(self) -> None:
        """End the broker with its session, which otherwise lasts until its timeout."""
        self.scope.cancel()
        await self.store.close()


async def member(nursery: trio.Nursery, connect: str, broker_id: int) -> Member:
    store = await open_zookeeper(ZooKeeperSettings(connect, session_timeout_ms=6_000))
    settings = ClusterManagerSettings(
        broker_id, (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9_000 + broker_id),), defaults=TopicDefaults(1, 1)
    )
    host = FakeHost()
    coordinator = ClusterManager(store, host, FakeValidator(), settings, Random(broker_id))
    await coordinator.start()
    started = Member(store, host, coordinator, trio.CancelScope())

    async def live() -> None:
        with started.scope:
            await coordinator.run()

    nursery.start_soon(live)
    return started


@asynccontextmanager
async def brokers(connect: str, count: int = 3) -> AsyncIterator[list[Member]]:
    async with trio.open_nursery() as nursery:
        members = [await member(nursery, connect, broker_id) for broker_id in range(1, count + 1)]
        yield members
        for one in members:
            await one.die()
        nursery.cancel_scope.cancel()


async def seconds_until(is_so: Callable[[], bool]) -> float:
    started_s = trio.current_time()
    with trio.fail_after(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 (any part may make it so)
            await trio.sleep(0.005)
    return trio.current_time() - started_s


def led_by(image: ClusterImage, broker_id: int) -> int:
    return sum(state.leader == broker_id for topic in image.topics.values() for state in topic.partitions)


def watches_of(ensemble: ZooKeeperEnsemble) -> int:
    told = [server.ask("mntr") for server in ensemble.servers]
    return sum(int(found.group(1)) for one in told if (found := re.search(r"zk_watch_count\s+(\d+)", one)))


async def test_changes_of_each_broker_reach_all_brokers(ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    async with brokers(ensemble.connect + chroot) as members:
        for number, each in enumerate(members):
            await each.coordinator.create_topic(f"t{number}", partition_count=3)
        images = [each.coordinator.image for each in members]
        newest = max(image.version for image in images)
        await seconds_until(lambda: all(each.coordinator.image.version == newest for each in members))
        one, two, three = (each.coordinator.image for each in members)
        assert one == two == three
        assert (list(one.brokers), len(one.topics)) == ([1, 2, 3], 3)
        assert sum(len(each.host.epochs) for each in members) == 9


async def test_a_broker_costs_the_ensemble_three_watches(ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    async with brokers(ensemble.connect + chroot) as members:
        for number in range(60):
            await members[number % 3].coordinator.create_topic(f"t{number}")
        await seconds_until(lambda: watches_of(ensemble) == 3 * WATCHES)


async def test_ten_thousand_partitions_are_loaded_and_led_by_others_in_seconds(
    ensemble: ZooKeeperEnsemble, chroot: str
) -> None:
    async with brokers(ensemble.connect + chroot) as members:
        one, two, three = members
        for number in range(TOPICS):
            await one.coordinator.create_topic(f"t{number}", partition_count=PARTITIONS, replication_factor=3)
        newest = one.coordinator.image.version
        await seconds_until(lambda: two.coordinator.image.version == three.coordinator.image.version == newest)

        started_s = time.process_time()
        loaded = await load(two.store, one.coordinator.image.cluster_id)
        load_s = time.process_time() - started_s
        assert loaded.image == one.coordinator.image

        moved = led_by(one.coordinator.image, 3)
        assert moved >= TOPICS * PARTITIONS // 3 - TOPICS
        await three.die()
        await seconds_until(lambda: 3 not in one.coordinator.image.brokers)
        others = [one.coordinator, two.coordinator]
        started_s = time.process_time()
        settled_s = await seconds_until(lambda: all(led_by(other.image, 3) == 0 for other in others))
        settle_s = time.process_time() - started_s
        await seconds_until(lambda: others[0].image.version == others[1].image.version)
        assert others[0].image == others[1].image
        print(f"\n10,000 partitions loaded in {load_s:.2f} s; {moved} leaders moved {settled_s:.2f} s after fencing")
        assert load_s < LOADED_WITHIN_S
        assert settle_s < SETTLED_WITHIN_S
