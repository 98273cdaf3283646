"""Transactional producers that die, come back, hesitate and are fenced; they send and retry as librdkafka does.

A request whose reply is lost is sent again over the next connection. In the first protocol the producer gets a new
identity when that transaction is over, because a late request of it would count for the next transaction. In the second
protocol (KIP-890) it goes on, and the simulation makes requests late.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, NoReturn

import trio

from coordinator.transactions.api import SECOND_PROTOCOL
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkawire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.late_requests import LateRequests
from kafkawire.tests.simulation.network import LOST, Connection
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.transaction_history import (
    Fate,
    PlainCommit,
    Transaction,
    TransactionHistory,
    WrittenRecord,
)
from kafkawire.tests.simulation.transaction_plan import KEYS, TransactionsPlan, TransactorPlan
from kafkawire.wire.message import Message

GROUP, TRANSACTIONAL_ID = 0, 1  # kinds of coordinators
TIMEOUT_MS = 20_000
FIRST_AT_ONCE, GIVEN_UP = 10, 20  # numbers of records within a transaction; lower ones are sent singly
# Errors to retry: the coordinator or leader is away, or the previous transaction is not over.
RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
# INVALID_PRODUCER_ID_MAPPING: the epochs of the producer id are used up, and another producer has the new id.
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
TIMED_OUT = ErrorCode.INVALID_TXN_STATE  # for a commit after the time-out: its epoch is that of before the abort
MAY_COME_LATE = (ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)


class Fenced(Exception):
    """Another producer has the id now, or the transaction took too long."""


class ProducerDied(Exception):
    """The process has died."""


def code_in(answer: Any) -> int:
    """The greatest error code in a reply."""
    if isinstance(answer, list):
        return max((code_in(one) for one in answer), default=0)
    if not hasattr(answer, "__slots__"):
        return 0
    own = [getattr(answer, name) for name in answer.__slots__ if name.endswith("error_code")]
    return max([*own, *(code_in(getattr(answer, name)) for name in answer.__slots__)], default=0)


@dataclass
class RetryingClient:
    """A client that repeats a request until it gets a reply."""

    name: str
    shared: Shared
    history: TransactionHistory
    rests_s: ClassVar[tuple[float, float]] = (0.005, 0.05)  # the pause before a retry
    rng: Random = field(init=False)
    was_lost: bool = field(init=False, default=False)  # whether a lost request may still arrive
    had_to_repeat: bool = field(init=False, default=False)  # whether a repeated request may have been executed twice
    _connection: Connection | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.rng = self.shared.rng(self.name)

    async def ask(self, request: Message, version: int, retried: Collection[int] = RETRIED) -> Any:
        """Send a request, and return the first reply without one of the `retried` error codes."""
        [answer] = await self.ask_all([request], version, retried)
        return answer

    async def ask_all(self, requests: Sequence[Message], version: int, retried: Collection[int] = RETRIED) -> list[Any]:
        """Send several requests at once, as `ask` does. If one has to be retried, all are: the ones behind it may be
        out of order."""
        while True:
            connection = await self._connected(requests[0])
            try:
                if self._come_late(requests, version):
                    raise trio.BrokenResourceError
                answers = await self.shared.ask_all(connection, requests, version)
            except LOST:
                self.was_lost = self.had_to_repeat = True
                self.hang_up()
                continue
            if not any(code_in(one) in retried for one in answers):
                return answers
            self.had_to_repeat = True
            self._put_off(answers)
            await trio.sleep(self.rng.uniform(*self.rests_s))

    async def _connected(self, _request: Message) -> Connection:
        """A connection to the broker that answers the request."""
        if self._connection is None:
            self._connection = await self.shared.connected(self.name, self.rng)
        return self._connection

    def _put_off(self, answers: Sequence[Any]) -> None:
        """Hook for replies with an error code to retry."""

    def _come_late(self, requests: Sequence[Message], version: int) -> bool:
        """Whether the requests are held up on their way, and the connection breaks meanwhile."""
        return False

    def hang_up(self) -> None:
        if self._connection is not None:
            self.shared.network.disconnect(self._connection)
            self._connection = None

    def report_trouble(self, what: str) -> None:
        self.shared.history.troubles.append(f"{self.name}: {what}")


@dataclass
class Transactor(RetryingClient):
    """A transactional producer: one process after the other, until the run is over."""

    plan: TransactorPlan
    all: TransactionsPlan
    late: LateRequests
    _identity: tuple[int, int] = (-1, -1)
    _sequences: dict[Target, int] = field(default_factory=dict)
    _fresh_until_s: float = 0.0  # after a new identity; until then only a second producer can have fenced it
    _more: Random = field(init=False)  # for actions that were added later, so that a seed stays the same

    def __post_init__(self) -> None:
        super().__post_init__()
        self._more = self.shared.rng(f"{self.name}/more")

    async def run(self) -> None:
        while not self.shared.is_over:
            self._sequences.clear()
            try:
                await self._live()
            except (Fenced, ProducerDied):
                self.hang_up()

    @property
    def _is_second(self) -> bool:
        return self.plan.protocol == SECOND_PROTOCOL

    def _come_late(self, requests: Sequence[Message], version: int) -> bool:
        if len(requests) > 1 or self.rng.random() >= self.plan.late_share or not isinstance(requests[0], MAY_COME_LATE):
            return False
        self.late.send(requests[0], version, self.rng)
        return self.rng.random() < 0.5  # else the request arrives twice

    async def _live(self) -> None:
        """A producer process: it initialises, and writes until it dies. Raises Fenced, ProducerDied."""
        for kind, key in ((GROUP, self.plan.group), (TRANSACTIONAL_ID, self.plan.transactional_id)):
            await self.ask(FindCoordinatorRequest(key=key, key_type=kind), 3)
        self.was_lost = False
        request = InitProducerIdRequest(
            transactional_id=self.plan.transactional_id, transaction_timeout_ms=self.plan.timeout_ms
        )
        reply = self._expect(await self.ask(request, self.rng.choice((1, 4, 5))), "InitProducerId")
        self._identity = (reply.producer_id, reply.producer_epoch)
        while not self.shared.is_over and (self._is_second or not self.was_lost):
            await trio.sleep(self.rng.expovariate(1 / self.plan.pause_s))
            await self._transact()

    def _expect(self, answer: Any, what: str, *others: ErrorCode) -> Any:
        """Return the reply. Raises Fenced. An error that no client within the protocol should get is trouble."""
        code, was_fresh = code_in(answer), trio.current_time() < self._fresh_until_s
        self._fresh_until_s = 0.0
        if code in FENCED:
            if was_fresh and not self.plan.has_twin and not self.had_to_repeat:
                self.report_trouble(
                    f"{ErrorCode(code).name} for {what} of {self.plan.transactional_id}, with nothing open"
                )
            raise Fenced
        if code and code not in others:
            self.report_trouble(f"{ErrorCode(code).name} for {what} of {self.plan.transactional_id}")
            raise ProducerDied
        return answer

    def _may_die(self) -> None:
        if self.rng.random() < 0.04:
            raise ProducerDied

    async def _transact(self) -> None:
        number = self.history.next_number()
        one = Transaction(number, self.plan.transactional_id, self.plan.group)
        self.history.transactions.append(one)
        targets = self.rng.sample(self.all.targets, self.rng.randint(1, len(self.all.targets)))
        if not self._is_second:
            await self._add(targets)
        for count in range(self.rng.randint(1, 3)):
            self._may_die()
            await self._write(one, self.rng.choice(targets), count)
        if self._more.random() < 0.3:
            await self._write_at_once(one, self._more.choice(targets))
        if self.rng.random() < 0.5:
            await self._commit_offset(one)
        if self.rng.random() < 0.05:
            await trio.sleep(self.plan.timeout_ms / 1000 * self.rng.uniform(0.5, 2.0))
        self._may_die()
        if not self._is_second and self._more.random() < 0.1:
            await self._abandon_a_write(one, self._more.choice(targets))
        await self._end(one, is_commit=self.rng.random() < 0.6)
        if self._is_second and self._more.random() < 0.1:
            await self._end_empty_transaction()

    async def _add(self, targets: list[Target]) -> None:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=[number]) for topic, number in targets]
        producer_id, epoch = self._identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.plan.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        self._expect(await self.ask(request, self.rng.choice((0, 2, 3))), "AddPartitionsToTxn")

    async def _write(self, one: Transaction, target: Target, count: int) -> None:
        written, request = self._next_record(one, target, count, self.rng)
        self._expect_append(written, await self.ask(request, 12 if self._is_second else self.rng.choice((3, 9, 11))))

    async def _write_at_once(self, one: Transaction, target: Target) -> None:
        """Write as many batches as a client has in flight (named case 5)."""
        numbers = range(FIRST_AT_ONCE, FIRST_AT_ONCE + self._more.randint(2, 5))
        both = [self._next_record(one, target, number, self._more) for number in numbers]
        answers = await self.ask_all([request for _, request in both], 12 if self._is_second else 11)
        for (written, _), answer in zip(both, answers, strict=True):
            self._expect_append(written, answer)

    def _expect_append(self, written: WrittenRecord, answer: Any) -> None:
        """Note the outcome of a batch. A second producer with the same id may have aborted between the verification of
        the batch and its append, as in Kafka."""
        others = (TIMED_OUT,) if self._is_second and self.plan.has_twin else ()
        if code_in(self._expect(answer, "Produce", *others)):
            raise Fenced
        written.is_acked = True

    async def _abandon_a_write(self, one: Transaction, target: Target) -> NoReturn:
        """Stop waiting for a batch, abort, and initialise again; the batch may arrive at any time (KIP-890)."""
        _, request = self._next_record(one, target, GIVEN_UP, self._more)
        self.late.send(request, 11, self._more)
        await self._end(one, is_commit=False)
        await trio.sleep(self._more.uniform(0.0, 0.5))
        raise ProducerDied

    async def _end_empty_transaction(self) -> None:
        """Abort an empty transaction. This is a real abort, and may come while the markers of the previous one are
        under way (named case 9)."""
        answer = self._expect(await self.ask(EndTxnRequest(**self._named(), committed=False), 5), "EndTxn of nothing")
        self._begin_epoch(answer)

    def _next_record(
        self, one: Transaction, target: Target, count: int, rng: Random
    ) -> tuple[WrittenRecord, ProduceRequest]:
        """The next record, and its Produce request."""
        key = rng.randrange(KEYS)
        written = WrittenRecord(target, (one.number, count), key)
        one.written.append(written)
        value = f"{one.number}:{count}:{'x' * rng.choice((1, 1, 300))}"
        sequence = self._sequences.get(target, 0)
        self._sequences[target] = sequence + 1
        record = Record(f"{key}".encode(), value.encode(), self.shared.now_ms())
        batch = build_batch([record], attributes=TRANSACTIONAL_BIT, producer=(*self._identity, sequence))
        data = PartitionProduceData(index=target.partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.plan.transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=target.topic, partition_data=[data])],
        )
        return written, request

    async def _commit_offset(self, one: Transaction) -> None:
        named = self._named() | {"group_id": self.plan.group}
        if not self._is_second:
            self._expect(await self.ask(AddOffsetsToTxnRequest(**named), self.rng.choice((0, 3))), "AddOffsetsToTxn")
        one.has_offset = True
        topic, partition = self.all.offset_target
        row = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=one.number)
        request = TxnOffsetCommitRequest(
            **named,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
            generation_id_or_member_epoch=-1,
        )
        fenced = ErrorCode.ILLEGAL_GENERATION  # the error for an older epoch
        version = 5 if self._is_second else self.rng.choice((0, 2, 3))
        answer = self._expect(await self.ask(request, version), "TxnOffsetCommit", fenced)
        if code_in(answer):
            raise Fenced
        if not self.plan.has_twin and not self.plan.late_share and self.rng.random() < 0.3:
            await self._commit_plainly(topic, partition)

    async def _commit_plainly(self, topic: str, partition: int) -> None:
        """Commit an offset outside the transaction: it is later in the log than the transaction's pending offset (named
        case 10)."""
        commit = PlainCommit(self.history.next_number(), self.plan.group)
        self.history.plain_commits.append(commit)
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=commit.number)
        request = OffsetCommitRequest(
            group_id=self.plan.group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        self._expect(await self.ask(request, 8), "OffsetCommit")
        commit.completed = self.shared.history.tick()
        if self.was_lost:  # an earlier attempt may yet arrive
            raise ProducerDied

    def _named(self) -> dict[str, Any]:
        producer_id, epoch = self._identity
        return {
            "transactional_id": self.plan.transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    async def _end(self, one: Transaction, *, is_commit: bool) -> None:
        self.was_lost = False
        if is_commit:
            one.fate = Fate.UNKNOWN
        version = 5 if self._is_second else self.rng.choice((0, 2, 3, 4))
        answer = await self.ask(EndTxnRequest(**self._named(), committed=is_commit), version)
        is_fenced = code_in(answer) in FENCED or (self._is_second and code_in(answer) == TIMED_OUT)
        if is_commit and is_fenced and not self.was_lost:
            one.fate = Fate.ABORTED
        if is_fenced:
            raise Fenced
        self._expect(answer, "EndTxn")
        if self._is_second:
            self._begin_epoch(answer)
        if is_commit:
            one.fate = Fate.COMMITTED
            one.completed = self.shared.history.tick()
        self.shared.history.note(self.name, one.number, one.fate.value)

    def _begin_epoch(self, answer: Any) -> None:
        """Take the new identity from the reply to the previous EndTxn."""
        self._identity = (answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        self._fresh_until_s, self.had_to_repeat = trio.current_time() + self.plan.timeout_ms / 1000, False
