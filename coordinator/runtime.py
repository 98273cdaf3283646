"""The shell around the control plane's pure parts: it persists decisions, follows changes, and publishes images.

One lock serialises everything that changes the image, so decisions are made on what is current and the host's calls
never overlap. Nothing is decided here: `cluster.controller` does. Produce and fetch do not pass through; when the
store is away they go on with the last image, and only changes are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog
import trio

from coordinator.api import DEFAULT, NO_CONTROLLER, BrokerEndpoint, BrokerInfo, ClusterImage, TopicInfo
from coordinator.cluster import controller, features, image, loading, registry
from coordinator.cluster.decisions import Decisions
from coordinator.cluster.growth import GrowthRequest
from coordinator.cluster.nodes import Change, encode_change
from coordinator.cluster.plans import Batch, Plan
from coordinator.cluster.tier import TierRegister
from coordinator.errors import CannotStart, MetadataUnavailable, NotController
from coordinator.metadata import paths
from coordinator.metadata.commits import commit
from coordinator.metadata.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionLost,
    StoreError,
)
from coordinator.transactions.producer_ids import ProducerIds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from random import Random

    from coordinator.api import ConfigChange, ConfigValidator, FeatureRange, FeatureUpdate, PartitionHost
    from coordinator.metadata.store import MetadataStore

    Decide = Callable[[ClusterImage], Awaitable[Plan]]

log = structlog.get_logger(__name__)

DECISIONS_MAX = 5  # how often a decision is made anew because someone else wrote in between
RECONNECT_PAUSE_S = 0.5
CONFLICTS = (BadVersion, NodeExists, NoNode, NotEmpty)  # what a multi meets when someone else wrote in between


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """This broker's identity and what it is configured for."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    defaults: controller.TopicDefaults = field(default_factory=controller.TopicDefaults)
    registration_timeout_s: float = 30.0


class Coordinator:
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
        self._store = store
        self._producer_ids = ProducerIds(store)
        self.tier = TierRegister(store)
        self._host = host
        self._settings = settings
        self._decisions = Decisions(store, validator, settings.defaults, random)
        self._random = random
        self._broker = BrokerInfo(settings.broker_id, settings.endpoints, settings.rack, registry.new_id(random))
        self._image = ClusterImage(version=0, cluster_id="")
        self._published = trio.Event()
        self._changing = trio.Lock()
        self._sequence = paths.FIRST_CHANGE - 1
        self._registration: Check | None = None  # the fence of what this process writes as a leader
        self._controller: Check | None = None  # the fence of our term as controller
        self._stale = False  # a write ended without a known outcome: load before the next decision

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
        """Names this process among all that ever used the broker's id."""
        return self._broker.incarnation

    async def start(self) -> None:
        """Joins the cluster: when it returns, every partition we lead is open in an epoch acquired by this process.

        Raises: CannotStart.
        """
        try:
            async with self._changing:
                cluster_id = await registry.cluster_id(self._store, self._random)
                self._image = replace(self._image, cluster_id=cluster_id)
                joined = await self._join()
                await self._host.remove_strays(joined)
                await self._publish(joined)
        except (StoreError, MetadataUnavailable) as error:
            raise CannotStart(f"the metadata store did not answer: {error!r}") from error

    async def run(self) -> None:
        """Follows what others change, and joins again when the session was lost; ends when the store is closed."""
        while True:
            try:
                await self._follow()
            except SessionLost:
                if not await self._rejoin():
                    return

    async def new_producer_id(self) -> int:
        """See `ClusterService`."""
        return await self._producer_ids.next_id()

    async def wait_for_image_after(self, version: int) -> ClusterImage:
        """See `ClusterService`."""
        while self._image.version <= version:
            await self._published.wait()
        return self._image

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
        request = controller.TopicRequest(name, partition_count, replication_factor, assignments, configs or {})

        async def decide(image: ClusterImage) -> Plan:
            return self._decisions.creation(image, request)

        plan = await self._change(decide, validate_only=validate_only)
        return plan.changed[0]

    async def delete_topic(self, topic: str | bytes) -> TopicInfo:
        """See `ClusterService`."""
        plan = await self._change(lambda image: self._decisions.deletion(image, topic))
        return plan.removed[0]

    async def create_partitions(
        self,
        topic: str,
        partition_count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """See `ClusterService`."""
        request = GrowthRequest(topic, partition_count, assignments)
        plan = await self._change(lambda image: self._decisions.growth(image, request), validate_only=validate_only)
        return plan.changed[0]

    async def alter_topic_configs(
        self, topic: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> TopicInfo:
        """See `ClusterService`."""
        plan = await self._change(
            lambda image: self._decisions.topic_configs(image, topic, changes, replaces=replace),
            validate_only=validate_only,
        )
        return plan.changed[0]

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

    async def _change(self, decide: Decide, *, validate_only: bool = False) -> Plan:
        """Decides on the current image and makes it so; once it has begun it is finished, whoever is cancelled."""
        async with self._changing:
            with trio.CancelScope(shield=True):
                try:
                    plan = await self._decide_and_commit(decide, validate_only=validate_only)
                except (ConnectionLost, SessionLost) as error:
                    self._stale = True
                    raise MetadataUnavailable("The metadata store does not answer.") from error
                if plan.batches and not validate_only:
                    await self._publish(image.after(self._image, plan))
                    await self._clean(plan)
        return plan

    async def _decide_and_commit(self, decide: Decide, *, validate_only: bool) -> Plan:
        """Decides anew when someone else wrote in between."""
        for _ in range(DECISIONS_MAX):
            if self._stale:
                await self._publish(await self._load())
            if self._controller is None:
                raise NotController("This broker is not the controller.")
            try:
                plan = await decide(self._image)
                for batch in () if validate_only else plan.batches:
                    await self._commit(batch, self._controller)
            except CONFLICTS as conflict:
                self._stale = True
                if conflict.path == self._controller.path:
                    self._controller = None
            else:
                return plan
        raise MetadataUnavailable("The cluster's metadata kept changing meanwhile.")

    async def _commit(self, batch: Batch, fence: Check) -> None:
        """One multi: the fence, the batch, and the change node that announces it (RULES M1)."""
        operations: list[Operation] = [fence, *batch.operations]
        if batch.is_announced:
            sequence = self._sequence + 1
            change = Change(self.incarnation, batch.topics, batch.broker_configs, batch.features)
            operations.append(Create(paths.change(sequence), encode_change(change)))
            if sequence - paths.CHANGES_KEPT >= paths.FIRST_CHANGE:
                operations.append(Delete(paths.change(sequence - paths.CHANGES_KEPT)))
        await commit(self._store, operations)
        if batch.is_announced:
            self._sequence += 1

    async def _clean(self, plan: Plan) -> None:
        """What cannot be cleaned now is swept by the next controller."""
        if self._controller is None:
            return
        try:
            for batch in plan.cleaning:
                await self._commit(batch, self._controller)
        except StoreError as error:
            log.warning("partition states of a deleted topic are left for later", error=repr(error))

    async def _publish(self, new: ClusterImage) -> None:
        """Lets the host follow first: what the image shows can be used."""
        if new.broker_configs != self._image.broker_configs:
            await self._host.configure(new.broker_configs)
        opened, deleted = image.host_changes(self._image, new, self._broker)
        if opened or deleted:
            await self._host.apply(opened, deleted)
        self._image = new
        self._published.set()
        self._published = trio.Event()

    async def _join(self) -> ClusterImage:
        """Registers, takes the controller's role if it is free, and loads."""
        self._registration = await registry.register(self._store, self._broker, self._settings.registration_timeout_s)
        await self._stand_for_controller()
        return await self._load()

    async def _stand_for_controller(self) -> None:
        self._controller = await registry.acquire_controller(self._store, self._broker.broker_id)
        if self._controller is not None:
            log.info("this broker is the controller", broker_id=self._broker.broker_id)

    async def _load(self) -> ClusterImage:
        """Reads everything, and acquires a new epoch of what we lead in an epoch of another process (RULES L3)."""
        assert self._registration is not None
        for _ in range(DECISIONS_MAX):
            loaded = await loading.load(self._store, self._image)
            self._sequence = loaded.sequence
            plan = controller.acquisition(loaded.image, loaded.versions, self._broker)
            try:
                for batch in plan.batches:
                    await self._commit(batch, self._registration)
            except CONFLICTS:
                continue
            self._stale = False
            await self._sweep(loaded.image)
            return image.with_topics(loaded.image, plan.changed)
        raise MetadataUnavailable("The cluster's metadata kept changing meanwhile.")

    async def _sweep(self, loaded: ClusterImage) -> None:
        """A controller removes what crashes have left of topics that do not exist."""
        if self._controller is not None:
            for topic_id, partitions in await loading.left_overs(self._store, loaded):
                await self._clean(controller.cleaning(topic_id, partitions))

    async def _follow(self) -> None:
        """Takes what has changed, whenever something has, until the session is lost."""
        while True:
            wake = trio.Event()
            if await self._caught_up(wake):
                await wake.wait()
            else:
                await trio.sleep(RECONNECT_PAUSE_S)

    async def _caught_up(self, wake: trio.Event) -> bool:
        """Whether the image shows what is there, and `wake` waits for more; the lock is free between two attempts."""
        async with self._changing:
            try:
                await self._catch_up(wake)
            except (ConnectionLost, MetadataUnavailable):
                self._stale = True
        return not self._stale

    async def _catch_up(self, wake: trio.Event) -> None:
        if self._stale:
            await self._publish(await self._load())
        while await loading.last_change(self._store) > self._sequence:
            await self._take_change(self._sequence + 1)
        if await self._store.exists(paths.change(self._sequence + 1), wake):
            wake.set()  # it came just now
        await self._take_members(wake)

    async def _take_change(self, sequence: int) -> None:
        try:
            change = await loading.read_change(self._store, sequence)
        except NoNode:
            await self._publish(await self._load())  # it is no longer kept
            return
        followed = await loading.follow(self._store, self._image, change)
        if controller.to_acquire(followed, self._broker, change):
            await self._publish(await self._load())
            return
        self._sequence = sequence
        await self._publish(followed)

    async def _take_members(self, wake: trio.Event) -> None:
        await self._store.children(paths.BROKERS, wake)
        await self._store.exists(paths.CONTROLLER, wake)
        brokers, controller_id = await loading.read_members(self._store)
        if controller_id == NO_CONTROLLER:
            await self._stand_for_controller()
            await self._publish(await self._load())
        elif (brokers, controller_id) != (self._image.brokers, self._image.controller_id):
            await self._publish(image.with_members(self._image, brokers, controller_id))

    async def _rejoin(self) -> bool:
        """Begins a new session and joins with it; False when the store will never have one again."""
        log.warning("the metadata session is lost", broker_id=self._broker.broker_id)
        while True:
            async with self._changing:
                self._controller = None
                try:
                    await self._store.renew()
                except SessionLost:
                    return False
                except ConnectionLost:
                    pass
                else:
                    if await self._joined():
                        return True
            await trio.sleep(RECONNECT_PAUSE_S)

    async def _joined(self) -> bool:
        try:
            await self._publish(await self._join())
        except (StoreError, MetadataUnavailable):
            return False
        return True
