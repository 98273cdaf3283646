"""Admin requests that move replicas, elect leaders and unregister brokers, also during failures."""

from __future__ import annotations

from typing import Any

import pytest

from kafkawire.config.tests.test_enforced import metadata
from kafkawire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkawire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkawire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkawire.messages.unregister_broker import UnregisterBrokerRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_broker, open_cluster
from kafkawire.tests.test_cluster import call, committed, offset_of, settled, until
from kafkawire.tests.test_replication import TOPIC, acknowledged, in_sync, kill, log_bytes, state, values

PREFERRED, UNCLEAN = 0, 1


async def create(cluster: MemoryCluster, *replicas: int, **configs: str) -> None:
    """Create the topic, with one partition on these brokers."""
    set_to = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    placed = CreatableReplicaAssignment(partition_index=0, broker_ids=[*replicas])
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[placed], configs=set_to)
    reply = await call(cluster, 1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
    assert reply.topics[0].error_code == 0
    await settled(cluster)


async def move(
    cluster: MemoryCluster, replicas: tuple[int, ...] | None, *, ask: int = 1, topic: str = TOPIC, **fields: Any
) -> Any:
    """Reassign the partition, and return the row of the reply."""
    asked = ReassignablePartition(partition_index=0, replicas=None if replicas is None else [*replicas])
    topics = [ReassignableTopic(name=topic, partitions=[asked])]
    reply = await call(cluster, ask, AlterPartitionReassignmentsRequest(topics=topics, **fields), 1)
    return reply.responses[0].partitions[0]


async def under_way(cluster: MemoryCluster, ask: int) -> list[Any]:
    reply = await call(cluster, ask, ListPartitionReassignmentsRequest(topics=None), 0)
    return [row for topic in reply.topics for row in topic.partitions]


async def moved(cluster: MemoryCluster, *replicas: int) -> None:
    async def is_so() -> bool:
        found = state(cluster)
        return found.replicas == replicas and not found.adding and not found.removing and found.leader != -1

    await until(is_so)


async def elect(cluster: MemoryCluster, kind: int = PREFERRED, *, ask: int = 1, of_all: bool = False) -> list[int]:
    """Request elections, and return the error codes of the rows."""
    named = None if of_all else [TopicPartitions(topic=TOPIC, partitions=[0])]
    reply = await call(cluster, ask, ElectLeadersRequest(election_type=kind, topic_partitions=named), 2)
    return [row.error_code for topic in reply.replica_election_results for row in topic.partition_result]


def directories(cluster: MemoryCluster, broker_id: int) -> set[str]:
    """The directories of the topic's partitions on that broker's disk."""
    filesystem = cluster.deps_of(broker_id).filesystem
    return {name for name in filesystem.list_dir("/data") if name.startswith(f"{TOPIC}-")}


async def gone_from(cluster: MemoryCluster, broker_id: int) -> None:
    async def is_so() -> bool:
        return not directories(cluster, broker_id)

    await until(is_so)


@pytest.mark.parametrize("ask", [1, 3])
async def test_replicas_move_with_all_that_was_acknowledged_and_leave_nothing_behind(ask: int) -> None:
    async with open_cluster(4) as (cluster, _):
        await create(cluster, 1, 2)
        sent = [b"%d" % number for number in range(4)]
        for value in sent[:3]:
            await acknowledged(cluster, value)
        assert (await move(cluster, (4, 3), ask=ask)).error_code == 0
        await acknowledged(cluster, sent[3])
        await moved(cluster, 4, 3)
        assert state(cluster).leader == 4
        assert sorted(state(cluster).isr) == [3, 4]
        await acknowledged(cluster, b"after")
        assert await values(cluster) == [*sent, b"after"]
        for one in (1, 2):
            await gone_from(cluster, one)
        assert log_bytes(cluster, 3) == log_bytes(cluster, 4) != b""
        assert await under_way(cluster, ask) == []


async def test_a_partition_that_was_alone_is_given_others_and_is_alone_again() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 2, min_insync_replicas="2")
        await acknowledged(cluster, b"alone")
        assert (await move(cluster, (2, 1, 3))).error_code == 0
        await moved(cluster, 2, 1, 3)
        await acknowledged(cluster, b"together")
        assert log_bytes(cluster, 1) == log_bytes(cluster, 2) == log_bytes(cluster, 3) != b""
        assert (await move(cluster, (3,))).error_code == 0
        await moved(cluster, 3)
        await acknowledged(cluster, b"alone again")
        assert await values(cluster) == [b"alone", b"together", b"alone again"]
        for one in (1, 2):
            await gone_from(cluster, one)


async def test_running_reassignment_is_listed_and_cancelled() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1)
        await acknowledged(cluster, b"0")
        await kill(cluster, 3)
        assert (await move(cluster, (3, 2))).error_code == 0
        await settled(cluster)
        [row] = await under_way(cluster, 2)
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([3, 2, 1], [2, 3], [1])
        await acknowledged(cluster, b"1")
        assert (await move(cluster, None, ask=2)).error_code == 0
        await moved(cluster, 1)
        assert (await move(cluster, None)).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await acknowledged(cluster, b"2")
        await gone_from(cluster, 2)
        await nursery.start(cluster.serve, 3, {})
        assert await values(cluster) == [b"0", b"1", b"2"]
        assert state(cluster).replicas == (1,)


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((2, 3), ErrorCode.NONE),
    ],
)
async def test_an_order_that_cannot_be_is_refused_by_itself(replicas: tuple[int, ...] | None, code: int) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 1, 2)
        assert (await move(cluster, replicas)).error_code == code


async def test_the_number_of_replicas_may_be_kept() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 1, 2)
        row = await move(cluster, (1, 2, 3), allow_replication_factor_change=False)
        assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert row.error_message == "The replication factor is changed from 2 to 3"
        assert (await move(cluster, (1, 3), allow_replication_factor_change=False)).error_code == 0


@pytest.mark.parametrize("killed", [1, 2, 4])
async def test_reassignment_completes_although_a_broker_is_killed_meanwhile(killed: int) -> None:
    """Broker 1 is the controller, broker 2 the leader, and broker 4 is being added."""
    async with open_cluster(4) as (cluster, nursery):
        await create(cluster, 2, 3)
        await acknowledged(cluster, b"0")
        assert (await move(cluster, (4, 3))).error_code == 0
        await kill(cluster, killed)
        await acknowledged(cluster, b"1")
        await nursery.start(cluster.serve, killed, {})
        await acknowledged(cluster, b"2")
        await moved(cluster, 4, 3)
        await gone_from(cluster, 2)
        await acknowledged(cluster, b"3")
        assert await values(cluster) == [b"0", b"1", b"2", b"3"]


async def test_all_are_stopped_midway_and_go_on_where_they_were() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1)
        await acknowledged(cluster, b"0")
        await kill(cluster, 3)
        assert (await move(cluster, (3,))).error_code == 0
        await acknowledged(cluster, b"1")
        await kill(cluster, 1, 2)
        for one in (2, 3, 1):
            await nursery.start(cluster.serve, one, {})
        await moved(cluster, 3)
        await acknowledged(cluster, b"2")
        assert await values(cluster) == [b"0", b"1", b"2"]
        await gone_from(cluster, 1)


async def test_replica_moved_away_while_its_broker_was_down_is_deleted_when_the_broker_returns() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1, 2)
        await acknowledged(cluster, b"0")
        await kill(cluster, 2)
        await in_sync(cluster, 1)
        assert (await move(cluster, (1, 3))).error_code == 0
        await moved(cluster, 1, 3)
        assert directories(cluster, 2)
        await nursery.start(cluster.serve, 2, {})
        assert not directories(cluster, 2)
        assert (await move(cluster, (1, 2))).error_code == 0
        await moved(cluster, 1, 2)
        await acknowledged(cluster, b"1")
        assert log_bytes(cluster, 1) == log_bytes(cluster, 2) != b""


async def test_group_keeps_its_offsets_when_its_offsets_partition_is_reassigned() -> None:
    own = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "1"}
    async with open_cluster(**own) as (cluster, _):
        await create(cluster, 1)
        found: list[int] = []

        async def is_made() -> bool:
            reply = await call(cluster, 1, FindCoordinatorRequest(key="g", key_type=0), 3)
            found.append(reply.node_id)
            return not reply.error_code and await committed(cluster, reply.node_id, "g", 7) == 0

        await until(is_made)
        first = found[-1]
        other = next(one for one in (1, 2, 3) if one != first)
        assert (await move(cluster, (other,), topic="__consumer_offsets")).error_code == 0

        async def is_there() -> bool:
            return await offset_of(cluster, other, "g") == (0, 7)

        await until(is_there)
        assert await offset_of(cluster, first, "g") == (ErrorCode.NOT_COORDINATOR, -1)
        assert await committed(cluster, other, "g", 8) == 0
        assert await offset_of(cluster, other, "g") == (0, 8)


async def test_leaders_go_back_to_the_first_replica_by_order() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1, 2)
        assert await elect(cluster) == [ErrorCode.ELECTION_NOT_NEEDED]
        assert await elect(cluster, of_all=True) == []
        await kill(cluster, 1)
        await acknowledged(cluster, b"by another")
        assert await elect(cluster, ask=3) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
        await nursery.start(cluster.serve, 1, {})
        await in_sync(cluster, 1, 2)
        assert state(cluster).leader == 2
        assert await elect(cluster, ask=3, of_all=True) == [0]
        assert state(cluster).leader == 1
        await acknowledged(cluster, b"by the first")
        assert await values(cluster) == [b"by another", b"by the first"]


async def test_replica_that_lacks_records_leads_only_after_an_unclean_election_request() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1, 2)
        await acknowledged(cluster, b"on both")
        await kill(cluster, 2)
        await acknowledged(cluster, b"on one")
        assert await elect(cluster, UNCLEAN, ask=3) == [ErrorCode.ELECTION_NOT_NEEDED]
        await kill(cluster, 1)

        async def has_none() -> bool:
            return state(cluster).leader == -1

        await until(has_none)
        assert await elect(cluster, UNCLEAN, ask=3) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
        await nursery.start(cluster.serve, 2, {})
        assert state(cluster).leader == -1
        assert await elect(cluster, UNCLEAN, ask=3) == [0]
        assert state(cluster).leader == 2
        await settled(cluster)
        assert await values(cluster) == [b"on both"]


async def unregister(cluster: MemoryCluster, broker_id: int, *, ask: int = 1) -> int:
    return int((await call(cluster, ask, UnregisterBrokerRequest(broker_id=broker_id), 0)).error_code)


async def test_unregistered_broker_is_no_member_and_its_replicas_stay_listed_as_offline() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, 1, 3)
        await acknowledged(cluster, b"0")
        assert await unregister(cluster, 7) == ErrorCode.BROKER_ID_NOT_REGISTERED
        await kill(cluster, 3)
        await in_sync(cluster, 1)
        epoch = cluster.brokers[1].broker.coordinator.image.members[3].epoch
        assert await unregister(cluster, 3, ask=2) == 0
        assert await unregister(cluster, 3) == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert sorted(cluster.brokers[1].broker.coordinator.image.members) == [1, 2]
        assert state(cluster).replicas == (1, 3)
        assert (await metadata(cluster.connect(1), TOPIC)).topics[0].partitions[0].offline_replicas == [3]
        assert (await move(cluster, (1, 3, 2))).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await nursery.start(cluster.serve, 3, {})
        await in_sync(cluster, 1, 3)
        assert cluster.brokers[1].broker.coordinator.image.members[3].epoch > epoch, "no epoch comes twice"


@pytest.mark.parametrize("broker_id", [1, 3])
async def test_running_broker_re_registers_after_it_was_unregistered(broker_id: int) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, 1, 3)
        await acknowledged(cluster, b"0")
        epoch = cluster.brokers[broker_id].broker.coordinator.broker_epoch
        assert await unregister(cluster, broker_id, ask=2) == 0

        async def is_back() -> bool:
            return cluster.brokers[broker_id].broker.coordinator.broker_epoch > epoch

        await until(is_back)
        await in_sync(cluster, 1, 3)
        await acknowledged(cluster, b"1")
        assert await values(cluster) == [b"0", b"1"]


async def test_a_broker_that_stands_alone_has_nothing_to_move_and_says_so() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        assert await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 6)
        me = opened.broker.config.node_id
        for replicas, code in (([me], 0), ([me, me + 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
            asked = ReassignableTopic(
                name=TOPIC, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
            )
            reply: Any = await client.call(AlterPartitionReassignmentsRequest(topics=[asked]), 1)
            assert reply.responses[0].partitions[0].error_code == code
        for kind in (PREFERRED, UNCLEAN):
            named = [TopicPartitions(topic=TOPIC, partitions=[0, 1])]
            reply = await client.call(ElectLeadersRequest(election_type=kind, topic_partitions=named), 2)
            codes = [row.error_code for row in reply.replica_election_results[0].partition_result]
            assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        reply = await client.call(ListPartitionReassignmentsRequest(topics=None), 0)
        assert reply.topics == []
