"""InitProducerId, and Produce with its ids and sequences."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.errors import MetadataUnavailable
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.tests.harness import batch, open_handlers


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    async with open_handlers() as broker:
        replies = [await broker.ask(InitProducerIdRequest(transaction_timeout_ms=60_000), version) for _ in range(3)]
        assert [(reply.error_code, reply.producer_id, reply.producer_epoch) for reply in replies] == [
            (0, 0, 0),
            (0, 1, 0),
            (0, 2, 0),
        ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "x", "producer_epoch": 5}, 42),
        ({"transactional_id": ""}, 42),
        ({"producer_id": 5}, 42),
        ({"producer_epoch": 5}, 42),
        ({"producer_id": 5, "producer_epoch": 5}, 0),
    ],
)
async def test_invalid_producer_fields_return_invalid_request(fields: dict[str, Any], code: int) -> None:
    async with open_handlers() as broker:
        reply = await broker.ask(InitProducerIdRequest(**fields), 4)
        assert reply.error_code == code
        if code:
            assert (reply.producer_id, reply.producer_epoch) == (-1, -1)


async def test_no_id_without_the_metadata_store() -> None:
    class Away:
        async def new_producer_id(self) -> int:
            raise MetadataUnavailable("gone")

    async with open_handlers() as broker:
        reply = await broker.reconfigured(cluster=Away()).ask(InitProducerIdRequest(), 4)
        assert (reply.error_code, reply.producer_id) == (14, -1)


async def test_sequences_on_the_wire() -> None:
    async with open_handlers() as broker:
        await broker.create("t")

        async def send(epoch: int, sequence: int) -> tuple[int, int]:
            data = PartitionProduceData(index=0, records=memoryview(batch(producer=(1, epoch, sequence))))
            request = ProduceRequest(
                acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
            )
            row = (await broker.ask(request, 9)).responses[0].partition_responses[0]
            return row.error_code, row.base_offset

        assert await send(0, 0) == (0, 0)
        assert await send(0, 1) == (0, 1)
        assert await send(0, 0) == (0, 0), "a duplicate"
        assert await send(0, 3) == (45, -1)
        assert await send(1, 2) == (45, -1)
        assert await send(1, 0) == (0, 2)
        assert await send(0, 2) == (47, -1)
