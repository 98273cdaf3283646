"""The image of the cluster, which is the sum of all changes: pure, from one image and one change to the next image.

All knowledge of a broker about the cluster comes in here, be it one change or, when it loads, all nodes at once; so
brokers that have taken the same changes have the same image. States of partitions come before their topic does, which
may take several changes: until then they are kept aside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import BrokerInfo, BrokerState, ClusterImage, PartitionState, SingleNode, TopicInfo
from coordinator.errors import CannotStart
from coordinator.metadata.nodes import (
    TopicNode,
    decode_broker_configs,
    decode_controller_epoch,
    decode_features,
    decode_member,
    decode_partition,
    decode_topic,
    extra_of,
)
from coordinator.metadata_store import paths
from coordinator.requests import features

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.metadata.nodes import LoggedNode


def empty(cluster_id: str) -> ClusterImage:
    """The image before the first change."""
    return ClusterImage(version=0, cluster_id=cluster_id, features=dict(features.DEFAULT_LEVELS))


def folded(image: ClusterImage, number: int, nodes: Iterable[LoggedNode], deleted: Iterable[str] = ()) -> ClusterImage:
    """The image with change `number` in it. Raises CannotStart for nodes that this version cannot read, and for a
    change that does not fit to the image."""
    step, path = _Step(image), paths.change(number)
    try:
        for path in deleted:
            step.delete(path)
        for node in nodes:
            path = node.path
            step.put(node)
        return step.done(number)
    except (KeyError, ValueError) as error:
        raise CannotStart(f"the metadata node {path} is damaged: {error!r}") from error


class _Step:
    """Collects the nodes of one change, then makes the next image of them."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._single = image  # with the new single nodes, which concern the cluster as a whole
        self._members: dict[int, BrokerInfo] = {}
        self._topics: dict[str, tuple[TopicNode, int]] = {}
        self._removed: list[TopicInfo] = []
        self._states: dict[bytes, dict[int, PartitionState]] = {}
        self._states_gone: list[tuple[bytes, int]] = []

    def put(self, node: LoggedNode) -> None:
        """Take a node with a new value."""
        kind, _, rest = node.path[1:].partition("/")
        if kind == _PARTITIONS:
            topic_id, number = paths.partition_of(node.path)
            self._states.setdefault(topic_id, {})[number] = decode_partition(node.path, node.version, node.value)
        elif kind == _TOPICS:
            self._topics[rest] = decode_topic(node.path, node.value), node.version
        elif kind == _MEMBERS:
            self._members[int(rest)] = decode_member(node.path, node.version, node.value)
        else:
            self._put_single(node)

    def _put_single(self, node: LoggedNode) -> None:
        path, value = node.path, node.value
        singles = {**self._single.singles, path: SingleNode(node.version, extra_of(path, value))}
        single = replace(self._single, singles=singles)
        if path == paths.CONTROLLER_EPOCH:
            broker_id, epoch = decode_controller_epoch(path, value)
            single = replace(single, controller_id=broker_id, controller_epoch=epoch)
        elif path == paths.BROKER_CONFIGS:
            single = replace(single, broker_configs=decode_broker_configs(path, value))
        elif path == paths.FEATURES:
            levels = decode_features(path, value)
            features.check_supported(path, levels)
            single = replace(single, features=levels, features_epoch=features.epoch_of(node.version))
        self._single = single

    def delete(self, path: str) -> None:
        """Take the deletion of a node. A topic goes with its own node."""
        kind, _, rest = path[1:].partition("/")
        if kind == _TOPICS and (topic := self._image.topics.get(rest)) is not None:
            self._removed.append(topic)
        elif kind == _PARTITIONS and "/" in rest:
            self._states_gone.append(paths.partition_of(path))

    def done(self, number: int) -> ClusterImage:
        """The next image."""
        image = replace(self._single, version=number)
        if self._members:
            image = _with_members(image, self._members)
        if self._topics or self._removed or self._states or self._states_gone:
            image = self._with_topics(image)
        return image

    def _with_topics(self, image: ClusterImage) -> ClusterImage:
        topics, topics_by_id = dict(image.topics), dict(image.topics_by_id)
        for topic in self._removed:
            del topics[topic.name], topics_by_id[topic.topic_id]
        aside = self._kept_aside(image)
        changed = [topics_by_id[topic_id] for topic_id in self._states.keys() & topics_by_id.keys()]
        for topic in changed:
            topics[topic.name] = topics_by_id[topic.topic_id] = self._with_states(topic, aside)
        for name, (node, version) in self._topics.items():
            known = topics_by_id.get(node.topic_id)
            states = (*(known.partitions if known else ()), *_taken(name, known, node, aside))
            topic = TopicInfo(name, node.topic_id, states, node.configs, version, node.extra)
            topics[name] = topics_by_id[node.topic_id] = topic
        remaining = {topic_id: states for topic_id, states in aside.items() if states}
        return replace(image, topics=topics, topics_by_id=topics_by_id, aside=remaining)

    def _kept_aside(self, image: ClusterImage) -> dict[bytes, dict[int, PartitionState]]:
        """All states that belong to no topic, those of this change among them; a caller that takes some takes them
        out."""
        aside = {topic_id: dict(states) for topic_id, states in image.aside.items()}
        for topic in self._removed:
            aside[topic.topic_id] = dict(enumerate(topic.partitions))
        for topic_id, states in self._states.items():
            aside.setdefault(topic_id, {}).update(states)
        for topic_id, number in self._states_gone:
            aside.get(topic_id, {}).pop(number, None)
        return aside

    def _with_states(self, topic: TopicInfo, aside: dict[bytes, dict[int, PartitionState]]) -> TopicInfo:
        """The topic with its changed states; states of partitions that it does not have yet stay aside."""
        found = aside[topic.topic_id]
        partitions = tuple(found.pop(number, state) for number, state in enumerate(topic.partitions))
        return replace(topic, partitions=partitions)


def _with_members(image: ClusterImage, changed: Mapping[int, BrokerInfo]) -> ClusterImage:
    known = dict(sorted({**image.former, **image.members, **changed}.items()))
    former = {broker_id: one for broker_id, one in known.items() if one.state is BrokerState.UNREGISTERED}
    members = {broker_id: one for broker_id, one in known.items() if broker_id not in former}
    brokers = {broker_id: one for broker_id, one in members.items() if one.is_up}
    return replace(image, members=members, brokers=brokers, former=former)


_MEMBERS, _TOPICS, _PARTITIONS = (path[1:] for path in (paths.MEMBERS, paths.TOPICS, paths.PARTITIONS))


def _taken(
    name: str, known: TopicInfo | None, node: TopicNode, aside: dict[bytes, dict[int, PartitionState]]
) -> list[PartitionState]:
    """The states of a topic's additional partitions. If they are missing, its data must not be taken for left-overs.
    Raises CannotStart."""
    found = aside.get(node.topic_id, {})
    numbers = range(len(known.partitions) if known else 0, node.partition_count)
    try:
        return [found.pop(number) for number in numbers]
    except KeyError:
        path = paths.topic(name)
        raise CannotStart(f"the metadata node {path} is damaged: states of its partitions are missing") from None
