"""The replication tasks of this broker: they follow the cluster's image, fetch for followers and update ISRs of
leaders.

The partition host has opened the logs before, in the roles and leader epochs of the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from coordinator.api import CLUSTER_DEFAULT, NO_LEADER
from coordinator.event_log import EventLog, Kind
from coordinator.membership.role_changes import may_append
from engine.api import TopicIdPartition
from kafkawire.messages.fetch import ReplicaState
from kafkawire.replication.fetcher import FetchDeps, Fetcher
from kafkawire.replication.isr import IsrUpdater

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from coordinator.api import ClusterImage, PartitionState, TopicInfo
    from coordinator.cluster_manager import ClusterManager
    from engine.store import SegmentStore
    from kafkawire.peers.peers import Peers
    from kafkawire.replication.questions import FetchLimits
    from kafkawire.requests.metrics import ReplicationCounters
    from kafkawire.requests.throttles import Throttle

REQUESTED: Final = Kind("re-replication from scratch requested", "re-replications from scratch requested")

_log: FilteringBoundLogger = structlog.get_logger(__name__)

Source = tuple[int, str]  # a leader, and a log dir here


class ReplicationSettings(NamedTuple):
    """Settings of replication. `lag_max_ms`: replica.lag.time.max.ms."""

    broker_id: int
    limits: FetchLimits
    lag_max_ms: int


class Replication:
    """Replication of one broker; the caller runs `run` in a task."""

    def __init__(
        self,
        cluster: ClusterManager,
        store: SegmentStore,
        links: Peers,
        settings: ReplicationSettings,
        counters: ReplicationCounters,
        throttle: Throttle,
    ) -> None:
        self._broker_id = settings.broker_id
        self._cluster = cluster
        self._store = store
        self._lines = EventLog(_log)
        self._isr = IsrUpdater(cluster, store, settings.lag_max_ms, counters)
        self._deps = FetchDeps(
            links,
            store,
            self._me,
            self._wait_for_image,
            self._give_up,
            cluster.note_away,
            settings.limits,
            counters,
            throttle,
        )
        self._topics: dict[bytes, TopicInfo] = {}  # as of the last image
        self._members_and_defaults: object = None  # members and default broker configs of the last image
        self._sources: dict[TopicIdPartition, Source] = {}
        self._fetchers: dict[Source, Fetcher] = {}
        self._log_dirs: dict[str, int] = {}

    def note_follower(self, partition: TopicIdPartition) -> None:
        """Note that a follower that is not in sync has fetched a partition that this broker leads."""
        self._isr.note([partition])

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._isr.run)
            while True:
                image = self._cluster.image
                self._arrange(image, nursery)
                await self._cluster.wait_for_image_after(image.version)

    def _me(self) -> ReplicaState:
        return ReplicaState(replica_id=self._broker_id, replica_epoch=self._cluster.broker_epoch)

    async def _wait_for_image(self) -> None:
        await self._cluster.wait_for_image_after(self._cluster.image.version)

    async def _give_up(self, partition: TopicIdPartition, leader_epoch: int, offset: int) -> None:
        fields = {"topic": partition.topic, "partition": partition.partition, "epoch": leader_epoch, "offset": offset}
        self._lines.write(REQUESTED, [fields], lambda one: one)
        await self._cluster.record_restart(partition.topic_id, partition.partition, leader_epoch, offset)

    def _arrange(self, image: ClusterImage, nursery: trio.Nursery) -> None:
        known = self._topics
        self._topics = dict(image.topics_by_id)
        for topic_id, topic in known.items():
            if topic_id not in self._topics:
                self._forget(topic)
        for topic in self._topics.values():
            if known.get(topic.topic_id) is not topic:
                for number, state in enumerate(topic.partitions):
                    self._place(TopicIdPartition(topic.topic_id, topic.name, number), state, image, nursery)
        members_and_defaults = image.members, image.broker_configs.get(CLUSTER_DEFAULT)
        if self._members_and_defaults != members_and_defaults:
            self._members_and_defaults = members_and_defaults
            self._isr.relearn_all()

    def _forget(self, topic: TopicInfo) -> None:
        for number in range(len(topic.partitions)):
            partition = TopicIdPartition(topic.topic_id, topic.name, number)
            self._isr.leave(partition)
            self._stop_following(partition)

    def _place(
        self, partition: TopicIdPartition, state: PartitionState, image: ClusterImage, nursery: trio.Nursery
    ) -> None:
        me = image.members.get(self._broker_id)
        is_replica = len(state.replicas) > 1 and self._broker_id in state.replicas
        if is_replica and me is not None and may_append(state, me):
            self._stop_following(partition)
            self._isr.lead(partition)
            return
        self._isr.leave(partition)
        if is_replica and state.leader not in (NO_LEADER, self._broker_id):
            self._follow(partition, state, nursery)
        else:
            self._stop_following(partition)

    def _follow(self, partition: TopicIdPartition, state: PartitionState, nursery: trio.Nursery) -> None:
        log_dir = self._store.changes.serving_home(partition)
        if log_dir is None:
            return  # its log is closed, or its log dir is offline
        source = state.leader, log_dir.disk.path
        if self._sources.get(partition) != source:
            self._stop_following(partition)
        self._sources[partition] = source
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            number = self._log_dirs.setdefault(source[1], len(self._log_dirs))
            fetcher = self._fetchers[source] = Fetcher(state.leader, f"fetch-{number}", log_dir, self._deps)
            nursery.start_soon(fetcher.run)
        fetcher.follow(partition, state.leader_epoch, is_in_sync=self._broker_id in state.isr)

    def _stop_following(self, partition: TopicIdPartition) -> None:
        source = self._sources.pop(partition, None)
        if source is not None:
            self._fetchers[source].leave(partition)
