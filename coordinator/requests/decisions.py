"""Decisions about requests of each kind, on one image: from the request to the plan that fulfils it. Pure.

A request that meets another change is decided again, on the image with that change in it. Random values are drawn once
for each request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from coordinator.errors import UnknownTopic, UnknownTopicId
from coordinator.metadata.plans import together
from coordinator.requests import admin_requests, configs, create_partitions, features, topics
from coordinator.requests.min_isr import after_clearing_elrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage, ConfigChange, ElectionType, FeatureUpdate, Reassignment, TopicInfo
    from coordinator.metadata.plans import Plan
    from coordinator.ports import ConfigValidator


@dataclass(frozen=True, slots=True)
class Draw:
    """The random values of one request: the id of a new topic, and the place in the ring of brokers where leaders
    begin."""

    topic_id: bytes
    start: int


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions, one method for each kind of request; each raises an error if the request is wrong."""

    validator: ConfigValidator
    defaults: topics.TopicDefaults

    def creation(self, image: ClusterImage, request: topics.TopicRequest, draw: Draw) -> Plan:
        """A new topic."""
        topic = topics.decide_topic(image, request, self.defaults, self.validator, draw.topic_id, draw.start)
        return topics.creation(image, topic)

    def deletion(self, image: ClusterImage, named: str | bytes) -> Plan:
        """The topic of this name or id is deleted."""
        topic = _find(image, named)
        return topics.deletion(
            topic, topics.tier_deletion_operations(topic) if self.validator.may_leave_in_tier(topic) else ()
        )

    def growth(self, image: ClusterImage, request: create_partitions.CreatePartitionsRequest, draw: Draw) -> Plan:
        """More partitions."""
        return create_partitions.growth(
            image, create_partitions.decide_create_partitions(image, request, self.defaults, draw.start)
        )

    def topic_configs(self, image: ClusterImage, name: str, changes: Sequence[ConfigChange], *, replaces: bool) -> Plan:
        """Other configs of a topic."""
        topic = configs.decide_topic_configs(image, name, changes, self.validator, replaces=replaces)
        plan = configs.topic_alteration(image.topics[name], topic)
        return after_clearing_elrs(plan, image, replace(image, topics_by_id={topic.topic_id: topic}))

    def broker_configs(
        self, image: ClusterImage, broker: str, changes: Sequence[ConfigChange], *, replaces: bool
    ) -> Plan:
        """Other configs of a broker, or of all."""
        decided = configs.decide_broker_configs(image, broker, changes, self.validator, replaces=replaces)
        plan = configs.broker_alteration(image, decided)
        return after_clearing_elrs(plan, image, replace(image, broker_configs=decided))

    def reassignments(self, image: ClusterImage, asked: Sequence[Reassignment], *, may_change_factor: bool) -> Plan:
        """Other replicas for partitions."""
        return together(image, asked, partial(admin_requests.reassignment, may_change_factor=may_change_factor))

    def elections(self, image: ClusterImage, partitions: Sequence[tuple[str, int]], kind: ElectionType) -> Plan:
        """Other leaders of partitions."""
        return together(image, partitions, partial(admin_requests.election, kind=kind))

    def unregistration(self, image: ClusterImage, broker_id: int) -> Plan:
        """A broker less."""
        return admin_requests.unregistration(image, broker_id)

    def features(self, image: ClusterImage, updates: Sequence[FeatureUpdate]) -> Plan:
        """Other levels of the cluster's features."""
        return features.alteration(image, features.decide_levels(image, updates))


def _find(image: ClusterImage, topic: str | bytes) -> TopicInfo:
    if isinstance(topic, str):
        if topic not in image.topics:
            raise UnknownTopic(topic)
        return image.topics[topic]
    if topic not in image.topics_by_id:
        raise UnknownTopicId(topic)
    return image.topics_by_id[topic]
