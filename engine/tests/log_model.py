"""Model of a log as a list of batches: offsets, bytes, segments, leader epochs and producers follow from it.

It keeps the batches below the log start, too, and computes each answer from the whole list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from engine.api import EpochEnd
from engine.batches.batch import Record, build_batch, stamp
from engine.errors import EngineError, InvalidProducerEpoch, OutOfOrderSequence
from engine.log_config import LogConfig
from engine.logs.producers.state import BATCHES_KEPT, ProducedBatch, Producer
from engine.logs.recovery.epochs import UNDEFINED
from testkit.logs import NOW_MS

NO_PRODUCER = (-1, -1, -1)


class Send(NamedTuple):
    """A step of a client. `times`: relative to NOW_MS; `choice`: chooses among the batches that it may send again."""

    kind: str  # plain, next, new epoch, again, gap, old epoch
    producer_id: int
    times: Sequence[int]
    choice: int
    acks: int


@dataclass(frozen=True)
class Batch:
    """A batch that is in the log, or on its way."""

    base_offset: int
    leader_epoch: int
    sent: bytes
    times_ms: tuple[int, ...]
    producer: tuple[int, int, int]  # id, epoch, first sequence

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.times_ms)

    @property
    def stored(self) -> bytes:
        stamped = bytearray(self.sent)
        stamp(memoryview(stamped), self.base_offset, self.leader_epoch)
        return bytes(stamped)

    @property
    def produced(self) -> ProducedBatch:
        delta = len(self.times_ms) - 1
        return ProducedBatch(self.producer[2] + delta, self.next_offset - 1, delta, max(self.times_ms))


class Expected(NamedTuple):
    """The bytes to send, and the expected answer: an offset, or an error."""

    sent: bytes
    base_offset: int
    error: type[EngineError] | None = None


def key_of(time_ms: int) -> bytes:
    return b"%d" % (time_ms % 4)


@dataclass
class Model:
    """Model of a log. `segments`: base offsets. A batch counts when it is sent; after a crash the test removes the lost
    ones."""

    config: LogConfig
    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    leader_epoch: int = -1
    segments: list[int] = field(default_factory=lambda: [0])

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def visible(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.next_offset > self.start]

    def records(self) -> list[tuple[int, int, int]]:
        """(Offset, timestamp, leader epoch) of all records that can be read."""
        return [
            (batch.base_offset + number, time_ms, batch.leader_epoch)
            for batch in self.visible
            for number, time_ms in enumerate(batch.times_ms)
            if batch.base_offset + number >= self.start
        ]

    # Producers

    def producers(self) -> dict[int, Producer]:
        table: dict[int, Producer] = {}
        for batch in self.batches:
            producer_id, epoch, _ = batch.producer
            before = table.get(producer_id)
            older = before.batches if before is not None and before.epoch == epoch else ()
            produced = batch.produced
            kept = (*older, produced)[-BATCHES_KEPT:]
            table[producer_id] = Producer(epoch, kept, produced.last_offset, produced.timestamp_ms)
        table.pop(-1, None)
        return table

    def is_sure(self, produced: ProducedBatch) -> bool:
        """Whether the producer state must have this batch; batches below the log start may be forgotten."""
        return produced.first_offset >= self.start

    def send(self, send: Send) -> Expected | None:
        """The expected result of a step; None: there is no batch to send, or the result is not determined."""
        if send.kind == "plain":
            return self._new(send.times, NO_PRODUCER)
        known, producer_id = self.producers().get(send.producer_id), send.producer_id
        if send.kind == "new epoch":
            return self._new(send.times, (producer_id, known.epoch + 1 if known else 0, 0))
        if known is None:
            return self._new(send.times, (producer_id, 0, 0)) if send.kind == "next" else None
        following = known.batches[-1].last_sequence + 1
        if send.kind == "next":
            return self._new(send.times, (producer_id, known.epoch, following))
        if not self.is_sure(known.batches[-1]):
            return None
        if send.kind == "gap":
            sent = _encoded(send.times, (producer_id, known.epoch, following + 1 + send.choice))
            return Expected(sent, -1, OutOfOrderSequence)
        if send.kind == "old epoch":
            sent = _encoded(send.times, (producer_id, known.epoch - 1, 0))
            return Expected(sent, -1, InvalidProducerEpoch) if known.epoch else None
        return self._again(known, producer_id, send.choice)

    def _again(self, known: Producer, producer_id: int, choice: int) -> Expected:
        own = [one for one in self.visible if one.producer[0] == producer_id and self.is_sure(one.produced)]
        batch = own[-1 - choice % len(own)]
        if batch.producer[1] < known.epoch:
            return Expected(batch.sent, -1, InvalidProducerEpoch)
        if batch.produced in known.batches:
            return Expected(batch.sent, batch.base_offset)
        return Expected(batch.sent, -1, OutOfOrderSequence)

    def _new(self, times: Sequence[int], producer: tuple[int, int, int]) -> Expected:
        sent = _encoded(times, producer)
        times_ms = tuple(NOW_MS + time for time in times)
        self.batches.append(Batch(self.end, self.leader_epoch, sent, times_ms, producer))
        return Expected(sent, self.batches[-1].base_offset)

    # Segments

    def roll(self, count: int) -> None:
        """Roll segments for the last `count` batches, which came in one commit batch."""
        first = len(self.batches) - count
        base = self.segments[-1]
        older = [batch for batch in self.batches[:first] if batch.base_offset >= base]
        size_bytes = sum(len(batch.sent) for batch in older)
        for batch in self.batches[first:]:
            is_full = size_bytes + len(batch.sent) > self.config.segment_size_bytes
            if older and base == self.segments[-1]:
                is_full |= max(batch.times_ms) - max(older[0].times_ms) > self.config.segment_age_ms
            if size_bytes and is_full:
                self.segments.append(batch.base_offset)
                size_bytes = 0
            size_bytes += len(batch.sent)

    def in_segment_of(self, batch: Batch) -> list[Batch]:
        """The batches of the segment of `batch`, from that on."""
        end = min((base for base in self.segments if base > batch.base_offset), default=self.end)
        return [one for one in self.batches if batch.base_offset <= one.base_offset < end]

    # Truncation and deletion

    def begin_at(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.open()

    def retain(self, now_ms: int) -> None:
        """Remove the oldest segments: those below the log start, then by retention.bytes, then by retention.ms."""
        self.open()
        limit_bytes, limit_ms = self.config.retention_size_bytes, self.config.retention_ms
        while limit_bytes >= 0 and self._size_of(self.batches_in(self.segments[0])) <= self._excess_bytes(limit_bytes):
            if not self._drop_first():
                return
        while limit_ms >= 0 and now_ms - self._latest_ms(self.batches_in(self.segments[0])) > limit_ms:
            if not self._drop_first():
                return

    def _excess_bytes(self, limit_bytes: int) -> int:
        return self._size_of([batch for batch in self.batches if batch.base_offset >= self.segments[0]]) - limit_bytes

    @staticmethod
    def _size_of(batches: Sequence[Batch]) -> int:
        return sum(len(batch.sent) for batch in batches)

    @staticmethod
    def _latest_ms(batches: Sequence[Batch]) -> int:
        return max((time_ms for batch in batches for time_ms in batch.times_ms), default=0)

    def batches_in(self, base: int) -> list[Batch]:
        """The batches of the segment with that base offset."""
        end = min((one for one in self.segments if one > base), default=self.end)
        return [batch for batch in self.batches if base <= batch.base_offset < end]

    def _drop_first(self) -> bool:
        """Remove the first segment; the last one is replaced by an empty one. False: the only segment is empty."""
        first, *others = self.segments
        if not others and first == self.end:
            return False
        self.segments = others or [self.end]
        self.start = max(self.start, self.segments[0])
        return True

    def open(self) -> None:
        """Remove segments below the log start. A segment whose end became known only by a later roll goes at the next
        step that opens or shortens the log."""
        self.segments = self.opened(self.segments)

    def opened(self, segments: Sequence[int]) -> list[int]:
        """The segments that are left of these when the log is opened."""
        below = [base for base, following in pairwise(segments) if following <= self.start]
        return list(segments[len(below) :])

    def truncate(self, offset: int) -> None:
        """Truncate the log before the batch that holds `offset`."""
        while self.batches and self.batches[-1].next_offset > offset:
            self.batches.pop()
        self.segments = [base for base in self.segments if base <= self.end]
        self.open()

    # Epochs

    def epoch_end(self, epoch: int) -> EpochEnd:
        """The end of a leader epoch, as in KIP-101; epochs below the log start are not known."""
        starts: dict[int, int] = {}
        for batch in self.visible:
            starts.setdefault(batch.leader_epoch, max(batch.base_offset, self.start))
        starts.setdefault(self.leader_epoch, self.end)
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, self.end)
        if epoch > self.leader_epoch:
            return UNDEFINED
        following = min(one for one in starts if one > epoch)
        return EpochEnd(max((one for one in starts if one <= epoch), default=epoch), starts[following])


def _encoded(times: Sequence[int], producer: tuple[int, int, int]) -> bytes:
    records = [Record(key_of(NOW_MS + time), b"%d" % time, NOW_MS + time) for time in times]
    return bytes(build_batch(records, producer=producer))
