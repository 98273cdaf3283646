"""What the groups of all partitions of `__consumer_offsets` decide, on its way to their logs: one task for all of them.

A shard gathers records in a *round* while its last one is on its way. The writer has the rounds of all shards that have
one ready appended in one go, so that the engine makes them durable together, and is woken once for all that became
durable together. What fails is one shard's alone: the others go on.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coordinator.groups.pending import Answer
    from coordinator.state_log import PendingWrite, StateLog, StateRecord
    from coordinator.state_view import PartitionChange, StateView


class ViewMode(Enum):
    """offsets.view.mode: whether the view is written now and then, or before every answer."""

    CACHED = "cached"
    DIRECT = "direct"


class Round:
    """Records that are written together, and who is told what when they are durable."""

    __slots__ = ("_held", "is_durable", "pending", "records")

    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self.pending: list[PendingWrite] = []
        self._held: list[tuple[Answer[object], object]] = []
        self.is_durable = False

    @property
    def held(self) -> Iterator[Answer[object]]:
        """Who waits for it."""
        return (asker for asker, _ in self._held)

    def hold(self, asker: Answer[object], outcome: object) -> None:
        self._held.append((asker, outcome))

    def release(self) -> None:
        """Groups keep the round that they were last written in: nothing of it stays but that it is durable."""
        self.is_durable = True
        held, self._held, self.records, self.pending = self._held, [], [], []
        for asker, outcome in held:
            asker.settle(outcome)

    async def append_to(self, log: StateLog, now_ms: Callable[[], int]) -> None:
        """In as few batches as the log takes. Raises StateLogFailed."""
        for batch in _batches(self.records, log):
            await log.wait_for_room()
            self.pending.append(log.append(batch, now_ms()))

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """With the last of its batches: they settle in their order."""
        last = self.pending[-1]
        if last.is_settled:
            callback()
        else:
            last.call_when_settled(callback)


class Writable(Protocol):
    """A shard, as its writer sees it. A call about a round that the shard knows no more has no effect."""

    async def write(self) -> None:
        """Append what has gathered, unless a round is on its way; call `settled` when that is over."""

    def confirm(self, written: Round) -> None:
        """It has settled; raises StateLogFailed if it is not what the log has now."""

    def take_unsaved(self) -> PartitionChange | None:
        """What the view does not have yet; whoever takes it saves it."""

    def release(self, written: Round) -> None:
        """Answer who waited for it."""

    def fail(self, error: Exception) -> None:
        """Drop everything, and begin anew."""


class RoundWriter:
    """Of one broker. It lives in `run`."""

    def __init__(self, view: StateView, view_mode: ViewMode) -> None:
        self._view = view
        self._view_mode = view_mode
        self._ready: dict[Writable, None] = {}
        self._settled: list[tuple[Writable, Round]] = []
        self._work = trio.lowlevel.ParkingLot()

    def ready(self, shard: Writable) -> None:
        """It has records to write."""
        self._ready[shard] = None
        self._wake()

    def settled(self, shard: Writable, written: Round) -> None:
        """A round of its is durable, or lost."""
        self._settled.append((shard, written))
        self._wake()

    def _wake(self) -> None:
        if self._work:  # asking is cheaper than waking nobody
            self._work.unpark()

    async def run(self) -> None:
        """Answers what is durable, then has the next rounds appended."""
        while True:
            while not self._ready and not self._settled:
                await self._work.park()
            settled, self._settled = self._settled, []
            await self._finish(settled)
            ready, self._ready = self._ready, {}
            for shard in ready:
                try:
                    await shard.write()
                except Exception as error:
                    shard.fail(error)

    async def _finish(self, settled: Sequence[tuple[Writable, Round]]) -> None:
        for shard, written in settled:
            _try(shard, shard.confirm, written)
        if self._view_mode is ViewMode.DIRECT and settled:
            await self._save([shard for shard, _ in settled])
        for shard, written in settled:
            _try(shard, shard.release, written)

    async def _save(self, shards: Sequence[Writable]) -> None:
        changes = [change for shard in shards if (change := shard.take_unsaved()) is not None]
        try:
            if changes:
                await self._view.save(changes)
        except Exception as error:
            for shard in shards:
                shard.fail(error)


def _try(shard: Writable, step: Callable[[Round], None], written: Round) -> None:
    try:
        step(written)
    except Exception as error:  # a bug that one group meets must not stop the others
        shard.fail(error)


def _batches(records: Sequence[StateRecord], log: StateLog) -> Iterator[Sequence[StateRecord]]:
    if len(records) == 1:
        yield records
        return
    first, size_bytes, size_max_bytes = 0, log.batch_overhead_bytes, log.batch_size_max_bytes
    for number, record in enumerate(records):
        record_size_bytes = log.size_of(record)
        if number > first and size_bytes + record_size_bytes > size_max_bytes:
            yield records[first:number]
            first, size_bytes = number, log.batch_overhead_bytes
        size_bytes += record_size_bytes
    yield records[first:]
