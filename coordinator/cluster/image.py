"""Pure functions from one cluster image to the next, and what a step means for the partitions a broker hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import BrokerInfo, ClusterImage, HostedPartition, PartitionState, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coordinator.cluster.plans import Plan


def with_members(image: ClusterImage, brokers: Mapping[int, BrokerInfo], controller_id: int) -> ClusterImage:
    """The image with these live brokers and this controller."""
    return replace(image, version=image.version + 1, brokers=dict(sorted(brokers.items())), controller_id=controller_id)


def with_topics(
    image: ClusterImage, changed: Iterable[TopicInfo] = (), removed: Iterable[TopicInfo] = ()
) -> ClusterImage:
    """The image with these topics added or replaced, and those gone."""
    topics, topics_by_id = dict(image.topics), dict(image.topics_by_id)
    for topic in removed:
        topics_by_id.pop(topic.topic_id, None)
        if topics.get(topic.name, topic).topic_id == topic.topic_id:
            topics.pop(topic.name, None)
    for topic in changed:
        topics[topic.name] = topics_by_id[topic.topic_id] = topic
    return replace(image, version=image.version + 1, topics=topics, topics_by_id=topics_by_id)


def with_broker_configs(image: ClusterImage, configs: Mapping[str, Mapping[str, str]]) -> ClusterImage:
    """The image with brokers configured like this at run time."""
    return replace(image, version=image.version + 1, broker_configs=configs)


def with_features(image: ClusterImage, levels: Mapping[str, int], epoch: int) -> ClusterImage:
    """The image with the cluster's features at these levels, since this epoch."""
    return replace(image, version=image.version + 1, features=levels, features_epoch=epoch)


def after(image: ClusterImage, plan: Plan) -> ClusterImage:
    """The image once a plan was carried out."""
    changed = with_topics(image, plan.changed, plan.removed)
    if plan.broker_configs is not None:
        changed = with_broker_configs(changed, plan.broker_configs)
    if plan.features is not None:
        changed = with_features(changed, plan.features, image.features_epoch + 1)
    return changed


def with_partitions(topic: TopicInfo, states: Mapping[int, PartitionState]) -> TopicInfo:
    """The topic with some of its partitions' states replaced."""
    partitions = tuple(states.get(number, state) for number, state in enumerate(topic.partitions))
    return replace(topic, partitions=partitions)


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
    """Whether this process leads the partition in an epoch that it acquired itself."""
    return state.leader == broker.broker_id and state.incarnation == broker.incarnation


def _hosted(topic: TopicInfo) -> Iterator[HostedPartition]:
    for number, state in enumerate(topic.partitions):
        yield HostedPartition(topic.name, topic.topic_id, number, state, topic.configs)
