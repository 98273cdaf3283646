"""CreatePartitions, DescribeTopicPartitions, DescribeLogDirs, DescribeProducers: answers and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from coordinator.api import BrokerInfo, PartitionState, TopicInfo
from engine.api import LogDirDescription
from kafkawire.messages import describe_producers
from kafkawire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkawire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkawire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.tests.harness import NODE_ID, NOW_MS, Broker, Settings, batch, open_handlers
from kafkawire.wire.primitives import ZERO_UUID


def grown(name: str, count: int, *assignments: list[int] | None) -> CreatePartitionsTopic:
    rows = [CreatePartitionsAssignment(broker_ids=one) for one in assignments if one is not None]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows if assignments else None)


async def grow(
    broker: Broker, *topics: CreatePartitionsTopic, version: int = 3, **fields: Any
) -> list[tuple[str, int, str | None]]:
    fields.setdefault("timeout_ms", 10_000)
    rows = (await broker.ask(CreatePartitionsRequest(topics=list(topics), **fields), version)).results
    return [(row.name, row.error_code, row.error_message) for row in rows]


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_can_be_used_when_the_answer_comes(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"old")
        assert await grow(broker, grown("t", 3), version=version) == [("t", 0, None)]
        assert await broker.append("t", b"new", partition=2) == 0
        assert broker.log("t").log_end_offset == 1
        assert await grow(broker, grown("t", 4, [NODE_ID]), version=version) == [("t", 0, None)]


async def test_growth_can_be_validated_alone() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        rows = await grow(broker, grown("t", 3), grown("missing", 3), validate_only=True)
        assert [code for _, code, _ in rows] == [0, 3]
        assert len(broker.cluster.image.topics["t"].partitions) == 1


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (grown("missing", 3), 3, None),
        (grown("t", 2), 37, "Topic already has 2 partition(s)."),
        (grown("t", 1), 37, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        (grown("t", 0), 37, "The topic t currently has 2 partition(s); 0 would not be an increase."),
        (
            grown("t", 4, [NODE_ID]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            grown("t", 3, None),
            39,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (grown("t", 3, []), 39, "The manual partition assignment includes an empty replica list."),
        (
            grown("t", 3, [9]),
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (grown("t", 10_003), 44, "Excessively large number of partitions per request."),
        (
            grown("__consumer_offsets", 9),
            42,
            "The number of partitions of the internal topic __consumer_offsets cannot be changed.",
        ),
    ],
)
async def test_growth_that_cannot_be(asked: CreatePartitionsTopic, code: int, text: str | None) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        await broker.create("__consumer_offsets", 2)
        assert await grow(broker, asked) == [(asked.name, code, text)]
        assert len(broker.cluster.image.topics["t"].partitions) == 2


async def test_a_topic_named_twice_does_not_grow() -> None:
    async with open_handlers() as broker:
        await broker.create("a")
        await broker.create("b")
        rows = await grow(broker, grown("a", 2), grown("b", 2), grown("a", 3))
        assert rows == [("a", 42, "Duplicate topic name."), ("b", 0, None)]
        assert [len(topic.partitions) for topic in broker.cluster.image.topics.values()] == [1, 2]


async def test_too_many_new_partitions_in_one_request_add_none() -> None:
    async with open_handlers() as broker:
        await broker.create("a")
        await broker.create("b")
        rows = await grow(broker, grown("a", 10_001), grown("b", 2), validate_only=True)
        assert [code for _, code, _ in rows] == [44, 44]
        rows = await grow(broker, grown("a", 10_000), grown("b", 2), validate_only=True)
        assert [code for _, code, _ in rows] == [0, 0]


async def test_growth_the_time_does_not_suffice_for() -> None:
    async with open_handlers() as broker:
        real = broker.cluster.real
        await broker.create("a")
        await broker.create("b")

        class Slow:
            image = real.image

            async def create_partitions(self, topic: str, count: int, **options: Any) -> object:
                await trio.sleep(2)
                return await real.create_partitions(topic, count, **options)

        slow = broker.reconfigured(cluster=Slow())
        assert await grow(slow, grown("a", 2), grown("b", 2), timeout_ms=1_000) == [("a", 0, None), ("b", 7, None)]
        assert [len(topic.partitions) for topic in real.image.topics.values()] == [2, 1]


# DescribeTopicPartitions


async def page(
    broker: Broker, *names: str, cursor: tuple[str, int] | None = None, limit: int = 2_000
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else RequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = await broker.ask(request, 0)
    following = response.next_cursor
    rows = [(row.name, row.error_code, [one.partition_index for one in row.partitions]) for row in response.topics]
    return rows, None if following is None else (following.topic_name, following.partition_index)


async def with_topics(broker: Broker, **counts: int) -> None:
    for name, count in counts.items():
        await broker.create(name, count)


async def test_describe_topic_partitions_lists_all_or_the_requested_topics() -> None:
    async with open_handlers() as broker:
        await with_topics(broker, b=2, a=1)
        assert await page(broker) == ([("a", 0, [0]), ("b", 0, [0, 1])], None)
        assert await page(broker, "b", "missing", "a b", "b") == (
            [("a b", 17, []), ("b", 0, [0, 1]), ("missing", 3, [])],
            None,
        )


async def test_a_described_partition_has_its_leader_replicas_and_isr() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        [state] = broker.cluster.image.topics["t"].partitions
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t"), TopicRequest(name="missing")])
        missing, topic = (await broker.ask(request, 0)).topics
        assert (topic.topic_id, topic.is_internal) == (topic_id, False)
        assert topic.topic_authorized_operations == missing.topic_authorized_operations == 0b1101_1111_1000
        assert missing.topic_id == ZERO_UUID
        [row] = topic.partitions
        assert (row.error_code, row.leader_id, row.leader_epoch) == (0, NODE_ID, state.leader_epoch)
        assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([NODE_ID], [NODE_ID], [])
        assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])


async def test_a_leader_that_is_away_is_none() -> None:
    async with open_handlers() as broker:
        topic = TopicInfo("t", b"i" * 16, (PartitionState(2, 3, (2,), (2, NODE_ID)),))
        broker.cluster.changes["topics"] = {"t": topic}
        [row] = (await broker.ask(DescribeTopicPartitionsRequest(topics=[]), 0)).topics
        [partition] = row.partitions
        assert (partition.leader_id, partition.leader_epoch, partition.offline_replicas) == (-1, 3, [2])
        broker.cluster.changes["brokers"] = {number: BrokerInfo(number, ()) for number in (1, 2)}
        [row] = (await broker.ask(DescribeTopicPartitionsRequest(topics=[]), 0)).topics
        assert row.partitions[0].leader_id == 2


async def test_pages_of_any_size_show_every_partition_once() -> None:
    async with open_handlers() as broker:
        await with_topics(broker, a=1, b=3, c=2)
        names = list(broker.cluster.image.topics)
        for limit in range(1, 8):
            for asked in ([], [*names, "missing"]):
                seen: list[tuple[str, int]] = []
                cursor: tuple[str, int] | None = None
                while True:
                    rows, cursor = await page(broker, *asked, cursor=cursor, limit=limit)
                    here = [(name, index) for name, _, partitions in rows for index in partitions]
                    assert 0 < len(here) <= limit or cursor is None
                    seen += here
                    if cursor is None:
                        break
                assert seen == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


async def test_pages_are_never_larger_than_the_broker_allows_nor_empty() -> None:
    async with open_handlers(Settings(max_request_partitions=2)) as broker:
        await with_topics(broker, a=1, b=3)
        assert await page(broker) == ([("a", 0, [0]), ("b", 0, [0])], ("b", 1))
        assert await page(broker, limit=0) == ([("a", 0, [0])], ("b", 0))
        assert await page(broker, limit=-5) == ([("a", 0, [0])], ("b", 0))


async def test_a_cursor_behind_the_last_partition_or_on_a_topic_that_is_gone() -> None:
    async with open_handlers() as broker:
        await with_topics(broker, a=1, c=1)
        assert await page(broker, cursor=("a", 7)) == ([("a", 0, []), ("c", 0, [0])], None)
        assert await page(broker, cursor=("b", 1)) == ([("c", 0, [0])], None)


async def test_a_cursor_that_cannot_be() -> None:
    async with open_handlers() as broker:
        await with_topics(broker, a=1, b=1)
        assert await page(broker, "a", cursor=("b", 0)) == ([("a", 42, [])], None)
        assert await page(broker, "a", cursor=("a", -1)) == ([("a", 42, [])], None)
        assert await page(broker, cursor=("a", -1)) == ([], None)


async def test_topics_without_the_describe_right_are_not_disclosed() -> None:
    def only_b(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return name == "b"

    async with open_handlers() as real:
        await with_topics(real, a=1, b=1)
        broker = real.reconfigured(authorizer=only_b)
        assert await page(broker) == ([("b", 0, [0])], None)
        rows, _ = await page(broker, "a", "b", "missing")
        assert rows == [("b", 0, [0]), ("a", 29, []), ("missing", 29, [])]


# DescribeLogDirs


Rows = list[tuple[int, str, dict[str, dict[int, int]]]]


async def log_dirs(broker: Broker, topics: dict[str, list[int]] | None = None, version: int = 5) -> tuple[int, Rows]:
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
    response = await broker.ask(DescribeLogDirsRequest(topics=asked), version)
    for row in response.results:
        assert all((one.offset_lag, one.is_future_key) == (0, False) for t in row.topics for one in t.partitions)
        assert not row.is_cordoned
    return response.error_code, [
        (
            row.error_code,
            row.log_dir,
            {topic.name: {one.partition_index: one.partition_size for one in topic.partitions} for topic in row.topics},
        )
        for row in response.results
    ]


@pytest.mark.parametrize("version", range(1, 6))
async def test_log_dirs_are_described_with_their_partitions_and_sizes(version: int) -> None:
    async with open_handlers() as broker:
        await with_topics(broker, a=2, b=1)
        await broker.append("a", b"v" * 100, partition=1)
        size = len(batch(b"v" * 100))
        everything = {"a": {0: 0, 1: size}, "b": {0: 0}}
        assert await log_dirs(broker, version=version) == (0, [(0, "/data", everything)])
        asked = {"a": [1, 7], "missing": [0]}
        assert await log_dirs(broker, asked, version) == (0, [(0, "/data", {"a": {1: size}})])
        assert await log_dirs(broker, {}, version) == (0, [(0, "/data", {})])
        [row] = (await broker.ask(DescribeLogDirsRequest(topics=None), version)).results
        known = row.total_bytes >= row.usable_bytes > 0
        assert known if version >= 4 else (row.total_bytes, row.usable_bytes) == (-1, -1)


async def test_a_log_dir_that_is_offline() -> None:
    class Store:
        async def describe_log_dirs(self) -> list[LogDirDescription]:
            await trio.lowlevel.checkpoint()
            return [LogDirDescription("/one", False), LogDirDescription("/two", True, 10, 5)]

    async with open_handlers() as real:
        broker = real.reconfigured(store=Store())
        assert await log_dirs(broker) == (0, [(56, "/one", {}), (0, "/two", {})])


@pytest.mark.parametrize(("version", "code"), [(2, 0), (3, 31)])
async def test_describe_log_dirs_requires_the_right_to_describe_the_cluster(version: int, code: int) -> None:
    def nothing(principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return False

    async with open_handlers(authorizer=nothing) as broker:
        assert await log_dirs(broker, version=version) == (code, [])


# DescribeProducers


async def producers(broker: Broker, topic: str, *partitions: int) -> list[Any]:
    asked = describe_producers.TopicRequest(name=topic, partition_indexes=list(partitions))
    [row] = (await broker.ask(describe_producers.DescribeProducersRequest(topics=[asked]), 0)).topics
    assert row.name == topic
    rows: list[Any] = row.partitions
    assert [one.partition_index for one in rows] == list(partitions)
    return rows


async def test_idempotent_producers() -> None:
    async with open_handlers() as broker:
        await with_topics(broker, t=2)
        await broker.append("t", b"of nobody")
        for sequence in range(2):
            await broker.log("t").append(memoryview(batch(producer=(9, 3, sequence))), acks=-1).wait()
        first, second = await producers(broker, "t", 0, 1)
        assert (first.error_code, first.error_message) == (0, None)
        [one] = first.active_producers
        assert (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp) == (9, 3, 1, NOW_MS)
        assert (one.coordinator_epoch, one.current_txn_start_offset) == (-1, -1)
        assert second.active_producers == []


@pytest.mark.parametrize(
    ("topic", "partition", "code", "has_text"),
    [("missing", 0, 3, True), ("a b", 0, 17, True), ("t", 1, 3, False), ("t", -1, 3, False)],
)
async def test_describe_producers_needs_known_partition(topic: str, partition: int, code: int, has_text: bool) -> None:
    async with open_handlers() as broker:
        await with_topics(broker, t=1)
        [row] = await producers(broker, topic, partition)
        assert (row.error_code, row.error_message is not None) == (code, has_text)


async def test_producers_of_a_partition_that_is_led_elsewhere() -> None:
    async with open_handlers() as broker:
        topic = TopicInfo("t", b"i" * 16, (PartitionState(2, 3, (2,), (2,)),))
        broker.cluster.changes["topics"] = {"t": topic}
        [row] = await producers(broker, "t", 0)
        assert row.error_code == 6
