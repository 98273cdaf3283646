"""Admin requests: their refusals, in Kafka's words, and their writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import BrokerInfo, BrokerState, ClusterImage, ElectionType, Extent, PartitionState, TopicInfo
from coordinator.api import Reassignment as To
from coordinator.errors import (
    BrokerIdNotRegistered,
    CoordinatorError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownPartition,
)
from coordinator.metadata.image import folded
from coordinator.metadata.nodes import LoggedNode, decode_partition
from coordinator.metadata.plans import together
from coordinator.metadata_store.store import Put
from coordinator.requests.admin_requests import election, reassignment, unregistration
from coordinator.testing.images import with_members, with_topics

if TYPE_CHECKING:
    from coordinator.metadata_store.store import Operation

ID = bytes(range(16))
MEMBERS = {number: BrokerInfo(number, (), incarnation=bytes([number]) * 16, version=number) for number in (1, 2, 3)}
PREFERRED, UNCLEAN = ElectionType


def state(*replicas: int, leader: int = 0, isr: tuple[int, ...] = ()) -> PartitionState:
    leader = leader or replicas[0]
    incarnation = bytes(16) if leader < 0 else MEMBERS[leader].incarnation
    return PartitionState(
        leader, 4, isr or replicas, replicas, extents=(Extent(0, replicas),), incarnation=incarnation, version=7
    )


def image_of(*states: PartitionState, fenced: tuple[int, ...] = (), **configs: str) -> ClusterImage:
    away = {one: replace(MEMBERS[one], state=BrokerState.FENCED) for one in fenced}
    image = with_members(ClusterImage(0, "cluster"), MEMBERS | away, 1)
    return with_topics(image, [TopicInfo("a", ID, states, {key.replace("_", "."): configs[key] for key in configs})])


def written(operation: Operation | None) -> PartitionState:
    assert isinstance(operation, Put)
    assert operation.version == 7
    return decode_partition(operation.path, 8, operation.value)


MOVING = replace(state(3, 1, isr=(1,), leader=1), adding=(3,), removing=(1,))
ONLY_ADDED = replace(state(3, 1, isr=(3,), leader=3), adding=(3,))


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (To("b", 0, (1,)), UnknownPartition, "Unable to find a topic named b."),
        (To("a", 9, (1,)), UnknownPartition, "Unable to find partition a:9."),
        (To("a", -1, None), UnknownPartition, "Unable to find partition a:-1."),
        (To("a", 0, None), NoReassignmentInProgress, ""),
        (
            To("a", 0, ()),
            InvalidReplicaAssignment,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            To("a", 0, (1, 9)),
            InvalidReplicaAssignment,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (To("a", 0, (1, 2, 3)), InvalidReplicationFactor, "The replication factor is changed from 2 to 3"),
        (To("a", 1, (1, 2)), InvalidReplicationFactor, "The replication factor is changed from 1 to 2"),
        (
            To("a", 2, None),
            InvalidReplicaAssignment,
            "Unable to revert partition assignment for a:2 because it would require an unclean leader election.",
        ),
    ],
)
def test_an_order_to_move_that_cannot_be_carried_out(asked: To, error: type[CoordinatorError], text: str) -> None:
    with pytest.raises(error) as refused:
        reassignment(image_of(state(1, 2), MOVING, ONLY_ADDED), asked, may_change_factor=False)
    assert (type(refused.value), str(refused.value)) == (error, text)


def test_replicas_may_move_to_a_broker_that_is_away() -> None:
    found = written(reassignment(image_of(state(1), fenced=(3,)), To("a", 0, (3,)), may_change_factor=True))
    assert (found.replicas, found.adding, found.removing, found.leader) == ((3, 1), (3,), (1,), 1)


def test_a_cancellation_may_lose_records_if_the_topic_allows_unclean_elections() -> None:
    allowed = image_of(ONLY_ADDED, unclean_leader_election_enable="true")
    found = written(reassignment(allowed, To("a", 0, None), may_change_factor=True))
    assert (found.replicas, found.isr, found.leader) == ((1,), (1,), 1)
    assert found.unclean_since == found.leader_epoch
    away = image_of(ONLY_ADDED, fenced=(1,), unclean_leader_election_enable="true")
    with pytest.raises(InvalidReplicaAssignment):
        reassignment(away, To("a", 0, None), may_change_factor=True)


def test_orders_that_are_refused_keep_no_others_back_and_the_last_about_one_counts() -> None:
    image = image_of(state(1, 2), state(1, 2))

    def decide(image: ClusterImage, asked: To) -> Operation | None:
        return reassignment(image, asked, may_change_factor=True)

    orders = [To("a", 0, (2, 1)), To("b", 0, None), To("a", 1, (1, 2)), To("a", 0, (3, 1))]
    plan = together(image, orders, decide)
    assert [type(one) for one in plan.refused] == [type(None), UnknownPartition, type(None), type(None)]
    [operation] = plan.operations
    assert written(operation).adding == (3,)


@pytest.mark.parametrize(
    ("kind", "partition", "error", "text"),
    [
        (PREFERRED, ("b", 0), UnknownPartition, "No such topic as b"),
        (UNCLEAN, ("a", 9), UnknownPartition, "No such partition as a-9"),
        (PREFERRED, ("a", 0), ElectionNotNeeded, "Leader election not needed for topic partition."),
        (UNCLEAN, ("a", 0), ElectionNotNeeded, "Leader election not needed for topic partition."),
        (UNCLEAN, ("a", 1), ElectionNotNeeded, "Leader election not needed for topic partition."),
        (PREFERRED, ("a", 1), PreferredLeaderNotAvailable, "The preferred leader was not available."),
        (PREFERRED, ("a", 2), PreferredLeaderNotAvailable, "The preferred leader was not available."),
        (UNCLEAN, ("a", 2), EligibleLeadersNotAvailable, "Eligible topic partition leaders are not available."),
    ],
)
def test_an_election_that_is_not_held(
    kind: ElectionType, partition: tuple[str, int], error: type[CoordinatorError], text: str
) -> None:
    states = state(1, 2), state(2, 1, isr=(1,), leader=1), state(3, leader=-1)
    with pytest.raises(error) as refused:
        election(image_of(*states, fenced=(3,)), partition, kind=kind)
    assert (type(refused.value), str(refused.value)) == (error, text)


def test_elections_by_order() -> None:
    assert written(election(image_of(state(1, 2, leader=2)), ("a", 0), kind=PREFERRED)).leader == 1
    lost = state(1, 2, isr=(1,), leader=-1)
    found = written(election(image_of(lost, fenced=(1,)), ("a", 0), kind=UNCLEAN))
    assert (found.leader, found.isr, found.unclean_since) == (2, (2,), found.leader_epoch)


def test_an_unregistered_broker_is_no_member_and_its_epochs_are_kept() -> None:
    image = image_of(state(1, 3))
    with pytest.raises(BrokerIdNotRegistered, match="Broker ID 9 is not currently registered"):
        unregistration(image, 9)
    [operation] = unregistration(image, 3).operations
    assert isinstance(operation, Put)
    left = folded(image, image.version + 1, [LoggedNode(operation.path, operation.version + 1, operation.value)])
    assert (sorted(left.members), sorted(left.brokers), sorted(left.former)) == ([1, 2], [1, 2], [3])
    assert left.former[3].version == operation.version + 1
    with pytest.raises(BrokerIdNotRegistered):
        unregistration(left, 3)
    again = folded(
        left, left.version + 1, [LoggedNode(operation.path, 9, operation.value.replace(b"unregistered", b"serving"))]
    )
    assert (sorted(again.members), sorted(again.former)) == ([1, 2, 3], [])
