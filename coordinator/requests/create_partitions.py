"""Decisions about more partitions for a topic: pure, from the image to a plan.

Order and texts of the checks are those of Kafka's ReplicationControlManager.createPartitions. An internal topic is
refused, unlike in Kafka: the groups and transactions in it are found by hashing over its partitions, so with more of
them they would be looked for in the wrong ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coordinator.controller.placement import place
from coordinator.errors import InvalidPartitions, InvalidReplicaAssignment, InvalidTopicRequest, UnknownTopic
from coordinator.metadata.nodes import encode_topic
from coordinator.metadata.plans import Plan
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Delete, Operation, Put
from coordinator.requests.topics import TopicDefaults, check_replicas, new_partition, refuse_excess, states_to_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage, TopicInfo


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest:
    """A client's request: the number of partitions that a topic is to have in all, and the replicas of the new ones."""

    topic: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


def decide_create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, defaults: TopicDefaults, start: int
) -> TopicInfo:
    """The topic as it will be; raises an error if the request is wrong. The caller draws `start`, see `place`."""
    topic = image.topics.get(request.topic)
    if topic is None:
        raise UnknownTopic(request.topic)
    if topic.internal:
        raise InvalidTopicRequest(f"The number of partitions of the internal topic {topic.name} cannot be changed.")
    count = len(topic.partitions)
    added = request.partition_count - count
    if added == 0:
        raise InvalidPartitions(f"Topic already has {count} partition(s).")
    if added < 0:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {count} partition(s); {request.partition_count} would not be an "
            "increase."
        )
    if request.assignments is not None and len(request.assignments) != added:
        raise InvalidReplicaAssignment(
            f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} assignment(s) "
            "were specified."
        )
    refuse_excess(added, defaults)
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        replicas = place(added, factor, list(image.brokers.values()), start)
    else:
        replicas = [tuple(of_one) for of_one in request.assignments]
        for of_one in replicas:
            check_replicas(of_one, factor, image.brokers)
    # Before an accepted rollback the topic may have had such a partition, and led it in smaller epochs.
    new = (new_partition(of_one, image.brokers, image.history.leader_epoch) for of_one in replicas)
    return replace(topic, partitions=(*topic.partitions, *new), version=topic.version + 1)


def growth(image: ClusterImage, topic: TopicInfo) -> Plan:
    """The plan of a growth: the new states first, which are not visible; the topic's own node, with the new count,
    last.

    States beyond its partitions that do not fit are left from an earlier growth that a crash has ended. They go.
    """
    there, before = image.aside.get(topic.topic_id, {}), len(image.topics_by_id[topic.topic_id].partitions)
    operations: list[Operation] = [
        Delete(paths.partition(topic.topic_id, number)) for number in there if number >= len(topic.partitions)
    ]
    added = {number: state for number, state in enumerate(topic.partitions) if number >= before}
    operations.extend(states_to_write(topic.topic_id, added, there))
    operations.append(Put(paths.topic(topic.name), encode_topic(topic), topic.version - 1))
    return Plan(operations, topic)
