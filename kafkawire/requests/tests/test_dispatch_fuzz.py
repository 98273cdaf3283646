"""Mutated frames through dispatch, handlers and engine: a reply or a closed connection, and an unharmed broker."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from coordinator.errors import NotCoordinator
from kafkawire.handlers import API_TABLE
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import open_broker
from kafkawire.tests import fake_groups, fake_transactions
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import batch, open_handlers
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.tests.mutation import mutated_frames

if TYPE_CHECKING:
    from kafkawire.testing import Client

SEED = int(os.environ.get("KAFKAWIRE_FUZZ_SEED", "1"))
FRAMES = int(os.environ.get("KAFKAWIRE_FUZZ_FRAMES", "20000"))
KEYS = tuple(api.key for api in API_TABLE)
GROUP_KEYS = tuple(
    api.key for api in API_TABLE if "group" in api.name or "offset_" in api.name or api.name == "heartbeat"
)
ANSWER_WITHIN_S = 10.0  # a member that waits for others gets its reply much later


@pytest.mark.fuzz
async def test_mutated_frames_end_in_a_reply_or_a_closed_connection() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"kept")
        broker.groups.answers.update(dict.fromkeys(fake_groups.CALL_NAMES, NotCoordinator()))
        broker.transactions.answers.update(dict.fromkeys(fake_transactions.CALLS, NotCoordinator()))
        answered = 0
        for number, frame in enumerate(mutated_frames(SEED, FRAMES, KEYS)):
            original = frame.hex()
            try:
                # The clock jumps, so that long polls take no real time.
                with trio.fail_after(2**32):
                    await answer(broker.dispatcher.dispatch(frame, broker.connection, trio.current_time()))
                answered += 1
            except ProtocolViolation:
                continue
            except Exception as error:
                pytest.fail(f"seed {SEED}, frame {number}: {error!r} from {original}")
        assert 0 < answered < FRAMES
        assert not sum(counters.failures for counters in broker.interfaces.metrics.by_api.values())
        assert (await broker.ask(MetadataRequest(topics=[]), 9)).brokers
        partition = PartitionProduceData(index=0, records=memoryview(batch(b"after")))
        topics = [TopicProduceData(name="t", partition_data=[partition])]
        response = await broker.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), 9)
        assert response.responses[0].partition_responses[0].base_offset == 1


@pytest.mark.fuzz
async def test_mutated_frames_leave_groups_unharmed() -> None:
    """Mutated frames at a real table of groups: unknown members come, and some stay."""
    async with open_broker() as opened:
        await opened.broker.coordinator.create_topic("t", partition_count=1)
        await _coordinator_of("g", opened.connect())
        answered = 0
        for number, frame in enumerate(mutated_frames(SEED, FRAMES // 5, GROUP_KEYS)):
            client = opened.connect()
            await client.send_frame(bytes(frame))
            with trio.move_on_after(ANSWER_WITHIN_S):
                with suppress(EOFError):
                    await client.receive_frame()
                    answered += 1
            await client.stream.aclose()
            failures = sum(counters.failures for counters in opened.broker.metrics.by_api.values())
            assert not failures, f"seed {SEED}, frame {number}: {frame.hex()}"
        assert answered
        client = opened.connect()
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        committed: Any = await client.call(OffsetCommitRequest(group_id="g", topics=topics), 8)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        fetched: Any = await client.call(asked, 5)
        assert fetched.topics[0].partitions[0].committed_offset == 7


async def _coordinator_of(group_id: str, client: Client) -> None:
    for _ in range(100):
        found: Any = await client.call(FindCoordinatorRequest(key=group_id), 0)
        if found.error_code == ErrorCode.NONE:
            return
        await trio.sleep(0.1)
    pytest.fail("there is no coordinator")
