"""What becomes of a transactional id when somebody asks for something: one transition after the other. Pure.

As Kafka's TransactionMetadata and TransactionCoordinator have it, in both protocols: in the second one (KIP-890) every
transaction has an epoch of its own, so that nothing of one that is over can be taken for the next. A function takes
what is known and returns what is to be known next, which counts once it is durable; or it raises why nothing changes.
Who waits for whom, and that a transition is written before it is told, is the caller's part.
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
from coordinator.state_log import EPOCH_MAX
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
    """It is to be asked again when there is a producer id that nobody had."""


NewId = Callable[[], int]  # a producer id that nobody had; raises NeedsProducerId


def no_id() -> int:
    """There is none."""
    raise NeedsProducerId


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id. `last_epoch`: the one that the producer of now had before, if it may ask for
    the next one again. `protocol`: of the last transaction. `next_producer_id`: what its producer gets with the end of
    it, when its epochs are used up."""

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
        """Of a transaction that is decided, the one in its markers."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def identity_after_markers(self) -> ProducerIdentity:
        """What the producer goes on with."""
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
        """As it is written; what is not is gone after a restart."""
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
    def of(cls, record: TransactionRecord) -> Transaction:
        """As it was written."""
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
    """A producer begins, and whoever was there before is fenced. `expected`: what it takes itself for (KIP-360).

    With a transaction open that is aborted first, as `protocol` has it, which is the cluster's own: the state is
    PREPARE_ABORT then, and the producer has to come again. Raises ProducerFenced, ConcurrentTransactions,
    NeedsProducerId.
    """
    if known is None:
        empty, producer_id = TransactionState.EMPTY, new_id()
        return Transaction(producer_id, FIRST_EPOCH, timeout_ms, empty, now_ms, previous_producer_id=producer_id)
    if known.is_prepared:  # and it may have an identity that it was told of already
        raise ConcurrentTransactions("the transaction before is not over")
    if expected is not None and not _may_be(known, expected):
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
    """Of a producer that begins with nothing open, and the epoch that it had before (prepareIncrementProducerEpoch,
    prepareProducerIdRotation)."""
    if expected is None or expected.epoch == known.epoch:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else known.epoch
        if not known.is_exhausted:
            return ProducerIdentity(known.producer_id, known.epoch + 1), last_epoch
        return ProducerIdentity(new_id(), 0), last_epoch
    if expected.epoch == known.last_epoch:
        return known.identity, known.last_epoch  # it was told so before, and did not hear it
    raise ProducerFenced(f"epoch {expected.epoch} is neither {known.epoch} nor {known.last_epoch}")


def _may_be(known: Transaction, expected: ProducerIdentity) -> bool:
    """Its epoch is looked at later. It may have the id before this one, if it did not hear of the change."""
    if expected.producer_id == known.producer_id:
        return True
    return expected.producer_id == known.previous_producer_id and expected.epoch >= EPOCH_EXHAUSTED


def fenced(known: Transaction, now_ms: int, new_id: NewId, protocol: int) -> Transaction:
    """An open transaction is aborted, and its producer fenced, as `protocol` has it. Raises NeedsProducerId."""
    if protocol >= SECOND_PROTOCOL:
        return fenced_for_good(known, now_ms, new_id)
    return _fenced_at_first(known, now_ms)


def _fenced_at_first(known: Transaction, now_ms: int) -> Transaction:
    """It is aborted in an epoch that its producer does not have.

    It may ask for that one, unless another producer was there before: Apache Kafka's brokers fence as KIP-890 has it,
    whatever clients know of it, and there the epoch before counts as the last one. The very last epoch is nobody's:
    whoever had it could not be fenced.
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
    """The transaction has these as well, and begins with them if need be; itself, if it has them.

    While markers are on their way nobody is told who he is: the producer may have the identity that comes with their
    end. Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions.
    """
    if known is not None and known.is_prepared:
        raise ConcurrentTransactions("the transaction before is not over")
    known = _of_its_producer(known, asking)
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
    """What is known, to the producer of now and while no transaction is being ended; raises as `with_partitions`."""
    known = _of_its_producer(known, asking)
    if known.is_prepared:
        raise ConcurrentTransactions("the transaction before is not over")
    return known


def _of_its_producer(known: Transaction | None, asking: ProducerIdentity) -> Transaction:
    if known is None or known.producer_id != asking.producer_id:
        raise InvalidProducerIdMapping(f"producer id {asking.producer_id} is not of this transactional id")
    if known.epoch != asking.epoch:
        raise ProducerFenced(f"epoch {asking.epoch} of producer {asking.producer_id} is not {known.epoch}")
    return known


# EndTxn, in versions up to 4


def ended(known: Transaction | None, asking: ProducerIdentity, *, commits: bool, now_ms: int) -> Transaction:
    """It is decided; itself, if that had been decided so and is over.

    Raises InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState, ConcurrentTransactions.
    """
    known = _of_its_producer(known, asking)
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
    raise InvalidTransactionState(f"what is {known.state.name} cannot be {wanted.name}")


# EndTxn from version 5 on (KIP-890)


def ended_for_good(
    known: Transaction | None,
    asking: ProducerIdentity,
    *,
    commits: bool,
    now_ms: int,
    new_id: NewId = no_id,
) -> Transaction:
    """It is decided, in an epoch of its own; itself, if its producer asks for the same end again.

    To abort is allowed at any time: a producer that does not know what it has begun gets a new epoch by it. While
    markers are on their way nobody is told who he is. After TransactionCoordinator.endTransaction. Raises
    InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState, ConcurrentTransactions, NeedsProducerId.
    """
    if known is None:
        raise InvalidProducerIdMapping(f"producer id {asking.producer_id} is of no transactional id")
    if known.is_prepared:
        raise ConcurrentTransactions("its markers are being written")
    wanted = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
    if _asks_again(known, asking):
        if known.state is not _COMPLETE[wanted]:
            raise InvalidTransactionState(f"what is {known.state.name} was not to be {wanted.name}")
        return known
    if _had_id_before(known, asking):
        raise ProducerFenced(f"producer {asking.producer_id} has another id now")
    known = _of_its_producer(known, asking)
    if commits and known.state is not TransactionState.ONGOING:
        raise InvalidTransactionState(f"there is nothing to commit in what is {known.state.name}")
    return _decided_for_good(known, wanted, now_ms, new_id)


def _asks_again(known: Transaction, asking: ProducerIdentity) -> bool:
    """Whether it was answered before and did not hear it: it has the epoch, or the id, of before that end.

    The end was one of the second protocol, or of who was fenced by it. In the first one the epoch before may be
    somebody else's, who would be given an identity that another has; Kafka looks at the epoch alone.
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


def fenced_for_good(known: Transaction, now_ms: int, new_id: NewId = no_id) -> Transaction:
    """An open transaction is aborted in the epoch after that of its producer, who may ask for it (KIP-890).

    Raises NeedsProducerId.
    """
    return _decided_for_good(known, TransactionState.PREPARE_ABORT, now_ms, new_id)


def _decided_for_good(known: Transaction, state: TransactionState, now_ms: int, new_id: NewId) -> Transaction:
    """The very last epoch is in markers only: whoever comes after it has another id."""
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
    """All markers are written."""
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
    """Whether nobody has used the id for so long that it may be forgotten."""
    is_idle = known.state is not TransactionState.ONGOING and not known.is_prepared
    return is_idle and known.changed_ms + expiration_ms <= now_ms
