"""The rules of adding partitions, a test for each, with Kafka's texts, and the shape of the batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import BrokerInfo, ClusterImage, Extent, PartitionState, TopicInfo
from coordinator.errors import (
    CoordinatorError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicRequest,
    TooManyPartitions,
    UnknownTopic,
)
from coordinator.metadata.nodes import decode_topic
from coordinator.metadata.plans import first_batch
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Delete, Put
from coordinator.requests import create_partitions
from coordinator.requests.create_partitions import CreatePartitionsRequest
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.images import with_members, with_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

ID = bytes(range(16))
BROKERS = {number: BrokerInfo(number, (), incarnation=bytes([number]) * 16) for number in (1, 2, 3)}
MANUAL = "The manual partition assignment includes "


def state(*replicas: int) -> PartitionState:
    return PartitionState(
        replicas[0], 4, replicas, replicas, extents=(Extent(0, replicas),), incarnation=BROKERS[replicas[0]].incarnation
    )


def image_of(name: str = "a", *states: PartitionState) -> ClusterImage:
    image = with_members(ClusterImage(0, "cluster"), BROKERS, 1)
    return with_topics(image, [TopicInfo(name, ID, states or (state(1, 2), state(2, 1)), {"retention.ms": "1"})])


def decide(
    count: int, assignments: Sequence[Sequence[int]] | None = None, image: ClusterImage | None = None
) -> TopicInfo:
    defaults = TopicDefaults(partitions_max=5_000)
    return create_partitions.decide_create_partitions(
        image or image_of(), CreatePartitionsRequest("a", count, assignments), defaults, start=2
    )


def test_new_partitions_have_the_old_replication_factor_and_old_partitions_stay_unchanged() -> None:
    topic = decide(4)
    assert topic.partitions[:2] == image_of().topics["a"].partitions
    assert [one.replicas for one in topic.partitions[2:]] == [(3, 1), (1, 2)]
    assert (topic.partitions[2].leader_epoch, topic.partitions[2].incarnation) == (0, BROKERS[3].incarnation)
    assert topic.configs == {"retention.ms": "1"}


def test_a_manual_assignment_is_used_unchanged() -> None:
    assert [one.replicas for one in decide(4, [[3, 2], [1, 3]]).partitions[2:]] == [(3, 2), (1, 3)]


@pytest.mark.parametrize(
    ("error", "text", "count", "assignments"),
    [
        (InvalidPartitions, "Topic already has 2 partition(s).", 2, None),
        (InvalidPartitions, "Topic already has 2 partition(s).", 2, [[9]]),
        (
            InvalidPartitions,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
            1,
            None,
        ),
        (InvalidPartitions, "The topic a currently has 2 partition(s); -1 would not be an increase.", -1, None),
        (
            InvalidReplicaAssignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
            4,
            [[1, 2]],
        ),
        (InvalidReplicaAssignment, MANUAL + "an empty replica list.", 3, [[]]),
        (InvalidReplicaAssignment, MANUAL + "broker 9, but no such broker is registered.", 3, [[9, 1]]),
        (InvalidReplicaAssignment, MANUAL + "the broker 1 more than once.", 3, [[1, 1]]),
        (
            InvalidReplicaAssignment,
            MANUAL + "a partition with 1 replica(s), but this is not consistent with previous partitions, which have "
            "2 replica(s).",
            3,
            [[1]],
        ),
        (TooManyPartitions, "Excessively large number of partitions per request.", 5_003, None),
    ],
)
def test_invalid_partition_additions_are_refused(
    error: type[CoordinatorError], text: str, count: int, assignments: Sequence[Sequence[int]] | None
) -> None:
    with pytest.raises(error) as raised:
        decide(count, assignments)
    assert str(raised.value) == text


def test_there_is_no_such_topic() -> None:
    with pytest.raises(UnknownTopic):
        decide(3, image=image_of("b"))


def test_too_few_brokers_are_left() -> None:
    with pytest.raises(InvalidReplicationFactor, match="only 1 broker"):
        decide(3, image=with_members(image_of(), {1: BROKERS[1]}, 1))


def test_an_internal_topic_does_not_grow() -> None:
    with pytest.raises(InvalidTopicRequest, match="__consumer_offsets cannot be changed"):
        create_partitions.decide_create_partitions(
            image_of("__consumer_offsets"), CreatePartitionsRequest("__consumer_offsets", 9), TopicDefaults(), start=0
        )


def test_partitions_appear_with_the_topics_own_node_which_comes_last() -> None:
    image, topic = image_of(), decide(2_502)
    plan = create_partitions.growth(image, topic)
    first, last = plan.operations[0], plan.operations[-1]
    assert (len(plan.operations), len(first_batch(plan.operations)) < 2_501) == (2_501, True)
    assert isinstance(first, Create)
    assert first.path == paths.partition(ID, 2)
    assert isinstance(last, Put)
    assert (last.path, last.version) == (paths.topic("a"), 0)
    assert decode_topic(last.path, last.value).partition_count == 2_502
    assert (plan.topic, topic.version) == (topic, 1)


def test_states_left_by_an_interrupted_addition_are_reused_replaced_or_deleted() -> None:
    topic = decide(5)
    fits, differs = topic.partitions[2], replace(topic.partitions[3], leader_epoch=9, version=6)
    image = replace(image_of(), aside={ID: {2: fits, 3: differs, 7: differs}})
    deleted, put, created, last = create_partitions.growth(image, topic).operations
    assert deleted == Delete(paths.partition(ID, 7))
    assert isinstance(put, Put)
    assert (put.path, put.version) == (paths.partition(ID, 3), 6)
    assert isinstance(created, Create)
    assert created.path == paths.partition(ID, 4)
    assert last.path == paths.topic("a")
