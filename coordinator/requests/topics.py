"""Decisions about topics: pure, from the image and a request to a plan.

The texts and the order of the checks follow Kafka's Topic and ReplicationControlManager. Nothing here talks to a store:
`coordinator.cluster_manager` fences the plan, carries it out and publishes the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coordinator.api import DEFAULT, ClusterImage, Extent, PartitionState, TierDeletion, TopicInfo
from coordinator.controller.elections import processes_of
from coordinator.controller.placement import place
from coordinator.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicRequest,
    TooManyPartitions,
    TopicExists,
)
from coordinator.metadata.names import refuse_collision, validate_name
from coordinator.metadata.nodes import encode_partition, encode_topic
from coordinator.metadata.plans import Plan, first_batch
from coordinator.metadata.unlogged_nodes import encode_tier_deletion, encode_topic_partitions
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Delete, Operation, Put
from coordinator.requests.configs import check_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from coordinator.api import BrokerInfo
    from coordinator.ports import ConfigValidator


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A client's request to create a topic."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Configured defaults (num.partitions, default.replication.factor), and the most partitions that are taken at
    once."""

    partition_count: int = 1
    replication_factor: int = 1
    partitions_max: int = 10_000


def decide_topic(
    image: ClusterImage,
    request: TopicRequest,
    defaults: TopicDefaults,
    validator: ConfigValidator,
    topic_id: bytes,
    start: int,
) -> TopicInfo:
    """The topic as it will be; raises an error if the request is wrong.

    The caller draws `topic_id` and `start`, the place in the ring of brokers where the leaders begin.
    """
    validate_name(request.name)
    if request.name in image.topics:
        raise TopicExists(request.name)
    refuse_collision(request.name, image.topics)
    validator.validate(request.name, request.configs)
    check_size(request.configs)
    replicas = _assigned(request, image, defaults) if request.assignments else _placed(request, image, defaults, start)
    partitions = tuple(new_partition(of_one, image.brokers) for of_one in replicas)
    return TopicInfo(request.name, topic_id, partitions, dict(request.configs))


def creation(image: ClusterImage, topic: TopicInfo) -> Plan:
    """The plan of a creation: the states of the partitions first, which are not visible; the topic's own node last."""
    there = image.aside.get(topic.topic_id, {})
    operations: list[Operation] = []
    if not there:
        operations.append(Create(paths.partitions(topic.topic_id), encode_topic_partitions(topic.name)))
    operations.extend(states_to_write(topic.topic_id, dict(enumerate(topic.partitions)), there))
    operations.append(Create(paths.topic(topic.name), encode_topic(topic)))
    return Plan(operations, topic)


def states_to_write(
    topic_id: bytes, wanted: Mapping[int, PartitionState], there: Mapping[int, PartitionState]
) -> Iterator[Operation]:
    """The operations that turn the states of no topic that are `there` into the wanted ones."""
    for number, state in wanted.items():
        path, known = paths.partition(topic_id, number), there.get(number)
        if known is None:
            yield Create(path, encode_partition(state))
        elif replace(known, version=state.version) != state:
            yield Put(path, encode_partition(state), known.version)


def deletion(topic: TopicInfo, tier_operations: Sequence[Operation] = ()) -> Plan:
    """The plan of a deletion: the topic's own node first, without which the topic is gone; left-over nodes are cleaned
    up later. `tier_operations` record, at that very moment, the topic's segments in the remote tier."""
    own: list[Operation] = [Delete(paths.topic(topic.name), topic.version), *tier_operations]
    return Plan(first_batch([*own, *_left_overs(topic.topic_id, range(len(topic.partitions)))]), topic)


def tier_deletion_operations(topic: TopicInfo) -> list[Operation]:
    """The operations that record a deleted topic's segments in the remote tier."""
    deletion = TierDeletion(topic.topic_id, topic.name, len(topic.partitions))
    return [Create(paths.tier_deletion(topic.topic_id), encode_tier_deletion(deletion))]


def cleaning(image: ClusterImage, topic_id: bytes) -> Plan:
    """The plan that removes states of partitions without a topic; surplus states of an existing topic stay."""
    numbers = image.aside.get(topic_id, {})
    if not numbers or topic_id in image.topics_by_id:
        return Plan(())
    return Plan(_left_overs(topic_id, numbers))


def _left_overs(topic_id: bytes, numbers: Iterable[int]) -> list[Operation]:
    """The deletion of a topic's partition states, then of their parent."""
    return [*(Delete(paths.partition(topic_id, number)) for number in numbers), Delete(paths.partitions(topic_id))]


def refuse_excess(partition_count: int, defaults: TopicDefaults) -> None:
    if partition_count > defaults.partitions_max:
        raise TooManyPartitions("Excessively large number of partitions per request.")


def _assigned(request: TopicRequest, image: ClusterImage, defaults: TopicDefaults) -> list[tuple[int, ...]]:
    """The replicas by hand, checked as Kafka's validateManualPartitionAssignment does: the lists first, then the
    numbers."""
    assert request.assignments
    if request.replication_factor != DEFAULT:
        raise InvalidTopicRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if request.partition_count != DEFAULT:
        raise InvalidTopicRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    refuse_excess(len(request.assignments), defaults)
    first = next(iter(request.assignments.values()))
    for replicas in request.assignments.values():
        check_replicas(replicas, len(first), image.brokers)
    numbers = range(len(request.assignments))
    if sorted(request.assignments) != list(numbers):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [tuple(request.assignments[number]) for number in numbers]


def check_replicas(replicas: Sequence[int], expected: int, brokers: Collection[int]) -> None:
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if replicas.count(broker_id) > 1:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
    if len(replicas) != expected:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s)."
        )


def _placed(request: TopicRequest, image: ClusterImage, defaults: TopicDefaults, start: int) -> list[tuple[int, ...]]:
    factor, count = request.replication_factor, request.partition_count
    if factor == 0 or factor < DEFAULT:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if count == 0 or count < DEFAULT:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    factor = defaults.replication_factor if factor == DEFAULT else factor
    count = defaults.partition_count if count == DEFAULT else count
    refuse_excess(count, defaults)
    return place(count, factor, list(image.brokers.values()), start)


def new_partition(
    replicas: tuple[int, ...], brokers: Mapping[int, BrokerInfo], leader_epoch: int = 0
) -> PartitionState:
    leader = replicas[0]
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        isr=replicas,
        replicas=replicas,
        extents=(Extent(0, replicas),),
        incarnation=brokers[leader].incarnation,
        processes=processes_of(replicas, brokers),
    )
