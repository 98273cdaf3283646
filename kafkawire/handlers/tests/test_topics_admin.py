"""CreateTopics, DeleteTopics, DescribeCluster: mistakes of an administrator, and the replies."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kafkawire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.tests.harness import NODE_ID, Broker, Settings, open_handlers
from kafkawire.wire.primitives import ZERO_UUID


def topic(name: str = "t", partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def assignment(partition: int, *brokers: int) -> CreatableReplicaAssignment:
    return CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))


async def create(broker: Broker, *topics: CreatableTopic, version: int = 7, **fields: Any) -> list[Any]:
    fields.setdefault("timeout_ms", 10_000)
    rows: list[Any] = (await broker.ask(CreateTopicsRequest(topics=list(topics), **fields), version)).topics
    return rows


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_created_topic_can_be_used_when_the_answer_comes(version: int) -> None:
    async with open_handlers() as broker:
        [row] = await create(broker, topic(partitions=3), version=version)
        assert (row.name, row.error_code, row.error_message) == ("t", 0, None)
        assert await broker.append("t", b"v", partition=2) == 0
        if version >= 5:
            assert (row.num_partitions, row.replication_factor) == (3, 1)
            assert [(entry.name, entry.config_source) for entry in row.configs] == [("retention.ms", 5)]
        if version >= 7:
            assert row.topic_id == broker.cluster.image.topics["t"].topic_id


async def test_minus_1_means_the_brokers_default() -> None:
    async with open_handlers() as broker:
        [row] = await create(broker, topic(partitions=-1, replicas=-1), version=7)
        assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)


async def test_configs_are_kept_and_told() -> None:
    async with open_handlers() as broker:
        configs = [CreatableTopicConfig(name="max.message.bytes", value="100")]
        [row] = await create(broker, topic(configs=configs))
        assert ("max.message.bytes", "100", 1) in [(one.name, one.value, one.config_source) for one in row.configs]
        assert broker.cluster.image.topics["t"].configs == {"max.message.bytes": "100"}


async def test_validate_only_creates_nothing() -> None:
    async with open_handlers() as broker:
        [row] = await create(broker, topic(partitions=3), validate_only=True)
        assert (row.error_code, row.num_partitions) == (0, 3)
        assert not broker.cluster.image.topics
        [row] = await create(broker, topic(partitions=0), validate_only=True)
        assert row.error_code == 37


REFUSED: list[tuple[str, CreatableTopic, int]] = [
    ("bad name", topic("a b"), 17),
    ("empty name", topic(""), 17),
    ("colliding name", topic("a_b"), 17),
    ("exists", topic("a.b"), 36),
    ("no partitions", topic(partitions=0), 37),
    ("no replicas", topic(replicas=0), 38),
    ("more replicas than brokers", topic(replicas=2), 38),
    ("counts and an assignment", topic(assignments=[assignment(0, NODE_ID)]), 42),
    ("a gap in the assignment", topic("t", -1, -1, assignments=[assignment(1, NODE_ID)]), 39),
    ("an unknown broker", topic("t", -1, -1, assignments=[assignment(0, 77)]), 39),
    ("a partition assigned twice", topic("t", -1, -1, assignments=[assignment(0, NODE_ID)] * 2), 39),
    ("an unknown config", topic(configs=[CreatableTopicConfig(name="unknown.key", value="1")]), 40),
    ("a config without a value", topic(configs=[CreatableTopicConfig(name="retention.ms", value=None)]), 40),
    ("Kafka's own log", topic("__cluster_metadata"), 42),
]


@pytest.mark.parametrize(("asked", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_topic_that_cannot_be(asked: CreatableTopic, code: int) -> None:
    async with open_handlers() as broker:
        await broker.create("a.b")
        [row] = await create(broker, asked)
        assert (row.name, row.error_code, row.num_partitions, row.topic_id) == (asked.name, code, -1, ZERO_UUID)
        assert row.error_message
        assert set(broker.cluster.image.topics) == {"a.b"}


async def test_a_manual_assignment() -> None:
    async with open_handlers() as broker:
        [row] = await create(broker, topic("t", -1, -1, assignments=[assignment(0, NODE_ID), assignment(1, NODE_ID)]))
        assert (row.error_code, row.num_partitions) == (0, 2)


async def test_too_many_partitions_in_one_request_create_none() -> None:
    async with open_handlers() as broker:
        assigned = topic("c", -1, -1, assignments=[assignment(0, NODE_ID)])
        rows = await create(broker, topic("a", 9_998), topic("b", -1), assigned, validate_only=True)
        assert [(row.name, row.error_code) for row in rows] == [("a", 44), ("b", 44), ("c", 44)]
        rows = await create(broker, topic("a", 9_997), topic("b", -1), assigned, validate_only=True)
        assert [row.error_code for row in rows] == [0, 0, 0]


async def test_a_name_given_twice_is_refused_once_and_not_created() -> None:
    async with open_handlers() as broker:
        rows = await create(broker, topic("a"), topic("b"), topic("a", 5))
        assert [(row.name, row.error_code) for row in rows] == [("a", 42), ("b", 0)]
        assert set(broker.cluster.image.topics) == {"b"}


async def test_topics_not_created_before_the_timeout_are_refused() -> None:
    async with open_handlers() as broker:
        real = broker.cluster.real

        class Slow:
            image = real.image

            async def create_topic(self, name: str, **options: Any) -> object:
                await trio.sleep(2)
                return await real.create_topic(name, **options)

        rows = await create(broker.reconfigured(cluster=Slow()), topic("a"), topic("b"), timeout_ms=1_000)
        assert [(row.name, row.error_code) for row in rows] == [("a", 0), ("b", 7)]
        assert set(real.image.topics) == {"a"}


async def test_configs_of_a_created_topic_require_the_describe_configs_right() -> None:
    def deny(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return operation is not Operation.DESCRIBE_CONFIGS

    async with open_handlers(authorizer=deny) as broker:
        [row] = await create(broker, topic())
        assert (row.error_code, row.topic_config_error_code, row.num_partitions) == (0, 29, -1)
        assert not row.configs


async def test_the_right_to_one_topic_suffices_to_create_it() -> None:
    def only_a(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return kind is ResourceType.TOPIC and name == "a"

    async with open_handlers(authorizer=only_a) as broker:
        rows = await create(broker, topic("a"), topic("b"))
        assert [row.error_code for row in rows] == [0, 29]


# DeleteTopics


async def delete(broker: Broker, *asked: str | bytes, version: int = 6, **fields: Any) -> list[Any]:
    fields.setdefault("timeout_ms", 10_000)
    if version < 6:
        fields["topic_names"] = list(asked)
    else:
        fields["topics"] = [
            DeleteTopicState(name=None, topic_id=one) if isinstance(one, bytes) else DeleteTopicState(name=one)
            for one in asked
        ]
    rows: list[Any] = (await broker.ask(DeleteTopicsRequest(**fields), version)).responses
    return rows


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_deleted_topic_is_gone_when_the_answer_comes(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 2)
        [row] = await delete(broker, "t", version=version)
        assert (row.name, row.error_code) == ("t", 0)
        assert row.topic_id == (topic_id if version >= 6 else ZERO_UUID)
        assert not broker.cluster.image.topics
        assert [row.error_code for row in await delete(broker, "t", version=version)] == [3]


async def test_a_topic_is_deleted_by_its_id() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        rows = await delete(broker, topic_id, b"?" * 16)
        assert [(row.name, row.error_code) for row in rows] == [("t", 0), (None, 100)]


async def test_a_topic_created_again_under_its_name_has_another_id() -> None:
    async with open_handlers() as broker:
        old = await broker.create("t", 2)
        await broker.append("t", b"old")
        await delete(broker, old)
        new = await broker.create("t")
        assert new != old
        asked = [MetadataRequestTopic(name=None, topic_id=one) for one in (old, new)]
        gone, found = (await broker.ask(MetadataRequest(topics=asked), 12)).topics
        assert (gone.error_code, gone.topic_id) == (100, old)
        assert (found.error_code, found.name, len(found.partitions)) == (0, "t", 1)
        [row] = (await broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics
        assert row.topic_id == new
        assert broker.log("t").log_end_offset == 0
        assert [(row.name, row.error_code) for row in await delete(broker, old)] == [(None, 100)]
        assert "t" in broker.cluster.image.topics


async def test_a_topic_named_twice_stays() -> None:
    async with open_handlers() as broker:
        ids = [await broker.create(name) for name in ("a", "b", "c", "d")]
        rows = await delete(broker, "a", "a", ids[1], ids[1], "c", ids[2], "d")
        assert [row.error_code for row in rows] == [42, 42, 42, 0]
        assert set(broker.cluster.image.topics) == {"a", "b", "c"}


async def test_a_topic_named_not_at_all_or_by_both() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        states = [DeleteTopicState(name=None), DeleteTopicState(name="t", topic_id=topic_id)]
        response = await broker.ask(DeleteTopicsRequest(topics=states, timeout_ms=1_000), 6)
        assert [row.error_code for row in response.responses] == [42, 42]
        assert "t" in broker.cluster.image.topics


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
async def test_deletion_can_be_switched_off(version: int, code: int) -> None:
    async with open_handlers(Settings(delete_topic_enable=False)) as broker:
        await broker.create("t")
        assert [row.error_code for row in await delete(broker, "t", version=version)] == [code]
        assert "t" in broker.cluster.image.topics


@pytest.mark.parametrize(
    ("allowed", "shown_by_id"),
    [(frozenset({Operation.DESCRIBE}), "t"), (frozenset(), None)],
    ids=["may be described", "may not be described"],
)
async def test_a_topic_that_may_not_be_deleted(allowed: frozenset[Operation], shown_by_id: str | None) -> None:
    def authorize_some(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return operation in allowed

    async with open_handlers() as real:
        topic_id = await real.create("t")
        broker = real.reconfigured(authorizer=authorize_some)
        assert [(row.name, row.error_code) for row in await delete(broker, "t")] == [("t", 29)]
        assert [(row.name, row.error_code) for row in await delete(broker, topic_id)] == [(shown_by_id, 29)]
        assert "t" in real.cluster.image.topics


# DescribeCluster


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster(version: int) -> None:
    async with open_handlers() as broker:
        response = await broker.ask(DescribeClusterRequest(), version)
        assert (response.error_code, response.controller_id) == (0, NODE_ID)
        assert response.cluster_id == broker.cluster.image.cluster_id
        assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [(NODE_ID, "broker.example", 9092)]
        assert response.cluster_authorized_operations == -(2**31)
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await broker.ask(asked, version)).cluster_authorized_operations == 0b1_1111_1010_0000


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (0, 115), (9, 115)])
async def test_another_kind_of_endpoint_is_not_here(endpoint_type: int, code: int) -> None:
    async with open_handlers() as broker:
        response = await broker.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
        assert (response.error_code, response.brokers) == (code, [])
        assert response.error_message
