"""Changes of the partitions of one log dir: a queue with the newest wanted role of each, and the task that applies it.

The task runs while there is something to apply. A log dir that does not finish in time is *behind* until its queue is
empty (decision 44).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog
import trio

from coordinator.ports import HostedPartition
from kafkawire.adapters.hosted import Opened, Vanished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from engine.api import TopicIdPartition
    from engine.log_dirs.log_dir import LogDir

BATCH_MAX: Final = 256  # changes that are applied together

Change: TypeAlias = "Opened | HostedPartition | Vanished"  # a hosted partition is to be deleted

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class DirChanges:
    """The queue of one log dir: one entry a partition, in the order in which the partitions were queued first. Pure."""

    def __init__(self) -> None:
        self._pending: dict[TopicIdPartition, Change] = {}
        self._in_flight: Mapping[TopicIdPartition, Change] = {}
        self._held: set[tuple[str, int]] = set()  # topic and partition, the parts of a directory's name

    def queue(self, partition: TopicIdPartition, change: Change) -> None:
        """Queue a change in place of the one that waits. A deletion that waits is done before the new replica is
        opened."""
        before = self._pending.get(partition)
        if isinstance(change, Opened) and before is not None:
            replaces = before.replaces if isinstance(before, Opened) else before
            change = change._replace(replaces=replaces)
        self._pending[partition] = change

    def drop(self, partition: TopicIdPartition) -> bool:
        """Take back a queued opening that has not begun, and return whether there was one."""
        pending, is_busy = self._pending.get(partition), partition in self._in_flight or self._is_held(partition)
        is_untouched = not is_busy and isinstance(pending, Opened) and pending.replaces is None
        if is_untouched:
            del self._pending[partition]
        return is_untouched

    def hold(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Apply no change of these partitions until `release`, because another task works in their directories."""
        self._held |= {(one.topic, one.partition) for one in partitions}

    def release(self, partitions: Iterable[TopicIdPartition]) -> None:
        self._held -= {(one.topic, one.partition) for one in partitions}

    def take(self) -> Mapping[TopicIdPartition, Change]:
        """The changes to apply next, at most `BATCH_MAX`. The next call comes after `done`."""
        ready = islice((one for one in self._pending if not self._is_held(one)), BATCH_MAX)
        self._in_flight = {one: self._pending[one] for one in ready}
        for one in self._in_flight:
            del self._pending[one]
        return self._in_flight

    def done(self) -> None:
        """Note that the taken changes are applied, or replaced by newer ones."""
        self._in_flight = {}

    def newest(self, partition: TopicIdPartition) -> Change | None:
        """The newest change of a partition that is not applied yet, or None."""
        return self._pending.get(partition, self._in_flight.get(partition))

    def is_newest(self, partition: TopicIdPartition) -> bool:
        """Whether no newer change than the taken one waits for a partition."""
        return partition not in self._pending

    @property
    def unapplied(self) -> Mapping[TopicIdPartition, Change]:
        """The newest change of each partition with changes that are not applied."""
        return {**self._in_flight, **self._pending}

    @property
    def held(self) -> Mapping[TopicIdPartition, Change]:
        """The waiting changes of held partitions."""
        return {one: change for one, change in self._pending.items() if self._is_held(one)}

    @property
    def is_empty(self) -> bool:
        """Whether no change waits, except of held partitions."""
        return not self._in_flight and all(map(self._is_held, self._pending))

    def _is_held(self, partition: TopicIdPartition) -> bool:
        return (partition.topic, partition.partition) in self._held


class DirWorker:
    """The queue of one log dir and the task that applies it. `carry_out` applies the taken changes; `start_soon` starts
    a task; `on_late` is called once when a log dir that is behind has finished no change for `lag_s` seconds."""

    def __init__(
        self,
        log_dir: LogDir,
        carry_out: Callable[[DirWorker, Mapping[TopicIdPartition, Change]], Awaitable[None]],
        start_soon: Callable[[Callable[[], Awaitable[None]]], None],
        on_late: Callable[[DirWorker], None],
        lag_s: Callable[[], float],
    ) -> None:
        self.log_dir = log_dir
        self.changes = DirChanges()
        self.is_reopening = False  # while another task opens closed logs again
        self.is_late = False  # behind for so long that its partitions do not serve
        self._carry_out = carry_out
        self._start_soon = start_soon
        self._on_late = on_late
        self._lag_s = lag_s
        self._progress_s = 0.0  # when the task finished changes last, or began
        self._idle: trio.Event | None = None  # while the task runs
        self._watching = trio.CancelScope()

    @property
    def is_busy(self) -> bool:
        return self._idle is not None

    @property
    def is_behind(self) -> bool:
        return self.log_dir.behind_since_s is not None

    def queue(self, partition: TopicIdPartition, change: Change) -> None:
        """Queue a change, and apply it as soon as the disk allows."""
        self.changes.queue(partition, change)
        self.wake()

    def wake(self) -> None:
        """Start the task if it does not run and there is a change to apply."""
        if self._idle is None and not self.changes.is_empty:
            self._idle, self._progress_s = trio.Event(), trio.current_time()
            self._start_soon(self._run)

    async def until_idle(self) -> None:
        """Return when all changes are applied. The caller sets the deadline."""
        while self._idle is not None:
            await self._idle.wait()

    def note_behind(self) -> None:
        """Note that the log dir did not finish in time."""
        if not self.is_behind:
            self.log_dir.behind_since_s = self._progress_s
            _log.warning("log dir is behind", dir=self.log_dir.disk.path, waiting=len(self.changes.unapplied))
            self._watching = trio.CancelScope()
            self._start_soon(self._watch)

    async def _run(self) -> None:
        while batch := self.changes.take():
            await self._carry_out(self, batch)
            self.changes.done()
            self._progress_s = trio.current_time()
        assert self._idle is not None
        self._idle.set()
        self._idle = None
        if self.log_dir.behind_since_s is not None:
            behind_s = round(trio.current_time() - self.log_dir.behind_since_s, 1)
            self.log_dir.behind_since_s, self.is_late = None, False
            self._watching.cancel()
            _log.warning("log dir has caught up", dir=self.log_dir.disk.path, behind_s=behind_s)

    async def _watch(self) -> None:
        with self._watching:
            while (left_s := self._progress_s + self._lag_s() - trio.current_time()) > 0:  # noqa: ASYNC110
                await trio.sleep(left_s)
            self.is_late = True
            self._on_late(self)
