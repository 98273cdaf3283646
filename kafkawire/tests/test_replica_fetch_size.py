"""The size of a follower's fetch: all that a response has room for, shared by the partitions that have more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from engine.batches.batch import Record, build_batch
from engine.errors import NotLoaded
from engine.partitions.led_followers import LedFollowers
from kafkawire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.replication import questions
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled
from kafkawire.tests.test_replication import TOPIC, equal, in_sync, kill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.api import ReadResult
    from kafkawire.messages.fetch import FetchResponse
    from kafkawire.replication.fetch_session import Place
    from kafkawire.replication.questions import PartitionReply

RECORD = os.urandom(10_000)
COUNT = 60  # the records that a follower lacks
ONE = 11_000  # replica.fetch.max.bytes: a batch is a little less
ROOM = 200_000  # replica.fetch.response.max.bytes

Sizes = dict["Place", int]  # of the records in a response, by partition


@pytest.fixture
def sizes_sent(monkeypatch: pytest.MonkeyPatch) -> list[Sizes]:
    """Responses with records."""
    really, found = questions.partition_replies, list[Sizes]()

    def noted(response: FetchResponse) -> Iterator[tuple[Place, PartitionReply]]:
        rows = [*really(response)]
        sizes = {place: len(one.records) for place, one in rows if one.records}
        found.extend([sizes] if sizes else [])
        return iter(rows)

    monkeypatch.setattr("kafkawire.replication.fetcher.partition_replies", noted)
    return found


async def create_led_by_1(cluster: MemoryCluster, partitions: int, **configs: str) -> None:
    set_to = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    placed = [CreatableReplicaAssignment(partition_index=one, broker_ids=[*BROKERS]) for one in range(partitions)]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=placed, configs=set_to)
    assert (await call(cluster, 1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)).topics[0].error_code == 0
    await settled(cluster)


async def produce(cluster: MemoryCluster, partition: int) -> int:
    batch = memoryview(build_batch([Record(None, RECORD)]))
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
    reply = await call(cluster, 1, ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9)
    return int(reply.responses[0].partition_responses[0].error_code)


async def copied_by_3(sizes_sent: list[Sizes], partitions: int = 1, **configs: str) -> list[Sizes]:
    """The sizes in the responses to broker 3, which lacks records of all partitions."""
    given = {"replica_fetch_max_bytes": str(ONE), "replica_fetch_response_max_bytes": str(ROOM)}
    async with open_cluster(**given) as (cluster, nursery):
        await create_led_by_1(cluster, partitions, retention_ms="-1", **configs)  # records have no timestamp
        await kill(cluster, 3)
        for number in range(COUNT * partitions):
            assert await produce(cluster, number % partitions) == 0
        await in_sync(cluster, 1, 2)
        sizes_sent.clear()
        await nursery.start(cluster.serve, 3, given)
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
    return sizes_sent


async def test_a_partition_takes_the_room_that_others_leave(sizes_sent: list[Sizes]) -> None:
    sizes = [sum(one.values()) for one in await copied_by_3(sizes_sent)]
    assert ROOM - 2 * len(RECORD) < max(sizes) <= ROOM
    assert len(sizes) <= 2 + COUNT * len(RECORD) // (ROOM - 2 * len(RECORD))


async def test_partitions_that_have_more_share_the_room(sizes_sent: list[Sizes]) -> None:
    first = (await copied_by_3(sizes_sent, partitions=4))[0]
    assert len(first) == 4
    assert all(ROOM // 4 - 2 * len(RECORD) < size <= ROOM // 4 for size in first.values())


async def test_a_partition_copied_at_a_limited_rate_is_copied_in_small_steps(sizes_sent: list[Sizes]) -> None:
    """A larger response would exceed the rate of one second."""
    found = await copied_by_3(sizes_sent, follower_replication_throttled_replicas="*")
    assert max(sum(one.values()) for one in found) < 2 * len(RECORD)


async def test_partition_partly_in_memory_is_sent_as_far_as_it_was_read(
    sizes_sent: list[Sizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response does not wait for the disk if further records are not in memory."""
    really = LedFollowers.read

    def read_little(self: LedFollowers, offset: int, max_size_bytes: int, **how: bool) -> ReadResult:
        if max_size_bytes > ONE:
            raise NotLoaded
        return really(self, offset, max_size_bytes, **how)

    monkeypatch.setattr(LedFollowers, "read", read_little)
    found = await copied_by_3(sizes_sent)
    assert max(sum(one.values()) for one in found) < 2 * len(RECORD)
