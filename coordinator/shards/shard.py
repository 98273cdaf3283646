"""A shard: one partition of an internal topic at work. It writes what its table decides, and answers when that is
durable.

Commands run when they come and change the table at once. Their records gather in a commit batch (`writer.Round`); while
one is on its way to the disk the next one fills, and each is appended at once. An answer is held back until the commit
batch is durable in which its entry was last written, whether or not the command itself wrote anything (RULES C1). When
the log fails, the table is dropped, all waiting requests are refused, and the partition is read anew: its durable
records decide. Records in a producer's transaction count when its marker is written; the cache of coordinator state
never has any of an open one.

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
from coordinator.shards.deps import Asker as Asker
from coordinator.shards.deps import ShardDeps as ShardDeps
from coordinator.shards.deps import TableT as TableT
from coordinator.shards.deps import ignore as ignore
from coordinator.shards.load_waiters import LoadWaiters, loading
from coordinator.shards.loading import Loading
from coordinator.shards.pending import Answer
from coordinator.shards.replies import NEWEST, Freshness, Outgoing, Reading, Wanted, reply
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

Command = Callable[[TableT, Moment, Asker], Effects[Asker]]


def _shutting_down() -> NotCoordinator:
    return NotCoordinator("this broker is shutting down")


class Shard(Generic[TableT]):
    """A shard runs for as long as this broker leads the partition in one epoch; cancel `run` to resign."""

    def __init__(
        self, topic_id: bytes, topic: str, partition: int, leader_epoch: int, world: ShardDeps[TableT]
    ) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loaded = False
        self._is_counted = True  # the loaded records are below the high watermark
        self._topic, self._name = topic, f"{topic}-{partition}"
        self._world = world
        self._table = world.new_table()
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
        self, command: Command[TableT], *, only_reads: bool = False, freshness: Wanted = None, waits: bool = False
    ) -> Asker:
        """Run a command of the table. `only_reads`: it never has records; `freshness`: of a reply that wrote nothing;
        `waits`: a moment, while the partition is read."""
        asker: Asker = Answer()  # not by the alias: that would cost five times as much
        if self.is_loaded or self._is_stopping or not waits:
            self._admit(asker, command, only_reads, freshness)
        else:
            self._early.keep(asker, lambda: self._admit(asker, command, only_reads, freshness))
        return asker

    def _admit(self, asker: Asker, command: Command[TableT], only_reads: bool, freshness: Wanted) -> None:
        if self._is_stopping:
            asker.settle(_shutting_down())
        elif not self.is_loaded:
            asker.settle(loading(self._name))
        elif not (only_reads or self.takes_writes):
            asker.settle(self._too_few())
        elif not (freshness is Freshness.MAY_FALL_BACK or self._is_counted):
            asker.settle(loading(self._name))
        else:
            self._perform(command(self._table, self._moment(), asker), freshness)

    def ask_about(self, transaction: StateProducer | StateMarker, command: Command[TableT]) -> Asker:
        """Run a command that writes in a transaction, or ends it: refused where the log would refuse it. See `ask`."""
        if self._log is not None and self.is_loaded:
            try:
                self._check(self._log, transaction)
            except CoordinatorError as error:
                asker: Asker = Answer()
                asker.settle(error.with_traceback(None))
                return asker
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

    def when_durable(self) -> Asker:
        """An answer that is settled when all decisions so far are durable."""
        asker = Asker()
        self._hold(self._newest_round(), asker, None)
        return asker

    async def run(self) -> None:
        """Reads the partition and serves it; again, when its log failed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._early.send_late_away)
                await self._keep_on_serving()
        finally:
            self._drop()
            self._early.send_away(self._not_led())

    async def _keep_on_serving(self) -> None:
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
        for asker in list(self._table.waiting()):
            asker.settle(_shutting_down())
        self._early.send_away(_shutting_down())

    def send_late_away(self, timeout_s: float) -> None:
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
                    each.send_away(self._too_few())
            if not self.takes_writes:
                for asker in list(self._table.waiting()):
                    asker.settle(self._too_few())

    async def _load(self) -> None:
        state_log = await self._world.logs.get(self.topic_id, self._topic, self.partition)
        reading = Loading(
            topic_id=self.topic_id,
            name=self._name,
            partition=self.partition,
            view=self._world.view,
            table=self._table,
            advance=self._advance,
        )
        self._is_counted = state_log.load_end_offset <= state_log.end_offset
        await reading.read(state_log)
        if self._failure is not None:  # the table that was read into is dropped already
            raise self._failure
        self._log = state_log
        self.is_loaded = True
        self._world.on_loaded()
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
        self._early.let_in()

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
                self._world.on_unsaved()
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
            self._world.writer.ready(self)

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
            await written.append_to(self._log, self._world.wall_ms)
        except StateLogFailed:
            if written is self._in_flight:
                raise
            return  # it was dropped while it waited for room
        written.call_when_settled(partial(self._world.writer.settled, self, written))

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
                self._world.writer.ready(self)

    def fail(self, error: Exception) -> None:
        self._drop()
        self._failure = error
        self._woken.set()

    def _advance(self, checkpoint: Checkpoint, changes: Collection[tuple[bytes, bytes | None]]) -> None:
        self._checkpoint = checkpoint
        if changes:
            self._unsaved.update(changes)
            self._world.on_unsaved()

    def take_unsaved(self) -> PartitionChange | None:
        if not self._unsaved or not self._is_counted:
            return None
        values, self._unsaved = self._unsaved, {}
        return PartitionChange(self.partition, self._checkpoint, values)

    def _perform(self, effects: Effects[Asker], freshness: Wanted = None) -> None:
        entry, answers, records, transaction, entries, outbox = effects
        is_written = bool(records) or transaction is not None
        if is_written:
            self._filling.add(records, transaction)
        newest = self._newest_round()
        # A new entry has no mark: the end of an older one of that name may not be durable yet.
        if entry is not None and (is_written or entry.mark is None):
            entry.mark = newest
        for each in entries:
            each.mark = newest
        mark = newest if entry is None else entry.mark
        for asker, outcome in answers:
            if is_written:
                self._hold(mark, asker, outcome)
            else:
                self._tell(mark, asker, outcome, freshness or self._world.freshness)
        for letter in outbox:
            self._hold(mark, Outgoing(partial(self._world.send, self)), letter)
        if is_written and self._in_flight is None:
            self._world.writer.ready(self)
        if self._table.next_due_ms() < self._sleeps_until_ms:
            self._woken.set()

    def _tell(self, mark: object, asker: Asker, outcome: object, freshness: Freshness) -> None:
        """Reply to a read. While nothing more becomes durable, a reply that may fall back leaves at once (RULES
        K26)."""
        is_told_now = freshness is Freshness.MAY_FALL_BACK and not self.takes_writes
        if isinstance(mark, WriteBatch) and not mark.is_durable and not is_told_now:
            mark.hold(Reading(asker, self, freshness), outcome)
        else:
            self.tell(asker, outcome, freshness)

    def tell(self, asker: Answer[object], outcome: object, freshness: Freshness) -> None:
        """See `outcomes.Confirming`."""
        reply(self._log, asker, outcome, freshness)

    def _hold(self, mark: object, asker: Waiting, outcome: object) -> None:
        if isinstance(mark, WriteBatch) and not mark.is_durable:
            mark.hold(asker, outcome)
        else:
            asker.settle(outcome)

    def _newest_round(self) -> WriteBatch | None:
        return self._filling if self._filling.batches else self._in_flight

    def _drop(self) -> None:
        """Drop all state. Waiting requests are refused, and come again, here or elsewhere."""
        self.is_loaded, self._log = False, None
        held: list[Waiting] = []
        for each in (self._in_flight, self._filling):
            held += () if each is None else each.held
        held += self._table.waiting()
        self._table = self._world.new_table()
        self._filling, self._in_flight = WriteBatch(), None
        self._unsaved = {}
        for asker in held:
            asker.settle(self._not_led())

    def _not_led(self) -> NotCoordinator:
        return NotCoordinator(f"{self._name} is not led any more")

    # Now and then

    async def ask_each(
        self, names: Callable[[TableT], Sequence[str]], command: Callable[[TableT, Moment, str], Effects[Asker]]
    ) -> None:
        """Runs a command for each entry that the table has now; not at once, if they are many. For none if they cannot
        be written: see `until_it_writes`."""
        table = self._table
        for number, name in enumerate(names(table)):
            if number % LOOKED_AT_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            if table is not self._table or not self.is_loaded or self._is_stopping or not self.takes_writes:
                return
            self._perform(command(table, self._moment(), name))

    async def until_it_writes(self) -> None:
        """Return when the table can be written, or there is nothing to write any more."""
        while not self.takes_writes:  # noqa: ASYNC110 - the log has no event for it
            await trio.sleep(RETRY_MS / 1000)

    def _moment(self) -> Moment:
        return Moment(round(trio.current_time() * 1000), self._world.wall_ms(), self._world.new_id)
