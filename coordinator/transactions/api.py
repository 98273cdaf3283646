"""Transactions as the handlers see them: what they ask, what they are told, and the service that answers.

Every call takes effect at once and returns something `Pending`: it is settled when what the answer tells of is durable
(RULES C1). Errors are `coordinator.errors.TransactionError`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from coordinator.state_log import FIRST_PROTOCOL as FIRST_PROTOCOL
from coordinator.state_log import SECOND_PROTOCOL as SECOND_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from coordinator.api import Pending
    from coordinator.state_log import StateMarker

NO_TIME_MS: Final = -1


class TransactionState(IntEnum):
    """As Kafka's TransactionState numbers them."""

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
        """As ListTransactions and DescribeTransactions name it."""
        return self.name.title().replace("_", "")


class ProducerIdentity(NamedTuple):
    """What a producer stamps its batches with."""

    producer_id: int
    epoch: int


class Partition(NamedTuple):
    """One that a transaction has written to, or is about to."""

    topic: str
    number: int


class TransactionListing(NamedTuple):
    """`started_ms`: when the last transaction began, -1 if none has."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    started_ms: int


class TransactionDescription(NamedTuple):
    """`partitions` are those of a transaction that is not over."""

    transactional_id: str
    identity: ProducerIdentity
    state: TransactionState
    timeout_ms: int
    started_ms: int
    partitions: Collection[Partition]


class TransactionPartitions(Protocol):
    """What those who write for a producer ask its coordinator; see `TransactionService`."""

    def add_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Collection[Partition], *, protocol: int
    ) -> Pending[None]:
        """AddPartitionsToTxn, AddOffsetsToTxn, and in the second protocol what is written: InvalidProducerIdMapping,
        ProducerFenced, ConcurrentTransactions, TransactionTooLarge."""

    def verify_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Sequence[Partition]
    ) -> Pending[list[bool]]:
        """Before something is written, in the first protocol: which of these the transaction has.
        InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions."""


class TransactionService(TransactionPartitions, Protocol):
    """The coordinators of transactional ids of this broker.

    Any call may be answered with NotCoordinator, CoordinatorLoading or CoordinatorNotAvailable; a transactional id is
    looked for in the partition of __transaction_state that it hashes to. What is listed as raised below is settled as
    such. ConcurrentTransactions comes after a tenth of a second in which the transaction before could have ended;
    CoordinatorLoading after one in which no producer id could be had. `protocol`: 0, or 2 for that of KIP-890.
    """

    async def coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates it; __transaction_state is made when there is none yet.

        Raises CoordinatorNotAvailable.
        """

    def initialise(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Pending[ProducerIdentity]:
        """InitProducerId: the producer that asks has the id from now on. `expected`: what it takes itself for.

        InvalidTransactionTimeout, ProducerFenced, ConcurrentTransactions.
        """

    def end(
        self, transactional_id: str, asking: ProducerIdentity, *, is_commit: bool, protocol: int
    ) -> Pending[ProducerIdentity]:
        """EndTxn; settled with what the producer goes on with, in the second protocol another epoch.
        InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState, ConcurrentTransactions."""

    def describe(self, transactional_id: str) -> Pending[TransactionDescription]:
        """UnknownTransactionalId."""

    def list_transactions(self) -> Pending[list[TransactionListing]]:
        """All transactional ids that this broker coordinates. CoordinatorLoading while any of them may be missing."""


class MarkerWriter(Protocol):
    """What ends a transaction in a partition, wherever it is led."""

    def write(self, marker: StateMarker, partition: Partition) -> Pending[None]:
        """Settled when the marker is durable.

        UnknownTopic: there is no such partition, so that there is nothing to end. StaleProducerEpoch,
        TransactionCoordinatorFenced: somebody else has ended it. MarkerNotWritten: it is worth another try.
        """


@dataclass(slots=True)
class TransactionCounters:
    """What has happened since the start, for who watches. `stuck_markers`: transactions that a partition refused to
    end, and is asked to again now and then."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    expired_ids: int = 0
    stuck_markers: int = 0


class TransactionFigures(NamedTuple):
    """One transactional id; `open_since_ms`: when its transaction began, -1 if the last one is over."""

    transactional_id: str
    state: TransactionState
    open_since_ms: int


class TransactionStatistics(Protocol):
    """For who watches."""

    @property
    def counters(self) -> TransactionCounters: ...

    def figures(self) -> Iterator[TransactionFigures]:
        """Each as it is when its turn comes."""
