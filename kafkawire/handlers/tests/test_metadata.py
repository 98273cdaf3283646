"""Metadata: topics by name and id, creation, and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio

from coordinator.api import BrokerEndpoint, ClusterImage, PartitionState, TopicInfo
from coordinator.errors import MetadataUnavailable
from kafkawire.handlers import metadata
from kafkawire.handlers.metadata import NAMES_PER_TURN
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.topic_rows import PARTITIONS_PER_TURN
from kafkawire.tests.harness import NODE_ID, Broker, Settings, open_handlers
from kafkawire.tests.turns import OtherTask
from kafkawire.wire.primitives import ZERO_UUID

NEWEST = 13
NOT_ASKED = -(2**31)


def request(*names: str | None, ids: tuple[bytes, ...] = (), **fields: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    return MetadataRequest(topics=topics, **fields)


async def topics(broker: Broker, asked: MetadataRequest, version: int = NEWEST) -> dict[str | bytes, Any]:
    response = await broker.ask(asked, version)
    return {topic.name or topic.topic_id: topic for topic in response.topics}


@pytest.mark.parametrize("version", range(NEWEST + 1))
async def test_a_topic_and_the_broker_that_leads_it(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 2)
        response = await broker.ask(request("t"), version)
        [node] = response.brokers
        assert (node.node_id, node.host, node.port) == (NODE_ID, "broker.example", 9092)
        [topic] = response.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
        assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)
        for number, row in enumerate(topic.partitions):
            assert (row.error_code, row.partition_index, row.leader_id) == (0, number, NODE_ID)
            assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([NODE_ID], [NODE_ID], [])
            assert row.leader_epoch == (0 if version >= 7 else -1)
        assert response.controller_id == (NODE_ID if version >= 1 else -1)
        assert response.cluster_id == (broker.cluster.image.cluster_id if version >= 2 else None)


async def test_which_request_means_all_topics() -> None:
    async with open_handlers() as broker:
        await broker.create("a")
        await broker.create("b")
        assert set(await topics(broker, MetadataRequest(topics=[]), 0)) == {"a", "b"}
        for version in range(1, NEWEST + 1):
            assert set(await topics(broker, MetadataRequest(topics=None), version)) == {"a", "b"}
            assert not await topics(broker, MetadataRequest(topics=[]), version)


@pytest.mark.parametrize("version", [0, 3, 4, NEWEST])
async def test_a_missing_topic_is_created_and_usable(version: int) -> None:
    async with open_handlers() as broker:
        found = await topics(broker, request("new", allow_auto_topic_creation=True), version)
        assert (found["new"].error_code, len(found["new"].partitions)) == (0, 2)
        assert await broker.append("new", b"v") == 0


async def test_creation_needs_both_sides_to_agree() -> None:
    async with open_handlers() as broker:
        found = await topics(broker, request("new", allow_auto_topic_creation=False), 4)
        assert (found["new"].error_code, found["new"].partitions) == (3, [])
    async with open_handlers(Settings(auto_create_topics_enable=False)) as broker:
        assert (await topics(broker, request("new", allow_auto_topic_creation=True)))["new"].error_code == 3
        assert not broker.cluster.image.topics


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250])
@pytest.mark.parametrize("allow", [True, False])
async def test_a_name_no_topic_can_have(name: str, allow: bool) -> None:
    async with open_handlers() as broker:
        response = await broker.ask(request(name, allow_auto_topic_creation=allow), NEWEST)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [(name, 17)]


async def test_while_the_metadata_are_away_a_request_waits_once_and_each_name_is_refused_retriably() -> None:
    asked: list[str] = []

    class Away:
        def __init__(self, image: ClusterImage) -> None:
            self.image = image

        async def create_topic(self, name: str) -> TopicInfo:
            asked.append(name)
            raise MetadataUnavailable("silent")

    async with open_handlers() as broker:
        await broker.create("known")
        away = broker.reconfigured(cluster=Away(broker.cluster.image))
        found = await topics(away, request("a", "known", "b", "c", allow_auto_topic_creation=True))
        assert {name: row.error_code for name, row in found.items()} == {"a": 7, "known": 0, "b": 7, "c": 7}
        assert asked == ["a"]


async def test_a_name_that_collides_is_not_created() -> None:
    async with open_handlers() as broker:
        await broker.create("a.b")
        assert (await topics(broker, request("a_b")))["a_b"].error_code == 17


async def test_internal_topics_are_not_created_by_asking_for_them() -> None:
    async with open_handlers() as broker:
        topic = (await topics(broker, request("__consumer_offsets")))["__consumer_offsets"]
        assert (topic.error_code, topic.is_internal) == (3, True)


async def test_two_clients_that_ask_at_once_get_the_same_topic() -> None:
    async with open_handlers() as broker:
        found: list[bytes] = []

        async def ask(name: str) -> None:
            other = replace(broker)
            found.append((await topics(other, request(name)))["new"].topic_id)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, "new")
        assert len(found) == 5
        assert len(set(found)) == 1


async def test_topics_by_id() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        unknown = b"?" * 16
        found = await topics(broker, request(ids=(topic_id, unknown)))
        assert (found["t"].error_code, found[unknown].error_code, found[unknown].name) == (0, 100, None)


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_and_null_names_mean_nothing_before_version_12(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        response = await broker.ask(request("t", ids=(topic_id,)), version)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 42), ("", 42)]


async def test_authorized_operations_are_told_only_on_request() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        response = await broker.ask(request("t"), 8)
        assert response.cluster_authorized_operations == NOT_ASKED
        assert response.topics[0].topic_authorized_operations == NOT_ASKED
        asked = request("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
        for version in range(8, NEWEST + 1):
            response = await broker.ask(asked, version)
            assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
            assert response.cluster_authorized_operations == (0b1_1111_1010_0000 if version <= 10 else NOT_ASKED)


async def test_topics_that_may_not_be_described_are_not_disclosed() -> None:
    def only_a(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return name == "a" and operation is Operation.DESCRIBE

    async with open_handlers() as real:
        await real.create("a")
        await real.create("b")
        broker = real.reconfigured(authorizer=only_a)
        assert set(await topics(broker, MetadataRequest(topics=None))) == {"a"}
        found = await topics(broker, request("a", "b", "c"))
        assert {name: row.error_code for name, row in found.items()} == {"a": 0, "b": 29, "c": 29}
        assert found["b"].topic_id == ZERO_UUID
        by_id = await real.create("d")
        assert (await topics(broker, request(ids=(by_id,))))[by_id].error_code == 29


async def test_automatic_creation_without_the_create_right_is_refused() -> None:
    def describe(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return operation is Operation.DESCRIBE

    async with open_handlers(authorizer=describe) as broker:
        assert (await topics(broker, request("new")))["new"].error_code == 29
        assert not broker.cluster.image.topics


def elsewhere(broker: Broker, endpoints: Mapping[int, tuple[BrokerEndpoint, ...]]) -> dict[str, Any]:
    """An image in which broker 2 leads the topic."""
    [info] = broker.cluster.image.brokers.values()
    topic = TopicInfo("t", b"i" * 16, (PartitionState(leader=2, leader_epoch=4, isr=(2,), replicas=(2, 1)),))
    brokers = {number: replace(info, broker_id=number, endpoints=one) for number, one in endpoints.items()}
    return {"brokers": brokers, "topics": {"t": topic}, "topics_by_id": {topic.topic_id: topic}}


HERE = (BrokerEndpoint("PLAINTEXT", "one", 9092),)
INSIDE_ONLY = (BrokerEndpoint("INSIDE", "two", 9093),)


@pytest.mark.parametrize(
    ("brokers", "version", "code", "offline"),
    [
        ({1: HERE, 2: HERE}, NEWEST, 0, []),
        ({1: HERE, 2: INSIDE_ONLY}, 5, 5, []),
        ({1: HERE, 2: INSIDE_ONLY}, 6, 72, []),
        ({1: HERE}, NEWEST, 5, [2]),
    ],
    ids=["reachable", "other listener, old client", "other listener", "gone"],
)
async def test_a_leader_that_can_or_cannot_be_reached(
    brokers: dict[int, tuple[BrokerEndpoint, ...]], version: int, code: int, offline: list[int]
) -> None:
    async with open_handlers() as broker:
        broker.cluster.changes = elsewhere(broker, brokers)
        response = await broker.ask(request("t"), version)
        [row] = response.topics[0].partitions
        assert (row.error_code, row.leader_id, row.offline_replicas) == (code, -1 if code else 2, offline)
        assert {node.node_id for node in response.brokers} == {
            number for number, one in brokers.items() if one is not INSIDE_ONLY
        }


async def test_a_broker_that_was_up_a_moment_ago_is_still_listed_and_leads_nothing() -> None:
    async with open_handlers() as broker:
        before, after = elsewhere(broker, {1: HERE, 2: HERE}), elsewhere(broker, {1: HERE})
        broker.cluster.changes = {**before, "members": before["brokers"]}
        await broker.ask(request("t"), NEWEST)
        broker.cluster.changes = {**after, "members": before["brokers"]}
        response = await broker.ask(request("t"), NEWEST)
        assert [node.node_id for node in response.brokers] == [1, 2]
        [row] = response.topics[0].partitions
        assert (row.error_code, row.leader_id, row.offline_replicas) == (5, -1, [2])


async def test_a_broker_on_every_address_advertises_the_one_the_client_reached() -> None:
    async with open_handlers(host="0.0.0.0") as broker:
        response = await broker.ask(request(), NEWEST)
        assert [(node.host, node.port) for node in response.brokers] == [("10.0.0.1", 9092)]


async def test_a_large_answer_lets_others_run() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 1_600)
        other = OtherTask()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            await broker.ask(MetadataRequest(topics=None), NEWEST)
            nursery.cancel_scope.cancel()
        assert other.turns >= 1


async def test_large_answers_to_many_take_turns() -> None:
    async with open_handlers() as broker:
        await broker.create("t", PARTITIONS_PER_TURN + 1)
        await broker.ask(request("t"), NEWEST)  # from now on the rows are kept, and no request waits for them
        clients = 20
        other = OtherTask()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            async with trio.open_nursery() as asking:
                for number in range(clients):
                    asked = MetadataRequest(topics=None) if number % 2 else request("t")
                    asking.start_soon(replace(broker).ask, asked, NEWEST)
            nursery.cancel_scope.cancel()
        assert other.turns >= clients


async def test_many_names_let_others_run() -> None:
    other = OtherTask()
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(other.run)
        names = [f"no topic {number}" for number in range(4 * NAMES_PER_TURN)]
        before = other.turns
        assert len(await topics(broker, request(*names))) == len(names)
        assert other.turns - before > 1
        nursery.cancel_scope.cancel()


async def test_automatic_creation_is_bounded_by_the_partition_limit_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "CREATED_PARTITIONS_MAX", 5)
    async with open_handlers() as broker:  # two partitions each
        asked = request("a", "b", "c", allow_auto_topic_creation=True)
        assert [row.error_code for row in (await topics(broker, asked)).values()] == [0, 0, 3]
        assert [row.error_code for row in (await topics(broker, asked)).values()] == [0, 0, 0]
