"""Producers: idempotent ones that retry as librdkafka does, and plain ones with any acks.

A writer keeps a window of batches in flight over one connection, pipelined, some of them in one request. Batches with a
retriable error, and batches in flight on a lost connection, are sent again in the same order with the same sequences.
An idempotent writer sends few new batches ahead of these. Only a reply that no record was stored makes a batch FAILED;
a batch that is given up otherwise is UNKNOWN.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import trio

from engine.batches.batch import Codec, Record, build_batch, parse_header, seal_batch
from engine.batches.codecs import compress
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.group_history import NO_ERA
from kafkawire.tests.simulation.history import Outcome, Send, key_of
from kafkawire.tests.simulation.network import ANSWER_WITHIN_S, LOST, Connection
from kafkawire.tests.simulation.plan import Target, TopicPlan, WriterPlan
from kafkawire.tests.simulation.shared import Shared

FIRST_VERSION_WITH_IDS = 13
VERSIONS = (3, 7, 9, 12, 13, 13)
ATTEMPTS_MAX = 40
NO_SEQUENCE = -1
KNOWN_AGAIN = 5  # newest batches of a producer by which a broker tells a retry (NUM_BATCHES_TO_RETAIN of Apache Kafka)

# Errors after which no record of the batch was stored, or will be.
_REFUSED = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
# The broker does not know the earlier batches: the producer starts over with a new identity.
_LOST_TRACK = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# Errors that a correct producer may get and retries.
_RETRIED = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT} | _GONE
)


class Batch:
    """A batch until its outcome is known."""

    __slots__ = ("number", "payload", "send", "sequence", "target")

    def __init__(self, target: Target, send: Send, payload: bytes, sequence: int, number: int) -> None:
        self.target = target
        self.send = send
        self.payload = payload
        self.sequence = sequence
        self.number = number  # of its partition


@dataclass
class Writer:
    """A producer. It ends when the run is over and all its batches are settled."""

    plan: WriterPlan
    shared: Shared
    _sequence: int = 0
    _pending: list[Batch] = field(default_factory=list)
    _producer: tuple[int, int] | None = None
    _next_sequences: dict[Target, int] = field(default_factory=dict)
    _counts: Counter[Target] = field(default_factory=Counter)  # of batches made

    def __post_init__(self) -> None:
        self.name = f"writer-{self.plan.number}"
        self._rng = self.shared.rng(self.name)
        self._version = self._rng.choice(VERSIONS)

    async def run(self) -> None:
        while not self.shared.is_over or self._pending:
            connection = await self.shared.connected(self.name, self._rng)
            try:
                await self._use(connection)
            except LOST:
                self._give_up_old()
            finally:
                self.shared.network.disconnect(connection)

    async def _use(self, connection: Connection) -> None:
        if self.plan.is_idempotent and self._producer is None:
            await self._introduce(connection)
        while not self.shared.is_over or self._pending:
            await trio.sleep(self._rng.expovariate(1 / self.plan.pause_s))
            while not self.shared.is_over and len(self._pending) < self._rng.randint(1, self.plan.window):
                target = self._rng.choice(self.plan.targets)
                if self._is_far_ahead(target):
                    break
                self._pending.append(self._new_batch(target))
            if not self._pending:
                return
            await self._send_all(connection)
            if self.plan.is_idempotent and self._producer is None:
                return

    async def _introduce(self, connection: Connection) -> None:
        answer = await self.shared.ask(connection, InitProducerIdRequest(transaction_timeout_ms=60_000), 4)
        if answer.error_code:
            raise EOFError("no producer id for now")
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._next_sequences.clear()

    # Making batches

    def _is_far_ahead(self, target: Target) -> bool:
        """Whether a leader that stored one more batch might no longer recognize the first batch to retry."""
        first = next((batch for batch in self._pending if batch.target == target), None)
        return self.plan.is_idempotent and first is not None and self._counts[target] - first.number >= KNOWN_AGAIN

    def _new_batch(self, target: Target) -> Batch:
        rng = self._rng
        count = rng.choice((1, 1, 1, 2, 3, 5, 8))
        values = tuple((self.plan.number, self._sequence + index) for index in range(count))
        self._sequence += count
        sequence = NO_SEQUENCE
        if self.plan.is_idempotent:
            sequence = self._next_sequences.get(target, 0)
            self._next_sequences[target] = sequence + count
        life = self.shared.topics.get(target.topic)
        send = Send(
            values=values,
            topic=target.topic,
            topic_id=life.topic_id if life is not None and self._version >= FIRST_VERSION_WITH_IDS else None,
            partition=target.partition,
            acks=self.plan.acks,
            producer=self._producer if self.plan.is_idempotent else None,
            invoked=self.shared.history.tick(),
        )
        self.shared.history.sends.append(send)
        number = self._counts[target]
        self._counts[target] += 1
        return Batch(target, send, self._payload(self.shared.plans[target.topic], send, sequence), sequence, number)

    def _payload(self, topic: TopicPlan, send: Send, sequence: int) -> bytes:
        rng = self._rng
        room = rng.choice((0, 20, 200, 1000, topic.segment_size_bytes // 3))
        if rng.random() < 0.01:
            room = topic.segment_size_bytes  # refused
        room = min(room, 30_000) // len(send.values)
        now_ms = self.shared.now_ms()
        records = [
            Record(
                b"%d" % key_of(value) if topic.is_compacted else None,
                b"%d:%d:" % value + rng.randbytes(min(room, 40)).ljust(room, b"."),
                now_ms + rng.randint(-3000, 3000),
            )
            for value in send.values
        ]
        producer = (*self._producer, sequence) if self.plan.is_idempotent and self._producer else (-1, -1, -1)
        plain = build_batch(records, producer=producer)
        if rng.random() < 0.85:
            return bytes(plain)
        codec = rng.choice((Codec.GZIP, Codec.LZ4, Codec.SNAPPY))
        header = parse_header(plain)
        return bytes(
            seal_batch(
                compress(codec, bytes(plain[61:])),
                record_count=len(records),
                base_offset=0,
                leader_epoch=-1,
                attributes=codec,
                timestamps_ms=(header.base_timestamp_ms, header.max_timestamp_ms),
                producer=producer,
            )
        )

    # Sending

    def _grouped(self) -> list[list[Batch]]:
        """Consecutive batches that go into one request; a partition is named once in each."""
        groups: list[list[Batch]] = []
        for batch in self._pending:
            if groups and all(batch.target != other.target for other in groups[-1]) and self._rng.random() < 0.5:
                groups[-1].append(batch)
            else:
                groups.append([batch])
        return groups

    def _request(self, group: list[Batch]) -> ProduceRequest:
        return ProduceRequest(
            acks=self.plan.acks,
            timeout_ms=self._rng.choice((30_000, 30_000, 200)),
            topic_data=[
                TopicProduceData(
                    name=batch.target.topic,
                    topic_id=batch.send.topic_id or bytes(16),
                    partition_data=[
                        PartitionProduceData(index=batch.target.partition, records=memoryview(batch.payload))
                    ],
                )
                for batch in group
            ],
        )

    async def _send_all(self, connection: Connection) -> None:
        """Send all pending batches, pipelined, and take the replies. Batches that stay pending are sent at the next
        try."""
        groups = self._grouped()
        history = self.shared.history
        for group in groups:
            request = self._request(group)
            if self._rng.random() < 0.01:
                await connection.send_prefix(request, self._version, self._rng)
                raise EOFError("cut in the middle of a frame")
            for batch in group:
                batch.send.attempts += 1
                batch.send.connection_slot = (connection.number, history.tick())
            await connection.send(request, version=self._version)
            history.operations += 1
        if self.plan.acks == 0:
            for batch in self._pending:
                self._settle(batch, Outcome.UNKNOWN)
            self._pending.clear()
            return
        if self._rng.random() < 0.02:
            raise EOFError("the client lost patience")
        with trio.fail_after(ANSWER_WITHIN_S):
            for group in groups:
                answer = await connection.receive()
                assert isinstance(answer, ProduceResponse)
                rows = [row for topic in answer.responses for row in topic.partition_responses]
                assert len(rows) == len(group)
                for batch, row in zip(group, rows, strict=True):
                    self._take_answer(batch, row)
        self._give_up_old()

    # Outcomes

    def _take_answer(self, batch: Batch, row: PartitionProduceResponse) -> None:
        code = row.error_code
        if batch not in self._pending:
            return  # given up when the producer started over
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.send.offset = row.base_offset if code == ErrorCode.NONE else -1
            self._settle(batch, Outcome.OK)
            self._pending.remove(batch)
        elif code in _REFUSED:
            self._settle(batch, Outcome.FAILED if batch.send.attempts == 1 else Outcome.UNKNOWN)
            self._pending.remove(batch)
            if self.plan.is_idempotent:
                self._start_over()
        elif code in _LOST_TRACK:
            self._lost_track(batch, code)
        elif code in _GONE and self.shared.plans[batch.target.topic].is_volatile:
            self._settle(batch, Outcome.UNKNOWN)
            self._pending.remove(batch)
            if self.plan.is_idempotent:
                self._start_over()
        elif code in _RETRIED:
            self._look_for_reason(batch, code)
            if not self.plan.is_idempotent and self._rng.random() < 0.3:
                self._settle(batch, Outcome.UNKNOWN)
                self._pending.remove(batch)
        else:
            self.shared.history.troubles.append(f"{self.name}: {ErrorCode(code).name} for a batch in order")
            self._settle(batch, Outcome.UNKNOWN)
            self._pending.remove(batch)

    def _look_for_reason(self, batch: Batch, code: int) -> None:
        """Note trouble if a partition of the tier refuses records without a disk error: a store that is away must not
        fail producers."""
        is_tiered = self.shared.plans[batch.target.topic].is_tiered
        if is_tiered and code == ErrorCode.KAFKA_STORAGE_ERROR and self.shared.era() != NO_ERA:
            self.shared.history.troubles.append(f"{self.name}: {batch.target} takes nothing, and no disk has failed")

    def _lost_track(self, batch: Batch, code: int) -> None:
        """Handle an unexpected sequence error. It is normal for a batch behind a failed one; for the first batch of its
        partition it is trouble."""
        first = next(other for other in self._pending if other.target == batch.target)
        if batch is not first:
            return
        topic = self.shared.plans[batch.target.topic]
        if topic.is_sync and not topic.is_volatile:
            self.shared.history.troubles.append(
                f"{self.name}: {ErrorCode(code).name} for sequence {batch.sequence} of {self._producer},"
                f" the first unanswered one of {batch.target}"
            )
        self._start_over()

    def _start_over(self) -> None:
        """Take a new producer id. The pending batches are given up, because their sequences belong to the old one."""
        for batch in self._pending:
            self._settle(batch, Outcome.UNKNOWN)
        self._pending.clear()
        self._producer = None

    def _give_up_old(self) -> None:
        limit = ATTEMPTS_MAX if self.plan.is_idempotent else 1 + self.plan.number % 4
        for batch in [batch for batch in self._pending if batch.send.attempts >= limit]:
            if batch not in self._pending:
                continue
            self._settle(batch, Outcome.UNKNOWN)
            self._pending.remove(batch)
            if self.plan.is_idempotent:
                self._start_over()

    def _settle(self, batch: Batch, outcome: Outcome) -> None:
        history, send = self.shared.history, batch.send
        send.outcome = outcome
        send.life = history.life
        if outcome is not Outcome.UNKNOWN:
            send.completed = history.tick()
        history.note("send", send.values[0], batch.target, outcome.value, send.offset)
