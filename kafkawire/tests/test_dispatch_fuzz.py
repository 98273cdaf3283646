"""Mutated frames through dispatch, handlers and engine: a reply or a closed connection, and an unharmed broker."""

from __future__ import annotations

import os

import pytest
import trio

from coordinator.errors import NotCoordinator
from kafkawire.handlers import API_TABLE
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.tests.fake_groups import CALLS
from kafkawire.tests.harness import batch, open_handlers
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.tests.mutation import mutated_frames

SEED = int(os.environ.get("KAFKAWIRE_FUZZ_SEED", "1"))
FRAMES = int(os.environ.get("KAFKAWIRE_FUZZ_FRAMES", "20000"))
KEYS = tuple(api.key for api in API_TABLE)


@pytest.mark.fuzz
async def test_mutated_frames_end_in_a_reply_or_a_closed_connection() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"kept")
        broker.groups.answers.update(dict.fromkeys(CALLS, NotCoordinator()))
        answered = 0
        for number, frame in enumerate(mutated_frames(SEED, FRAMES, KEYS)):
            original = frame.hex()
            try:
                # The clock jumps, so a long poll costs nothing, whatever wait its frame asks for.
                with trio.fail_after(2**32):
                    await broker.dispatcher.dispatch(frame, broker.connection).outcome()
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
