"""Images for tests, put together by hand, without changes that would lead to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.api import BrokerInfo, ClusterImage, PartitionState, TopicInfo


def with_members(image: ClusterImage, members: Mapping[int, BrokerInfo], controller_id: int) -> ClusterImage:
    """The image with these brokers, and this controller."""
    brokers = {broker_id: member for broker_id, member in members.items() if member.is_up}
    return replace(
        image, version=image.version + 1, members=dict(members), brokers=brokers, controller_id=controller_id
    )


def with_topics(
    image: ClusterImage, changed: Iterable[TopicInfo] = (), removed: Iterable[TopicInfo] = ()
) -> ClusterImage:
    """The image with these topics added or replaced, and the removed ones gone."""
    topics, topics_by_id = dict(image.topics), dict(image.topics_by_id)
    for topic in removed:
        del topics[topic.name], topics_by_id[topic.topic_id]
    for topic in changed:
        topics[topic.name] = topics_by_id[topic.topic_id] = topic
    return replace(image, version=image.version + 1, topics=topics, topics_by_id=topics_by_id)


def with_broker_configs(image: ClusterImage, configs: Mapping[str, Mapping[str, str]]) -> ClusterImage:
    """The image with these configs of brokers."""
    return replace(image, version=image.version + 1, broker_configs=configs)


def with_features(image: ClusterImage, levels: Mapping[str, int], epoch: int) -> ClusterImage:
    """The image with the cluster's features at these levels, since this epoch."""
    return replace(image, version=image.version + 1, features=levels, features_epoch=epoch)


def with_partitions(topic: TopicInfo, states: Mapping[int, PartitionState]) -> TopicInfo:
    """The topic with some of its partitions' states replaced."""
    partitions = tuple(states.get(number, state) for number, state in enumerate(topic.partitions))
    return replace(topic, partitions=partitions)


def epochs_led(image: ClusterImage, broker_id: int) -> dict[tuple[str, int], int]:
    """The leader epochs of the partitions that a broker leads, by topic and partition: its host is to have them
    open."""
    return {
        (topic.name, number): state.leader_epoch
        for topic in image.topics.values()
        for number, state in enumerate(topic.partitions)
        if state.leader == broker_id
    }
