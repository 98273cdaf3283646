"""The controller's role: one broker has it at a time, and makes the cluster's metadata follow the state of its brokers.

A broker that finds the role free takes it, in a new epoch, which is in the image like everything else; a controller of
an earlier epoch finds that out by its next write. `reconcile` decides what is to be written.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from coordinator.cluster_events import ClusterCounters
from coordinator.controller import reconcile
from coordinator.controller.probes import AGAIN_S, INTERVAL_S, Probes
from coordinator.controller.recovery_questions import RecoveryQuestions
from coordinator.errors import MetadataUnavailable
from coordinator.metadata.change_log import Overtaken
from coordinator.metadata.failures import UNUSABLE, Attempts, MetadataFailures
from coordinator.metadata.nodes import encode_controller_epoch
from coordinator.metadata.plans import first_batch
from coordinator.metadata.unlogged_nodes import encode_controller
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Check, Create, Delete, Operation, Put, SessionLost
from coordinator.requests import topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage
    from coordinator.controller.probes import IsRefused
    from coordinator.controller.reconcile import IsSynced
    from coordinator.membership.membership import Membership
    from coordinator.metadata.change_log import ChangeLog
    from coordinator.metadata_store.store import MetadataStore

log = structlog.get_logger(__name__)

LEFT_OVER_S = 60.0  # how long states of no topic may be those of a topic that is being made


class Controller:
    """Stands for the role, and does the controller's work as long as this broker has it."""

    def __init__(
        self,
        store: MetadataStore,
        changes: ChangeLog,
        membership: Membership,
        prefer_interval_s: float = math.inf,
        is_refused: IsRefused | None = None,
        is_synced: IsSynced = lambda _: True,
        failures: MetadataFailures | None = None,
        recovery: RecoveryQuestions | None = None,
    ) -> None:
        """`prefer_interval_s`: how often leaders go back to the preferred replicas. `is_refused`: see `Probes`; without
        it a broker is alive as long as its session is. `is_synced`: see `reconcile`. `recovery`: without it no
        election waits for restarted replicas."""
        self._store = store
        self._changes = changes
        self._membership = membership
        self._epoch: int | None = None  # that was given to this process
        self._settled: ClusterImage | None = None  # in which nothing was left to do
        self._leftovers_seen_s: dict[bytes, float] = {}
        self._probes = Probes(is_refused) if is_refused is not None else None
        self._is_synced = is_synced
        self._attempts = Attempts(failures or MetadataFailures(), "controller")
        self._prefer_interval_s = prefer_interval_s
        self._prefer_at_s = trio.current_time() + prefer_interval_s
        self._wake = trio.Event()
        self._is_one_away = trio.Event()
        self._recovery = recovery or RecoveryQuestions(None, 0.0, ClusterCounters())

    @property
    def is_active(self) -> bool:
        """Whether this process is the controller, as far as it knows."""
        image = self._changes.image
        return image.controller_id == self._membership.me.broker_id and image.controller_epoch == self._epoch

    async def stand(self) -> None:
        """Take the role if it is free, or if its holder is gone. Raises the errors of the store."""
        while not (is_taken := await self._store.exists(paths.CONTROLLER)) or self._is_holder_gone:
            image = self._changes.image
            leftovers = [Delete(paths.CONTROLLER)] if is_taken else []
            try:
                fence = self._membership.fence
                await self._changes.commit(image, [fence], [*leftovers, *self._acquisition(image)])
            except Overtaken:
                continue
            except MetadataUnavailable:  # fenced: a broker that registers anew stands again
                return
            self._epoch, self._settled = self._changes.image.controller_epoch, None
            self._recovery.reset()
            log.info("controller elected", broker=self._membership.me.broker_id, epoch=self._epoch)

    def _acquisition(self, image: ClusterImage) -> list[Operation]:
        broker_id, epoch = self._membership.me.broker_id, image.controller_epoch + 1
        value = encode_controller_epoch(broker_id, epoch, image.extra_of(paths.CONTROLLER_EPOCH))
        raised = Put(paths.CONTROLLER_EPOCH, value, image.singles[paths.CONTROLLER_EPOCH].version)
        return [raised, Create(paths.CONTROLLER, encode_controller(broker_id, epoch), ephemeral=True)]

    async def run(self) -> None:
        """Stand for the role and do its work until the session is lost: raises SessionLost."""
        async with trio.open_nursery() as nursery:
            if self._probes is not None:
                nursery.start_soon(self._probe, self._probes)
            nursery.start_soon(self._recovery.run, lambda: self._changes.image, self._wake_up)
            while True:
                wake = self._wake = trio.Event()
                try:
                    await self._work_once(wake)
                except SessionLost:
                    raise
                except UNUSABLE as error:
                    await self._attempts.pause(error)
                    continue
                self._attempts.succeeded()
                with trio.move_on_after(self._pause_s):
                    await wake.wait()

    def _wake_up(self) -> None:
        self._wake.set()

    @property
    def _pause_s(self) -> float:
        """Seconds until there may be something to do although nothing has changed."""
        remaining_s = self._recovery.remaining_s
        return min(LEFT_OVER_S, self._prefer_interval_s, math.inf if remaining_s is None else remaining_s)

    async def _probe(self, probes: Probes) -> None:
        while True:
            await trio.sleep(AGAIN_S)
            with trio.move_on_after(0 if probes.has_suspects else INTERVAL_S - AGAIN_S):
                await self._is_one_away.wait()
            self._is_one_away = trio.Event()
            if await probes.probe(self._changes.image, self._membership.me.broker_id):
                self._wake.set()

    async def _work_once(self, wake: trio.Event) -> None:
        """Do what there is to do now; `wake` is set when there may be more."""
        await self._membership.made_alive(await self._store.children(paths.BROKERS, wake))
        if not await self._store.exists(paths.CONTROLLER, wake) or self._is_holder_gone:
            await self.stand()
        if self.is_active and (settled := await self.reconcile()) is not None:
            self._changes.wake_after(settled.version, wake)
        if not self.is_active:
            self._recovery.reset()

    async def reconcile(self) -> ClusterImage | None:
        """Fence brokers that are gone, elect, and clean up; return the image in which nothing is left to do, or None as
        soon as another broker is the controller."""
        while self.is_active:
            image = self._changes.image
            # Read after the image: a broker that is in it is not taken for dead.
            names = await self._store.children(paths.BROKERS)
            if await self._membership.made_alive(names):
                continue
            alive = {int(name) for name in names if name.isdecimal()} - self._gone(image)
            operations = self._to_do(image, alive)
            if not operations:
                self._settled = image
                return image
            with suppress(Overtaken):
                await self._write(image, operations)
        return None

    def _gone(self, image: ClusterImage) -> set[int]:
        return set() if self._probes is None else self._probes.gone(image)

    @property
    def _is_holder_gone(self) -> bool:
        """Whether the controller is gone although its session may last, or is this broker, which took the role and was
        not told."""
        image = self._changes.image
        is_own = image.controller_id == self._membership.me.broker_id
        return (is_own and not self.is_active) or image.controller_id in self._gone(image)

    def note_away(self) -> None:
        """Another broker does not answer: all are probed now."""
        self._is_one_away.set()

    async def _write(self, image: ClusterImage, operations: Sequence[Operation]) -> None:
        """Write operations, in several changes if need be: as long as no other change comes in between, they stay
        right."""
        fence = Check(paths.CONTROLLER_EPOCH, image.singles[paths.CONTROLLER_EPOCH].version)
        while batch := first_batch(operations):
            image = await self._changes.commit(image, [fence], batch)
            operations = operations[len(batch) :]

    def _to_do(self, image: ClusterImage, alive: set[int]) -> Sequence[Operation]:
        fences = reconcile.to_fence(image, alive)
        if fences:
            return fences
        machine, now_s = self._recovery.machine, trio.current_time()
        settle = reconcile.to_reconcile(image, self._settled, self._is_synced, machine, now_s)
        self._recovery.report_waits(image)
        return settle or self._to_clean(image) or self._to_prefer(image)

    def _to_prefer(self, image: ClusterImage) -> Sequence[Operation]:
        """The elections of preferred leaders, now and then: after failures a few brokers would lead everything."""
        now_s = trio.current_time()
        found = reconcile.to_prefer(image) if now_s >= self._prefer_at_s else ()
        if now_s >= self._prefer_at_s and not found:
            self._prefer_at_s = now_s + self._prefer_interval_s
        return found

    def _to_clean(self, image: ClusterImage) -> Sequence[Operation]:
        """The deletion of left-over nodes of topics whose creation or deletion was begun and not finished."""
        now_s = trio.current_time()
        self._leftovers_seen_s = {topic_id: self._leftovers_seen_s.get(topic_id, now_s) for topic_id in image.aside}
        old = (topic_id for topic_id, seen_s in self._leftovers_seen_s.items() if now_s - seen_s >= LEFT_OVER_S)
        return next(filter(None, (topics.cleaning(image, topic_id).operations for topic_id in old)), ())
