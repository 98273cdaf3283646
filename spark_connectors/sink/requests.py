"""Requests for the steps of `relay`. A request without an answer is repeated, which is safe for each of them.

A second InitProducerId gets another epoch. The other requests belong to one epoch: a repeated batch is recognized by
its sequence, a repeated add has no effect, and EndTxn for a committed transaction succeeds.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from spark_connectors.progress.committed import fetch_committed
from spark_connectors.sink.errors import Fenced
from spark_connectors.sink.relay import (
    AddPartitions,
    AddRecord,
    Append,
    Begin,
    Commit,
    Producer,
    ReadRecord,
    Step,
    WriteRecord,
)
from spark_connectors.wire import (
    BrokerError,
    Cluster,
    Coordinated,
    ErrorCode,
    MalformedReply,
    PartitionResult,
    TopicPartition,
    by_topic,
)
from spark_connectors.wire.api import Api, RequestT, ResponseT
from spark_connectors.wire.codes import RETRIABLE
from spark_connectors.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from spark_connectors.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from spark_connectors.wire.messages.end_txn import END_TXN, EndTxnRequest
from spark_connectors.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from spark_connectors.wire.messages.produce import (
    PRODUCE,
    PartitionToProduce,
    ProduceRequest,
    ProduceResponse,
    TopicToProduce,
)
from spark_connectors.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

RECORD_PARTITION: Final = 0
RECORD_SAYS: Final = "the next micro-batch of a query of Spark's to write"
_NOTHING: Final = -1

# Errors after a fence or a timeout: the transaction coordinator returns the first three, partitions return any of them.
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
# All partitions are added or none: if one of them is not known yet, the others are not attempted.
_NOT_YET_ADDED: Final = RETRIABLE | {ErrorCode.OPERATION_NOT_ATTEMPTED}

_T = TypeVar("_T")


class Performer(Protocol):
    """Executes the steps of a state machine."""

    def perform(self, step: Any) -> Any: ...


def run(machine: Generator[Any, Any, _T], performer: Performer) -> _T:
    """Execute the steps of a machine until it returns. Raises the errors of `perform` and of the machine."""
    answer = None
    while True:
        try:
            step = machine.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result
        answer = performer.perform(step)


@dataclass(frozen=True)
class Requests:
    """Requests for one transactional id. The group of that name has its record in a partition of `record_topic`."""

    cluster: Cluster
    name: str
    record_topic: str
    transaction_timeout_ms: int

    def perform(self, step: Step) -> Any:
        """Execute a step. Raises Fenced, WireError."""
        try:
            return self._perform(step)
        except BrokerError as error:
            if error.code in _FENCED:
                raise Fenced(
                    f"this attempt to write for {self.name} is over ({error}): another one has begun, or it took "
                    f"longer than {self.transaction_timeout_ms} ms (option kafka.transaction.timeout.ms)"
                ) from error
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                hint = "a topic's max.message.bytes is below the size that kafka.batch.size allows a batch"
                raise BrokerError(error.code, error.subject, hint) from error
            raise

    def _perform(self, step: Step) -> Any:
        match step:
            case Begin():
                return self._begin()
            case ReadRecord():
                return self._read_record()
            case AddPartitions(producer, places):
                return self._add_partitions(producer, places)
            case Append():
                return self._append(step)
            case AddRecord(producer):
                added = AddOffsetsToTxnRequest(group_id=self.name, **self._by(producer))
                return self._ask(ADD_OFFSETS_TO_TXN, added, _code)
            case WriteRecord(producer, next_batch_id):
                place = TopicPartition(self.record_topic, RECORD_PARTITION)
                return self.commit_offset(producer, place, next_batch_id, RECORD_SAYS)
            case Commit(producer):
                return self._ask(END_TXN, EndTxnRequest(committed=True, **self._by(producer)), _code)

    def _begin(self) -> Producer:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.transaction_timeout_ms)
        reply = self._ask(INIT_PRODUCER_ID, request, _code)
        return Producer(reply.producer_id, reply.producer_epoch)

    def _read_record(self) -> int | None:
        found = fetch_committed(self.cluster, self.name, self.record_topic, [RECORD_PARTITION])
        if RECORD_PARTITION not in found:
            raise MalformedReply(f"the answer to OffsetFetch of {self.name} says nothing of {self.record_topic}")
        record = found[RECORD_PARTITION]
        return None if record is None else record.offset

    def _add_partitions(self, producer: Producer, places: Iterable[TopicPartition]) -> None:
        topics = tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(place.partition for place in theirs))
            for topic, theirs in by_topic(places).items()
        )
        request = AddPartitionsToTxnRequest(topics=topics, **self._by(producer))
        self._ask(
            ADD_PARTITIONS_TO_TXN,
            request,
            lambda reply: [row.error_code for one in reply.topics for row in one.partitions],
            retry_on=_NOT_YET_ADDED,
        )

    def _append(self, step: Append) -> dict[TopicPartition, int]:
        """Append the batches. Returns the base offset of each; -1 if it is not known any more."""

        def request_for(theirs: dict[TopicPartition, int]) -> ProduceRequest:
            topics = tuple(
                TopicToProduce(
                    name=topic,
                    partitions=tuple(
                        PartitionToProduce(index=place.partition, records=memoryview(step.batches[place]))
                        for place in places
                    ),
                )
                for topic, places in by_topic(theirs).items()
            )
            timeout_ms = int(self.cluster.settings.request_timeout_s * 1000)
            return ProduceRequest(transactional_id=self.name, timeout_ms=timeout_ms, topics=topics)

        return self.cluster.at_leaders(PRODUCE, step.batches, request_for, _results)

    def commit_offset(self, producer: Producer, place: TopicPartition, offset: int, metadata: str) -> None:
        """Commit an offset in the transaction, for the group that has the transactional id's name. Raises WireError."""
        row = TxnOffsetCommitPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=metadata
        )
        topic = TxnOffsetCommitTopic(name=place.topic, partitions=(row,))
        request = TxnOffsetCommitRequest(group_id=self.name, topics=(topic,), **self._by(producer))
        self.cluster.at_coordinator(
            Coordinated.GROUP,
            self.name,
            TXN_OFFSET_COMMIT,
            request,
            lambda reply: [row.error_code for one in reply.topics for row in one.partitions],
        )

    def _ask(
        self,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        codes_of: Any,
        retry_on: Collection[int] = RETRIABLE,
    ) -> ResponseT:
        kind = Coordinated.TRANSACTIONAL_ID
        return self.cluster.at_coordinator(kind, self.name, api, request, codes_of, retry_on=retry_on)

    def _by(self, producer: Producer) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": producer.id, "producer_epoch": producer.epoch}


def _code(reply: Any) -> list[int]:
    return [reply.error_code]


def _results(reply: ProduceResponse) -> Iterator[PartitionResult[int]]:
    """Results of a Produce. DUPLICATE_SEQUENCE_NUMBER counts as appended, at an unknown offset."""
    for one in reply.responses:
        for row in one.partitions:
            is_there = row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            code = ErrorCode.NONE if is_there else row.error_code
            offset = _NOTHING if is_there else row.base_offset
            yield PartitionResult(TopicPartition(one.name, row.index), code, offset, row.error_message)
