"""The parts of commit batches: pending appends, and a partition's share of a commit batch."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import trio

from engine.api import NO_TIMESTAMP_MS, AbortedTransaction, AppendResult, Marker, Outcome, TopicIdPartition
from engine.batches.batch import TRANSACTIONAL_BIT, BatchHeader
from engine.batches.record_checks import Validation
from engine.batches.timestamps import newest_of_stored
from engine.errors import EngineError
from engine.logs.log import Log
from engine.logs.producers.snapshot import Snapshot
from engine.logs.producers.state import EndedTransaction, Producer, ProducerTable
from engine.logs.segments.chunk import Chunk
from engine.logs.segments.position import LogPosition

_result_of: Callable[[tuple[int, int, int, int]], AppendResult] = partial(tuple.__new__, AppendResult)  # spares a call


class Append:
    """A batch on its way from the queue to its result; implements `engine.api.PendingAppend`."""

    __slots__ = (
        "_callback",
        "_on_released",
        "_outcome",
        "header",
        "hurries",
        "is_settled",
        "owner",
        "records",
        "role",
        "size_bytes",
        "validation",
        "wants_all",
    )

    def __init__(
        self,
        owner: "Owner",
        records: memoryview,
        header: BatchHeader,
        role: object,
        wants_all: bool,  # no keyword: they cost half as much again as the whole call
        hurries: bool = False,
    ) -> None:
        self.owner = owner
        self.role = role  # the role in which the owner took it
        self.wants_all = wants_all  # acks=all
        self.hurries = hurries  # it needs no sync, as far as is known when it is queued
        self.records: memoryview | None = records  # until no job reads them any more
        self.header = header
        self.size_bytes = len(records)
        self.validation: Validation | None = None  # validation or recompression of its records, before the write
        self.is_settled = False
        self._outcome: AppendResult | EngineError | None = None
        self._callback: Callable[[], None] | None = None
        self._on_released: Callable[[], None] | None = None

    def release(self) -> None:
        """Release the memory of the records: they are in the log or will never be, and no job reads them any more."""
        self.records = None
        callback, self._on_released = self._on_released, None
        if callback is not None:
            callback()

    def settle(self, outcome: AppendResult | EngineError) -> None:
        """Set the result or error, once; no effect if it is settled. So a failed sync does not change the result of an
        async topic's append in the same commit batch."""
        if self.is_settled:
            return
        self.is_settled = True
        self._outcome = outcome
        self.release()
        callback, self._callback = self._callback, None  # drop it: it has a reference to this append
        if callback is not None:
            callback()

    def result(self, log_start_offset: int) -> AppendResult:
        """The result to settle it with, after it is in the log."""
        header = self.header
        base_offset = header.base_offset
        log_append_time_ms = header.max_timestamp_ms if header.is_log_append_time else NO_TIMESTAMP_MS
        return _result_of((base_offset, base_offset + header.last_offset_delta, log_append_time_ms, log_start_offset))

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        if self._callback is None:
            self._callback = callback
        else:
            self._callback = partial(_call_both, self._callback, callback)

    @property
    def is_released(self) -> bool:
        return self.records is None

    def call_when_released(self, callback: Callable[[], None]) -> None:
        assert self._on_released is None
        self._on_released = callback

    def stop_waiting(self) -> None:
        """Stop waiting for other replicas: the append is settled when it is durable here."""
        if self.wants_all and not self.is_settled:
            self.wants_all = False
            self.owner.stopped_waiting()

    @property
    def outcome(self) -> AppendResult | EngineError:
        assert self._outcome is not None
        return self._outcome

    async def wait(self) -> AppendResult:
        if not self.is_settled:
            settled = trio.Event()
            self.call_when_settled(settled.set)
            await settled.wait()
        outcome = self.outcome
        if isinstance(outcome, EngineError):
            raise outcome
        return outcome


def _call_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


class Undo(NamedTuple):
    """The state of a producer before the batch at `base_offset`, to undo the batch."""

    base_offset: int
    producer_id: int
    before: Producer | None


class PartitionShare:
    """A partition's share of a commit batch.

    `must_sync`: it counts only after a sync. `rolls`: a new segment begins in it. `end`: the log end behind it, after
    it is written. `started`: producer ids of transactions that begin in it, by first offset; `ended`: transactions that
    end in it.
    """

    __slots__ = (
        "appends",
        "before_offset",
        "chunks",
        "end",
        "ended",
        "has_marker",
        "log",
        "must_sync",
        "owner",
        "rejected",
        "rolls",
        "size_bytes",
        "started",
        "undo",
    )

    def __init__(self, owner: "Owner", log: Log) -> None:
        self.owner = owner
        self.log = log
        self.appends: list[Append] = []
        self.chunks: list[Chunk] = []
        self.size_bytes = 0
        end = log.end
        self.before_offset = end.offset
        self.end: LogPosition = end
        self.undo: list[Undo] = []
        self.started: dict[int, int] = {}
        self.ended: list[EndedTransaction] = []
        self.has_marker = False
        self.must_sync = True
        self.rolls = False
        self.rejected = False  # the disk was full before anything of it was written

    def stage(self, chunks: list[Chunk], producers: ProducerTable) -> None:
        """Set the chunks of segments that its batches go to. `producers`: the producer state behind it."""
        self.chunks = chunks
        self.rolls = chunks[-1].rolls
        closing = self.log.active.base_offset
        for chunk in chunks:
            self.size_bytes += chunk.size_bytes
            if chunk.rolls:
                chunk.snapshot = self._snapshot(closing, chunk.base_offset, producers)
                closing = chunk.base_offset

    def _snapshot(self, closing: int, offset: int, producers: ProducerTable) -> Snapshot:
        """The producer state before the batches from `offset` on, where the segment that begins at `closing` ends."""
        before = ProducerTable(producers)
        for base_offset, producer_id, one in reversed(self.undo):
            if base_offset >= offset:
                before.restore(producer_id, one)
        aborted = [*self.log.aborted.active, *self.aborted]
        return Snapshot(offset, before, closing, [one for one in aborted if closing <= one.last_offset < offset])

    def apply(self, header: BatchHeader, producers: ProducerTable) -> None:
        """Note a batch that goes to the log, of a producer with a sequence."""
        producer_id = header.producer_id
        before = producers.apply(header)
        self.undo.append(Undo(header.base_offset, producer_id, before))
        if header.attributes & TRANSACTIONAL_BIT and (before is None or before.transaction_from < 0):
            self.started[header.base_offset] = producer_id

    def end_transaction(self, header: BatchHeader, marker: Marker, producers: ProducerTable) -> None:
        """Note a marker that goes to the log."""
        self.has_marker = True
        before, ended = producers.end(header, marker)
        self.undo.append(Undo(header.base_offset, marker.producer_id, before))
        if ended is not None:
            self.ended.append(ended)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions among those that end in it."""
        return [one.aborted() for one in self.ended if one.outcome is Outcome.ABORT]

    def places(self) -> Iterator[LogPosition]:
        """The positions of its batches, without the greatest timestamp before each."""
        for chunk in self.chunks:
            position = chunk.position
            for header in chunk.headers:
                yield LogPosition(header.base_offset, chunk.base_offset, position, NO_TIMESTAMP_MS)
                position += header.size_bytes

    def batch_ends(self, newest_ms: int) -> Iterator[LogPosition]:
        """The ends of its batches, in ascending order; the last is the log end. `newest_ms`: the greatest timestamp
        before it."""
        for chunk in self.chunks:
            position = chunk.position
            for number, header in enumerate(chunk.headers):
                position += header.size_bytes
                batch_ms = header.max_timestamp_ms
                if batch_ms < header.base_timestamp_ms:
                    batch_ms = newest_of_stored(chunk.batches[number], header)
                newest_ms = max(newest_ms, batch_ms)
                yield LogPosition(header.next_offset, chunk.base_offset, position, newest_ms)

    @property
    def base_offset(self) -> int:
        """The log end without it."""
        first = self.chunks[0]
        return first.headers[0].base_offset if first.headers else first.base_offset


class Owner(Protocol):
    """Interface of a partition for the group committer. All calls come from the loop."""

    partition: TopicIdPartition

    def stage(self, appends: list[Append]) -> PartitionShare | None:
        """Check and stamp the appends against the present state. Single appends may be refused; None: all are."""

    def ended(self, marker: Marker) -> None:
        """Note that a marker goes to the log; called from `stage`."""

    def stopped_waiting(self) -> None:
        """Note that an append no longer waits for other replicas."""

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        """Confirm a read, see `engine.api.PartitionLog.confirm`."""

    def written(self, part: PartitionShare) -> None: ...
    def durable(self, part: PartitionShare) -> None: ...
    def failed(self, part: PartitionShare, error: str) -> None: ...
