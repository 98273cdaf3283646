"""What rounds are made of: appends on their way, a partition's share of a round, and how much may be queued."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import trio

from engine.api import NO_TIMESTAMP_MS, AbortedTransaction, AppendResult, Marker, Outcome, TopicPartition
from engine.batches.batch import TRANSACTIONAL_BIT, BatchHeader
from engine.batches.record_checks import Examination
from engine.errors import EngineError, Overloaded
from engine.logs.chunk import Chunk
from engine.logs.log import Log
from engine.logs.position import LogPosition
from engine.logs.producer_snapshot import Snapshot
from engine.logs.producer_state import EndedTransaction, Producer, ProducerTable

HANGS_AFTER_S = 2.0
_result_of: Callable[[tuple[int, int, int, int]], AppendResult] = partial(tuple.__new__, AppendResult)  # spares a call


class Append:
    """One batch from the queue to its result; `engine.api.PendingAppend` for the caller."""

    __slots__ = (
        "_callback",
        "_on_released",
        "_outcome",
        "examination",
        "header",
        "hurries",
        "is_settled",
        "owner",
        "records",
        "role",
        "size_bytes",
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
        self.role = role  # in which its owner took it
        self.wants_all = wants_all  # replicas to have it, not the leader alone
        self.hurries = hurries  # it waits for no sync, as far as is known
        self.records: memoryview | None = records  # until no job reads them any more
        self.header = header
        self.size_bytes = len(records)
        self.examination: Examination | None = None  # of its records: it has to stand that first
        self.is_settled = False
        self._outcome: AppendResult | EngineError | None = None
        self._callback: Callable[[], None] | None = None
        self._on_released: Callable[[], None] | None = None

    def release(self) -> None:
        """Let go of the records: they are in the log, or never get there, and no job reads them from here any more."""
        self.records = None
        callback, self._on_released = self._on_released, None
        if callback is not None:
            callback()

    def settle(self, outcome: AppendResult | EngineError) -> None:
        """No effect when the result is out already: an async topic's is, when the sync of others in its round fails."""
        if self.is_settled:
            return
        self.is_settled = True
        self._outcome = outcome
        self.release()
        callback, self._callback = self._callback, None  # let go of it: it knows this append
        if callback is not None:
            callback()

    def result(self, log_start_offset: int) -> AppendResult:
        """What to settle it with, once it is in the log."""
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
        """Once it is durable here it is settled, whatever other replicas have."""
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
    """What was known of a producer before the batch at `base_offset`."""

    base_offset: int
    producer_id: int
    before: Producer | None


class PartitionRound:
    """One partition's share of a round. `must_sync`: it counts only when it is durable. `rolls`: a segment begins.
    `end` is where the log ends behind it, once it is written. `begun`: the producers of transactions that begin in it,
    by their first offsets; `ended`: those that end in it."""

    __slots__ = (
        "appends",
        "before_offset",
        "begun",
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
        self.begun: dict[int, int] = {}
        self.ended: list[EndedTransaction] = []
        self.has_marker = False
        self.must_sync = True
        self.rolls = False
        self.rejected = False  # the disk was full before anything of it was written

    def stage(self, chunks: list[Chunk], producers: ProducerTable) -> None:
        """Where its batches go; `producers` are those behind it."""
        self.chunks = chunks
        self.rolls = chunks[-1].rolls
        closing = self.log.active.base_offset
        for chunk in chunks:
            self.size_bytes += chunk.size_bytes
            if chunk.rolls:
                chunk.snapshot = self._snapshot(closing, chunk.base_offset, producers)
                closing = chunk.base_offset

    def _snapshot(self, closing: int, offset: int, producers: ProducerTable) -> Snapshot:
        """As it was before the batches from `offset` on; the segment that ends there begins at `closing`."""
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
            self.begun[header.base_offset] = producer_id

    def end_transaction(self, header: BatchHeader, marker: Marker, producers: ProducerTable) -> None:
        """Note a marker that goes to the log."""
        self.has_marker = True
        before, ended = producers.end(header, marker)
        self.undo.append(Undo(header.base_offset, marker.producer_id, before))
        if ended is not None:
            self.ended.append(ended)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Of those that end in it."""
        return [one.aborted() for one in self.ended if one.outcome is Outcome.ABORT]

    def places(self) -> Iterator[LogPosition]:
        """Where its batches are; how late the log was before is not told."""
        for chunk in self.chunks:
            position = chunk.position
            for header in chunk.headers:
                yield LogPosition(header.base_offset, chunk.base_offset, position, NO_TIMESTAMP_MS)
                position += header.size_bytes

    def batch_ends(self, newest_ms: int) -> Iterator[LogPosition]:
        """Ascending; the last is the end of the log. `newest_ms` is the greatest timestamp before it."""
        for chunk in self.chunks:
            position = chunk.position
            for header in chunk.headers:
                position += header.size_bytes
                newest_ms = max(newest_ms, header.max_timestamp_ms)
                yield LogPosition(header.next_offset, chunk.base_offset, position, newest_ms)

    @property
    def base_offset(self) -> int:
        """Where the log ends without it."""
        first = self.chunks[0]
        return first.headers[0].base_offset if first.headers else first.base_offset


class Owner(Protocol):
    """What a lane needs of a partition. All calls come from the loop; one round at a time."""

    partition: TopicPartition

    def stage(self, appends: list[Append]) -> PartitionRound | None:
        """Check and stamp against the state of now; refuse single appends, or, returning None, all of them."""

    def ended(self, marker: Marker) -> None:
        """It goes to the log; called from `stage`."""

    def stopped_waiting(self) -> None:
        """One of its appends waits for other replicas no longer."""

    def confirm(self, told: Callable[[bool], None]) -> None:
        """See `engine.api.PartitionLog.confirm`."""

    def written(self, part: PartitionRound) -> None: ...
    def durable(self, part: PartitionRound) -> None: ...
    def failed(self, part: PartitionRound, error: str) -> None: ...


class QueueBudget:
    """Bytes the appends to one log dir may hold, queued or in flight; and as many that wait until they may be queued.

    Those do not take from the others: what they wait for has to be written itself.
    """

    __slots__ = ("_full_since_s", "_lot", "_max_bytes", "used_bytes", "waiting_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lot = trio.lowlevel.ParkingLot()
        self._full_since_s: float | None = None  # and nothing was written since
        self.used_bytes = 0
        self.waiting_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises Overloaded, unless nothing is queued: the largest batch must always find a way."""
        if self.used_bytes and self.used_bytes + size_bytes > self._max_bytes:
            raise Overloaded(f"{self.used_bytes} bytes are waiting to be written")
        self._add(size_bytes)

    def take_waiting(self, size_bytes: int) -> None:
        """For one that is not queued yet; raises as `take`."""
        if self.waiting_bytes and self.waiting_bytes + size_bytes > self._max_bytes:
            raise Overloaded(f"{self.waiting_bytes} bytes are waiting for their transactions")
        self.waiting_bytes += size_bytes

    def queue_waiting(self, size_bytes: int) -> None:
        """It is queued now, whatever is before it: it was taken long ago."""
        self.waiting_bytes -= size_bytes
        self._add(size_bytes)

    def give_waiting_back(self, size_bytes: int) -> None:
        self.waiting_bytes -= size_bytes

    def _add(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        if self._full_since_s is None and not self.has_room:
            self._full_since_s = trio.current_time()

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        if self._full_since_s is None:
            return
        if self.has_room:
            self._full_since_s = None
            self._lot.unpark_all()
        else:
            self._full_since_s = trio.current_time()

    @property
    def has_room(self) -> bool:
        """Below half of the limit."""
        return self.used_bytes * 2 <= self._max_bytes

    @property
    def hangs(self) -> bool:
        """It has had no room for so long that nobody should wait for its disk who may write to another."""
        return self._full_since_s is not None and trio.current_time() - self._full_since_s > HANGS_AFTER_S

    async def wait_for_room(self) -> None:
        """Return at once when there is room."""
        while not self.has_room:
            await self._lot.park()


class Room:
    """Whether appends are taken, over all log dirs: nobody waits for one that hangs while others have room."""

    __slots__ = ("_budgets",)

    def __init__(self, budgets: Sequence[QueueBudget]) -> None:
        self._budgets = budgets

    def __bool__(self) -> bool:
        return not self._full()

    def _full(self) -> list[QueueBudget]:
        """Those to wait for, if any."""
        full = [one for one in self._budgets if not one.has_room]
        if len(full) == len(self._budgets):
            return full
        return [one for one in full if not one.hangs]

    async def wait(self) -> None:
        """Return when there is room, at once if there is."""
        while full := self._full():
            with trio.move_on_after(HANGS_AFTER_S):
                await full[0].wait_for_room()


class Attendance:
    """Whether somebody writes, soon, what is appended just now: then no task needs to be woken for it."""

    __slots__ = ("is_held",)

    def __init__(self) -> None:
        self.is_held = False
