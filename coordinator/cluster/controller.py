"""What a controller decides about topics: pure, from the image and a request to the batches that make it so.

The texts and the order of the checks follow Kafka's Topic and ReplicationControlManager. Nothing here talks to a
store: `coordinator.runtime` fences the batches, commits them and publishes the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coordinator.api import DEFAULT, INTERNAL_TOPICS, ClusterImage, Extent, PartitionState, TopicInfo
from coordinator.cluster.configs import check_size
from coordinator.cluster.image import may_append, with_partitions
from coordinator.cluster.names import NAME_SIZE_MAX, refuse_collision, validate_name
from coordinator.cluster.nodes import (
    Change,
    ChangeKind,
    TopicChange,
    encode_partition,
    encode_topic,
    encode_topic_partitions,
)
from coordinator.cluster.placement import place
from coordinator.cluster.plans import Batch, Plan, split
from coordinator.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicRequest,
    TooManyPartitions,
    TopicExists,
)
from coordinator.metadata import paths
from coordinator.metadata.store import Create, Delete, Operation, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coordinator.api import BrokerInfo, ConfigValidator

CHANGE_ENTRY_SIZE_BYTES = 120  # of one topic in a change node, without the name


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """What a client asks for."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What the broker is configured for (num.partitions, default.replication.factor) and the most it takes at once."""

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
    """The topic as it will be; raises what is wrong with the request.

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


def creation(topic: TopicInfo) -> Plan:
    """Partition states first, in batches nobody sees; the topic's own node comes with the last batch."""
    operations: list[Operation] = [Create(paths.partitions(topic.topic_id), encode_topic_partitions(topic.name))]
    operations.extend(
        Create(paths.partition(topic.topic_id, number), encode_partition(state))
        for number, state in enumerate(topic.partitions)
    )
    operations.append(Create(paths.topic(topic.name), encode_topic(topic)))
    *hidden, last = split(operations)
    announced = TopicChange(ChangeKind.CREATED, topic.name, topic.topic_id)
    batches = (*map(Batch, hidden), Batch(last, (announced,)))
    return Plan(batches, changed=(topic,))


def deletion(topic: TopicInfo, version: int, left: Sequence[Operation] = ()) -> Plan:
    """The topic's own node first: from then on it is gone, whatever happens to the rest. `left`: what remembers, from
    that very moment, that it has left something elsewhere."""
    operations: list[Operation] = [Delete(paths.topic(topic.name), version), *left]
    operations.extend(_left_overs(topic.topic_id, range(len(topic.partitions))))
    first, *rest = split(operations)
    announced = TopicChange(ChangeKind.DELETED, topic.name, topic.topic_id)
    return Plan((Batch(first, (announced,)),), cleaning=tuple(map(Batch, rest)), removed=(topic,))


def cleaning(topic_id: bytes, partitions: Iterable[int]) -> Plan:
    """Removes the partition states of a topic that does not exist: a crash interrupted its creation or deletion."""
    return Plan((), cleaning=tuple(map(Batch, split(_left_overs(topic_id, partitions)))))


def acquisition(image: ClusterImage, versions: Mapping[str, int], broker: BrokerInfo) -> Plan:
    """Raises the epoch of every partition that this broker leads, once per incarnation (RULES L3).

    `versions` are those of the partition nodes that the image was built from, by path.
    """
    changed: list[TopicInfo] = []
    owners: dict[str, tuple[TopicInfo, int]] = {}
    puts: list[Operation] = []
    for topic in image.topics.values():
        states = {
            number: replace(state, leader_epoch=state.leader_epoch + 1, incarnation=broker.incarnation)
            for number, state in enumerate(topic.partitions)
            if state.leader == broker.broker_id and not may_append(state, broker)
        }
        for number, state in states.items():
            path = paths.partition(topic.topic_id, number)
            owners[path] = (topic, number)
            puts.append(Put(path, encode_partition(state), versions[path]))
        if states:
            changed.append(with_partitions(topic, states))
    runs = split(puts, announced_size_bytes=NAME_SIZE_MAX + CHANGE_ENTRY_SIZE_BYTES)
    return Plan(tuple(Batch(run, _announced(run, owners)) for run in runs), changed=tuple(changed))


def to_acquire(image: ClusterImage, broker: BrokerInfo, change: Change) -> bool:
    """Whether a change gives this broker the lead in an epoch that names another process, say its earlier one."""
    topics = [image.topics_by_id[named.topic_id] for named in change.topics if named.topic_id in image.topics_by_id]
    return any(
        state.leader == broker.broker_id and not may_append(state, broker)
        for topic in topics
        for state in topic.partitions
    )


def _announced(puts: Iterable[Operation], owners: Mapping[str, tuple[TopicInfo, int]]) -> tuple[TopicChange, ...]:
    numbers: dict[str, list[int]] = {}
    topics: dict[str, TopicInfo] = {}
    for put in puts:
        topic, number = owners[put.path]
        topics[topic.name] = topic
        numbers.setdefault(topic.name, []).append(number)
    return tuple(
        TopicChange(ChangeKind.PARTITIONS, name, topics[name].topic_id, tuple(some)) for name, some in numbers.items()
    )


def refuse_excess(partition_count: int, defaults: TopicDefaults) -> None:
    if partition_count > defaults.partitions_max:
        raise TooManyPartitions("Excessively large number of partitions per request.")


def _assigned(request: TopicRequest, image: ClusterImage, defaults: TopicDefaults) -> list[tuple[int, ...]]:
    """Kafka's validateManualPartitionAssignment: the lists in the order of the request, then the numbers."""
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
        check_replicas(replicas, len(first), image)
    numbers = range(len(request.assignments))
    if sorted(request.assignments) != list(numbers):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [tuple(request.assignments[number]) for number in numbers]


def check_replicas(replicas: Sequence[int], expected: int, image: ClusterImage) -> None:
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
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
    if request.name in INTERNAL_TOPICS:
        factor = min(factor, max(1, len(image.brokers)))
    return place(count, factor, list(image.brokers.values()), start)


def new_partition(replicas: tuple[int, ...], brokers: Mapping[int, BrokerInfo]) -> PartitionState:
    leader = replicas[0]
    return PartitionState(
        leader=leader,
        leader_epoch=0,
        isr=replicas,
        replicas=replicas,
        extents=(Extent(0, replicas),),
        incarnation=brokers[leader].incarnation,
    )


def _left_overs(topic_id: bytes, partitions: Iterable[int]) -> list[Operation]:
    """Deletes a topic's partition states, then their parent."""
    return [
        *(Delete(paths.partition(topic_id, number)) for number in partitions),
        Delete(paths.partitions(topic_id)),
    ]
