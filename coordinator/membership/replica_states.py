"""The two facts of each replica of this broker, told to the cluster: does it serve, and may it lack data (RULES K8).

The host finds them out: at a start, when a log dir fails, when a log is closed, and when it is opened again. They are
written on the newest image, as many in one change as it holds. A log that is not open is opened again by and by, once
the cluster knows that it does not serve.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from coordinator.membership.lost_replicas import NOT_OPEN, replica_state_operations
from coordinator.membership.restarting_replicas import FollowedReplica, RestartingReplicas
from coordinator.metadata.change_log import Overtaken
from coordinator.metadata.plans import first_batch
from coordinator.ports import LogCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coordinator.api import ClusterImage
    from coordinator.membership.membership import Membership
    from coordinator.metadata.change_log import ChangeLog
    from coordinator.ports import FoundLog, PartitionHost

log = structlog.get_logger(__name__)

OPEN_AGAIN_INTERVAL_S = 1.0  # between looks; of each log the host knows when its time has come


class ReplicaStates:
    """The facts that are not written yet. `wake`: have `report` called. `publishing`: held while the host changes its
    open logs."""

    def __init__(
        self,
        host: PartitionHost,
        changes: ChangeLog,
        membership: Membership,
        publishing: trio.Lock,
        wake: Callable[[], None],
    ) -> None:
        self._host = host
        self._changes = changes
        self._membership = membership
        self._publishing = publishing
        self._wake = wake
        self._unreported: dict[tuple[bytes, int], FoundLog] = {}  # until all of it is told
        self._restarting = RestartingReplicas(wake)
        self._is_asked = False  # once anything has been lost or closed
        self._has_unserved = trio.Event()

    @property
    def has_away(self) -> bool:
        """Whether a log may be in a log dir that is offline."""
        return any(one.condition is LogCondition.AWAY for one in self._unreported.values())

    def found(self, logs: Iterable[FoundLog]) -> None:
        """Take the logs that a start has found, to be told."""
        self._note(logs)
        if any(one.condition in NOT_OPEN for one in self._unreported.values()):
            self.note_loss()

    def note_loss(self) -> None:
        """Note that a log dir has failed, or that a log is closed, or is open again."""
        self._is_asked = True
        self._has_unserved.set()
        self._wake()

    def forget(self) -> None:
        """Forget the logs that `report` has told, as the cluster knows them now."""
        self._unreported = {}

    async def report(self) -> None:
        """Tell the others which replicas of this broker do not serve, and which may lack data."""
        while True:
            self._note(await self._take_unserved())
            image = self._changes.image  # which is no older
            batch = first_batch([*replica_state_operations(image, self._unreported.values(), self._membership.me)])
            if not batch:
                return
            with suppress(Overtaken):
                await self._changes.commit(image, [self._membership.fence], batch)
                log.warning("replica states written", count=len(batch))

    def _note(self, logs: Iterable[FoundLog]) -> None:
        self._unreported |= {(one.hosted.topic_id, one.hosted.partition): one for one in logs}

    async def _take_unserved(self) -> Sequence[FoundLog]:
        if not self._is_asked:
            return ()
        async with self._publishing:  # which may change it
            return self._host.take_unserved()

    async def record_restart(self, topic_id: bytes, partition: int, leader_epoch: int, offset: int) -> None:
        """Record that the log of a partition, followed in that epoch, is to be discarded and to begin at `offset`;
        return when the cluster knows. Raises NotFollowedInEpoch."""
        await self._restarting.record(FollowedReplica(topic_id, partition, leader_epoch), offset)

    async def record_restarts(self) -> None:
        """Write all discards that wait in `record_restart`, in as few changes as possible."""
        while operations := self._restarting.to_write(image := self._changes.image, self._membership.me):
            batch = first_batch([*operations.values()])
            with suppress(Overtaken):
                await self._changes.commit(image, [self._membership.fence], batch)
                self._restarting.written([*operations][: len(batch)])
                log.warning("re-replications from scratch recorded", count=len(batch))

    def applied(self) -> None:
        """Note that the host has followed an image."""
        if self._host.has_unserved_changes:
            self.note_loss()

    async def open_again(self, image: Callable[[], ClusterImage]) -> None:
        """Open logs that are not open, as long as there are any; until cancelled. `image`: that the host follows."""
        while True:
            if not self._host.has_unserved:
                self._has_unserved = trio.Event()
                await self._has_unserved.wait()
            await trio.sleep(OPEN_AGAIN_INTERVAL_S)
            with trio.CancelScope(shield=True):
                async with self._publishing:
                    await self._host.open_again(image())
            self.applied()
