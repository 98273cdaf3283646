"""Transitions of a transactional id: from its state and a request to its next state. Pure.

They are those of Kafka's TransactionMetadata and TransactionCoordinator, in both protocols: in the second one (KIP-890)
every transaction has an epoch of its own, so that no request of a finished one is taken for the next. A function takes
the known state and returns the next one, which counts once it is durable; or it raises the reason why nothing changes.
The caller lets requests wait, and writes a transition before it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coordinator.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
)
from coordinator.state.log import EPOCH_MAX
from coordinator.transactions.api import (
    FIRST_PROTOCOL,
    NO_TIME_MS,
    SECOND_PROTOCOL,
    Partition,
    ProducerIdentity,
    TransactionState,
)
from coordinator.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_EPOCH = 0  # of a transactional id that is new; tests let it begin later
# The greatest epoch that a client is given: there is always one more to fence it with.
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1

_PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class NeedsProducerId(Exception):
    """The transition needs an unused producer id, and there is none: it is to be tried again when there is one."""


NewId = Callable[[], int]  # an unused producer id; raises NeedsProducerId


def no_id() -> int:
    """Raise NeedsProducerId, as if there were none."""
    raise NeedsProducerId


@dataclass(frozen=True, slots=True)
class Transaction:
    """State of a transactional id. `last_epoch`: the epoch before, of the present producer, if it may ask for the next
    one again. `protocol`: of the last transaction. `next_producer_id`: the id that its producer gets with the end of
    the transaction, when its epochs are used up."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    changed_ms: int
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = NO_TIME_MS
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    protocol: int = FIRST_PROTOCOL

    @property
    def identity(self) -> ProducerIdentity:
        """Producer id and epoch; of a decided transaction, those in its markers."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def identity_after_markers(self) -> ProducerIdentity:
        """The identity with which the producer goes on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, and markers are on their way."""
        return self.state in _PREPARED

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs another id."""
        return self.epoch >= EPOCH_EXHAUSTED

    def record(self) -> TransactionRecord:
        """The record of this state. Fields that it lacks are gone after a restart."""
        topics: dict[str, list[int]] = {}
        for one in sorted(self.partitions):
            topics.setdefault(one.topic, []).append(one.number)
        return TransactionRecord(
            self.producer_id,
            self.epoch,
            self.timeout_ms,
            self.state,
            tuple((topic, tuple(numbers)) for topic, numbers in topics.items()),
            self.changed_ms,
            self.started_ms,
            self.previous_producer_id,
            self.next_producer_id,
            self.protocol,
        )

    @classmethod
    def from_record(cls, record: TransactionRecord) -> Transaction:
        """The state in a record."""
        return cls(
            record.producer_id,
            record.producer_epoch,
            record.timeout_ms,
            record.state,
            record.changed_ms,
            frozenset(Partition(topic, number) for topic, numbers in record.partitions for number in numbers),
            record.started_ms,
            previous_producer_id=record.previous_producer_id,
            next_producer_id=record.next_producer_id,
            protocol=record.client_version,
        )


# InitProducerId


def initialised(
    known: Transaction | None,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    now_ms: int,
    new_id: NewId,
    protocol: int = FIRST_PROTOCOL,
) -> Transaction:
    """A producer begins, and the producer before is fenced. `expected`: the identity that it believes to have
    (KIP-360).

    If a transaction is open, it is aborted first, in the cluster's own `protocol`: then the state is PREPARE_ABORT, and
    the producer has to come again. Raises ProducerFenced, ConcurrentTransactions, NeedsProducerId.
    """
    if known is None:
        empty, producer_id = TransactionState.EMPTY, new_id()
        return Transaction(producer_id, FIRST_EPOCH, timeout_ms, empty, now_ms, previous_producer_id=producer_id)
    if known.is_prepared:  # and it may have an identity that it was told of already
        raise ConcurrentTransactions("the transaction before is not over")
    if expected is not None and not _may_be_producer(known, expected):
        raise ProducerFenced(f"producer {expected.producer_id} is not {known.producer_id}")
    if known.state is TransactionState.ONGOING:
        return fenced(known, now_ms, new_id, protocol)
    (producer_id, epoch), last_epoch = _next_identity(known, expected, new_id)
    return replace(
        known,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        changed_ms=now_ms,
        partitions=frozenset(),
        started_ms=NO_TIME_MS,
        previous_producer_id=known.producer_id,
    )


def _next_identity(
    known: Transaction, expected: ProducerIdentity | None, new_id: NewId
) -> tuple[ProducerIdentity, int]:
    """The identity of a producer that begins with nothing open, and its epoch before (prepareIncrementProducerEpoch,
    prepareProducerIdRotation)."""
    if expected is None or expected.epoch == known.epoch:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else known.epoch
        if not known.is_exhausted:
            return ProducerIdentity(known.producer_id, known.epoch + 1), last_epoch
        return ProducerIdentity(new_id(), 0), last_epoch
    if expected.epoch == known.last_epoch:
        return known.identity, known.last_epoch  # the answer before was lost
    raise ProducerFenced(f"epoch {expected.epoch} is neither {known.epoch} nor {known.last_epoch}")


def _may_be_producer(known: Transaction, expected: ProducerIdentity) -> bool:
    """Whether the producer may be the present one; its epoch is checked later. If an answer was lost, it has the id
    before."""
    if expected.producer_id == known.producer_id:
        return True
    return expected.producer_id == known.previous_producer_id and expected.epoch >= EPOCH_EXHAUSTED


def fenced(known: Transaction, now_ms: int, new_id: NewId, protocol: int) -> Transaction:
    """Abort an open transaction and fence its producer, as `protocol` has it. Raises NeedsProducerId."""
    if protocol >= SECOND_PROTOCOL:
        return fenced_in_own_epoch(known, now_ms, new_id)
    return _fenced_in_first_protocol(known, now_ms)


def _fenced_in_first_protocol(known: Transaction, now_ms: int) -> Transaction:
    """Abort an open transaction in an epoch that its producer does not have.

    The producer may ask for that epoch, unless another producer was there before: Apache Kafka's brokers fence as in
    KIP-890, for clients of any version, and there the epoch before counts as the last one. No producer has the greatest
    epoch: its owner could not be fenced.
    """
    epoch = min(known.epoch + 1, EPOCH_MAX)
    return replace(
        known,
        epoch=epoch,
        last_epoch=NO_PRODUCER_EPOCH if known.is_exhausted else known.epoch,
        state=TransactionState.PREPARE_ABORT,
        changed_ms=now_ms,
        previous_producer_id=known.producer_id,
        protocol=FIRST_PROTOCOL,
    )


# AddPartitionsToTxn, AddOffsetsToTxn


def with_partitions(
    known: Transaction | None,
    asking: ProducerIdentity,
    partitions: Iterable[Partition],
    now_ms: int,
    protocol: int = FIRST_PROTOCOL,
) -> Transaction:
    """Add partitions to the transaction, and begin it if none is open; return `known` itself if it has them.

    While markers are on their way the identity is not checked: the producer may have the identity that comes with their
    end. Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions.
    """
    if known is not None and known.is_prepared:
        raise ConcurrentTransactions("the transaction before is not over")
    known = _checked(known, asking)
    is_open = known.state is TransactionState.ONGOING
    wanted = known.partitions.union(partitions) if is_open else frozenset(partitions)
    if is_open and wanted == known.partitions:
        return known
    return replace(
        known,
        state=TransactionState.ONGOING,
        partitions=wanted,
        started_ms=known.started_ms if is_open else now_ms,
        changed_ms=now_ms,
        previous_producer_id=known.producer_id,
        protocol=protocol,
    )


def between_markers(known: Transaction | None, asking: ProducerIdentity) -> Transaction:
    """The state, for the present producer and while no transaction is being ended; raises as `with_partitions`."""
    known = _checked(known, asking)
    if known.is_prepared:
        raise ConcurrentTransactions("the transaction before is not over")
    return known


def _checked(known: Transaction | None, asking: ProducerIdentity) -> Transaction:
    if known is None or known.producer_id != asking.producer_id:
        raise InvalidProducerIdMapping(f"producer id {asking.producer_id} is not of this transactional id")
    if known.epoch != asking.epoch:
        raise ProducerFenced(f"epoch {asking.epoch} of producer {asking.producer_id} is not {known.epoch}")
    return known


# EndTxn, in versions up to 4


def ended(known: Transaction | None, asking: ProducerIdentity, *, commits: bool, now_ms: int) -> Transaction:
    """Decide the transaction; return `known` itself if the same decision is made and complete.

    Raises InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState, ConcurrentTransactions.
    """
    known = _checked(known, asking)
    wanted = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
    if known.state is TransactionState.ONGOING:
        return replace(
            known,
            state=wanted,
            changed_ms=now_ms,
            previous_producer_id=known.producer_id,
            protocol=FIRST_PROTOCOL,
        )
    if known.state is _COMPLETE[wanted]:
        return known
    if known.state is wanted:
        raise ConcurrentTransactions("its markers are being written")
    raise InvalidTransactionState(f"a transaction in state {known.state.name} cannot become {wanted.name}")


# EndTxn from version 5 on (KIP-890)


def ended_in_own_epoch(
    known: Transaction | None,
    asking: ProducerIdentity,
    *,
    commits: bool,
    now_ms: int,
    new_id: NewId = no_id,
) -> Transaction:
    """Decide the transaction, in an epoch of its own; return `known` itself if its producer asks for the same end
    again.

    An abort is allowed at any time: a producer that does not know its open transaction gets a new epoch by it. While
    markers are on their way the identity is not checked. After TransactionCoordinator.endTransaction. Raises
    InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState, ConcurrentTransactions, NeedsProducerId.
    """
    if known is None:
        raise InvalidProducerIdMapping(f"producer id {asking.producer_id} is of no transactional id")
    if known.is_prepared:
        raise ConcurrentTransactions("its markers are being written")
    wanted = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
    if _repeats_end(known, asking):
        if known.state is not _COMPLETE[wanted]:
            raise InvalidTransactionState(f"a transaction in state {known.state.name} was not to become {wanted.name}")
        return known
    if _had_id_before(known, asking):
        raise ProducerFenced(f"producer {asking.producer_id} has another id now")
    known = _checked(known, asking)
    if commits and known.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(f"a transaction in state {known.state.name} cannot be committed")
    return _decided_in_own_epoch(known, wanted, now_ms, new_id)


def _repeats_end(known: Transaction, asking: ProducerIdentity) -> bool:
    """Whether the producer repeats an EndTxn whose answer was lost: it has the epoch, or the id, of before that end.

    The end was of the second protocol, or it fenced this producer. In the first protocol the epoch before may be
    another producer's, which must not get an identity that is in use; Kafka looks at the epoch alone.
    """
    if known.state not in _COMPLETE.values():
        return False
    if asking.producer_id == known.producer_id:
        is_before = asking.epoch == known.epoch - 1
        return is_before and (known.protocol >= SECOND_PROTOCOL or asking.epoch == known.last_epoch)
    return _had_id_before(known, asking)


def _had_id_before(known: Transaction, asking: ProducerIdentity) -> bool:
    is_exhausted = known.epoch == 0 and asking.epoch == EPOCH_EXHAUSTED
    return is_exhausted and asking.producer_id == known.previous_producer_id


def fenced_in_own_epoch(known: Transaction, now_ms: int, new_id: NewId = no_id) -> Transaction:
    """Abort an open transaction in the epoch after its producer's; the producer may ask for that epoch (KIP-890).

    Raises NeedsProducerId.
    """
    return _decided_in_own_epoch(known, TransactionState.PREPARE_ABORT, now_ms, new_id)


def _decided_in_own_epoch(known: Transaction, state: TransactionState, now_ms: int, new_id: NewId) -> Transaction:
    """Decide the transaction in the next epoch. The greatest epoch is in markers only: after it the producer has
    another id."""
    return replace(
        known,
        epoch=min(known.epoch + 1, EPOCH_MAX),
        last_epoch=known.epoch,
        state=state,
        changed_ms=now_ms,
        started_ms=known.started_ms if known.state is TransactionState.ONGOING else now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=new_id() if known.is_exhausted else NO_PRODUCER_ID,
        protocol=SECOND_PROTOCOL,
    )


# Both protocols


def completed(known: Transaction, now_ms: int) -> Transaction:
    """The state after all markers are written."""
    following = known.identity_after_markers
    return replace(
        known,
        producer_id=following.producer_id,
        epoch=following.epoch,
        state=_COMPLETE[known.state],
        partitions=frozenset(),
        changed_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def has_expired(known: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether the id was unused for so long that it may be forgotten."""
    is_idle = known.state is not TransactionState.ONGOING and not known.is_prepared
    return is_idle and known.changed_ms + expiration_ms <= now_ms
