"""Transactions as the handlers see them: requests, replies, and the service that answers.

Every call takes effect at once and returns a `Future`. It is settled when the state that the answer shows is durable
(RULES C1). Errors are `coordinator.errors.TransactionError`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from coordinator.state.log import FIRST_PROTOCOL as FIRST_PROTOCOL
from coordinator.state.log import SECOND_PROTOCOL as SECOND_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from coordinator.api import Future
    from coordinator.state.log import StateMarker

NO_TIME_MS: Final = -1


class TransactionState(IntEnum):
    """States of a transaction, with the numbers of Kafka's TransactionState."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # expired, about to be forgotten; here it is forgotten at once
    PREPARE_EPOCH_FENCE = 7  # in Kafka's memory only

    @property
    def label(self) -> str:
        """The name of the state in ListTransactions and DescribeTransactions."""
        return self.name.title().replace("_", "")


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, as in the batches of a producer."""

    producer_id: int
    epoch: int


class Partition(NamedTuple):
    """A partition that a transaction has written to, or is about to."""

    topic: str
    number: int


class TransactionListing(NamedTuple):
    """A transactional id in a list. `started_ms`: when the last transaction began, -1 if none has."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    started_ms: int


class TransactionDescription(NamedTuple):
    """A transactional id in detail. `partitions` are those of a transaction that is not over."""

    transactional_id: str
    identity: ProducerIdentity
    state: TransactionState
    timeout_ms: int
    started_ms: int
    partitions: Collection[Partition]


class TransactionPartitions(Protocol):
    """The part of `TransactionService` that is used before a write for a producer."""

    def add_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Collection[Partition], *, protocol: int
    ) -> Future[None]:
        """Add partitions: AddPartitionsToTxn, AddOffsetsToTxn, and each write of the second protocol. Errors:
        InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, TransactionTooLarge."""

    def verify_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Sequence[Partition]
    ) -> Future[list[bool]]:
        """Return whether the transaction has each partition, before a write of the first protocol. Errors:
        InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions."""


class TransactionService(TransactionPartitions, Protocol):
    """The coordinators of transactional ids of this broker.

    Any call may be answered with NotCoordinator, CoordinatorLoading or CoordinatorNotAvailable. A transactional id
    belongs to the partition of __transaction_state that it hashes to. The errors of a method settle its `Future`.
    ConcurrentTransactions comes after a wait of 100 ms for the end of the transaction before; CoordinatorLoading after
    the same wait for a producer id. `protocol`: 0, or 2 for that of KIP-890.
    """

    async def coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates this id; __transaction_state is made when there is none yet.

        Raises CoordinatorNotAvailable.
        """

    def initialise(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Future[ProducerIdentity]:
        """InitProducerId: the producer that asks has the id from now on. `expected`: the identity that it believes to
        have.

        Errors: InvalidTransactionTimeout, ProducerFenced, ConcurrentTransactions.
        """

    def end(
        self, transactional_id: str, asking: ProducerIdentity, *, is_commit: bool, protocol: int
    ) -> Future[ProducerIdentity]:
        """EndTxn. The answer is the identity with which the producer goes on, in the second protocol another epoch.
        Errors: InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState, ConcurrentTransactions."""

    def describe(self, transactional_id: str) -> Future[TransactionDescription]:
        """DescribeTransactions. Errors: UnknownTransactionalId."""

    def list_transactions(self) -> Future[list[TransactionListing]]:
        """All transactional ids that this broker coordinates. CoordinatorLoading while any of them may be missing."""


class MarkerWriter(Protocol):
    """The writer of markers, which end a transaction in a partition, whichever broker leads it."""

    def write(self, marker: StateMarker, partition: Partition) -> Future[None]:
        """Write a marker. The `Future` is settled when the marker is durable.

        Errors: UnknownTopic if there is no such partition, so that there is nothing to end; StaleProducerEpoch or
        TransactionCoordinatorFenced if the transaction has been ended otherwise; MarkerNotWritten if another try is
        worth it.
        """


@dataclass(slots=True)
class TransactionCounters:
    """Counters since the start, for metrics. `stuck_markers`: transactions that a partition refused to end, and is
    asked to again now and then."""

    started: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    expired_ids: int = 0
    stuck_markers: int = 0


class TransactionFigures(NamedTuple):
    """A transactional id, for metrics; `open_since_ms`: when its transaction began, -1 if the last one is over."""

    transactional_id: str
    state: TransactionState
    open_since_ms: int


class TransactionStatistics(Protocol):
    """Figures of the transaction coordinators, for metrics."""

    @property
    def counters(self) -> TransactionCounters: ...

    def figures(self) -> Iterator[TransactionFigures]:
        """All transactional ids, each as it is when the iteration reaches it."""
