"""The client and the real broker, over memory streams."""

from __future__ import annotations

import struct

import trio

from engine.batches.batch import Record, build_batch
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Address, Connection
from kafkawire.client.errors import Refusal
from kafkawire.client.groups import (
    Group,
    commit_offsets,
    committed_offsets,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_groups,
)
from kafkawire.client.offsets import EARLIEST, LATEST, NO_OFFSET, offsets_at, partitions_of
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.tests.fake_cluster import encode_assignment
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkawire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafkawire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafkawire.testing import EPOCH_MS, OpenBroker, open_broker

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def cluster_of(real: OpenBroker) -> Cluster:
    async def connect(address: Address) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return real.deps.listeners[address.port].connect()

    return Cluster([Address("memory", 9092)], connect)


async def create(cluster: Cluster) -> Connection:
    """Create the topic. Return a connection to the broker."""
    broker = await cluster.any_broker()
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    created = await broker.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse)
    assert created.topics[0].error_code == 0
    return broker


async def join(broker: Connection, group_id: str) -> None:
    """Join a group as its first member, and assign it one partition."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
    )
    joined = await broker.call(request, JoinGroupResponse, at_most=3)
    assert joined.error_code == 0
    assigned = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=encode_assignment({"orders": [1]}))
    sync = SyncGroupRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
    )
    assert (await broker.call(sync, SyncGroupResponse, at_most=2)).error_code == 0


def subscription(topic: str) -> bytes:
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)


async def test_partitions_and_their_offsets() -> None:
    async with open_broker() as real, cluster_of(real) as cluster:
        broker = await create(cluster)
        batch = build_batch([Record(value=b"v", timestamp_ms=EPOCH_MS + number) for number in range(3)])
        rows = [PartitionProduceData(index=1, records=memoryview(batch))]
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=rows)]
        )
        await broker.call(request, ProduceResponse, at_most=12)

        assert await cluster.brokers() == [Address("memory", 9092)]
        assert await partitions_of(cluster, ["orders"]) == {"orders": [FIRST, SECOND]}
        assert await offsets_at(cluster, [FIRST, SECOND], EARLIEST) == {FIRST: 0, SECOND: 0}
        assert await offsets_at(cluster, [FIRST, SECOND], LATEST) == {FIRST: 0, SECOND: 3}
        assert await offsets_at(cluster, [FIRST, SECOND], EPOCH_MS + 1) == {FIRST: NO_OFFSET, SECOND: 1}


async def test_a_group_without_members() -> None:
    async with open_broker() as real, cluster_of(real) as cluster:
        await create(cluster)
        assert await list_groups(cluster) == []
        assert isinstance((await describe_groups(cluster, ["billing"]))["billing"], Refusal)
        assert await commit_offsets(cluster, "billing", {FIRST: 0, SECOND: 7}) == {FIRST: None, SECOND: None}
        assert [(one.group_id, one.state) for one in await list_groups(cluster)] == [("billing", "Empty")]
        assert await committed_offsets(cluster, ["billing"]) == {"billing": {FIRST: (0, -1), SECOND: (7, -1)}}
        assert await delete_offsets(cluster, "billing", [FIRST]) == {FIRST: None}
        assert await delete_groups(cluster, ["billing"]) == {"billing": None}
        assert await list_groups(cluster) == []
        assert await committed_offsets(cluster, ["billing"]) == {"billing": {}}


async def test_a_group_with_a_member() -> None:
    async with open_broker() as real, cluster_of(real) as cluster:
        broker = await create(cluster)
        assert await commit_offsets(cluster, "billing", {SECOND: 0}) == {SECOND: None}
        await join(broker, "billing")
        group = (await describe_groups(cluster, ["billing"]))["billing"]
        assert isinstance(group, Group)
        assert (group.state, group.assignor, group.members[0].partitions) == ("Stable", "range", [SECOND])
        for refused in (
            await commit_offsets(cluster, "billing", {SECOND: 1}),
            await delete_offsets(cluster, "billing", [SECOND]),
            (await delete_groups(cluster, ["billing"]))["billing"],
        ):
            assert isinstance(refused, Refusal)
        assert (await committed_offsets(cluster, ["billing"]))["billing"] == {SECOND: (0, -1)}
