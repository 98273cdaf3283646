"""Partitions that this broker hosts: the control plane's names and roles, converted to those of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.api import Following, Leadership, Role, TopicIdPartition
from engine.roles import ReplicaSet
from engine.waiting_reads import ConfirmationInputs
from kafkawire.replication.committed import committed_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coordinator.api import ClusterImage, PartitionState
    from coordinator.ports import HostedPartition
    from engine.log_config import LogConfig


class Vanished(NamedTuple):
    """A partition that the metadata no longer name, without a change that deletes it: its log becomes a stray."""

    hosted: HostedPartition


class Opened(NamedTuple):
    """A partition that is open, or is to be opened. `replaces`: a replica of the same partition that is deleted or set
    aside first."""

    hosted: HostedPartition
    is_led: bool
    replaces: HostedPartition | Vanished | None = None

    @property
    def key(self) -> TopicIdPartition:
        return identity(self.hosted)

    @property
    def leader_epoch(self) -> int:
        return self.hosted.state.leader_epoch

    def role(
        self, config: LogConfig, image: ClusterImage, lag_max_ms: int, confirming: ConfirmationInputs | None
    ) -> Role:
        """The role of this broker in the partition. `config`: of the topic; `confirming`: None if this broker stands
        alone."""
        partition, state = self.key, self.hosted.state
        epoch, has_others = state.leader_epoch, len(state.replicas) > 1
        if not self.is_led:
            return Following(partition, config, epoch, has_others, state.unclean_since)
        newest = _state_in(image, partition) or state  # in the same role
        committed = committed_of(image, partition.topic_id, newest) if has_others else None
        others = None if committed is None else ReplicaSet(state.leader, committed, lag_max_ms, confirming)
        return Leadership(partition, config, epoch, others)


class ControlPlane(Protocol):
    """The control plane of this broker; implemented by `coordinator.cluster_manager.ClusterManager`."""

    @property
    def image(self) -> ClusterImage: ...  # the published one
    def note_loss(self) -> None: ...


class HostDeps(NamedTuple):
    """Dependencies of the host. `start_soon` starts a task for as long as the broker lives."""

    start_soon: Callable[[Callable[[], Awaitable[None]]], None]
    control_plane: Callable[[], ControlPlane]


def with_newest_isr(role: Role, image: ClusterImage) -> Role | None:
    """The role with the ISR of that image, if the image is newer; None if the topic is gone by then."""
    if not isinstance(role, Leadership) or role.others is None or role.others.committed.version >= image.version:
        return role
    state = _state_in(image, role.partition)
    if state is None:
        return None
    committed = committed_of(image, role.partition.topic_id, state)
    return role._replace(others=role.others._replace(committed=committed))


def _state_in(image: ClusterImage, partition: TopicIdPartition) -> PartitionState | None:
    topic = image.topics_by_id.get(partition.topic_id)
    has = topic is not None and partition.partition < len(topic.partitions)
    return topic.partitions[partition.partition] if topic is not None and has else None


def identity(hosted: HostedPartition) -> TopicIdPartition:
    return TopicIdPartition(hosted.topic_id, hosted.topic, hosted.partition)


def name_of(hosted: HostedPartition) -> str:
    return f"{hosted.topic}-{hosted.partition}"
