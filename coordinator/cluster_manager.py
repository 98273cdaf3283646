"""The control plane of a broker: the shell around its pure parts, which carries out decisions and publishes images.

There are two images: the newest one, on which all decisions are made (`change_log`), and the published one. The host
has followed the published image, so that all that it shows can be used. Produce and Fetch do not pass through; when the
store is away they go on with the last image, and only changes are refused.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog
import trio

from coordinator.api import DEFAULT, BrokerEndpoint, BrokerInfo, ClusterImage, TopicInfo
from coordinator.cluster_events import ClusterEvents
from coordinator.controller import isr_proposals
from coordinator.controller.controller import Controller
from coordinator.controller.recovery_questions import RecoveryQuestions
from coordinator.errors import CannotStart, MetadataUnavailable
from coordinator.membership.controlled_shutdown import ControlledShutdown
from coordinator.membership.membership import Membership
from coordinator.membership.replica_states import ReplicaStates
from coordinator.membership.role_changes import host_changes, hosted_by
from coordinator.metadata import layout
from coordinator.metadata.change_log import ChangeLog, Overtaken
from coordinator.metadata.failures import UNUSABLE, Attempts, MetadataFailures, described
from coordinator.metadata.ids import new_id
from coordinator.metadata.plans import TOGETHER_MAX, Plan, first_batch
from coordinator.metadata.tier_register import TierRegister
from coordinator.metadata_store.store import ConnectionLost, SessionLost, StoreError
from coordinator.requests import features, topics
from coordinator.requests.create_partitions import CreatePartitionsRequest
from coordinator.requests.decisions import Decisions, Draw
from coordinator.transactions.producer_ids import ProducerIds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from coordinator.api import (
        ConfigChange,
        ElectionType,
        FeatureRange,
        FeatureUpdate,
        Reassignment,
        Refusals,
    )
    from coordinator.cluster_events import ClusterCounters
    from coordinator.controller.isr_proposals import IsrChange
    from coordinator.controller.probes import IsRefused
    from coordinator.errors import CoordinatorError
    from coordinator.metadata.history import HistoryPosition
    from coordinator.metadata_store.store import MetadataStore
    from coordinator.ports import ConfigValidator, PartitionHost, ReplicaEnds

    Decide = Callable[[ClusterImage], Plan]

log = structlog.get_logger(__name__)

# How long a request waits for the store, however often it is decided again: below the request.timeout.ms of clients.
DECIDE_TIMEOUT_S = 10.0
RECONNECT_PAUSE_S = 0.5
START_RANGE = 1 << 16  # of the places where leaders of a new topic begin

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterManagerSettings:
    """Identity and settings of this broker."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    defaults: topics.TopicDefaults = field(default_factory=topics.TopicDefaults)
    registration_timeout_s: float = 30.0
    prefer_interval_s: float = 300.0  # how often leaders go back to where they were placed
    is_refused: IsRefused | None = None  # see `coordinator.controller.probes`
    before_registration: Callable[[], None] = lambda: None  # see `coordinator.membership.membership`
    cluster: layout.KnownCluster = layout.NEW  # that of the log dirs
    replica_ends: ReplicaEnds | None = None  # None: no election waits for restarted replicas
    recovery_wait_s: float = 10.0  # see `coordinator.controller.recovery`


class ClusterManager:
    """The control plane of one broker; a `ClusterService`.

    Life: `start`, then `run` in a task for as long as the broker lives. The store is the caller's to close, after.
    """

    def __init__(
        self,
        store: MetadataStore,
        host: PartitionHost,
        validator: ConfigValidator,
        settings: ClusterManagerSettings,
        random: Random,
    ) -> None:
        self._decisions = Decisions(validator, settings.defaults)
        self._random = random
        self._store = store
        self._producer_ids = ProducerIds(store)
        self.tier = TierRegister(store)
        self._host = host
        self._settings = settings
        self._events = ClusterEvents(settings.broker_id, validator.is_synced)
        self._changes = ChangeLog(store, settings.broker_id, random, self._events.note)
        self.metadata_failures = MetadataFailures()
        broker = BrokerInfo(settings.broker_id, settings.endpoints, settings.rack)
        self._membership = Membership(store, self._changes, broker, random, settings.before_registration)
        self._controller = Controller(
            store,
            self._changes,
            self._membership,
            settings.prefer_interval_s,
            settings.is_refused,
            validator.is_synced,
            self.metadata_failures,
            RecoveryQuestions(settings.replica_ends, settings.recovery_wait_s, self.counters),
        )
        self._log_dirs: Sequence[str] = ()
        self._image = self._recovered = self._changes.image
        self._wake = trio.Event()
        self._published = trio.Event()
        self._is_joining_again = False
        self._publishing = trio.Lock()
        self._controlled_shutdown = ControlledShutdown(
            self._changes, self._membership, self._publish, self.metadata_failures
        )
        self._replica_states = ReplicaStates(host, self._changes, self._membership, self._publishing, self._wake_up)

    @property
    def image(self) -> ClusterImage:
        """See `ClusterService`."""
        return self._image

    @property
    def counters(self) -> ClusterCounters:
        """Counters of this broker's time as the controller."""
        return self._events.counters

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """See `ClusterService`."""
        return features.SUPPORTED

    @property
    def incarnation(self) -> bytes:
        """The random id of this broker's registration."""
        return self._membership.me.incarnation

    @property
    def broker_epoch(self) -> int:
        """The number of this broker's registrations so far."""
        return self._membership.me.epoch

    @property
    def has_session(self) -> bool:
        """Whether the cluster counts on this process, as far as it knows."""
        return not (self._is_joining_again or self._membership.is_fenced)

    @property
    def followed(self) -> HistoryPosition:
        """The newest change that this broker has followed, to be remembered over a restart."""
        return self._changes.followed

    @property
    def lets_strays_age(self) -> bool:
        """Whether stray logs age: this process has its session, and can use the metadata, as far as it knows. Metadata
        of an accepted rollback lack some partitions that must be kept (RULES M7)."""
        knows = self.has_session and not self.metadata_failures.standing
        return knows and not self._changes.image.history.keeps_strays

    @property
    def publication_lag(self) -> int:
        """The number of changes that the newest image has and the host has not followed yet."""
        return self._changes.image.version - self._image.version

    async def follow_newest(self) -> None:
        """Follow the metadata as of now, or later. The no-op that is written first goes through a quorum: a server that
        lags behind, or a leader of ZooKeeper that was deposed, does not answer it. Raises MetadataUnavailable."""
        try:
            with trio.fail_after(DECIDE_TIMEOUT_S):
                await self._store.multi([self._membership.fence])
                await self._changes.catch_up()
        except (StoreError, CannotStart) as error:
            raise self.metadata_failures.refusal(error) from error
        except trio.TooSlowError:
            raise MetadataUnavailable("The metadata store does not answer.") from None
        finally:
            await self._publish()

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._controller.is_active

    async def start(self) -> None:
        """Join the cluster. When it returns, the cluster counts on this broker; and if it is the controller, every
        partition it leads is open, in an epoch that was given to this process.

        Raises: CannotStart.
        """
        try:
            cluster_id = await layout.cluster_id(self._store, self._random, self._settings.cluster)
            await self._changes.load(cluster_id, self._settings.cluster.followed)
            self._log_dirs = await self._host.start(self._changes.image, self._changes.deleted_topics)
            self._recovered = self._changes.image
            hosted = hosted_by(self._recovered, self._settings.broker_id)
            self._replica_states.found(await self._host.recover(hosted, self._recovered))
            await self._join()
        except (StoreError, MetadataUnavailable) as error:
            raise CannotStart(described(error)) from error

    async def _join(self) -> None:
        """Register anew, and do the controller's work if this broker is the controller now."""
        await self._membership.register(self._log_dirs, self._settings.registration_timeout_s)
        await self._replica_states.report()
        await self._controller.stand()
        await self._membership.become(self._controlled_shutdown.next_state(), has_away=self._replica_states.has_away)
        self._replica_states.forget()
        if self._controller.is_active:
            await self._controller.reconcile()
        await self._publish()

    def note_loss(self) -> None:
        """Note that a log dir has failed, or that a log was closed."""
        self._replica_states.note_loss()

    async def record_restart(self, topic_id: bytes, partition: int, leader_epoch: int, offset: int) -> None:
        """Record that the log of a partition, followed in that epoch, is to be discarded and to begin at `offset`;
        return when the cluster knows (RULES K8). Raises NotFollowedInEpoch."""
        await self._replica_states.record_restart(topic_id, partition, leader_epoch, offset)

    def _wake_up(self) -> None:
        self._wake.set()

    def note_away(self) -> None:
        """Note that another broker does not answer: see `Controller`."""
        self._controller.note_away()

    async def run(self) -> None:
        """Take part in the cluster until the store is closed, and join again after it was fenced."""
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._controller.run)
                    nursery.start_soon(self._replica_states.open_again, lambda: self._image)
                    await self._follow()
                    nursery.cancel_scope.cancel()
            except* SessionLost:
                pass
            self._is_joining_again = True
            if not await self._rejoined():
                return
            self._is_joining_again = False

    async def leave(self) -> None:
        """Prepare an orderly stop: other brokers take over leaderships, for a while; then clients are told for a moment
        which broker leads, before they are disconnected. `run` goes on meanwhile.

        Afterwards the listeners of this broker are closed, so the others may fence it: it does not join again.
        """
        await self._controlled_shutdown.leave()

    async def _follow(self) -> None:
        """Takes changes as they come, until the session is lost or the cluster does not count on this process."""
        attempts = Attempts(self.metadata_failures, "follower")
        while not self._membership.is_fenced:
            wake = self._wake = trio.Event()
            try:
                await self._changes.catch_up(wake)
                await self._replica_states.report()
                self._replica_states.forget()
                await self._replica_states.record_restarts()
            except SessionLost:
                raise
            except UNUSABLE as error:
                if not self._membership.is_fenced:
                    await attempts.pause(error)
                continue
            attempts.succeeded()
            await self._publish()
            await wake.wait()

    async def _rejoined(self) -> bool:
        """Register anew, with a new session if need be; False when the store will never have one again, or this process
        has left."""
        if not self._controlled_shutdown.has_left:
            log.warning("registration lost", broker=self._settings.broker_id)
        attempts = Attempts(self.metadata_failures, "registration")
        while not self._controlled_shutdown.has_left:
            try:
                await self._changes.catch_up()
                await self._join()
            except SessionLost:
                if not await self._renewed():
                    return False
            except UNUSABLE as error:
                await attempts.pause(error)
            else:
                attempts.succeeded()
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

    async def _publish(self) -> ClusterImage:
        """Let the host follow the newest image, then publish it: all that it shows can be used. Once begun it is
        finished."""
        with trio.CancelScope(shield=True):
            async with self._publishing:
                new, me = self._changes.image, self._membership.me
                if new is self._image:
                    return new
                if new.broker_configs != self._image.broker_configs:
                    await self._host.configure(new.broker_configs)
                deleted = self._changes.deleted_topics
                changes = host_changes(self._image, new, me, deleted)
                if self._recovered is not self._image:  # nothing was published since the start
                    since_start = host_changes(self._recovered, new, me, deleted)
                    changes.dropped.extend(since_start.dropped)
                    changes.vanished.extend(since_start.vanished)
                if changes:
                    await self._host.apply(changes)
                    self._replica_states.applied()
                self._changes.forget_deleted(new.version)
                self._recovered = new
                self._image = new
                self._published.set()
                self._published = trio.Event()
        return self._image

    async def change_isr(self, version: int, changes: Sequence[IsrChange]) -> None:
        """Writes the ISR changes of leaders, decided on the image of that version, unless there is a newer one; the
        next image shows the outcome (RULES K5). Raises MetadataUnavailable."""
        try:
            image = self._changes.image
            wanted = isr_proposals.to_write(image, changes, self._membership.me) if image.version == version else ()
            if batch := first_batch([*wanted]):
                with trio.CancelScope(shield=True), suppress(Overtaken):
                    await self._changes.commit(image, [self._membership.fence], batch)
        except (StoreError, CannotStart) as error:
            raise self.metadata_failures.refusal(error) from error
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

    # Requests that change the cluster

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """See `ClusterService`."""
        request = topics.TopicRequest(name, partition_count, replication_factor, assignments, configs or {})
        draw = self._draw()
        plan = await self._change(
            lambda image: self._decisions.creation(image, request, draw), validate_only=validate_only
        )
        return topic_of(plan)

    async def create_partitions(
        self,
        topic: str,
        partition_count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """See `ClusterService`."""
        request, draw = CreatePartitionsRequest(topic, partition_count, assignments), self._draw()
        plan = await self._change(
            lambda image: self._decisions.growth(image, request, draw), validate_only=validate_only
        )
        return topic_of(plan)

    async def alter_topic_configs(
        self, topic: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> TopicInfo:
        """See `ClusterService`."""
        plan = await self._change(
            lambda image: self._decisions.topic_configs(image, topic, changes, replaces=replace),
            validate_only=validate_only,
        )
        return topic_of(plan)

    async def alter_broker_configs(
        self, broker: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """See `ClusterService`."""
        await self._change(
            lambda image: self._decisions.broker_configs(image, broker, changes, replaces=replace),
            validate_only=validate_only,
        )

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """See `ClusterService`."""
        await self._change(lambda image: self._decisions.features(image, updates), validate_only=validate_only)

    async def reassign(self, asked: Sequence[Reassignment], *, may_change_factor: bool = True) -> Refusals:
        """See `ClusterService`."""
        decide = partial(self._decisions.reassignments, may_change_factor=may_change_factor)
        return await self._each(asked, decide)

    async def elect_leaders(self, kind: ElectionType, partitions: Sequence[tuple[str, int]]) -> Refusals:
        """See `ClusterService`."""
        return await self._each(partitions, partial(self._decisions.elections, kind=kind))

    async def unregister_broker(self, broker_id: int) -> None:
        """See `ClusterService`."""
        await self._change(lambda image: self._decisions.unregistration(image, broker_id))

    async def _each(self, orders: Sequence[T], decide: Callable[[ClusterImage, Sequence[T]], Plan]) -> Refusals:
        """Decide as many at a time as one change holds, so that finished requests are not decided again."""
        refusals: Refusals = []
        for start in range(0, len(orders), TOGETHER_MAX):
            refusals += await self._together(orders[start : start + TOGETHER_MAX], decide)
        return refusals

    async def _together(
        self, orders: Sequence[T], decide: Callable[[ClusterImage, Sequence[T]], Plan]
    ) -> Sequence[CoordinatorError | None]:
        return (await self._change(lambda image: decide(image, orders))).refused

    def _draw(self) -> Draw:
        return Draw(new_id(self._random), self._random.randrange(START_RANGE))

    async def delete_topic(self, topic: str | bytes) -> TopicInfo:
        """See `ClusterService`."""
        deleted = topic_of(await self._change(lambda image: self._decisions.deletion(image, topic)))
        await self._clean(deleted)
        return deleted

    async def _change(self, decide: Decide, *, validate_only: bool = False) -> Plan:
        """Decide on the newest image and carry the decision out. The image of the decision is published in any case.

        The outcome of a write that is under way at the deadline is not known: a later image shows it.
        """
        deadline_s = trio.current_time() + DECIDE_TIMEOUT_S
        try:
            with trio.CancelScope(deadline=deadline_s):
                await self._store.sync()
                await self._changes.catch_up()
                return decide(self._changes.image) if validate_only else await self._carried_out(decide, deadline_s)
        except (StoreError, CannotStart) as error:
            raise self.metadata_failures.refusal(error) from error
        finally:
            await self._publish()
        raise MetadataUnavailable("The metadata store does not answer.")

    async def _carried_out(self, decide: Decide, deadline_s: float) -> Plan:
        """Carry a decision out in as many changes as it takes, each decided on the image before it; once begun it is
        finished, or ends with the deadline."""
        with trio.CancelScope(shield=True, deadline=deadline_s):
            while True:
                image = self._changes.image
                plan = decide(image)
                batch = first_batch(plan.operations)
                if not batch:
                    return plan
                with suppress(Overtaken):
                    await self._changes.commit(image, [self._membership.fence], batch)
                    if len(batch) == len(plan.operations):
                        return plan
        raise MetadataUnavailable("The metadata store did not answer in time, or others kept changing the metadata.")

    async def _clean(self, topic: TopicInfo) -> None:
        """Delete the left-over nodes of a deleted topic; if that fails, the controller does it later."""
        if topic.topic_id not in self._changes.image.aside:
            return
        try:
            await self._change(lambda image: topics.cleaning(image, topic.topic_id))
        except MetadataUnavailable as error:
            log.warning("deleted topic not cleaned up", error=str(error))


def topic_of(plan: Plan) -> TopicInfo:
    """The topic of a plan that is about one."""
    assert plan.topic is not None
    return plan.topic
