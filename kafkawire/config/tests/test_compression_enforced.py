"""Keys about compression, of brokers and topics: stored and served batches, at once and after run-time changes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.api import ConfigChange, ConfigOperation
from engine.batches.batch import Codec, Record, build_batch, parse_header
from kafkawire.config.tests.test_dynamic import configure
from kafkawire.config.tests.test_enforced import ask, create, enforces, fetch_request, produce
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.testing import EPOCH_MS, Client, MemoryDeps, OpenBroker, open_broker
from testkit.logs import batches_in, compressed_batch

NUMBERS = b" ".join(b"%d" % (number * number) for number in range(3000))


async def fetched(client: Client) -> list[Any]:
    """Headers and records of the whole topic."""
    reply = await ask(client, fetch_request(), 4)
    return batches_in(bytes(reply.responses[0].partitions[0].records))


async def codecs(client: Client) -> list[Codec]:
    return [Codec(header.codec_id) for header, _ in await fetched(client)]


@enforces("compression.type")
@pytest.mark.parametrize(
    ("broker", "topic", "expected"),
    [
        ({}, {}, Codec.NONE),
        ({"compression_type": "lz4"}, {}, Codec.LZ4),
        ({"compression_type": "lz4"}, {"compression_type": "gzip"}, Codec.GZIP),
        ({"compression_type": "lz4"}, {"compression_type": "producer"}, Codec.NONE),
        ({}, {"compression_type": "zstd"}, Codec.ZSTD),
        ({}, {"compression_type": "snappy"}, Codec.SNAPPY),
    ],
)
async def test_batch_has_the_configured_codec(broker: dict[str, str], topic: dict[str, str], expected: Codec) -> None:
    async with open_broker(**broker) as opened:
        client = opened.connect()
        assert await create(client, **topic) == 0
        assert (await produce(client, b"value")).base_offset == 0
        assert await codecs(client) == [expected]


async def test_nothing_is_compressed_where_the_topic_says_so() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client, compression_type="uncompressed")
        await produce_all(client, compressed_batch(Codec.SNAPPY, [Record(b"k", b"v", EPOCH_MS)]))
        [(header, [record])] = await fetched(client)
        assert (header.codec_id, record.key, record.value) == (Codec.NONE, b"k", b"v")


@enforces("compression.type")
async def test_a_change_is_for_the_next_append() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        client = opened.connect()
        await create(client)
        await produce(client)
        await configure(opened, {}, {"compression.type": "gzip"})
        await produce(client)
        await alter(opened, "compression.type", "zstd")
        await produce(client)
        await configure(opened, {})
        await produce(client)
        await alter(opened, "compression.type", None)
        await produce(client)
        expected = [Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.ZSTD, Codec.NONE]
        assert await codecs(client) == expected
    async with open_broker(deps) as opened:
        assert await codecs(opened.connect()) == expected


async def alter(opened: OpenBroker, key: str, value: str | None) -> None:
    change = ConfigChange(ConfigOperation.SET, key, value) if value else ConfigChange(ConfigOperation.DELETE, key)
    await opened.broker.coordinator.alter_topic_configs("t", [change])


async def size_stored(broker: dict[str, str], topic: dict[str, str]) -> int:
    async with open_broker(**broker) as opened:
        client = opened.connect()
        assert await create(client, **topic) == 0
        await produce(client, NUMBERS)
        [(header, _)] = await fetched(client)
        return int(header.size_bytes)


@enforces("compression.gzip.level")
@enforces("compression.lz4.level")
@enforces("compression.zstd.level")
@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "9", "12"), ("zstd", "-1000", "19")])
async def test_how_hard_a_codec_tries(codec: str, low: str, high: str) -> None:
    key = f"compression_{codec}_level"
    broker = {"compression_type": codec}
    small = await size_stored(broker, {key: high})
    assert small < await size_stored(broker, {key: low})
    assert small == await size_stored({**broker, key: high}, {})


async def produce_all(client: Client, *batches: bytearray) -> list[int]:
    """Produce the batches at once over one connection. Return the offset, or the negative error code, of each reply."""
    for batch in batches:
        topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])]
        await client.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), version=9)
    rows = []
    for _ in batches:
        reply: Any = await client.receive()
        rows.append(reply.responses[0].partition_responses[0])
    return [-row.error_code or row.base_offset for row in rows]


async def test_requests_of_a_connection_stay_in_order() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client, compression_type="lz4", max_message_bytes="5000")
        one = [Record(b"k", b"v", EPOCH_MS)]
        too_large = compressed_batch(Codec.LZ4, [Record(None, bytes(6000), EPOCH_MS)])
        sent = [
            build_batch(one),
            compressed_batch(Codec.LZ4, one),
            build_batch([Record(None, bytes(6000), EPOCH_MS)]),
            compressed_batch(Codec.GZIP, one),
            too_large,
            compressed_batch(Codec.LZ4, one),
        ]
        assert parse_header(too_large).size_bytes < 5000
        assert await produce_all(client, *sent) == [0, 1, -10, 2, 3, 4]
