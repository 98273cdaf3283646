"""The tier's copies of topics and committed offsets follow the cluster."""

from __future__ import annotations

from dataclasses import replace

import trio

from kafkawire.adapters.tier_cluster import ClusterCopies, ClusterSource
from kafkawire.config.tests.test_enforced import ask
from kafkawire.config.tests.test_tier_enforced import SOON, TIER, alter, create_tiered, tiered
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.process.tests.test_restoration import commit
from kafkawire.testing import MemoryDeps, OpenBroker, open_broker
from tiering.cluster_objects import ClusterObjects, CommittedCopy
from tiering.object_store import Content
from tiering.stores.memory import HEALTHY, Fault, Operation


def copies(deps: MemoryDeps, opened: OpenBroker) -> ClusterObjects:
    return ClusterObjects(deps.objects, "lake/", opened.broker.coordinator.image.cluster_id)


async def test_topics_of_the_tier_are_copied_as_they_become() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        await ask(client, CreateTopicsRequest(topics=[CreatableTopic(name="o", num_partitions=1)], timeout_ms=1), 6)
        await trio.sleep(1)
        [topic] = await copies(deps, opened).topics()
        assert (topic.topic, topic.partition_count) == ("t", 1)
        assert await alter(client, retention_ms="77") == 0
        await opened.broker.coordinator.create_partitions("t", 3)
        await trio.sleep(1)
        [topic] = await copies(deps, opened).topics()
        assert (topic.partition_count, topic.configs["retention.ms"]) == (3, "77")
        puts = deps.objects.requests[Operation.PUT]
        await opened.broker.coordinator.create_topic("other")
        await trio.sleep(1)
        assert deps.objects.requests[Operation.PUT] == puts
        await opened.broker.coordinator.delete_topic("t")
        await trio.sleep(1)
        assert await copies(deps, opened).topics() == []


async def test_a_topic_is_copied_when_an_unreachable_store_is_back() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **TIER, **SOON) as opened:
        deps.objects.fault = lambda _operation, _key: Fault(is_lost=True)
        await create_tiered(opened.connect(), "orders")
        await trio.sleep(10)
        deps.objects.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(2)
        assert [one.topic for one in await copies(deps, opened).topics()] == ["orders"]


async def test_committed_offsets_are_copied_when_there_are_new_ones() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        await commit(client, "group", 3)
        await trio.sleep(3)
        [found] = await copies(deps, opened).offsets()
        topic_id = opened.broker.coordinator.image.topics["t"].topic_id.hex()
        assert found.groups == {"group": [CommittedCopy(topic_id, 0, 3, -1, "mine")]}
        before = [key for key in deps.objects.objects if "/offsets/" in key]
        await trio.sleep(10)
        assert [key for key in deps.objects.objects if "/offsets/" in key] == before
        await commit(client, "group", 4)
        await trio.sleep(3)
        [found] = await copies(deps, opened).offsets()
        assert found.groups["group"][0].offset == 4


async def test_a_repeatedly_failing_copy_of_topics_logs_one_problem() -> None:
    """Copies of committed offsets that succeed or fail meanwhile do not matter."""
    deps, problems = MemoryDeps(), list[str]()
    async with tiered(deps) as (opened, client):
        damaged = f"lake/{opened.broker.coordinator.image.cluster_id}/topics/t/of-somebody-else"
        await deps.objects.put(damaged, Content.of(b""))
        cluster, groups = opened.broker.coordinator, opened.broker.coordinators.groups
        source = ClusterSource(1, cluster, groups, lambda _topic: True, lambda: 0, problems.append)
        again = ClusterCopies(copies(deps, opened), source, 1000)
        for offset in range(5):
            assert not await again.copy_topics(cluster.image)
            await commit(client, "group", offset)
            await again.copy_offsets()
        assert problems == [f"topics are not copied to the tier for now: {damaged} is no topic"]
        await deps.objects.delete(damaged)
        assert await again.copy_topics(cluster.image)
        assert len(problems) == 1


async def test_a_topic_that_cannot_be_copied_delays_no_other() -> None:
    deps, problems = MemoryDeps(), list[str]()
    async with tiered(deps) as (opened, _):
        cluster, groups = opened.broker.coordinator, opened.broker.coordinators.groups
        source = ClusterSource(1, cluster, groups, lambda _topic: True, lambda: 0, problems.append)
        again = ClusterCopies(copies(deps, opened), source, 1000)
        await cluster.create_topic("a")
        await cluster.create_topic("b")
        refused = min(cluster.image.topics["a"].topic_id.hex(), cluster.image.topics["b"].topic_id.hex())
        deps.objects.fault = lambda _operation, key: Fault(is_refused=refused in key)
        assert not await again.copy_topics(cluster.image)
        assert len({one.topic for one in await copies(deps, opened).topics()} & {"a", "b"}) == 1
        deps.objects.fault = lambda _operation, _key: HEALTHY
        assert await again.copy_topics(cluster.image)
        assert {one.topic for one in await copies(deps, opened).topics()} >= {"a", "b"}


async def test_a_broker_that_becomes_controller_again_copies_the_topics_again() -> None:
    """Another controller has copied a change meanwhile, and the change was taken back."""
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        cluster, groups = opened.broker.coordinator, opened.broker.coordinators.groups
        await trio.sleep(1)
        before = cluster.image
        source = ClusterSource(1, cluster, groups, lambda _topic: True, lambda: 0, lambda _problem: None)
        again = ClusterCopies(copies(deps, opened), source, 1000)
        assert await again.copy_topics(before)
        assert await again.copy_topics(replace(before, controller_id=2))
        assert await alter(client, retention_ms="77") == 0
        await trio.sleep(1)
        assert [one.configs.get("retention.ms") for one in await copies(deps, opened).topics()] == ["77"]
        assert await again.copy_topics(before)
        assert [one.configs.get("retention.ms") for one in await copies(deps, opened).topics()] == [None]


async def test_offsets_of_the_last_life_are_copied_by_the_next() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        deps.objects.fault = lambda _operation, key: Fault(is_lost="/offsets/" in key)
        await commit(client, "group", 3)
        await trio.sleep(3)
        assert not any("/offsets/" in key for key in deps.objects.objects)
    deps.objects.fault = lambda _operation, _key: HEALTHY
    async with open_broker(deps, **TIER, **SOON) as opened:
        await trio.sleep(3)
        [found] = await copies(deps, opened).offsets()
        assert found.groups["group"][0].offset == 3
