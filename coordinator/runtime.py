"""The shell around the control plane's pure parts: it carries out what is decided, and publishes images.

There are two images: the newest one, on which everything is decided (`cluster.change_log`), and the one that is
published, which the host has caught up with, so that what it shows can be used. Produce and fetch do not pass through;
when the store is away they go on with the last image, and only changes are refused.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog
import trio

from coordinator.api import BrokerEndpoint, BrokerInfo, BrokerState, ClusterImage, TopicInfo
from coordinator.cluster import controller, features, in_sync, layout, settlement
from coordinator.cluster.change_log import ChangeLog, Overtaken
from coordinator.cluster.controllership import Controllership
from coordinator.cluster.decisions import Decisions
from coordinator.cluster.giving_up import Followed, GivingUp
from coordinator.cluster.hosting import host_changes, hosted_by
from coordinator.cluster.membership import Membership
from coordinator.cluster.plans import Plan, first_batch
from coordinator.cluster.repudiation import to_repudiate
from coordinator.cluster.tier import TierRegister
from coordinator.errors import CannotStart, MetadataUnavailable
from coordinator.metadata.store import ConnectionLost, SessionLost, StoreError
from coordinator.requested import RequestedChanges, topic_of
from coordinator.transactions.producer_ids import ProducerIds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from coordinator.api import FeatureRange
    from coordinator.cluster.in_sync import IsrChange
    from coordinator.cluster.probes import IsRefused
    from coordinator.metadata.store import MetadataStore
    from coordinator.ports import ConfigValidator, Held, PartitionHost

    Decide = Callable[[ClusterImage], Plan]

log = structlog.get_logger(__name__)

DECIDE_TIMEOUT_S = 10.0  # how long a request is decided again because others write in between
RECONNECT_PAUSE_S = 0.5
LEAVE_TIMEOUT_S = 15.0
# Longer than a busy client takes to ask again. Kafka's brokers stay for 50 ms, or 2 s more (BrokerLifecycleManager).
REDIRECTING_S = 1.0


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """This broker's identity and what it is configured for."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    defaults: controller.TopicDefaults = field(default_factory=controller.TopicDefaults)
    registration_timeout_s: float = 30.0
    prefer_interval_s: float = 300.0  # how often leaders go back to where they were placed
    is_refused: IsRefused | None = None  # see `coordinator.cluster.probes`
    on_new_life: Callable[[], None] = lambda: None  # see `coordinator.cluster.membership`


class Coordinator(RequestedChanges):
    """The control plane of one broker; a `ClusterService`.

    Life: `start`, then `run` in a task for as long as the broker lives. The store is the caller's to close, after.
    """

    def __init__(
        self,
        store: MetadataStore,
        host: PartitionHost,
        validator: ConfigValidator,
        settings: CoordinatorSettings,
        random: Random,
    ) -> None:
        super().__init__(Decisions(validator, settings.defaults), random)
        self._store = store
        self._producer_ids = ProducerIds(store)
        self.tier = TierRegister(store)
        self._host = host
        self._settings = settings
        self._changes = ChangeLog(store, settings.broker_id, random)
        broker = BrokerInfo(settings.broker_id, settings.endpoints, settings.rack)
        self._membership = Membership(store, self._changes, broker, random, settings.on_new_life)
        prefer_s, is_refused = settings.prefer_interval_s, settings.is_refused
        self._controllership = Controllership(
            store, self._changes, self._membership, prefer_s, is_refused, validator.is_synced
        )
        self._log_dirs: Sequence[str] = ()
        self._held: Sequence[Held] = ()  # what a start has found, until all of it is told
        self._image = self._recovered = self._changes.image
        self._has_losses = False  # on log dirs that have failed
        self._giving_up = GivingUp(self._look)
        self._wake = trio.Event()
        self._published = trio.Event()
        self._is_leaving = self._has_left = False
        self._is_joining_again = False
        self._publishing = trio.Lock()

    @property
    def image(self) -> ClusterImage:
        """See `ClusterService`."""
        return self._image

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """See `ClusterService`."""
        return features.SUPPORTED

    @property
    def incarnation(self) -> bytes:
        """Names this broker's registration among all that there ever were."""
        return self._membership.me.incarnation

    @property
    def broker_epoch(self) -> int:
        """Counts this broker's registrations."""
        return self._membership.me.epoch

    @property
    def has_session(self) -> bool:
        """Whether the cluster counts on this process, as far as it knows."""
        return not (self._is_joining_again or self._membership.is_fenced)

    @property
    def is_leaving(self) -> bool:
        """Whether the others are told, or will be, that this broker stops."""
        return self._is_leaving

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._controllership.is_active

    async def start(self) -> None:
        """Joins the cluster. When it returns, the cluster counts on this broker; and if it is the controller, every
        partition it leads is open, in an epoch that was given to this process.

        Raises: CannotStart.
        """
        try:
            cluster_id = await layout.cluster_id(self._store, self._random)
            await self._changes.load(cluster_id)
            self._log_dirs = await self._host.start(self._changes.image)
            self._recovered = self._changes.image
            hosted = hosted_by(self._recovered, self._settings.broker_id)
            self._held = await self._host.recover(hosted, self._recovered)
            await self._join()
        except (StoreError, MetadataUnavailable) as error:
            raise CannotStart(f"the metadata store did not answer: {error!r}") from error

    async def _join(self) -> None:
        """Gets in, in a new life, and does what there is to do for a controller if it is one now."""
        await self._membership.register(self._log_dirs, self._settings.registration_timeout_s)
        await self._repudiate()
        await self._controllership.stand()
        await self._membership.become(BrokerState.SERVING)
        self._held = ()
        if self._controllership.is_active:
            await self._controllership.settle()
        await self._publish()

    async def _repudiate(self) -> None:
        """Tells the others what this broker has not got (RULES K8)."""
        while True:
            found = [*self._held, *(await self._lost())]
            image = self._changes.image  # which is no older
            held = {(one.hosted.topic_id, one.hosted.partition): one for one in found}
            batch = first_batch([*to_repudiate(image, held.values(), self._membership.me)])
            if not batch:
                return
            with suppress(Overtaken):
                await self._changes.commit(image, [self._membership.fence], batch)
                log.warning("replicas here may lack what was acknowledged", partitions=len(batch))

    async def _lost(self) -> Sequence[Held]:
        if not self._has_losses:
            return ()
        async with self._publishing:  # a log that is being made is not lost
            return self._host.lost()

    def note_loss(self) -> None:
        """A log dir has failed."""
        self._has_losses = True
        self._look()

    async def give_up(self, topic_id: bytes, partition: int, leader_epoch: int, offset: int) -> None:
        """Before the log of a partition that is followed in that epoch is emptied, and begins at that offset: returns
        when the others know (RULES K8). Raises NotFollowedSo."""
        await self._giving_up.tell(Followed(topic_id, partition, leader_epoch), offset)

    async def _tell_of_giving_up(self) -> None:
        while told := self._giving_up.to_write(image := self._changes.image, self._membership.me):
            batch = first_batch([*told.values()])
            with suppress(Overtaken):
                await self._changes.commit(image, [self._membership.fence], batch)
                self._giving_up.written([*told][: len(batch)])
                log.warning("replicas here begin anew, and lack what was acknowledged", partitions=len(batch))

    def _look(self) -> None:
        self._wake.set()

    def note_away(self) -> None:
        """Another broker does not answer: see `Controllership`."""
        self._controllership.note_away()

    async def run(self) -> None:
        """Takes part in the cluster until the store is closed, and joins again when it was taken for dead."""
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._controllership.run)
                    await self._follow()
                    nursery.cancel_scope.cancel()
            except* SessionLost:
                pass
            self._is_joining_again = True
            if not await self._rejoined():
                return
            self._is_joining_again = False

    async def leave(self) -> None:
        """Before an orderly stop: lets the others lead what they can, for a while; then clients are told for a moment
        who leads, before they find nobody. `run` goes on meanwhile.

        Afterwards nobody listens where this broker did, so the others may take it for dead: it does not join again.
        """
        image, broker_id = self._changes.image, self._settings.broker_id
        if settlement.others_serving(image, broker_id):
            await self._hand_over()
            if settlement.leads_what_others_can(image, broker_id):
                await trio.sleep(REDIRECTING_S)
        self._has_left = True

    async def _hand_over(self) -> None:
        with trio.move_on_after(LEAVE_TIMEOUT_S), suppress(StoreError, MetadataUnavailable):
            await self._say_it_leaves()
            while settlement.leads_what_others_can(self._changes.image, self._settings.broker_id):
                wake = trio.Event()
                self._changes.wake_after(self._changes.image.version, wake)
                await wake.wait()

    async def _say_it_leaves(self) -> None:
        """Nobody waits for who has left (RULES K24). So it outwaits first whoever led before it, answers no more from
        what it alone knows, and then says so on top of an image that it goes by."""
        while True:
            await self._publish()
            while (left_ms := self._host.outwaits_in_ms) > 0:  # noqa: ASYNC110 - it tells the time itself
                await trio.sleep(left_ms / 1000)
            self._is_leaving = True
            if await self._membership.became(BrokerState.LEAVING, self._image):
                return

    async def _follow(self) -> None:
        """Takes changes as they come, until the session is lost or the cluster does not count on this process."""
        while not self._membership.is_fenced:
            wake = self._wake = trio.Event()
            try:
                await self._changes.catch_up(wake)
                await self._repudiate()
                await self._tell_of_giving_up()
            except (ConnectionLost, MetadataUnavailable):
                await trio.sleep(RECONNECT_PAUSE_S)
                continue
            await self._publish()
            await wake.wait()

    async def _rejoined(self) -> bool:
        """Begins a new life, with a new session if need be; False when the store will never have one again, or this
        process has left."""
        if not self._has_left:
            log.warning("this broker is no longer registered, and registers anew", broker_id=self._settings.broker_id)
        while not self._has_left:
            try:
                await self._changes.catch_up()
                await self._join()
            except SessionLost:
                if not await self._renewed():
                    return False
            except (StoreError, MetadataUnavailable, CannotStart) as error:
                log.warning("this broker is not registered yet", error=repr(error))
                await trio.sleep(RECONNECT_PAUSE_S)
            else:
                return True
        return False

    async def _renewed(self) -> bool:
        try:
            await self._store.renew()
        except SessionLost:
            return False
        except ConnectionLost:
            await trio.sleep(RECONNECT_PAUSE_S)
        return True

    async def _publish(self) -> None:
        """Lets the host follow first: what the image shows can be used. Once begun it is finished."""
        with trio.CancelScope(shield=True):
            async with self._publishing:
                new, me = self._changes.image, self._membership.me
                if new is self._image:
                    return
                if new.broker_configs != self._image.broker_configs:
                    await self._host.configure(new.broker_configs)
                changes = host_changes(self._image, new, me)
                if self._recovered is not self._image:  # nothing was published since the start
                    changes.dropped.extend(host_changes(self._recovered, new, me).dropped)
                if changes:
                    await self._host.apply(changes)
                self._recovered = new
                self._image = new
                self._published.set()
                self._published = trio.Event()

    async def change_isr(self, version: int, changes: Sequence[IsrChange]) -> None:
        """Writes what leaders want that have seen the image of that version, unless there is a newer one; the next
        image tells what has become of it (RULES K5). Raises MetadataUnavailable."""
        try:
            image = self._changes.image
            wanted = in_sync.to_write(image, changes, self._membership.me) if image.version == version else ()
            if batch := first_batch([*wanted]):
                with trio.CancelScope(shield=True), suppress(Overtaken):
                    await self._changes.commit(image, [self._membership.fence], batch)
        except (ConnectionLost, SessionLost) as error:
            raise MetadataUnavailable("The metadata store does not answer.") from error
        finally:
            await self._publish()

    async def new_producer_id(self) -> int:
        """See `ClusterService`."""
        return await self._producer_ids.next_id()

    async def wait_for_image_after(self, version: int) -> ClusterImage:
        """See `ClusterService`."""
        while self._image.version <= version:
            await self._published.wait()
        return self._image

    async def delete_topic(self, topic: str | bytes) -> TopicInfo:
        """See `ClusterService`."""
        deleted = topic_of(await self._change(lambda image: self._decisions.deletion(image, topic)))
        await self._clean(deleted)
        return deleted

    async def _change(self, decide: Decide, *, validate_only: bool = False) -> Plan:
        """Decides on the newest image and makes it so. What the decision was made on is published in any case."""
        try:
            await self._store.sync()
            await self._changes.catch_up()
            return decide(self._changes.image) if validate_only else await self._carried_out(decide)
        except (ConnectionLost, SessionLost) as error:
            raise MetadataUnavailable("The metadata store does not answer.") from error
        finally:
            await self._publish()

    async def _carried_out(self, decide: Decide) -> Plan:
        """In as many changes as it takes, each decided on the image before it; once begun it is finished."""
        deadline_s = trio.current_time() + DECIDE_TIMEOUT_S
        with trio.CancelScope(shield=True):
            while trio.current_time() < deadline_s:
                image = self._changes.image
                plan = decide(image)
                batch = first_batch(plan.operations)
                if not batch:
                    return plan
                with suppress(Overtaken):
                    await self._changes.commit(image, [self._membership.fence], batch)
                    if len(batch) == len(plan.operations):
                        return plan
        raise MetadataUnavailable("The cluster's metadata kept changing meanwhile.")

    async def _clean(self, topic: TopicInfo) -> None:
        """What cannot be cleaned now is left to the controller."""
        if topic.topic_id not in self._changes.image.aside:
            return
        try:
            await self._change(lambda image: controller.cleaning(image, topic.topic_id))
        except MetadataUnavailable as error:
            log.warning("partition states of a deleted topic are left for later", error=str(error))
