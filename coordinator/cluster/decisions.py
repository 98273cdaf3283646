"""From a request to the plan that fulfils it: the pure decisions, with what they need from the store and from chance.

A plan that replaces a node is decided on the image and names the node's version; that the two belong together is
checked here. Where they do not, the image is behind, and the conflict makes its owner load and ask again. Nothing is
written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.cluster import configs, controller, features, growth, registry, tier
from coordinator.cluster.loading import read_broker_configs, read_features
from coordinator.cluster.nodes import TopicNode, decode_topic
from coordinator.errors import UnknownTopic, UnknownTopicId
from coordinator.metadata import paths
from coordinator.metadata.store import BadVersion, MetadataStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from coordinator.api import ClusterImage, ConfigChange, ConfigValidator, FeatureUpdate, TopicInfo
    from coordinator.cluster.plans import Plan


class Decisions:
    """One method per kind of request; each raises what is wrong with it, and what the store raises."""

    def __init__(
        self, store: MetadataStore, validator: ConfigValidator, defaults: controller.TopicDefaults, random: Random
    ) -> None:
        self._store = store
        self._validator = validator
        self._defaults = defaults
        self._random = random

    def creation(self, image: ClusterImage, request: controller.TopicRequest) -> Plan:
        """A new topic."""
        start, topic_id = self._draw_start(image), self._new_topic_id(image)
        topic = controller.decide_topic(image, request, self._defaults, self._validator, topic_id, start)
        return controller.creation(topic)

    async def deletion(self, image: ClusterImage, named: str | bytes) -> Plan:
        """No topic of this name or id any more."""
        topic = _find(image, named)
        left = await tier.leaving(self._store, topic) if self._validator.may_leave_in_tier(topic) else []
        return controller.deletion(topic, await self._version_of(topic), left)

    async def growth(self, image: ClusterImage, request: growth.GrowthRequest) -> Plan:
        """More partitions."""
        topic = growth.decide_growth(image, request, self._defaults, self._draw_start(image))
        before = image.topics[request.topic]
        version = await self._version_of(before)
        found = map(int, await self._store.children(paths.partitions(topic.topic_id)))
        return growth.growth(
            before, topic, version, sorted(number for number in found if number >= len(before.partitions))
        )

    async def topic_configs(
        self, image: ClusterImage, name: str, changes: Sequence[ConfigChange], *, replaces: bool
    ) -> Plan:
        """Other configs of a topic."""
        topic = configs.decide_topic_configs(image, name, changes, self._validator, replaces=replaces)
        before = image.topics[name]
        return configs.topic_alteration(before, topic, await self._version_of(before))

    async def broker_configs(
        self, image: ClusterImage, broker: str, changes: Sequence[ConfigChange], *, replaces: bool
    ) -> Plan:
        """Other configs of a broker, or of all."""
        decided = configs.decide_broker_configs(image, broker, changes, self._validator, replaces=replaces)
        found, version = await read_broker_configs(self._store)
        if found != image.broker_configs:
            raise BadVersion(paths.BROKER_CONFIGS)
        return configs.broker_alteration(image, decided, version)

    async def features(self, image: ClusterImage, updates: Sequence[FeatureUpdate]) -> Plan:
        """Other levels of the cluster's features."""
        if await read_features(self._store) != (image.features, image.features_epoch):
            raise BadVersion(paths.FEATURES)
        return features.alteration(image, features.decide_levels(image, updates))

    async def _version_of(self, topic: TopicInfo) -> int:
        """Of the topic's own node, which says what `topic` does."""
        path = paths.topic(topic.name)
        node = await self._store.get(path)
        if decode_topic(path, node.value) != TopicNode(topic.topic_id, len(topic.partitions), dict(topic.configs)):
            raise BadVersion(path)
        return node.version

    def _draw_start(self, image: ClusterImage) -> int:
        return self._random.randrange(max(1, len(image.brokers)))

    def _new_topic_id(self, image: ClusterImage) -> bytes:
        while (topic_id := registry.new_id(self._random)) in image.topics_by_id:
            pass
        return topic_id


def _find(image: ClusterImage, topic: str | bytes) -> TopicInfo:
    if isinstance(topic, str):
        if topic not in image.topics:
            raise UnknownTopic(topic)
        return image.topics[topic]
    if topic not in image.topics_by_id:
        raise UnknownTopicId(topic)
    return image.topics_by_id[topic]
