"""What a leader tells consumers that has just begun, and does not know yet what was acknowledged before (RULES K17)."""

from __future__ import annotations

import pytest

from engine.api import Following, Leadership, OffsetSpec
from engine.batches.batch import stamp
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.partitions.tests.test_follower import others
from engine.replica_log import NEVER
from engine.tests.helpers import batches_in
from kafkawire.handlers.tests.test_fetch import BY_NAME, partition, request, rows
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.tests.harness import Broker, batch, open_handlers


async def between_hw_and_end(broker: Broker) -> Partition:
    """Of "t": all up to 15 was acknowledged by the leader of epoch 1, and who leads epoch 2 has it, but has been told
    of 10; broker 2 is in sync as well."""
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
    """A consumer at 12 comes to a leader whose high watermark is 10 and whose log ends at 15: it gets nothing, and no
    error, upon which it would start anew elsewhere; and the end is not told before it is known (KIP-207)."""
    async with open_handlers() as broker:
        log = await between_hw_and_end(broker)
        session = (0, 0) if is_in_session else (0, -1)
        reply = await broker.ask(request(partition(0, 12), session=session), BY_NAME)
        row = rows(reply)[0]
        assert (row.error_code, row.high_watermark, bytes(row.records)) == (0, 10, b"")
        assert await latest(broker) == (78, -1)
        log.fetched_by(2, 0, leader_epoch=2, offset=15, last_epoch=1, log_start_offset=0, as_of=NEVER)
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
