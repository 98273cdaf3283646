"""The state of a partition's producers: epoch, last five batches, open transaction (KIP-98, KIP-360).

Pure. `check` and `check_marker` change nothing; `apply` and `end` note batches and markers that go to the log. The
rules are those of Kafka's ProducerStateManager and ProducerAppendInfo. The state does not know what is durable: its
partition decides when a duplicate may be answered.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from engine.api import NO_EPOCH, NO_OFFSET, SECOND_PROTOCOL, AbortedTransaction, Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, BatchHeader
from engine.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)

BATCHES_KEPT = 5  # a client has at most five requests in flight (max.in.flight.requests.per.connection)
PRODUCERS_MAX = 100_000  # of one partition; beyond it the producer that was silent longest is forgotten
OPEN_MAX = 100_000  # open transactions: their producers cannot be forgotten, so no more may begin
SEQUENCE_MAX = 2**31 - 1
EPOCH_MAX = 2**15 - 1  # no producer has it: only markers do


class ProducedBatch(NamedTuple):
    """A batch of a producer that is in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # from its first to its last record
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_MAX + 1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer(NamedTuple):
    """The state of one producer: its epoch, and its last batches, oldest first; none if a marker brought the epoch.

    `last_offset` and `timestamp_ms` are of its newest batch or marker. `marker_offset` is the offset of its last
    marker, or a lower one, if an earlier version wrote the snapshot.
    """

    epoch: int
    batches: tuple[ProducedBatch, ...]
    last_offset: int
    timestamp_ms: int
    coordinator_epoch: int = NO_EPOCH  # of the last marker
    transaction_from: int = NO_OFFSET  # the first offset of the open transaction
    marker_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def knows(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch of which this one, of the same epoch, is a duplicate."""
        if header.producer_epoch == self.epoch:
            last_sequence = last_sequence_of(header)
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                    return batch
        return None

    @property
    def first_offset(self) -> int:
        """The first offset that this state needs.

        The coordinator epoch comes from the last marker alone, however many batches came since
        (ProducerStateEntry.coordinatorEpoch).
        """
        first = self.batches[0].first_offset if self.batches else self.last_offset
        if 0 <= self.marker_offset < first:
            first = self.marker_offset
        return first if self.transaction_from < 0 else min(first, self.transaction_from)


_producer_of: Callable[[tuple[int, tuple[ProducedBatch, ...], int, int, int, int, int]], Producer] = partial(
    tuple.__new__, Producer
)  # spares a call


class EndedTransaction(NamedTuple):
    """A transaction from its first batch to its marker at `last_offset`, and the last stable offset after the
    marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    outcome: Outcome

    def aborted(self) -> AbortedTransaction:
        """The entry of this transaction in an aborted index."""
        return AbortedTransaction(*self[:4])


def last_sequence_of(header: BatchHeader) -> int:
    """The last sequence of a batch: after 2^31 - 1 comes 0 (DefaultRecordBatch.incrementSequence)."""
    return (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX


class ProducerTable:
    """The producers of one partition by id, ordered by their newest batch or marker."""

    __slots__ = ("_open", "_producers", "_turned_away", "_turned_away_before")

    def __init__(self, producers: Iterable[tuple[int, Producer]] = ()) -> None:
        self._producers = dict(producers)
        self._open: dict[int, int] = {}  # first offsets of transactions by producer, the oldest first
        self._note_open()
        self._turned_away: dict[int, tuple[int, int]] = {}  # (epoch, sequence) for a producer without state
        self._turned_away_before: set[int] = set()  # those from before the last `expire`

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    @property
    def oldest_transaction_ms(self) -> int:
        """The timestamp of the last batch of the producer whose transaction is open longest; -1 without open
        transactions."""
        oldest = next(iter(self._open), None)
        return -1 if oldest is None else self._producers[oldest].timestamp_ms

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch of which this one is a duplicate; None if it continues the producer's sequence.

        Raises InvalidProducerEpoch for an older epoch, OutOfOrderSequence for a gap, InvalidTxnState for a plain batch
        within a transaction. A producer without state may begin with any sequence: its state may be gone with its
        records.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            self._check_begins(header)
            epoch, sequence = self._turned_away.get(header.producer_id, (header.producer_epoch, SEQUENCE_MAX))
            if header.producer_epoch == epoch and header.base_sequence > sequence:
                raise OutOfOrderSequence(
                    f"sequence {header.base_sequence} of producer {header.producer_id} is ahead of {sequence}"
                )
            return None
        if header.producer_epoch != producer.epoch:
            if header.producer_epoch < producer.epoch:
                raise InvalidProducerEpoch(
                    f"epoch {header.producer_epoch} of producer {header.producer_id} is older than {producer.epoch}"
                )
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with {header.base_sequence}"
                )
            self._check_transaction(header, producer)
            return None
        original = producer.knows(header)
        if original is not None:
            return original
        expected = (producer.last_sequence + 1) & SEQUENCE_MAX
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"sequence {header.base_sequence} of producer {header.producer_id} where {expected} is expected"
            )
        self._check_transaction(header, producer)
        return None

    def check_written_for(self, header: BatchHeader) -> None:
        """Check a batch that a coordinator writes for a producer, whose sequence means nothing; raises as `check`."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            self._check_begins(header)
            return
        _check_epoch(header.producer_id, header.producer_epoch, producer)
        self._check_transaction(header, producer)

    def _check_transaction(self, header: BatchHeader, producer: Producer) -> None:
        if producer.transaction_from < 0:
            self._check_begins(header)
        elif not header.is_transactional:
            raise InvalidTxnState(
                f"a plain batch of producer {header.producer_id}, whose transaction is open from "
                f"offset {producer.transaction_from} on"
            )

    def _check_begins(self, header: BatchHeader) -> None:
        if len(self._open) >= OPEN_MAX and header.is_transactional:
            raise InvalidTxnState(f"{len(self._open)} transactions are open in this partition")

    def check_marker(self, marker: Marker) -> None:
        """Check a transaction marker. Raises InvalidProducerEpoch, TransactionCoordinatorFenced."""
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            return
        _check_epoch(marker.producer_id, marker.producer_epoch, producer)
        if marker.protocol >= SECOND_PROTOCOL and marker.producer_epoch == producer.epoch < EPOCH_MAX:
            _check_is_retry(marker, producer)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"epoch {marker.coordinator_epoch} of the coordinator of producer {marker.producer_id} is older "
                f"than {producer.coordinator_epoch}"
            )

    def apply(self, header: BatchHeader) -> Producer | None:
        """Note a batch with its final base offset; returns the state before, for `restore`."""
        producer_id = header.producer_id
        before = self._producers.pop(producer_id, None)  # its next entry is the last
        self._turned_away.pop(producer_id, None)
        epoch, last_offset, timestamp_ms = header.producer_epoch, header.next_offset - 1, header.max_timestamp_ms
        if header.has_wrong_max_timestamp:
            timestamp_ms = header.base_timestamp_ms  # in a log of version 0.1: at least this is known
        batch = ProducedBatch(last_sequence_of(header), last_offset, header.last_offset_delta, timestamp_ms)
        if before is None:
            batches: tuple[ProducedBatch, ...] = (batch,)
            coordinator_epoch, transaction_from, marker_offset = NO_EPOCH, NO_OFFSET, NO_OFFSET
        else:
            batches = (*before.batches[1 - BATCHES_KEPT :], batch) if before.epoch == epoch else (batch,)
            _, _, _, _, coordinator_epoch, transaction_from, marker_offset = before
        if header.attributes & TRANSACTIONAL_BIT and transaction_from < 0:
            transaction_from = self._open[producer_id] = header.base_offset
        known = epoch, batches, last_offset, timestamp_ms, coordinator_epoch, transaction_from, marker_offset
        self._producers[producer_id] = _producer_of(known)
        return before

    def end(self, header: BatchHeader, marker: Marker) -> tuple[Producer | None, EndedTransaction | None]:
        """Note a marker with its final offset; returns the state before, and the transaction that it ends, if one is
        open.

        As ProducerAppendInfo.appendEndTxnMarker.
        """
        producer_id, epoch, offset = marker.producer_id, marker.producer_epoch, header.base_offset
        before = self._producers.pop(producer_id, None)
        batches = () if before is None or before.epoch != epoch else before.batches
        known = epoch, batches, offset, header.max_timestamp_ms, marker.coordinator_epoch, NO_OFFSET, offset
        self._producers[producer_id] = _producer_of(known)
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return before, None
        stable_offset = next(iter(self._open.values()), offset + 1)
        return before, EndedTransaction(producer_id, first_offset, offset, stable_offset, marker.outcome)

    def restore(self, producer_id: int, before: Producer | None) -> None:
        """Restore the state of a producer before later batches and markers were noted."""
        self._producers.pop(producer_id, None)
        if before is not None:
            self._producers[producer_id] = before
        first_offset = NO_OFFSET if before is None else before.transaction_from
        if first_offset < 0:
            self._open.pop(producer_id, None)
        elif self._open.get(producer_id) != first_offset:
            self._note_open()

    def _note_open(self) -> None:
        found = [(one.transaction_from, producer_id) for producer_id, one in self if one.transaction_from >= 0]
        self._open = {producer_id: first_offset for first_offset, producer_id in sorted(found)}

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """First offsets of open transactions by producer id, oldest first."""
        return self._open

    def turn_away(self, header: BatchHeader) -> None:
        """Note that a sound batch was not stored, and will be sent again; see `forget_turned_away`.

        If its producer has no state, a later batch would count as the producer's first one (KAFKA-14359). So a later
        batch is refused until this one has come.
        """
        producer_id, this = header.producer_id, (header.producer_epoch, header.base_sequence)
        if header.has_sequence and producer_id not in self._producers:
            other = self._turned_away.get(producer_id, this)
            self._turned_away[producer_id] = max(this, other, key=lambda one: (one[0], -one[1]))
            self._turned_away_before.discard(producer_id)
            if len(self._turned_away) > PRODUCERS_MAX:
                del self._turned_away[next(iter(self._turned_away))]

    def forget_turned_away(self, header: BatchHeader) -> None:
        """Forget a batch of `turn_away`, which will not be sent again."""
        if self._turned_away.get(header.producer_id) == (header.producer_epoch, header.base_sequence):
            del self._turned_away[header.producer_id]

    def trim(self) -> None:
        """Forget the producers that were silent longest, if there are too many, except those with an open
        transaction."""
        surplus = len(self._producers) - PRODUCERS_MAX
        if surplus > 0:
            idle = (one for one in self._producers if one not in self._open)
            for producer_id in list(islice(idle, surplus)):
                del self._producers[producer_id]

    def expire(self, before_ms: int) -> None:
        """Forget producers without a batch since `before_ms` (producer.id.expiration.ms), except those with an open
        transaction."""
        for producer_id in self._turned_away_before:
            self._turned_away.pop(producer_id, None)
        self._turned_away_before = set(self._turned_away)
        for producer_id in [one for one, known in self if known.timestamp_ms <= before_ms and one not in self._open]:
            del self._producers[producer_id]

    def needed_from(self, durable_offset: int, before: int) -> int:
        """The first offset that the state needs, if a crash takes everything from `durable_offset` on.

        `before` is the answer from when all was durable. It holds if there are newer batches: without these, the older
        ones count again.
        """
        if any(one.last_offset >= durable_offset for _, one in self):
            return before
        return min((one.first_offset for _, one in self), default=durable_offset)

    def below(self, offset: int) -> tuple["ProducerTable", set[int]]:
        """The producers without batches at or above `offset`, with their state, and the ids of the others."""
        kept = [(producer_id, one) for producer_id, one in self if one.last_offset < offset]
        return ProducerTable(kept), set(self._producers).difference(producer_id for producer_id, _ in kept)

    def joined(self, others: "ProducerTable") -> "ProducerTable":
        """Both tables in one, ordered by last offset."""
        return ProducerTable(sorted([*self, *others], key=lambda one: one[1].last_offset))


def _check_epoch(producer_id: int, epoch: int, known: Producer) -> None:
    if epoch < known.epoch:
        raise InvalidProducerEpoch(f"epoch {epoch} of producer {producer_id} is older than {known.epoch}")


def _check_is_retry(marker: Marker, known: Producer) -> None:
    """Accept a marker that was written before, if no transaction began since (KAFKA-19999).

    If a transaction is open, the marker belongs to the one before. Raises InvalidProducerEpoch.
    """
    if known.transaction_from >= 0:
        raise InvalidProducerEpoch(
            f"the transaction of producer {marker.producer_id} that is open began in epoch {known.epoch}"
        )


def rebuilt(
    table: ProducerTable, batches: Iterable[tuple[BatchHeader, Marker | None]]
) -> tuple[ProducerTable, list[EndedTransaction]]:
    """Apply batches of the log, already checked at their append, to `table`; returns it and the transactions that
    ended."""
    ended = []
    for header, marker in batches:
        if marker is not None:
            _, one = table.end(header, marker)
            if one is not None:
                ended.append(one)
        elif header.has_sequence:
            table.apply(header)
            table.trim()
    return table, ended


def recent(batches: Iterable[ProducedBatch]) -> tuple[ProducedBatch, ...]:
    """The last batches, as many as are kept."""
    return tuple(deque(batches, BATCHES_KEPT))
