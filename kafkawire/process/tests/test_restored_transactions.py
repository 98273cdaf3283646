"""Transactions that are open at the end of the copied part of a log, after `kafkawire tier restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from engine.api import Marker, Outcome, PartitionLog, TopicIdPartition
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch, parse_header
from engine.errors import InvalidProducerEpoch
from kafkawire.config.tests.test_enforced import ask, fetch_request, produce
from kafkawire.config.tests.test_tier_enforced import SOON, TIER, create_tiered, segments
from kafkawire.process.tests.test_restoration import opened, restored
from kafkawire.testing import EPOCH_MS, MemoryDeps, open_broker

if TYPE_CHECKING:
    from kafkawire.testing import Client, OpenBroker

PRODUCER, EPOCH = 7, 3
COPIED = 3  # offsets 0 (plain), 1 and 2 (transaction); the marker follows
READ_COMMITTED = 1


def log_of(opened: OpenBroker) -> PartitionLog:
    [topic_id] = [one.topic_id for one in opened.broker.coordinator.image.topics.values() if one.name == "t"]
    return opened.broker.store.get(TopicIdPartition(topic_id, "t", 0))


async def append(log: PartitionLog, number: int) -> None:
    record = Record(b"key", bytes(700_000), EPOCH_MS + number)
    batch = build_batch([record], attributes=TRANSACTIONAL_BIT, producer=(PRODUCER, EPOCH, number))
    await log.append(memoryview(batch), acks=-1).wait()


async def lost_with_its_marker(outcome: Outcome) -> MemoryDeps:
    """The machine is lost with the tail of the log, which has the transaction's marker and is not in the tier."""
    deps = MemoryDeps()
    async with open_broker(deps, **TIER, **SOON) as broker:
        client = broker.connect()
        await create_tiered(client, "t")
        await produce(client, bytes(700_000))
        log = log_of(broker)
        for number in range(2):
            await append(log, number)
        await produce(client, bytes(700_000))
        await log.end_transaction(Marker(PRODUCER, EPOCH, 5, outcome)).wait()
        await trio.sleep(70)
        assert len(segments(deps)) == COPIED
    return MemoryDeps(seed=5, objects=deps.objects)


async def committed_records(client: Client, offset: int) -> tuple[list[int], int]:
    """Offsets of the records that a read_committed consumer gets from `offset` on, and the last stable offset."""
    request = fetch_request(max_wait_ms=5000)
    request.isolation_level = READ_COMMITTED
    request.topics[0].partitions[0].fetch_offset = offset
    reply = await ask(client, request, 11)
    partition = reply.responses[0].partitions[0]
    assert partition.error_code == 0
    aborted = {one.producer_id: one.first_offset for one in partition.aborted_transactions or []}
    data, found = bytes(partition.records or b""), []
    while data:
        header = parse_header(data)
        if not header.is_control and not (header.base_offset >= aborted.get(header.producer_id, 2**63) >= 0):
            found.append(header.base_offset)
        data = data[header.size_bytes :]
    return found, partition.last_stable_offset


async def shown_of(client: Client) -> list[int]:
    """Offsets of the copied records that a read_committed consumer gets."""
    shown = []
    for offset in range(COPIED):
        shown += [one for one in (await committed_records(client, offset))[0] if one == offset]
    return shown


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_restored_transaction_without_its_marker_ends_with_its_original_outcome(outcome: Outcome) -> None:
    expected = [0] if outcome is Outcome.ABORT else [0, 1, 2]
    deps = await lost_with_its_marker(outcome)
    await restored(deps)
    async with opened(deps) as (broker, client):
        await trio.sleep(3)
        assert await shown_of(client) == expected
        await produce(client, b"later")
        log = log_of(broker)
        assert log.last_stable_offset == log.log_end_offset == COPIED + 2
        with pytest.raises(InvalidProducerEpoch):
            await append(log, 2)
    async with opened(deps) as (broker, client):
        await trio.sleep(3)
        assert log_of(broker).last_stable_offset == log_of(broker).log_end_offset
        assert await shown_of(client) == expected
        for _ in range(3):
            await produce(client, bytes(700_000))
        await trio.sleep(70)
        assert len(segments(deps)) > COPIED  # including the markers
    again = MemoryDeps(seed=6, objects=deps.objects)
    await restored(again)
    async with opened(again) as (broker, client):
        await trio.sleep(3)
        assert await shown_of(client) == expected
