"""Changes of the roles of the partitions that a broker hosts, from one image to the next. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerInfo, ClusterImage, PartitionState, TopicInfo
from coordinator.controller.elections import NO_LOG
from coordinator.ports import HostChanges, HostedPartition

if TYPE_CHECKING:
    from collections.abc import Container, Iterator


def host_changes(old: ClusterImage, new: ClusterImage, broker: BrokerInfo, deleted: Container[bytes]) -> HostChanges:
    """The partitions that this broker is to lead, to follow, to drop and to set aside, if it does not do so already.
    `deleted`: the ids of topics that a change has deleted."""
    changes = HostChanges([], [], [], new, [])
    for topic in new.topics_by_id.values():
        before = old.topics_by_id.get(topic.topic_id)
        if before is not topic:
            _note(changes, before, topic, broker)
    for topic in old.topics_by_id.values():
        if topic.topic_id not in new.topics_by_id:
            lost = changes.dropped if topic.topic_id in deleted else changes.vanished
            lost.extend(one for one in _partitions(topic) if broker.broker_id in one.state.replicas)
    return changes


def hosted_by(image: ClusterImage, broker_id: int) -> list[HostedPartition]:
    """The partitions of which a broker has a replica."""
    partitions = (one for topic in image.topics_by_id.values() for one in _partitions(topic))
    return [one for one in partitions if broker_id in one.state.replicas]


def _note(changes: HostChanges, before: TopicInfo | None, topic: TopicInfo, broker: BrokerInfo) -> None:
    known = before.partitions if before is not None else ()
    same_configs = before is not None and before.configs == topic.configs
    for partition in _partitions(topic):
        state, number = partition.state, partition.partition
        earlier = known[number] if number < len(known) else None
        was_here = earlier is not None and broker.broker_id in earlier.replicas
        if broker.broker_id not in state.replicas:
            if was_here:
                changes.dropped.append(partition)
        elif _is_gone(state, broker):
            continue
        elif not (was_here and same_configs and earlier is not None and _is_same_role(earlier, state, broker)):
            (changes.led if may_append(state, broker) else changes.followed).append(partition)


def _is_gone(state: PartitionState, broker: BrokerInfo) -> bool:
    """Whether the log is lost, and no other broker leads from which to copy it, as before the controller has elected
    another. An empty log in its place would look like it."""
    return state.leader in (NO_LEADER, broker.broker_id) and (broker.broker_id, *NO_LOG) in state.suspect_replicas


def _is_same_role(earlier: PartitionState, state: PartitionState, broker: BrokerInfo) -> bool:
    """Whether the role is the same. A leader leads in one epoch only."""
    return earlier is state or (
        (earlier.leader, earlier.leader_epoch) == (state.leader, state.leader_epoch)
        and may_append(earlier, broker) == may_append(state, broker)
    )


def may_append(state: PartitionState, broker: BrokerInfo) -> bool:
    """Whether this registration of the broker leads the partition in an epoch that was given to it."""
    return state.leader == broker.broker_id and state.incarnation == broker.incarnation


def _partitions(topic: TopicInfo) -> Iterator[HostedPartition]:
    for number, state in enumerate(topic.partitions):
        yield HostedPartition(topic.name, topic.topic_id, number, state, topic.configs)
