"""Model of a cluster with transactions, as far as a sink sees it: one step after the other, without the protocol's
bytes.

It checks producers as Kafka's coordinators and leaders do: epoch, partitions of the transaction, and sequences. Each
step is executed at once; tests inject lost requests and answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.batches.batch import parse_header, walk_records
from spark_connectors.records.batches import batches_of, body_of
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
from spark_connectors.wire import BrokerError, ErrorCode, TopicPartition


@dataclass
class Transaction:
    """The open transaction of a transactional id."""

    places: set[TopicPartition] = field(default_factory=set)
    batches: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    has_record: bool = False
    record: int | None = None


@dataclass
class State:
    """State of a transactional id."""

    producer: Producer
    open: Transaction | None = None
    was_committed: bool = False
    sequences: dict[TopicPartition, list[tuple[int, int]]] = field(
        default_factory=dict
    )  # of this epoch: first and next


class Model:
    """All transactional ids, and the records of groups."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.records: dict[str, int] = {}
        self.committed: dict[TopicPartition, list[bytes]] = {}
        self.steps: list[Step] = []

    def perform(self, name: str, step: Step) -> Any:
        """Raises BrokerError."""
        self.steps.append(step)
        match step:
            case Begin():
                return self._begin(name)
            case ReadRecord():
                return self._read_record(name)
        state = self._checked(name, step.producer)
        match step:
            case AddPartitions():
                self._opened(state).places |= set(step.places)
            case Append():
                for place, batch in step.batches.items():
                    self._append(state, place, bytes(batch))
            case AddRecord():
                self._opened(state).has_record = True
            case WriteRecord():
                if state.open is None or not state.open.has_record:
                    raise BrokerError(ErrorCode.INVALID_TXN_STATE, name)
                state.open.record = step.next_batch_id
            case Commit():
                self._commit(name, state)
        return None

    def values(self, place: TopicPartition) -> list[bytes | None]:
        """Values that a read_committed reader gets."""
        found = []
        for data in self.committed.get(place, []):
            (batch,) = batches_of(data)
            assert batch.is_transactional
            body = bytes(body_of(memoryview(data), batch))
            found += [record.value for record in walk_records(parse_header(data), body)]
        return found

    @property
    def is_open(self) -> bool:
        return any(state.open is not None for state in self.states.values())

    def _begin(self, name: str) -> Producer:
        before = self.states.get(name)
        known = Producer(1000 + len(self.states), -1) if before is None else before.producer
        self.states[name] = State(Producer(known.id, known.epoch + 1))  # an open transaction is aborted
        return self.states[name].producer

    def _read_record(self, name: str) -> int | None:
        state = self.states.get(name)
        if state is not None and state.open is not None and state.open.record is not None:
            raise BrokerError(ErrorCode.UNSTABLE_OFFSET_COMMIT, name)
        return self.records.get(name)

    def _checked(self, name: str, producer: Producer) -> State:
        state = self.states[name]
        assert producer.id == state.producer.id
        if producer.epoch < state.producer.epoch:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, name)
        return state

    def _opened(self, state: State) -> Transaction:
        state.open = state.open or Transaction()
        state.was_committed = False
        return state.open

    def _append(self, state: State, place: TopicPartition, data: bytes) -> None:
        (batch,) = batches_of(data)
        assert batch.is_transactional
        if (batch.producer_id, batch.producer_epoch) != (state.producer.id, state.producer.epoch):
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, str(place))
        sequences = state.sequences.setdefault(place, [])
        span = batch.base_sequence, batch.base_sequence + batch.records
        if span in sequences:
            return
        if state.open is None or place not in state.open.places:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE, str(place))
        if span[0] != (sequences[-1][1] if sequences else 0):
            raise BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(place))
        sequences.append(span)
        state.open.batches.setdefault(place, []).append(data)

    def _commit(self, name: str, state: State) -> None:
        if state.open is None:
            if state.was_committed:
                return  # a repetition
            raise BrokerError(ErrorCode.INVALID_TXN_STATE, name)
        for place, batches in state.open.batches.items():
            self.committed.setdefault(place, []).extend(batches)
        if state.open.record is not None:
            self.records[name] = state.open.record
        state.open, state.was_committed = None, True
