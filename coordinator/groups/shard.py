"""One partition of `__consumer_offsets` at work: what its groups decide is written, and told when it is durable.

Commands run when they come and change the table at once. Their records gather in a *round* (`writer`); while one is on
its way to the disk the next one fills, and each becomes one batch. An answer is held back until the round is durable in
which its group was last written, whether or not the command itself wrote anything (RULES C1). When the log fails, the
table is dropped, everybody is sent away, and the partition is read anew: what of it was durable decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from coordinator.errors import CoordinatorLoading, NotCoordinator
from coordinator.groups.entry import Moment
from coordinator.groups.members import NEVER_MS
from coordinator.groups.pending import Answer
from coordinator.groups.table import GroupTable
from coordinator.groups.writer import Round
from coordinator.record_fields import UnknownRecord
from coordinator.state_log import StateLogFailed
from coordinator.state_view import Checkpoint, PartitionChange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from coordinator.groups.entry import Effects
    from coordinator.groups.writer import RoundWriter
    from coordinator.state_log import StateLog, StateLogs, StateRecord
    from coordinator.state_view import StateView

log = structlog.get_logger(__name__)

RELOAD_PAUSE_S: Final = 1.0
APPLIED_PER_TURN: Final = 1_000  # records of the view, groups to sweep, before others get their turn
NO_EPOCH: Final = -1

Asker = Answer[object]
Table = GroupTable[Asker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWorld:
    """What all shards share."""

    logs: StateLogs
    view: StateView
    writer: RoundWriter
    on_unsaved: Callable[[], None]  # there is something for the view
    new_table: Callable[[], Table]
    wall_ms: Callable[[], int]
    new_id: Callable[[], str]


class Shard:
    """Runs for as long as this broker leads the partition in one epoch; cancel `run` to resign."""

    def __init__(self, topic_id: bytes, topic: str, partition: int, leader_epoch: int, world: ShardWorld) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loaded = False
        self._topic = topic
        self._world = world
        self._table = world.new_table()
        self._log: StateLog | None = None  # once it is read
        self._failure: Exception | None = None
        self._filling = Round()
        self._in_flight: Round | None = None
        self._woken = trio.Event()
        self._sleeps_until_ms = NEVER_MS
        self._checkpoint = Checkpoint(topic_id, NO_EPOCH, 0)
        self._unsaved: dict[bytes, bytes | None] = {}
        self._is_stopping = False

    @property
    def table(self) -> Table:
        """To be looked at."""
        return self._table

    def ask(self, command: Callable[[Table, Moment, Asker], Effects[Asker]]) -> Asker:
        """Runs a command of the table."""
        asker: Asker = Answer()  # not by the alias: that would cost five times as much
        if self._is_stopping:
            asker.settle(NotCoordinator("this broker is shutting down"))
        elif not self.is_loaded:
            asker.settle(CoordinatorLoading(f"{self._topic}-{self.partition} is being read"))
        else:
            self._perform(command(self._table, self._moment(), asker))
        return asker

    def when_durable(self) -> Asker:
        """Settled when everything that was decided by now is durable."""
        asker = Asker()
        self._hold(self._newest_round(), asker, None)
        return asker

    async def run(self) -> None:
        """Reads the partition and serves it; again, when its log failed."""
        try:
            while True:
                try:
                    self._failure = None
                    await self._load()
                    await self._serve()
                except StateLogFailed as error:
                    log.warning("groups are dropped", topic=self._topic, partition=self.partition, reason=str(error))
                except Exception:  # a bug that one group meets must not stop the broker
                    log.exception("groups are dropped", topic=self._topic, partition=self.partition)
                self._drop()
                await trio.sleep(RELOAD_PAUSE_S)
        finally:
            self._drop()

    def stop(self) -> None:
        """Takes no command any more, and keeps nobody waiting but for the disk."""
        self._is_stopping = True
        for asker in list(self._table.waiting()):
            asker.settle(NotCoordinator("this broker is shutting down"))

    # Loading

    async def _load(self) -> None:
        state_log = await self._world.logs.get(self.topic_id, self._topic, self.partition)
        offset = await self._load_view(state_log)
        while offset < state_log.end_offset:
            read = await state_log.read(offset)
            self._apply(read.records)
            self._note(read.records)
            offset = read.next_offset
            self._checkpoint = Checkpoint(self.topic_id, read.leader_epoch, offset)
        self._log = state_log
        self.is_loaded = True
        for effects in self._table.wake(self._moment()):
            self._perform(effects)

    async def _load_view(self, state_log: StateLog) -> int:
        """Where to read on. A view that is not of this log is forgotten (RULES C2)."""
        found = await self._world.view.load(self.partition)
        if found is not None:
            checkpoint, records = found
            if self._is_of(checkpoint, state_log):
                for first in range(0, len(records), APPLIED_PER_TURN):
                    self._apply(records[first : first + APPLIED_PER_TURN])
                    await trio.lowlevel.checkpoint()
                self._checkpoint = checkpoint
                return checkpoint.next_offset
            await self._world.view.discard(self.partition)
        self._checkpoint = Checkpoint(self.topic_id, NO_EPOCH, state_log.start_offset)
        return state_log.start_offset

    def _is_of(self, checkpoint: Checkpoint, state_log: StateLog) -> bool:
        return (
            checkpoint.topic_id == self.topic_id
            and checkpoint.next_offset >= state_log.start_offset
            and state_log.holds(checkpoint.leader_epoch, checkpoint.next_offset)
        )

    def _apply(self, records: Sequence[StateRecord]) -> None:
        for record in records:
            try:
                self._table.apply(record)
            except UnknownRecord as error:
                log.warning("record left out", topic=self._topic, partition=self.partition, reason=str(error))

    # Serving

    async def _serve(self) -> None:
        """Lets time pass, until the log fails."""
        while self._failure is None:
            self._woken = trio.Event()
            for effects in self._table.expire(self._moment()):
                self._perform(effects)
            self._sleeps_until_ms = self._table.next_due_ms()
            with trio.move_on_at(self._sleeps_until_ms / 1000):
                await self._woken.wait()
            self._sleeps_until_ms = NEVER_MS
        raise self._failure

    # Writing: what the writer calls, see `writer.Writable`

    async def write(self) -> None:
        if self._log is None or self._in_flight is not None or not self._filling.records:
            return
        written = self._in_flight = self._filling
        self._filling = Round()
        try:
            await written.append_to(self._log, self._world.wall_ms)
        except StateLogFailed:
            if written is self._in_flight:
                raise
            return  # it was dropped while it waited for room
        written.call_when_settled(partial(self._world.writer.settled, self, written))

    def confirm(self, written: Round) -> None:
        if written is not self._in_flight or self._log is None:
            return
        end_offset = [one.result() for one in written.pending][-1]
        if end_offset - self._checkpoint.next_offset != len(written.records):
            written.release()
            raise StateLogFailed("somebody else writes to it")  # as an administrator's tool may
        self._checkpoint = Checkpoint(self.topic_id, self._log.leader_epoch, end_offset)  # with all of its records
        self._note(written.records)

    def release(self, written: Round) -> None:
        if written is self._in_flight:
            self._in_flight = None
            written.release()
            if self._filling.records:
                self._world.writer.ready(self)

    def fail(self, error: Exception) -> None:
        self._drop()
        self._failure = error
        self._woken.set()

    def _note(self, records: Sequence[StateRecord]) -> None:
        self._unsaved.update(records)
        self._world.on_unsaved()

    def take_unsaved(self) -> PartitionChange | None:
        if not self._unsaved:
            return None
        values, self._unsaved = self._unsaved, {}
        return PartitionChange(self.partition, self._checkpoint, values)

    def _perform(self, effects: Effects[Asker]) -> None:
        entry, answers, records = effects
        self._filling.records += records
        newest = self._newest_round()
        # A new one has no mark: what was under its id may not be gone yet.
        if entry is not None and (records or entry.mark is None):
            entry.mark = newest
        mark = newest if entry is None else entry.mark
        for asker, outcome in answers:
            self._hold(mark, asker, outcome)
        if records and self._in_flight is None:
            self._world.writer.ready(self)
        if self._table.next_due_ms() < self._sleeps_until_ms:
            self._woken.set()

    def _hold(self, mark: object, asker: Asker, outcome: object) -> None:
        if isinstance(mark, Round) and not mark.is_durable:
            mark.hold(asker, outcome)
        else:
            asker.settle(outcome)

    def _newest_round(self) -> Round | None:
        return self._filling if self._filling.records else self._in_flight

    def _drop(self) -> None:
        """Nothing is known any more. Whoever waits asks again, here or elsewhere."""
        self.is_loaded, self._log = False, None
        held = [asker for each in (self._in_flight, self._filling) if each is not None for asker in each.held]
        held += self._table.waiting()
        self._table = self._world.new_table()
        self._filling, self._in_flight = Round(), None
        self._unsaved = {}
        for asker in held:
            asker.settle(NotCoordinator(f"{self._topic}-{self.partition} is not led any more"))

    # Now and then

    async def sweep(self) -> None:
        """Lets go of what has expired."""
        await self._for_each_group(lambda table, group_id: table.sweep(self._moment(), group_id))

    async def forget_topics(self, topics: Collection[str], deleted_ms: int) -> None:
        """They were deleted then."""
        await self._for_each_group(lambda table, group_id: table.forget_topics(group_id, topics, deleted_ms))

    async def _for_each_group(self, command: Callable[[Table, str], Effects[Asker]]) -> None:
        table = self._table
        for number, group_id in enumerate(table.group_ids()):
            if number % APPLIED_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            if table is not self._table or not self.is_loaded:
                return
            self._perform(command(table, group_id))

    def _moment(self) -> Moment:
        return Moment(round(trio.current_time() * 1000), self._world.wall_ms(), self._world.new_id)
