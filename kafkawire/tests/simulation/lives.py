"""The processes ("lives") of the broker: each starts on the files that the previous one left, and ends in order or
not."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import trio

from coordinator.groups.service import OFFSETS_TOPIC
from engine.api import PartitionLog, TopicIdPartition
from engine.errors import EngineError
from engine.partitions.partition import Partition
from kafkawire.broker import Broker, BrokerFailed, StartError
from kafkawire.config.broker_config import load
from kafkawire.run_broker import run_broker
from kafkawire.tests.simulation.group_history import NO_ERA
from kafkawire.tests.simulation.history import DirFailure, Place, ReadFailure, Restart
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.world import PowerLost, SimulatedWorld

STARTS_MAX = 60
START_WITHIN_S = 300.0
STOP_WITHIN_S = 60.0
RESTS_S = 0.01, 0.3  # between two lives


@dataclass
class Lives:
    """Runs one broker process after the other until it is told to stop."""

    shared: Shared
    world: SimulatedWorld
    properties: dict[str, str]
    loses_views: float = 0.0  # the probability that the next start finds no cache of coordinator state
    loses_indexes: float = 0.0
    rests_s: tuple[float, float] = RESTS_S
    broker: Broker | None = None
    is_over: bool = False
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _power_cut: bool | None = None  # how this life was ended; None: by itself
    _changes_of_next_life: int | None = None
    _planned_power_cut: bool = False
    _eras: dict[tuple[int, int], int] = field(default_factory=dict)  # by life and leader epoch
    _was_cut: bool = False  # a power cut came, and no broker was ready since
    _in_doubt: set[Place] = field(default_factory=set)  # a power cut came, and the log end is unknown since

    def __post_init__(self) -> None:
        self._rng = Random(f"{self.shared.seed}/lives")
        self._view_rng = Random(f"{self.shared.seed}/views")
        self.world.disk.on_end = self._end_within
        self.world.disk.on_failure = self._note_failure
        self.world.disk.on_unreadable = self._note_unreadable
        self.shared.era = self._era

    def _era(self) -> int:
        """The number of the present term in which groups are coordinated. After a lost session the broker leads in a
        new epoch, and its coordinators forget unwritten state as in a new process."""
        if self.broker is None or self.world.disk.was_hit:
            return NO_ERA
        topic = self.broker.coordinator.image.topics.get(OFFSETS_TOPIC)
        epoch = -1 if topic is None else max(one.leader_epoch for one in topic.partitions)
        return self._eras.setdefault((self.shared.history.life, epoch), len(self._eras) + 1)

    @property
    def has_lost_a_dir(self) -> bool:
        """Whether a partition is offline."""
        return self.broker is None or any(log is None for log in self._logs(self.broker).values())

    @staticmethod
    def _logs(broker: Broker) -> dict[Place, PartitionLog | None]:
        """The logs of all partitions of the metadata; None for offline ones."""
        logs: dict[Place, PartitionLog | None] = {}
        for topic in broker.coordinator.image.topics.values():
            for partition in range(len(topic.partitions)):
                try:
                    log = broker.store.get(TopicIdPartition(topic.topic_id, topic.name, partition))
                except EngineError:
                    log = None
                logs[Place(topic.topic_id, partition)] = log
        return logs

    async def run(self) -> None:
        """Run the processes."""
        starts = 0
        while not self.is_over:
            starts += 1
            if starts > STARTS_MAX:
                self.shared.history.troubles.append(f"the broker was started {STARTS_MAX} times")
                return
            await self._live()
            self._after(power_cut=self._power_cut or False)
            await trio.sleep(self._rng.uniform(*self.rests_s))

    async def _live(self) -> None:
        history = self.shared.history
        self._scope = trio.CancelScope()
        self._power_cut = None
        history.life += 1
        if self._changes_of_next_life is not None:
            self.crash_after(self._changes_of_next_life, power_cut=self._rng.random() < 0.5)
            self._changes_of_next_life = None
        config, _ = load(self.properties)

        def on_ready(broker: Broker) -> None:
            self.broker = broker
            self._note_ends(broker)
            self.shared.network.is_up = True

        try:
            with self._scope:
                await run_broker(config, self.world.start_deps(), on_ready)
        except* PowerLost:
            pass
        except* (BrokerFailed, StartError) as failure:
            self._judge_failure(failure)
        except* Exception as failure:
            if self._power_cut is None:
                history.troubles.append(f"the broker crashed by itself: {_innermost(failure)!r}")
        self.broker = None
        self.shared.network.is_up = False
        self.shared.network.cut_all()
        history.note("life ended", history.life)

    def _judge_failure(self, failure: BaseExceptionGroup[BaseException]) -> None:
        """Note trouble if the broker has failed without a failure of its dependencies."""
        reason = _innermost(failure)
        if self._power_cut is None and not self.world.excuses(reason):
            self.shared.history.troubles.append(f"the broker gave up: {reason}")

    def _after(self, *, power_cut: bool) -> None:
        """Restore disk and metadata store between two processes, and end the faults of the first."""
        self._was_cut |= power_cut or self.world.disk.has_lost_pages
        self.world.end_life()
        self.world.disk.faults.clear()
        self.world.speed.slow_s = 0.0
        self.world.restore(power_cut=power_cut, rng=self._rng)
        if self._view_rng.random() < self.loses_views:
            self.world.views.lose()
        if self.loses_indexes and self._view_rng.random() < self.loses_indexes:
            self.world.disk.lose_indexes(self.properties["log.dirs"].split(","))

    def _note_ends(self, broker: Broker) -> None:
        """Note the log ends after a start. The end of an offline partition is noted after a later start."""
        history = self.shared.history
        logs = self._logs(broker)
        if self._was_cut:
            self._in_doubt.update(logs)
            self._was_cut = False
        ends = {place: log.log_end_offset for place, log in logs.items() if log is not None}
        cut_ends = {place: end for place, end in ends.items() if place in self._in_doubt}
        self._in_doubt.difference_update(cut_ends)
        history.restarts.append(Restart(history.tick(), cut_ends))
        history.note("started", history.life, sorted(ends.items()))

    def _note_unreadable(self, path: str) -> None:
        directory = path.split("/")[-2]
        self.shared.history.read_failures.append(
            ReadFailure(self.shared.history.tick(), directory, is_at_start=self.broker is None)
        )

    def _note_failure(self, path: str) -> None:
        history = self.shared.history
        logs = {} if self.broker is None else self._logs(self.broker)
        places = {
            place
            for place, log in logs.items()
            if isinstance(log, Partition) and path.startswith(log.log_dir.disk.path + "/")
        }
        history.dir_failures.append(DirFailure(history.tick(), history.life, frozenset(places)))

    # Ends

    def end(self, *, power_cut: bool) -> None:
        """End the process in one step, at any point of its work."""
        if self._power_cut is None:
            self._power_cut = power_cut
            self.shared.network.is_up = False
            self.shared.network.cut_all()
            self.world.end_life()
            self._scope.cancel()

    def _end_within(self) -> None:
        self.end(power_cut=self._planned_power_cut)

    def crash_after(self, changes: int, *, power_cut: bool) -> None:
        """Let the process end at the file operation after that many others."""
        self._planned_power_cut = power_cut
        self.world.disk.changes_until_end = changes

    async def crash(self, *, power_cut: bool, changes_of_next_life: int | None = None) -> None:
        """End this process now; return when the next one serves."""
        life = self.shared.history.life
        self._changes_of_next_life = changes_of_next_life
        self.end(power_cut=power_cut)
        await self.next_life(life)

    async def restart_cleanly(self) -> None:
        """Stop in order, as SIGTERM does, and start again. A broker that is starting serves first: before that it
        cannot be stopped in order."""
        await self.next_life(0)
        life = self.shared.history.life
        self.stop()
        with trio.move_on_after(STOP_WITHIN_S) as waited:
            while self.broker is not None and self.shared.history.life == life:
                await trio.sleep(0.01)
        if waited.cancelled_caught:
            self.shared.history.troubles.append(f"the broker did not stop within {STOP_WITHIN_S} s")
            self.end(power_cut=False)
        await self.next_life(life)

    def stop(self) -> None:
        """Ask the broker to stop in order."""
        self.shared.network.is_up = False
        if self.broker is not None:
            self.broker.stop.set()

    async def next_life(self, than: int) -> None:
        """Wait until a process after `than` serves."""
        with trio.move_on_after(START_WITHIN_S) as waited:
            while self.shared.history.life <= than or self.broker is None:
                await trio.sleep(0.01)
        if waited.cancelled_caught:
            self.shared.history.troubles.append(f"no broker within {START_WITHIN_S} s")


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
