"""The queues of all log dirs: they apply a new image in time, or suspend partitions until their log dir has caught up.

Before an image is published, each partition has its role of that image, or is suspended (RULES K34, decision 44).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from kafkawire.adapters.dir_changes import DirWorker
from kafkawire.adapters.hosted import Opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from coordinator.ports import HostedPartition
    from engine.api import TopicIdPartition
    from engine.log_dirs.log_dir import LogDir
    from engine.partition_changes import PartitionChanges
    from kafkawire.adapters.dir_changes import Change
    from kafkawire.adapters.hosted import Vanished

# How long an image waits for the log dirs before it is published without the late ones. A healthy disk needs a small
# part of it; clients of other log dirs wait for the image too, and do not notice two seconds.
APPLY_MAX_S: Final = 2.0
NO_ANSWER: Final = "its log dir does not answer"

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class DirWorkers:
    """The queues of all log dirs of one broker. `carry_out`, `start_soon` and `lag_s`: see `DirWorker`; `on_late`:
    called when a log dir stops serving."""

    def __init__(
        self,
        log_dirs: Sequence[LogDir],
        changes: PartitionChanges,
        carry_out: Callable[[DirWorker, Mapping[TopicIdPartition, Change]], Awaitable[None]],
        start_soon: Callable[[Callable[[], Awaitable[None]]], None],
        on_late: Callable[[DirWorker], None],
        lag_s: Callable[[], float],
    ) -> None:
        self._changes = changes
        self._workers = {one: DirWorker(one, carry_out, start_soon, on_late, lag_s) for one in log_dirs}
        self.late: dict[
            TopicIdPartition, None
        ] = {}  # suspended and reported as not serving, until they have their roles

    def of(self, opened: Opened) -> DirWorker:
        """The worker of the partition's log dir, which is chosen if the partition has none. Raises StorageError."""
        return self._workers[self._changes.home(opened.key, opened.leader_epoch)]

    def waiting_for(self, partition: TopicIdPartition) -> Change | None:
        """The newest change of a partition that is not applied yet, or None."""
        home = self._changes.known_home(partition)
        return None if home is None else self._workers[home].changes.newest(partition)

    def newest(self, opened: Opened) -> Opened:
        """The role that waits for the partition, or the given one if none waits."""
        waiting = self.waiting_for(opened.key)
        return waiting if isinstance(waiting, Opened) else opened

    def drop(self, key: TopicIdPartition, change: HostedPartition | Vanished) -> None:
        """Queue the deletion, or the setting aside, of a partition's log, if there is one."""
        self.late.pop(key, None)
        home = self._changes.known_home(key)
        if home is None:
            return
        if not self._changes.has(key) and self._workers[home].changes.drop(key):
            self._changes.forget_home(key)
        else:
            self._workers[home].queue(key, change)

    async def until_applied(self) -> bool:
        """Wait until the changes are applied, at most `APPLY_MAX_S`, and suspend the partitions of the others. Return
        whether more partitions than before do not serve."""
        count = len(self.late)
        self._suspend()
        prompt = [one for one in self._workers.values() if not one.is_behind]
        with trio.move_on_after(APPLY_MAX_S):
            for worker in prompt:
                await worker.until_idle()
        for worker in prompt:
            if worker.is_busy:
                worker.note_behind()
        self._suspend()
        return len(self.late) > count

    def _suspend(self) -> None:
        """Suspend each partition that waits for its role, because its log dir is behind or its log is being opened
        again."""
        for worker in self._workers.values():
            waiting = worker.changes.unapplied if worker.is_behind else worker.changes.held
            for key, change in waiting.items():
                wanted = None
                if isinstance(change, Opened) and change.replaces is None:
                    wanted = change.is_led, change.leader_epoch
                self._changes.suspend(key, wanted)
                if worker.is_late and isinstance(change, Opened):
                    self.late[key] = None

    def stop_serving(self, worker: DirWorker, known: Iterable[Opened]) -> None:
        """Suspend all partitions of a log dir that has been behind for too long; each takes its role again later.
        `known`: the open partitions of all log dirs."""
        waiting = [one for one in worker.changes.unapplied.values() if isinstance(one, Opened)]
        there = {one.key: one for one in known if self._changes.known_home(one.key) is worker.log_dir}
        there |= {one.key: one for one in waiting}
        for key, one in there.items():
            if worker.changes.is_newest(key):
                worker.queue(key, one)
            self._changes.suspend(key, None)
        self.late |= dict.fromkeys(there)
        _log.error("log dir does not serve", dir=worker.log_dir.disk.path, partitions=len(there), reason=NO_ANSWER)
