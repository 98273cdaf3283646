"""Admin requests: move replicas, elect a leader, unregister a broker. Pure, from the image to operations.

Each partition is decided on for itself. Texts and the order of the checks are those of Kafka's
ReplicationControlManager. The broker that receives a request carries it out, on the newest image: it need not be the
controller.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerState, ElectionType
from coordinator.controller import elections, reassignments
from coordinator.controller.elections import Electorate
from coordinator.controller.reconcile import UNCLEAN, min_isr, setting
from coordinator.errors import (
    BrokerIdNotRegistered,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownPartition,
)
from coordinator.metadata.nodes import encode_member, encode_partition
from coordinator.metadata.plans import Plan
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Put
from coordinator.requests.topics import check_replicas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage, PartitionState, Reassignment, TopicInfo
    from coordinator.metadata_store.store import Operation


def reassignment(image: ClusterImage, asked: Reassignment, *, may_change_factor: bool) -> Operation | None:
    """The operation that gives a partition other replicas, or those from before; None if it is on its way there
    already. Raises UnknownPartition, InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress."""
    topic = image.topics.get(asked.topic)
    if topic is None:
        raise UnknownPartition(f"Unable to find a topic named {asked.topic}.")
    if not 0 <= asked.partition < len(topic.partitions):
        raise UnknownPartition(f"Unable to find partition {asked.topic}:{asked.partition}.")
    state = topic.partitions[asked.partition]
    electorate = Electorate(image.members, min_isr(image, topic))
    if asked.replicas is None:
        changed = _cancelled(state, electorate, asked, may_lose=setting(image, topic, UNCLEAN) == "true")
    else:
        check_replicas(asked.replicas, len(asked.replicas), image.members)
        if not may_change_factor:
            _check_factor(state, asked.replicas)
        started = reassignments.started(state, asked.replicas)
        changed = state if started is state else elections.settled(started, electorate)
    return _write(topic, asked.partition, changed)


def _check_factor(state: PartitionState, replicas: Sequence[int]) -> None:
    """Compare the number of replicas with the one after the present reassignment (KIP-860)."""
    if (count := len(reassignments.wanted(state))) != len(replicas):
        raise InvalidReplicationFactor(f"The replication factor is changed from {count} to {len(replicas)}")


def _cancelled(state: PartitionState, electorate: Electorate, asked: Reassignment, *, may_lose: bool) -> PartitionState:
    if not reassignments.is_under_way(state):
        raise NoReassignmentInProgress
    reverted = reassignments.reverted(state)
    if reverted.isr:
        return elections.settled(reverted, electorate)
    forced = elections.forced(reverted, electorate) if may_lose else None
    if forced is None:
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {asked.topic}:{asked.partition} because it would require an "
            "unclean leader election."
        )
    return forced


def election(image: ClusterImage, partition: tuple[str, int], *, kind: ElectionType) -> Operation:
    """The operation that gives a partition another leader. Raises UnknownPartition, ElectionNotNeeded,
    PreferredLeaderNotAvailable, EligibleLeadersNotAvailable."""
    name, number = partition
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownPartition(f"No such topic as {name}")
    if not 0 <= number < len(topic.partitions):
        raise UnknownPartition(f"No such partition as {name}-{number}")
    state, electorate = topic.partitions[number], Electorate(image.members, min_isr(image, topic))
    if kind is ElectionType.PREFERRED:
        if state.leader == state.replicas[0]:
            raise ElectionNotNeeded("Leader election not needed for topic partition.")
        elected = elections.preferred(state, electorate)
    else:
        if state.leader != NO_LEADER:
            raise ElectionNotNeeded("Leader election not needed for topic partition.")
        elected = elections.unclean(state, replace(electorate, is_over=True))  # an order waits for no answers
    operation = _write(topic, number, elected) if elected.leader != NO_LEADER else None
    if operation is not None:
        return operation
    if kind is ElectionType.PREFERRED:
        raise PreferredLeaderNotAvailable("The preferred leader was not available.")
    raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")


def unregistration(image: ClusterImage, broker_id: int) -> Plan:
    """The plan that unregisters a broker. Its replicas stay listed. Its node stays as well, so that no broker epoch
    comes twice. Raises BrokerIdNotRegistered."""
    broker = image.members.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
    member = encode_member(replace(broker, state=BrokerState.UNREGISTERED))
    return Plan([Put(paths.member(broker_id), member, broker.version)])


def _write(topic: TopicInfo, number: int, state: PartitionState) -> Operation | None:
    known = topic.partitions[number]
    path = paths.partition(topic.topic_id, number)
    return None if state is known else Put(path, encode_partition(state), known.version)
