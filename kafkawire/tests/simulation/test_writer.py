"""The expectations of a simulated producer."""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from engine.batches.batch import parse_header
from kafkawire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.history import History
from kafkawire.tests.simulation.plan import Target, TopicPlan, WriterPlan
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.writer import KNOWN_AGAIN, Writer

TOPIC = TopicPlan("topic", 1, {"segment.bytes": "10000"})
PLAN = WriterPlan(0, [Target("topic", 0)], acks=-1, is_idempotent=True, window=5, pause_s=0.01)
PRODUCER = 7, 0
BEFORE_IT_GIVES_UP_S = 0.3


class Leader:
    """Network, connection and broker in one: it stores all batches but the very first."""

    number = 1

    def __init__(self) -> None:
        self.refused = 0
        self.stored: list[int] = []  # sequences
        self._answers: list[ProduceResponse] = []

    def connect(self, _client_id: str) -> Any:
        self._answers.clear()
        return self

    def disconnect(self, connection: object) -> None:
        """There is nothing to close."""

    async def send_prefix(self, request: ProduceRequest, version: int, rng: Random) -> None:
        """Send no complete request."""

    async def send(self, request: ProduceRequest, version: int) -> None:
        rows = [self._store(one.records) for topic in request.topic_data for one in topic.partition_data]
        self._answers.append(ProduceResponse(responses=[TopicProduceResponse(partition_responses=rows)]))

    def _store(self, payload: memoryview | None) -> PartitionProduceResponse:
        assert payload is not None
        sequence = parse_header(payload).base_sequence
        if sequence == 0:
            self.refused += 1
            return PartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.stored.append(sequence)
        return PartitionProduceResponse(base_offset=sequence)

    async def receive(self) -> ProduceResponse:
        return self._answers.pop(0)


async def test_producer_sends_no_more_batches_behind_a_retry_than_a_broker_can_deduplicate() -> None:
    """Seed 37151: the retries reached brokers that did not lead yet, and the batches behind them reached the new
    leader."""
    leader: Any = Leader()
    writer = Writer(PLAN, Shared(0, History(), leader, {"topic": TOPIC}), _producer=PRODUCER)
    with trio.move_on_after(BEFORE_IT_GIVES_UP_S):
        await writer.run()
    assert leader.refused > 2 * KNOWN_AGAIN
    assert len({*leader.stored}) == KNOWN_AGAIN - 1
