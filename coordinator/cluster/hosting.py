"""What a step from one image to the next means for the partitions that a broker hosts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import BrokerInfo, ClusterImage, PartitionState, TopicInfo
from coordinator.ports import HostedPartition

if TYPE_CHECKING:
    from collections.abc import Iterator


def host_changes(
    old: ClusterImage, new: ClusterImage, broker: BrokerInfo
) -> tuple[list[HostedPartition], list[HostedPartition]]:
    """The partitions that this broker is to open, in their new state, and those of deleted topics it is to drop."""
    opened: list[HostedPartition] = []
    for topic in new.topics_by_id.values():
        before = old.topics_by_id.get(topic.topic_id)
        if before is not topic:
            opened.extend(_opened(before, topic, broker))
    deleted = [
        partition
        for topic in old.topics_by_id.values()
        if topic.topic_id not in new.topics_by_id
        for partition in _hosted(topic)
        if broker.broker_id in partition.state.replicas
    ]
    return opened, deleted


def _opened(before: TopicInfo | None, topic: TopicInfo, broker: BrokerInfo) -> Iterator[HostedPartition]:
    same_configs = before is not None and before.configs == topic.configs
    known = before.partitions if before else ()
    for partition in _hosted(topic):
        if may_append(partition.state, broker):
            number = partition.partition
            acquired = number < len(known) and known[number].leader_epoch == partition.state.leader_epoch
            if not (acquired and same_configs):
                yield partition


def may_append(state: PartitionState, broker: BrokerInfo) -> bool:
    """Whether this process leads the partition in an epoch that it was given itself."""
    return state.leader == broker.broker_id and state.incarnation == broker.incarnation


def _hosted(topic: TopicInfo) -> Iterator[HostedPartition]:
    for number, state in enumerate(topic.partitions):
        yield HostedPartition(topic.name, topic.topic_id, number, state, topic.configs)
