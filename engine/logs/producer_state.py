"""What a partition knows of its idempotent producers: epoch, and the last five batches of each (KIP-98, KIP-360).

Pure. `check` looks and changes nothing, `apply` notes a batch that goes to the log. The rules are those of Kafka's
ProducerStateManager and ProducerAppendInfo for producers without a transaction. It refuses to know what is durable:
its partition decides when a duplicate may be answered.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from engine.batches.batch import BatchHeader
from engine.errors import InvalidProducerEpoch, OutOfOrderSequence

BATCHES_KEPT = 5  # a client has at most five requests in flight (max.in.flight.requests.per.connection)
PRODUCERS_MAX = 100_000  # of one partition; beyond it the one that was silent longest is forgotten
SEQUENCE_MAX = 2**31 - 1


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
    """One producer: its epoch and its last batches, the oldest first."""

    epoch: int
    batches: tuple[ProducedBatch, ...]


def last_sequence_of(header: BatchHeader) -> int:
    """Sequences count up to 2^31 - 1 and go on from 0 (DefaultRecordBatch.incrementSequence)."""
    return (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX


class ProducerTable:
    """The producers of one partition by id, in the order of their last batch."""

    __slots__ = ("_producers", "_turned_away")

    def __init__(self, producers: Iterable[tuple[int, Producer]] = ()) -> None:
        self._producers = dict(producers)
        self._turned_away: dict[int, tuple[int, int]] = {}  # epoch and sequence with which an unknown one is to begin

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch of which this one is a duplicate, None when it continues the producer's sequence.

        Raises InvalidProducerEpoch for an older epoch, OutOfOrderSequence for a gap. A producer that is not known may
        begin with any sequence: its state may be gone with its records.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
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
            return None
        last_sequence = last_sequence_of(header)
        for batch in producer.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"sequence {header.base_sequence} of producer {header.producer_id} where {expected} is expected"
            )
        return None

    def apply(self, header: BatchHeader) -> Producer | None:
        """Note a batch with its final base offset; returns what was known before, for `restore`."""
        producer_id = header.producer_id
        before = self._producers.pop(producer_id, None)  # and it comes back as the last
        self._turned_away.pop(producer_id, None)
        batch = ProducedBatch(
            last_sequence_of(header), header.next_offset - 1, header.last_offset_delta, header.max_timestamp_ms
        )
        if before is None or before.epoch != header.producer_epoch:
            self._producers[producer_id] = Producer(header.producer_epoch, (batch,))
        else:
            self._producers[producer_id] = Producer(before.epoch, (*before.batches[1 - BATCHES_KEPT :], batch))
        return before

    def restore(self, producer_id: int, before: Producer | None) -> None:
        """As if nothing had been applied since."""
        self._producers.pop(producer_id, None)
        if before is not None:
            self._producers[producer_id] = before

    def turn_away(self, header: BatchHeader) -> None:
        """A batch that nothing is wrong with was not stored, and will be sent again.

        Had nothing of its producer been stored before, what was sent behind it would pass for a beginning
        (KAFKA-14359): it has to wait for it.
        """
        producer_id, this = header.producer_id, (header.producer_epoch, header.base_sequence)
        if producer_id >= 0 and producer_id not in self._producers:
            other = self._turned_away.get(producer_id, this)
            self._turned_away[producer_id] = max(this, other, key=lambda one: (one[0], -one[1]))
            _keep(self._turned_away, PRODUCERS_MAX)

    def trim(self) -> None:
        """Forget those that were silent longest while there are too many."""
        _keep(self._producers, PRODUCERS_MAX)

    def expire(self, before_ms: int) -> None:
        """Forget those whose last record is older (producer.id.expiration.ms)."""
        self._turned_away.clear()
        for producer_id in [one for one, known in self if known.batches[-1].timestamp_ms <= before_ms]:
            del self._producers[producer_id]

    def needed_from(self, durable_offset: int, before: int) -> int:
        """Where the batches that count begin, should a crash take what is not below `durable_offset`.

        `before` was the answer when all was durable last: what newer batches made old counts again without them.
        """
        if any(one.batches[-1].last_offset >= durable_offset for _, one in self):
            return before
        return min((one.batches[0].first_offset for _, one in self), default=durable_offset)

    def below(self, offset: int) -> tuple["ProducerTable", set[int]]:
        """Those whose batches all end at or below `offset`; and who the others are."""
        kept = [(producer_id, one) for producer_id, one in self if one.batches[-1].last_offset < offset]
        return ProducerTable(kept), set(self._producers).difference(producer_id for producer_id, _ in kept)

    def joined(self, others: "ProducerTable") -> "ProducerTable":
        """Both, in the order of their last batches."""
        both = sorted([*self, *others], key=lambda one: one[1].batches[-1].last_offset)
        return ProducerTable(both)


def _keep(table: dict[int, Any], size_max: int) -> None:
    """The youngest."""
    while len(table) > size_max:
        del table[next(iter(table))]


def rebuilt(table: ProducerTable, headers: Iterable[BatchHeader]) -> ProducerTable:
    """`table` after batches that are in the log: they were checked when they came."""
    for header in headers:
        if header.has_sequence:
            table.apply(header)
            table.trim()
    return table


def recent(batches: Iterable[ProducedBatch]) -> tuple[ProducedBatch, ...]:
    """The last that count."""
    return tuple(deque(batches, BATCHES_KEPT))
