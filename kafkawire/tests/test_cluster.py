"""Several brokers as their clients see them: with one metadata store and one network in memory, and a disk for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from engine.batches.batch import Record, build_batch
from kafkawire.config.tests.test_enforced import metadata
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import FIRST_PORT, MemoryCluster, open_cluster

BROKERS = (1, 2, 3)


async def call(cluster: MemoryCluster, broker_id: int, request: Any, version: int) -> Any:
    with trio.fail_after(120):
        return await cluster.connect(broker_id).call(request, version)


async def create(cluster: MemoryCluster, broker_id: int, name: str, partitions: int, replicas: int = 1) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    reply = await call(cluster, broker_id, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 6)
    return int(reply.topics[0].error_code)


async def leaders(cluster: MemoryCluster, broker_id: int, topic: str) -> list[int]:
    """The leaders by partition, in this broker's Metadata response."""
    reply = await metadata(cluster.connect(broker_id), topic)
    return [one.leader_id for one in sorted(reply.topics[0].partitions, key=lambda one: one.partition_index)]


async def produce(cluster: MemoryCluster, broker_id: int, topic: str, partition: int, version: int = 9) -> Any:
    data = PartitionProduceData(index=partition, records=memoryview(build_batch([Record(None, b"v")])))
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    return await call(cluster, broker_id, request, version)


async def until(is_so: Callable[[], Awaitable[bool]]) -> float:
    """Wait for the condition, and return how many seconds that took."""
    begin_s = trio.current_time()
    with trio.fail_after(120):
        while not await is_so():  # noqa: ASYNC110 - there is no event for the condition
            await trio.sleep(0.05)
    return trio.current_time() - begin_s


async def settled(cluster: MemoryCluster) -> None:
    """Wait until all running brokers have the same image."""

    async def is_settled() -> bool:
        return len({one.broker.coordinator.image.version for one in cluster.brokers.values()}) == 1

    await until(is_settled)


async def led_again(cluster: MemoryCluster, broker_id: int, topic: str) -> float:
    """Wait until each partition has a leader, and return how many seconds that took."""

    async def is_led() -> bool:
        return -1 not in await leaders(cluster, broker_id, topic)

    return await until(is_led)


@pytest.mark.enforces("zookeeper.connect")
async def test_every_broker_returns_all_brokers_and_the_same_controller() -> None:
    async with open_cluster() as (cluster, _):
        await settled(cluster)
        reported = []
        for broker_id in BROKERS:
            found = await metadata(cluster.connect(broker_id))
            reported.append((found.controller_id, [(one.node_id, one.port) for one in found.brokers]))
            described = await call(cluster, broker_id, DescribeClusterRequest(), 1)
            assert sorted(one.broker_id for one in described.brokers) == list(BROKERS)
        assert reported == [(1, [(one, FIRST_PORT + one) for one in BROKERS])] * 3


async def test_topics_that_any_broker_creates_are_led_by_all_and_known_to_all() -> None:
    async with open_cluster() as (cluster, _):
        for broker_id in BROKERS:
            assert await create(cluster, broker_id, f"t{broker_id}", 3) == 0
        await settled(cluster)
        for broker_id in BROKERS:
            for topic in ("t1", "t2", "t3"):
                assert sorted(await leaders(cluster, broker_id, topic)) == list(BROKERS)
        assert await create(cluster, 2, "t1", 1) == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_there_are_no_more_replicas_than_brokers() -> None:
    async with open_cluster() as (cluster, _):
        assert await create(cluster, 1, "t", 1, 4) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await create(cluster, 1, "t", 1, 3) == 0


async def test_internal_topics_wait_for_as_many_brokers_as_they_have_replicas() -> None:
    """A topic with fewer replicas would stay so (KIP-115)."""
    async with open_cluster(offsets_topic_num_partitions="1", offsets_topic_replication_factor="4") as (cluster, _):
        reply = await call(cluster, 1, FindCoordinatorRequest(key="g", key_type=0), 3)
        assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "__consumer_offsets" not in cluster.brokers[1].broker.coordinator.image.topics


@pytest.mark.parametrize("version", [9, 10])
async def test_produce_to_another_broker_returns_not_leader_and_names_the_leader_from_version_10(version: int) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 1, "t", 3)
        await settled(cluster)
        leader = (await leaders(cluster, 1, "t"))[0]
        other = next(one for one in BROKERS if one != leader)
        row = (await produce(cluster, leader, "t", 0, version)).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)
        reply = await produce(cluster, other, "t", 0, version)
        row = reply.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 10:  # KIP-951
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (leader, 0)
            assert [(one.node_id, one.port) for one in reply.node_endpoints] == [(leader, FIRST_PORT + leader)]


async def test_a_group_is_coordinated_by_the_broker_that_every_other_names() -> None:
    async with open_cluster(offsets_topic_num_partitions="6") as (cluster, _):
        await create(cluster, 1, "t", 1)
        found = set()
        for number in range(6):
            group, named = f"g{number}", set()
            for broker_id in BROKERS:
                reply = await call(cluster, broker_id, FindCoordinatorRequest(key=group, key_type=0), 3)
                assert reply.error_code == 0
                named.add(reply.node_id)
                await settled(cluster)
            (coordinator,) = named
            found.add(coordinator)
            other = next(one for one in BROKERS if one != coordinator)
            assert await committed(cluster, other, group, 5) == ErrorCode.NOT_COORDINATOR
            assert await committed(cluster, coordinator, group, 5) == 0
        assert found == set(BROKERS)


async def committed(cluster: MemoryCluster, broker_id: int, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    reply = await call(cluster, broker_id, OffsetCommitRequest(group_id=group, topics=topics), 8)
    return int(reply.topics[0].partitions[0].error_code)


async def offset_of(cluster: MemoryCluster, broker_id: int, group: str) -> tuple[int, int]:
    """The error code and the committed offset."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
    reply = await call(cluster, broker_id, OffsetFetchRequest(groups=groups), 8)
    if reply.groups[0].error_code:
        return reply.groups[0].error_code, -1
    return 0, reply.groups[0].topics[0].partitions[0].committed_offset


async def test_killed_broker_is_noticed_within_a_second_and_leads_again_when_it_is_back() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1, "t", 3)
        for partition, leader in enumerate(await leaders(cluster, 1, "t")):
            await produce(cluster, leader, "t", partition)
        await trio.sleep(1)  # the controller has reached it once
        cluster.kill(3)
        await trio.sleep(1)
        assert sorted(await leaders(cluster, 2, "t")) == [-1, 1, 2]
        await nursery.start(cluster.serve, 3, {})
        assert await led_again(cluster, 2, "t") < 1
        for partition, leader in enumerate(await leaders(cluster, 2, "t")):
            row = (await produce(cluster, leader, "t", partition)).responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, 1), "nothing was lost"


async def test_killed_controller_is_replaced_within_a_second() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 2, "t", 3)
        await trio.sleep(1)  # the others have reached it once
        cluster.kill(1)

        async def is_another() -> bool:
            return bool((await metadata(cluster.connect(2))).controller_id != 1)

        assert await until(is_another) < 1, "nobody waits for its session"
        await trio.sleep(0.5)
        assert sorted(await leaders(cluster, 3, "t")) == [-1, 2, 3]
        await nursery.start(cluster.serve, 1, {})
        await led_again(cluster, 3, "t")
        assert await create(cluster, 1, "u", 1) == 0


@pytest.mark.parametrize("replicas", [1, 3])
async def test_group_keeps_its_offsets_when_its_coordinator_stops_in_order(replicas: int) -> None:
    """Another broker coordinates the group at once if the topic has replicas there, else when the broker is back."""
    topic = {"offsets_topic_num_partitions": "3", "offsets_topic_replication_factor": str(replicas)}
    async with open_cluster(**topic) as (cluster, nursery):
        await create(cluster, 1, "t", 1)
        await call(cluster, 1, FindCoordinatorRequest(key="g", key_type=0), 3)
        await settled(cluster)
        reply = await call(cluster, 1, FindCoordinatorRequest(key="g", key_type=0), 3)
        coordinator = reply.node_id
        assert await committed(cluster, coordinator, "g", 7) == 0
        await cluster.stop(coordinator)
        other = next(one for one in BROKERS if one != coordinator)
        await trio.sleep(1)
        reply = await call(cluster, other, FindCoordinatorRequest(key="g", key_type=0), 3)
        assert reply.error_code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if replicas == 1 else 0)
        if replicas == 1:
            await nursery.start(cluster.serve, coordinator, topic)
            reply.node_id = coordinator

        async def is_there() -> bool:
            return await offset_of(cluster, reply.node_id, "g") == (0, 7)

        await until(is_there)


async def test_brokers_keep_serving_while_the_metadata_store_is_unreachable() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 1, "t", 3)
        await settled(cluster)
        for deps in cluster.deps.values():
            deps.sessions[-1].disconnected = True
        for _ in range(12):  # beyond the sessions' time-out
            for partition, leader in enumerate(await leaders(cluster, 1, "t")):
                row = (await produce(cluster, leader, "t", partition)).responses[0].partition_responses[0]
                assert row.error_code == 0
            await trio.sleep(5)
        assert await create(cluster, 1, "u", 1) == ErrorCode.REQUEST_TIMED_OUT
        for deps in cluster.deps.values():
            deps.sessions[-1].disconnected = False

        async def is_created() -> bool:
            return await create(cluster, 1, "u", 1) in (0, ErrorCode.TOPIC_ALREADY_EXISTS)

        await until(is_created)
        await led_again(cluster, 1, "t")
        for partition, leader in enumerate(await leaders(cluster, 1, "t")):
            row = (await produce(cluster, leader, "t", partition)).responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, 12)


async def fetch(cluster: MemoryCluster, broker_id: int, topic: str) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    request = FetchRequest(max_bytes=2**20, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])])
    return (await call(cluster, broker_id, request, 11)).responses[0].partitions[0]


async def test_a_topic_that_is_deleted_at_one_broker_is_gone_from_all_disks() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 1, "t", 3)
        await settled(cluster)
        leader = (await leaders(cluster, 1, "t"))[0]
        await produce(cluster, leader, "t", 0)
        assert (await fetch(cluster, leader, "t")).error_code == 0
        other = next(one for one in BROKERS if one != leader)
        reply = await call(cluster, other, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        assert reply.responses[0].error_code == 0
        await settled(cluster)
        assert (await fetch(cluster, leader, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for deps in cluster.deps.values():
            assert not [name for name in deps.filesystem.list_dir("/data") if name.startswith("t-") and "." not in name]
