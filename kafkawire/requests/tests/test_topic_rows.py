"""Rows of Metadata: made once, by one of the requests, and never older than the topic."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from coordinator.api import PartitionState, TopicInfo
from kafkawire.messages.metadata import MetadataResponse
from kafkawire.requests import topic_rows
from kafkawire.requests.topic_rows import OPERATIONS_NOT_ASKED, PARTITIONS_PER_TURN, ClientTraits, TopicRows
from kafkawire.wire.plan_encode import EncodedElements

TRAITS = ClientTraits(13, frozenset({1}), frozenset({1}))
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1,), replicas=(1,))


def topic(name: str, partition_count: int = 1) -> TopicInfo:
    return TopicInfo(name, name.encode().rjust(16), (STATE,) * partition_count)


def decoded(row: bytes, version: int) -> MetadataResponse:
    [encoded] = MetadataResponse(brokers=[], topics=EncodedElements([row, row])).encode(version)
    return MetadataResponse.decode(encoded, version)


class Made:
    """Counter of the rows that are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        encode = topic_rows._encode_topic

        async def counted(topic: TopicInfo, traits: ClientTraits, operations: int) -> bytes:
            self.count += 1
            await trio.lowlevel.checkpoint()
            return await encode(topic, traits, operations)

        monkeypatch.setattr(topic_rows, "_encode_topic", counted)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


@pytest.mark.parametrize("version", range(14))
async def test_metadata_row_decodes_to_its_topic(version: int) -> None:
    row = await TopicRows().make(topic("t", 3), replace(TRAITS, version=version), OPERATIONS_NOT_ASKED)
    first, second = decoded(row, version).topics
    assert first == second
    assert first.name == "t"
    assert [(one.partition_index, one.leader_id, one.isr_nodes) for one in first.partitions] == [
        (number, 1, [1]) for number in range(3)
    ]


async def test_a_row_is_kept_for_the_same_sight_and_operations() -> None:
    rows, one = TopicRows(), topic("t")
    row = await rows.make(one, TRAITS, 7)
    assert rows.find(one, TRAITS, 7) is row
    assert rows.find(one, TRAITS, 8) is None
    for other in (
        replace(TRAITS, version=12),
        replace(TRAITS, reachable=frozenset()),
        replace(TRAITS, live=frozenset({1, 2})),
    ):
        assert rows.find(one, other, 7) is None


async def test_a_row_of_a_topic_that_changed_is_not_found() -> None:
    rows = TopicRows()
    await rows.make(topic("t"), TRAITS, 7)
    grown = topic("t", 2)
    assert rows.find(grown, TRAITS, 7) is None
    row = await rows.make(grown, TRAITS, 7)
    assert len(decoded(row, 13).topics[0].partitions) == 2
    assert rows.find(grown, TRAITS, 7) is row


async def test_concurrent_requests_make_a_topic_row_once(made: Made) -> None:
    rows, one = TopicRows(), topic("t", 3 * PARTITIONS_PER_TURN)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(rows.make, one, TRAITS, 7)
    assert made.count == 1


async def test_waiting_request_makes_the_row_when_the_first_request_is_cancelled(made: Made) -> None:
    rows, one = TopicRows(), topic("t")
    async with trio.open_nursery() as others, trio.open_nursery() as first:
        first.start_soon(rows.make, one, TRAITS, 7)
        await trio.testing.wait_all_tasks_blocked()
        others.start_soon(rows.make, one, TRAITS, 7)
        first.cancel_scope.cancel()
    assert rows.find(one, TRAITS, 7) is not None


async def test_rows_take_no_more_memory_than_they_may(made: Made) -> None:
    size_bytes = len(await TopicRows().make(topic("t0"), TRAITS, 7))
    rows, topics = TopicRows(size_max_bytes=3 * size_bytes), [topic(f"t{number}") for number in range(10)]
    for one in topics:
        await rows.make(one, TRAITS, 7)
        kept = [other for other in topics if rows.find(other, TRAITS, 7)]
        assert one in kept
        assert len(kept) <= 3
    made.count = 0
    await rows.make(topics[0], TRAITS, 7)
    assert made.count == 1
