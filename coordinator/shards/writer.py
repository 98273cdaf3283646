"""The writer of commit batches: one task appends the records of all partitions of an internal topic to their logs.

A shard gathers records in a commit batch (`WriteBatch`) while its last one is on its way. The writer appends the commit
batches of all shards that have one ready in one go, so that the engine makes them durable together, and is woken once
for all that became durable together. A failure concerns one shard alone: the others go on.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from coordinator.errors import CoordinatorError, StaleProducerEpoch, TransactionCoordinatorFenced
from coordinator.shards.replies import OutboxMessage
from coordinator.state.log import StateBatch, StateMarker, has_own_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coordinator.api import Future
    from coordinator.state.cache import PartitionChange, StateCache
    from coordinator.state.log import StateLog, StateProducer, StateRecord


class CacheMode(Enum):
    """offsets.view.mode: whether the cache of coordinator state is written now and then, or before every answer."""

    CACHED = "cached"
    DIRECT = "direct"


class Waiting(Protocol):
    """A receiver of an outcome when a commit batch is durable, or of an error when it is not known whether it is."""

    def settle(self, outcome: object) -> None: ...


class WriteBatch:
    """A commit batch: records that are written together, and the answers that wait for them.

    `changes` are the records that count from then on: those that were written outside of any transaction, and those of
    transactions that are committed here.
    """

    __slots__ = (
        "_coordinator_epochs",
        "_epochs",
        "_open",
        "_plain",
        "_waiters",
        "batches",
        "changes",
        "is_durable",
        "pending",
    )

    def __init__(self) -> None:
        self.batches: list[StateBatch | StateMarker] = []
        self.changes: list[StateRecord] = []
        self.pending: list[Future[int]] = []
        self._plain: list[StateRecord] | None = None  # of the last batch, as long as it takes more
        self._epochs: dict[int, int] = {}  # by the producers whose transactions go on, or end, here
        self._coordinator_epochs: dict[int, int] = {}  # by the producers whose transactions end here
        self._open: set[int] = set()  # of those, whose transactions go on
        self._waiters: list[tuple[Waiting, object]] = []
        self.is_durable = False

    @property
    def waiters(self) -> Iterator[Waiting]:
        """The receivers that wait for it."""
        return (future for future, _ in self._waiters)

    @property
    def offset_count(self) -> int:
        """The number of offsets that it takes in the log."""
        return sum(len(one.records) if isinstance(one, StateBatch) else 1 for one in self.batches)

    def add(self, records: Sequence[StateRecord], transaction: StateProducer | StateMarker | None) -> None:
        """Add the effects of a command, behind those of the commands before."""
        if transaction is None:
            if self._plain is None:
                self._plain = []
                self.batches.append(StateBatch(self._plain))
            self._plain += records
            self.changes += records
            return
        self._plain = None
        self._epochs[transaction.producer_id] = transaction.epoch
        if isinstance(transaction, StateMarker):
            self._coordinator_epochs[transaction.producer_id] = transaction.coordinator_epoch
            self._open.discard(transaction.producer_id)
            self.batches.append(transaction)
            self.changes += records
        else:
            self._open.add(transaction.producer_id)
            self.batches.append(StateBatch(records, transaction))

    def check(self, transaction: StateProducer | StateMarker) -> None:
        """Check a transaction as the log will once it has this commit batch. Raises StaleProducerEpoch,
        TransactionCoordinatorFenced."""
        producer_id = transaction.producer_id
        epoch = self._epochs.get(producer_id, -1)
        if transaction.epoch < epoch or (
            transaction.epoch == epoch and producer_id in self._open and has_own_epoch(transaction)
        ):
            raise StaleProducerEpoch(f"producer {producer_id} has a newer epoch")
        known = self._coordinator_epochs.get(producer_id, -1)
        if isinstance(transaction, StateMarker) and transaction.coordinator_epoch < known:
            raise TransactionCoordinatorFenced(f"producer {producer_id} has a newer coordinator")

    def add_waiter(self, future: Waiting, outcome: object) -> None:
        self._waiters.append((future, outcome))

    def release(self) -> None:
        """Answer when it is durable. Tables keep the commit batch that an entry was last written in: only `is_durable`
        stays of it."""
        self.is_durable = True
        waiters, self._waiters = self._waiters, []
        self.batches, self.changes, self.pending, self._plain = [], [], [], None
        for future, outcome in waiters:
            future.settle(outcome)

    def refuse(self, refusal: CoordinatorError) -> None:
        """Refuse the requests that wait. Messages that leave when it is durable still do."""
        waiters, self._waiters = self._waiters, []
        for future, outcome in waiters:
            if isinstance(future, OutboxMessage):
                self._waiters.append((future, outcome))
            else:
                future.settle(refusal)

    async def append_to(self, log: StateLog, now_ms: Callable[[], int]) -> None:
        """Append it in as few batches as the log takes. Raises StateLogFailed."""
        self._plain = None
        for one in self.batches:
            if isinstance(one, StateMarker):
                await log.wait_for_room()
                self.pending.append(log.end_transaction(one))
                continue
            for records in _parts(one.records, log):
                await log.wait_for_room()
                self.pending.append(log.append(records, now_ms(), one.producer))

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all batches are settled. They settle in their order, but for those that the log
        refuses."""
        unsettled = [one for one in self.pending if not one.is_settled]
        if unsettled:
            unsettled[-1].call_when_settled(partial(self.call_when_settled, callback))
        else:
            callback()


class Writable(Protocol):
    """A shard, as its writer sees it. A call about a commit batch that the shard knows no more has no effect."""

    async def write(self) -> None:
        """Append the gathered records, unless a commit batch is on its way; call `settled` when that is over."""

    def confirm(self, written: WriteBatch) -> None:
        """Check a settled commit batch; raises StateLogFailed if the log has something else now."""

    def take_unsaved(self) -> PartitionChange | None:
        """Take the changes that the cache does not have yet; the caller saves them."""

    def release(self, written: WriteBatch) -> None:
        """Answer the requests that waited for it."""

    def fail(self, error: Exception) -> None:
        """Drop all state, and load it again."""


class BatchWriter:
    """The writer of one internal topic's shards on a broker. It works in `run`."""

    def __init__(self, cache: StateCache, cache_mode: CacheMode) -> None:
        self._cache = cache
        self._cache_mode = cache_mode
        self._ready: dict[Writable, None] = {}
        self._settled: list[tuple[Writable, WriteBatch]] = []
        self._work = trio.lowlevel.ParkingLot()

    def ready(self, shard: Writable) -> None:
        """The shard has records to write."""
        self._ready[shard] = None
        self._wake()

    def settled(self, shard: Writable, written: WriteBatch) -> None:
        """A commit batch of the shard is durable, or lost."""
        self._settled.append((shard, written))
        self._wake()

    def _wake(self) -> None:
        if self._work:  # the check is cheaper than an idle wake-up
            self._work.unpark()

    async def run(self) -> None:
        """Answer for durable commit batches, then append the next ones."""
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

    async def _finish(self, settled: Sequence[tuple[Writable, WriteBatch]]) -> None:
        for shard, written in settled:
            _try(shard, shard.confirm, written)
        if self._cache_mode is CacheMode.DIRECT and settled:
            await self._save([shard for shard, _ in settled])
        for shard, written in settled:
            _try(shard, shard.release, written)

    async def _save(self, shards: Sequence[Writable]) -> None:
        changes = [change for shard in shards if (change := shard.take_unsaved()) is not None]
        try:
            if changes:
                await self._cache.save(changes)
        except Exception as error:
            for shard in shards:
                shard.fail(error)


def _try(shard: Writable, step: Callable[[WriteBatch], None], written: WriteBatch) -> None:
    try:
        step(written)
    except Exception as error:  # a bug that one entry meets must not stop the others
        shard.fail(error)


def _parts(records: Sequence[StateRecord], log: StateLog) -> Iterator[Sequence[StateRecord]]:
    """The records in parts, as many at once as fit into a batch."""
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
