"""A shard: one partition of an internal topic at work. It writes what its table decides, and answers when that is
durable.

Commands run when they come and change the table at once. Their records gather in a commit batch (a `WriteBatch`);
while one is on its way to the disk the next one fills, and each is appended at once. An answer is held back until the
commit batch is durable in which its entry was last written, whether or not the command itself wrote anything (RULES
C1). When the log fails, the table is dropped, all waiting requests are refused, and the partition is read again: its
durable records decide. Records in a producer's transaction count when its marker is written; the cache of coordinator
state never has any of an open one.

While too few replicas are in sync only reads are taken: a command that would write is refused before the table changes,
and time stands still for the table (RULES K26). Writes that were on their way then count when there are enough again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic

import structlog
import trio

from coordinator.api import NO_EPOCH
from coordinator.errors import CoordinatorError, CoordinatorNotAvailable, NotCoordinator
from coordinator.futures import SettableFuture
from coordinator.shards.deps import ReplyFuture as ReplyFuture
from coordinator.shards.deps import ShardDeps as ShardDeps
from coordinator.shards.deps import TableT as TableT
from coordinator.shards.deps import ignore as ignore
from coordinator.shards.load_waiters import LoadWaiters, loading
from coordinator.shards.loading import Loading
from coordinator.shards.replies import NEWEST, Freshness, OptionalFreshness, OutboxMessage, ReadReply, reply
from coordinator.shards.table import NEVER_MS, Effects, Moment
from coordinator.shards.writer import WriteBatch
from coordinator.state.cache import Checkpoint, PartitionChange
from coordinator.state.log import StateLogFailed, StateMarker

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coordinator.shards.writer import Waiting
    from coordinator.state.log import StateLog, StateProducer

log = structlog.get_logger(__name__)

RELOAD_PAUSE_S: Final = 1.0
RETRY_MS: Final = 500  # while too few replicas are in sync; Kafka's CoordinatorRuntime tries its timers as often
LOOKED_AT_PER_TURN: Final = 1_000  # entries, before others get their turn

Command = Callable[[TableT, Moment, ReplyFuture], Effects[ReplyFuture]]


def _shutting_down() -> NotCoordinator:
    return NotCoordinator("this broker is shutting down")


class Shard(Generic[TableT]):
    """A shard runs for as long as this broker leads the partition in one epoch; cancel `run` to resign."""

    def __init__(self, topic_id: bytes, topic: str, partition: int, leader_epoch: int, deps: ShardDeps[TableT]) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loaded = False
        self._is_counted = True  # the loaded records are below the high watermark
        self._topic, self._name = topic, f"{topic}-{partition}"
        self._deps = deps
        self._table = deps.new_table()
        self._log: StateLog | None = None  # once it is read
        self._failure: Exception | None = None
        self._filling = WriteBatch()
        self._in_flight: WriteBatch | None = None
        self._woken = trio.Event()
        self._sleeps_until_ms = NEVER_MS
        self._checkpoint = Checkpoint(topic_id, NO_EPOCH, 0, 0)
        self._unsaved: dict[bytes, bytes | None] = {}
        self._early = LoadWaiters(self._name)
        self._is_stopping = False
        self._late: tuple[WriteBatch | None, float] = (
            None,
            0.0,
        )  # the commit batch that the log owed first, and since when

    @property
    def table(self) -> TableT:
        """The table, only to be read."""
        return self._table

    @property
    def takes_writes(self) -> bool:
        """Whether enough replicas are in sync, and the high watermark has passed the loaded records; True if the
        partition is being read, or is not led any more, as nothing is known of it then."""
        return self._log is None or (self._is_counted and self._log.takes_writes)

    @property
    def is_current(self) -> bool:
        """Whether a reply that may be stale may leave now (RULES K24)."""
        return self._log is not None and self._log.is_current

    def ask(
        self,
        command: Command[TableT],
        *,
        only_reads: bool = False,
        freshness: OptionalFreshness = None,
        waits: bool = False,
    ) -> ReplyFuture:
        """Run a command of the table. `only_reads`: it never has records; `freshness`: of a reply that wrote nothing;
        `waits`: a moment, while the partition is read."""
        future: ReplyFuture = SettableFuture()  # not by the alias: that would cost five times as much
        if self.is_loaded or self._is_stopping or not waits:
            self._admit(future, command, only_reads, freshness)
        else:
            self._early.add(future, lambda: self._admit(future, command, only_reads, freshness))
        return future

    def _admit(
        self, future: ReplyFuture, command: Command[TableT], only_reads: bool, freshness: OptionalFreshness
    ) -> None:
        if self._is_stopping:
            future.settle(_shutting_down())
        elif not self.is_loaded:
            future.settle(loading(self._name))
        elif not (only_reads or self.takes_writes):
            future.settle(self._too_few())
        elif not (freshness is Freshness.MAY_FALL_BACK or self._is_counted):
            future.settle(loading(self._name))
        else:
            self._perform(command(self._table, self._moment(), future), freshness)

    def ask_about(self, transaction: StateProducer | StateMarker, command: Command[TableT]) -> ReplyFuture:
        """Run a command that writes in a transaction, or ends it: refused where the log would refuse it. See `ask`."""
        if self._log is not None and self.is_loaded:
            try:
                self._check(self._log, transaction)
            except CoordinatorError as error:
                future: ReplyFuture = SettableFuture()
                future.settle(error.with_traceback(None))
                return future
            except StateLogFailed as error:
                self.fail(error)
        return self.ask(command, freshness=NEWEST)

    def _check(self, state_log: StateLog, transaction: StateProducer | StateMarker) -> None:
        """Check the transaction against the appended records, and those about to be appended."""
        state_log.check(transaction)
        for each in (self._in_flight, self._filling):
            if each is not None:
                each.check(transaction)

    def _too_few(self) -> CoordinatorNotAvailable:
        return CoordinatorNotAvailable(f"{self._name} has too few replicas in sync")

    def when_durable(self) -> ReplyFuture:
        """An answer that is settled when all decisions so far are durable."""
        future = ReplyFuture()
        self._settle_when_durable(self._newest_batch(), future, None)
        return future

    async def run(self) -> None:
        """Reads the partition and serves it; again, when its log failed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._early.refuse_late)
                await self._serve_until_cancelled()
        finally:
            self._drop()
            self._early.refuse(self._not_led())

    async def _serve_until_cancelled(self) -> None:
        while True:
            try:
                self._failure = None
                await self._load()
                await self._serve()
            except StateLogFailed as error:
                log.log(error.level, "coordinator state dropped", partition=self._name, reason=str(error))
            except Exception:  # a bug that one entry meets must not stop the broker
                log.exception("coordinator state dropped", partition=self._name)
            self._drop()
            await trio.sleep(RELOAD_PAUSE_S)

    def stop(self) -> None:
        """Take no command any more, and let requests wait for the disk alone."""
        self._is_stopping = True
        for future in list(self._table.waiting()):
            future.settle(_shutting_down())
        self._early.refuse(_shutting_down())

    def refuse_late(self, timeout_s: float) -> None:
        """Refuse requests that the log has kept waiting for so long; called now and then. Their writes may yet become
        durable, but no client waits for them, as in Kafka. So it is for requests that wait for other members while the
        table's time stands still."""
        owed = self._in_flight or (self._filling if self._filling.batches else None)
        is_stuck = owed is not None or not self.takes_writes
        now_s = trio.current_time()
        if not is_stuck or owed is not self._late[0]:
            self._late = owed, now_s
        elif now_s - self._late[1] >= timeout_s:
            for each in (self._in_flight, self._filling):
                if each is not None:
                    each.refuse(self._too_few())
            if not self.takes_writes:
                for future in list(self._table.waiting()):
                    future.settle(self._too_few())

    async def _load(self) -> None:
        state_log = await self._deps.logs.get(self.topic_id, self._topic, self.partition)
        reading = Loading(
            topic_id=self.topic_id,
            name=self._name,
            partition=self.partition,
            cache=self._deps.cache,
            table=self._table,
            advance=self._advance,
        )
        self._is_counted = state_log.load_end_offset <= state_log.end_offset
        await reading.read(state_log)
        if self._failure is not None:  # the table that was read into is dropped already
            raise self._failure
        self._log = state_log
        self.is_loaded = True
        self._deps.on_loaded()
        if self._is_counted:
            self._begin()
        else:
            self._table.forget_remnants()
            log.warning(
                "coordinator loaded for reads alone",
                partition=self._name,
                epoch=self.leader_epoch,
                high_watermark=state_log.end_offset,
                end_offset=self._checkpoint.next_offset,
            )
        self._early.release()

    def _begin(self) -> None:
        """Start time for the table, and send out its decisions: all of its state is below the high watermark."""
        for effects in self._table.wake(self._moment()):
            self._perform(effects)

    def _count(self, state_log: StateLog) -> None:
        """Note whether the high watermark has passed the loaded records. A part of them does not count: the rest may
        yet be truncated."""
        if not self._is_counted and state_log.end_offset >= self._checkpoint.next_offset:
            self._is_counted = True
            log.info("coordinator writes resumed", partition=self._name, epoch=self.leader_epoch)
            if self._unsaved:
                self._deps.on_unsaved()
            self._begin()

    # Serving

    async def _serve(self) -> None:
        """Lets time pass, until the log fails."""
        while self._failure is None:
            self._woken = trio.Event()
            if self._log is not None:
                self._count(self._log)
            if self.takes_writes:
                self._go_on()
                self._sleeps_until_ms = self._table.next_due_ms()
            else:
                self._sleeps_until_ms = self._moment().now_ms + RETRY_MS
            with trio.move_on_at(self._sleeps_until_ms / 1000):
                await self._woken.wait()
            self._sleeps_until_ms = NEVER_MS
        raise self._failure

    def _go_on(self) -> None:
        for effects in self._table.expire(self._moment()):
            self._perform(effects)
        if self._filling.batches and self._in_flight is None:  # there may have been too few replicas for it
            self._deps.writer.ready(self)

    # Writing: calls of the writer, see `writer.Writable`

    async def write(self) -> None:
        if self._log is None or self._in_flight is not None or not self._filling.batches:
            return
        if not self.takes_writes:
            self._woken.set()
            return
        written = self._in_flight = self._filling
        self._filling = WriteBatch()
        try:
            await written.append_to(self._log, self._deps.wall_ms)
        except StateLogFailed:
            if written is self._in_flight:
                raise
            return  # it was dropped while it waited for room
        written.call_when_settled(partial(self._deps.writer.settled, self, written))

    def confirm(self, written: WriteBatch) -> None:
        if written is not self._in_flight or self._log is None:
            return
        end_offset = [one.result() for one in written.pending][-1]
        if end_offset - self._checkpoint.next_offset != written.offset_count:
            written.release()
            raise StateLogFailed("another writer appends to it")  # as an administrator's tool may
        replay_offset = min(end_offset, self._log.stable_offset)
        checkpoint = Checkpoint(self.topic_id, self._log.leader_epoch, end_offset, replay_offset)
        self._advance(checkpoint, written.changes)  # with all of its records

    def release(self, written: WriteBatch) -> None:
        if written is self._in_flight:
            self._in_flight = None
            written.release()
            if self._filling.batches:
                self._deps.writer.ready(self)

    def fail(self, error: Exception) -> None:
        self._drop()
        self._failure = error
        self._woken.set()

    def _advance(self, checkpoint: Checkpoint, changes: Collection[tuple[bytes, bytes | None]]) -> None:
        self._checkpoint = checkpoint
        if changes:
            self._unsaved.update(changes)
            self._deps.on_unsaved()

    def take_unsaved(self) -> PartitionChange | None:
        if not self._unsaved or not self._is_counted:
            return None
        values, self._unsaved = self._unsaved, {}
        return PartitionChange(self.partition, self._checkpoint, values)

    def _perform(self, effects: Effects[ReplyFuture], freshness: OptionalFreshness = None) -> None:
        entry, answers, records, transaction, entries, outbox = effects
        is_written = bool(records) or transaction is not None
        if is_written:
            self._filling.add(records, transaction)
        newest = self._newest_batch()
        # A new entry has no last batch: the end of an older one of that name may not be durable yet.
        if entry is not None and (is_written or entry.last_batch is None):
            entry.last_batch = newest
        for each in entries:
            each.last_batch = newest
        last_batch = newest if entry is None else entry.last_batch
        for future, outcome in answers:
            if is_written:
                self._settle_when_durable(last_batch, future, outcome)
            else:
                self._reply_to_read(last_batch, future, outcome, freshness or self._deps.freshness)
        for letter in outbox:
            self._settle_when_durable(last_batch, OutboxMessage(partial(self._deps.send, self)), letter)
        if is_written and self._in_flight is None:
            self._deps.writer.ready(self)
        if self._table.next_due_ms() < self._sleeps_until_ms:
            self._woken.set()

    def _reply_to_read(self, batch: object, future: ReplyFuture, outcome: object, freshness: Freshness) -> None:
        """Reply to a read. While nothing more becomes durable, a reply that may fall back leaves at once (RULES
        K26)."""
        leaves_now = freshness is Freshness.MAY_FALL_BACK and not self.takes_writes
        if isinstance(batch, WriteBatch) and not batch.is_durable and not leaves_now:
            batch.add_waiter(ReadReply(future, self, freshness), outcome)
        else:
            self.reply(future, outcome, freshness)

    def reply(self, future: SettableFuture[object], outcome: object, freshness: Freshness) -> None:
        """See `replies.ReplyingShard`."""
        reply(self._log, future, outcome, freshness)

    def _settle_when_durable(self, batch: object, future: Waiting, outcome: object) -> None:
        if isinstance(batch, WriteBatch) and not batch.is_durable:
            batch.add_waiter(future, outcome)
        else:
            future.settle(outcome)

    def _newest_batch(self) -> WriteBatch | None:
        return self._filling if self._filling.batches else self._in_flight

    def _drop(self) -> None:
        """Drop all state. Waiting requests are refused, and come again, here or elsewhere."""
        self.is_loaded, self._log = False, None
        waiters: list[Waiting] = []
        for each in (self._in_flight, self._filling):
            waiters += () if each is None else each.waiters
        waiters += self._table.waiting()
        self._table = self._deps.new_table()
        self._filling, self._in_flight = WriteBatch(), None
        self._unsaved = {}
        for future in waiters:
            future.settle(self._not_led())

    def _not_led(self) -> NotCoordinator:
        return NotCoordinator(f"{self._name} is not led any more")

    # Now and then

    async def ask_each(
        self, names: Callable[[TableT], Sequence[str]], command: Callable[[TableT, Moment, str], Effects[ReplyFuture]]
    ) -> None:
        """Runs a command for each entry that the table has now; not at once, if they are many. For none if they cannot
        be written: see `wait_until_writable`."""
        table = self._table
        for number, name in enumerate(names(table)):
            if number % LOOKED_AT_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            if table is not self._table or not self.is_loaded or self._is_stopping or not self.takes_writes:
                return
            self._perform(command(table, self._moment(), name))

    async def wait_until_writable(self) -> None:
        """Return when the table can be written, or there is nothing to write any more."""
        while not self.takes_writes:  # noqa: ASYNC110 - the log has no event for it
            await trio.sleep(RETRY_MS / 1000)

    def _moment(self) -> Moment:
        return Moment(round(trio.current_time() * 1000), self._deps.wall_ms(), self._deps.new_id)
