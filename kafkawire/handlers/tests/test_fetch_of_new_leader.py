"""Replies of a new leader to consumers, while it does not know the acknowledged end yet (RULES K17)."""

from __future__ import annotations

import pytest

from engine.api import Following, Leadership, OffsetSpec
from engine.batches.batch import stamp
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.replica_log import NEVER
from kafkawire.handlers.tests.test_fetch import BY_NAME, partition, request, rows
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.tests.harness import Broker, batch, open_handlers
from testkit.logs import batches_in
from testkit.replicas import others


async def between_hw_and_end(broker: Broker) -> Partition:
    """Topic "t": the leader of epoch 1 has acknowledged all up to 15. The leader of epoch 2 knows only 10.

    It has all records, and broker 2 is in sync as well.
    """
    await broker.create("t", 1)
    identity = broker.log("t").partition
    [log] = await broker.store.open_partitions([Following(identity, LogConfig(), 1)])
    assert isinstance(log, Partition)
    for offset in range(15):
        records = memoryview(batch(b"%d" % offset))
        stamp(records, offset, 1)
        await log.replicate(records).wait()
    log.note_leader(10)
    await broker.store.open_partitions([Leadership(identity, LogConfig(), 2, others(1, 2))])
    return log


@pytest.mark.parametrize("is_in_session", [False, True])
async def test_between_hw_and_end(is_in_session: bool) -> None:
    """A consumer at offset 12 asks a leader with high watermark 10 and log end 15: it gets neither records nor an
    error.

    Upon an error it would reset its position. The end is not disclosed before it is known (KIP-207).
    """
    async with open_handlers() as broker:
        log = await between_hw_and_end(broker)
        session = (0, 0) if is_in_session else (0, -1)
        reply = await broker.ask(request(partition(0, 12), session=session), BY_NAME)
        row = rows(reply)[0]
        assert (row.error_code, row.high_watermark, bytes(row.records)) == (0, 10, b"")
        assert await latest(broker) == (78, -1)
        log.followers.fetched(2, 0, leader_epoch=2, offset=15, last_epoch=1, log_start_offset=0, as_of=NEVER)
        assert await latest(broker) == (0, 15)
        asked = request(session=(reply.session_id, 1)) if is_in_session else request(partition(0, 12))
        row = rows(await broker.ask(asked, BY_NAME))[0]
        assert (row.error_code, row.high_watermark) == (0, 15)
        assert [header.base_offset for header, _ in batches_in(bytes(row.records))] == [12, 13, 14]


async def latest(broker: Broker) -> tuple[int, int]:
    """Error code and offset of ListOffsets."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=OffsetSpec.LATEST)
    reply = await broker.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 11)
    row = reply.topics[0].partitions[0]
    return row.error_code, row.offset
