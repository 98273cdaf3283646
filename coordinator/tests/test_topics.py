"""The rules of topic creation, a test for each, with Kafka's texts, and the shape of the batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import BrokerInfo, ClusterImage, Extent, TopicInfo
from coordinator.errors import (
    CoordinatorError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    InvalidTopicRequest,
    TooManyPartitions,
    TopicExists,
)
from coordinator.metadata.changes import change_of
from coordinator.metadata.nodes import encode_change
from coordinator.metadata.plans import first_batch
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import MULTI_OPERATIONS_MAX, MULTI_SIZE_MAX_BYTES, Create, Delete, Put, size_bytes
from coordinator.requests import topics
from coordinator.requests.topics import TopicDefaults, TopicRequest
from coordinator.testing.fakes import FakeValidator
from coordinator.testing.images import with_members, with_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC_ID = bytes(range(16))
ILLEGAL_CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
INCARNATIONS = {broker_id: bytes([broker_id]) * 16 for broker_id in (1, 2, 3)}


def broker(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id, (), incarnation=INCARNATIONS[broker_id])


def image_of(broker_count: int = 1, topics: tuple[str, ...] = ()) -> ClusterImage:
    members = {broker_id: broker(broker_id) for broker_id in range(1, broker_count + 1)}
    image = with_members(ClusterImage(0, "cluster"), members, 1)
    for number, name in enumerate(topics):
        topic_id = bytes([200 + number]) * 16
        image = with_topics(image, [TopicInfo(name, topic_id, ())])
    return image


def decide(request: TopicRequest, image: ClusterImage | None = None) -> TopicInfo:
    defaults = TopicDefaults(partition_count=3, replication_factor=1, partitions_max=5_000)
    return topics.decide_topic(image or image_of(), request, defaults, FakeValidator(), TOPIC_ID, start=0)


def refused(error: type[CoordinatorError], text: str, request: TopicRequest, image: ClusterImage | None = None) -> None:
    with pytest.raises(error) as raised:
        decide(request, image)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' or '..' is not allowed"),
        ("..", "Topic name is invalid: '.' or '..' is not allowed"),
        (
            "a" * 250,
            f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
        ),
        *(
            (name, f"Topic name is invalid: '{name}' {ILLEGAL_CHARACTERS}")
            for name in ("a b", "a/b", "../a", "ä", "a\n", "a\0", "a:b")
        ),
    ],
)
def test_illegal_names(name: str, text: str) -> None:
    refused(InvalidTopicName, text, TopicRequest(name))


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "...", "a" * 249, "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    assert decide(TopicRequest(name)).name == name


def test_a_name_that_differs_only_in_dot_and_underscore_collides() -> None:
    image = image_of(topics=("a.b", "plain"))
    refused(InvalidTopicName, "Topic 'a_b' collides with existing topic: a.b", TopicRequest("a_b"), image)
    assert decide(TopicRequest("a-b"), image).name == "a-b"


def test_an_existing_name_is_refused_before_everything_but_the_name() -> None:
    request = TopicRequest("a.b", partition_count=0, configs={"unknown.key": "1"})
    refused(TopicExists, "Topic 'a.b' already exists.", request, image_of(topics=("a.b",)))


def test_configs_are_validated() -> None:
    request = TopicRequest("a", configs={"unknown.key": "1"})
    refused(InvalidConfig, "Unknown topic config name: unknown.key", request)
    assert decide(TopicRequest("a", configs={"retention.ms": "1"})).configs == {"retention.ms": "1"}


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
def test_the_partition_count_is_positive_or_the_default(count: int) -> None:
    text = "Number of partitions was set to an invalid non-positive value."
    refused(InvalidPartitions, text, TopicRequest("a", partition_count=count))


@pytest.mark.parametrize("factor", [0, -2, -(2**15)])
def test_the_replication_factor_is_positive_or_the_default(factor: int) -> None:
    text = "Replication factor must be larger than 0, or -1 to use the default value."
    refused(InvalidReplicationFactor, text, TopicRequest("a", replication_factor=factor))


def test_minus_one_means_the_configured_default() -> None:
    assert [state.replicas for state in decide(TopicRequest("a")).partitions] == [(1,), (1,), (1,)]


def test_more_replicas_than_brokers() -> None:
    text = (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 2 broker(s) are registered."
    )
    refused(InvalidReplicationFactor, text, TopicRequest("a", replication_factor=3), image_of(2))


def test_internal_topics_are_not_made_with_fewer_replicas_than_asked_for() -> None:
    """KIP-115: they would never be given the missing replicas."""
    with pytest.raises(InvalidReplicationFactor):
        decide(TopicRequest("__consumer_offsets", partition_count=2, replication_factor=3), image_of(2))


def test_too_many_partitions() -> None:
    text = "Excessively large number of partitions per request."
    refused(TooManyPartitions, text, TopicRequest("a", partition_count=5_001))
    refused(TooManyPartitions, text, TopicRequest("a", assignments={number: [1] for number in range(5_001)}))


def test_counts_and_an_assignment_contradict_each_other() -> None:
    text = "A manual partition assignment was specified, but replication factor was not set to -1."
    refused(InvalidTopicRequest, text, TopicRequest("a", replication_factor=1, assignments={0: [1]}))
    text = "A manual partition assignment was specified, but numPartitions was not set to -1."
    refused(InvalidTopicRequest, text, TopicRequest("a", partition_count=1, assignments={0: [1]}))


MANUAL = "The manual partition assignment includes "


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        ({1: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({7: [1], 0: []}, MANUAL + "an empty replica list."),
        ({-1: [1], 0: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: []}, MANUAL + "an empty replica list."),
        ({0: [7]}, MANUAL + "broker 7, but no such broker is registered."),
        ({0: [2, 1, 2]}, MANUAL + "the broker 2 more than once."),
        (
            {0: [1, 2], 1: [1]},
            MANUAL + "a partition with 1 replica(s), but this is not consistent with previous partitions, which have "
            "2 replica(s).",
        ),
    ],
)
def test_bad_manual_assignments(assignments: Mapping[int, list[int]], text: str) -> None:
    refused(InvalidReplicaAssignment, text, TopicRequest("a", assignments=assignments), image_of(3))


def test_a_manual_assignment_is_used_unchanged() -> None:
    topic = decide(TopicRequest("a", assignments={1: [3, 1], 0: [2, 3]}), image_of(3))
    assert [state.replicas for state in topic.partitions] == [(2, 3), (3, 1)]
    first = topic.partitions[0]
    assert (first.leader, first.leader_epoch, first.isr, first.extents) == (2, 0, (2, 3), (Extent(0, (2, 3)),))
    assert first.incarnation == INCARNATIONS[2]


def test_a_creation_writes_the_topic_node_last() -> None:
    plan = topics.creation(image_of(), decide(TopicRequest("a", partition_count=2_500)))
    assert [plan.operations[0].path, plan.operations[-1].path] == [paths.partitions(TOPIC_ID), paths.topic("a")]
    assert len(plan.operations) == 2_502


def test_a_creation_does_not_write_matching_states_again_that_exist_already() -> None:
    topic = decide(TopicRequest("a", partition_count=3))
    there = {0: replace(topic.partitions[0], version=3), 1: replace(topic.partitions[1], leader_epoch=9, version=4)}
    put, created, last = topics.creation(replace(image_of(), aside={TOPIC_ID: there}), topic).operations
    assert isinstance(put, Put)
    assert (put.path, put.version) == (paths.partition(TOPIC_ID, 1), 4)
    assert isinstance(created, Create)
    assert [created.path, last.path] == [paths.partition(TOPIC_ID, 2), paths.topic("a")]


def test_deletion_removes_the_topics_own_node_and_the_rest_is_cleaned_up() -> None:
    topic = replace(decide(TopicRequest("a", partition_count=1_500)), version=4)
    plan = topics.deletion(topic)
    assert (plan.operations[0], plan.topic) == (Delete(paths.topic("a"), 4), topic)
    assert len(plan.operations) == 1_000
    left = replace(image_of(), aside={TOPIC_ID: dict(enumerate(topic.partitions))})
    *states, parent = topics.cleaning(left, TOPIC_ID).operations
    assert (len(states), parent) == (1_500, Delete(paths.partitions(TOPIC_ID)))
    assert topics.cleaning(image_of(), TOPIC_ID).operations == ()


def test_states_that_a_topic_has_too_many_of_are_not_cleaned_up() -> None:
    topic = decide(TopicRequest("a"))
    image = replace(with_topics(image_of(), [topic]), aside={TOPIC_ID: {7: topic.partitions[0]}})
    assert topics.cleaning(image, TOPIC_ID).operations == ()


@pytest.mark.parametrize("name", ["a", "a" * 249])
def test_a_batch_fits_into_a_multi_with_its_change(name: str) -> None:
    operations = topics.creation(image_of(), decide(TopicRequest(name, partition_count=4_999))).operations
    count = 0
    while batch := first_batch(operations[count:]):
        count += len(batch)
        change = Create(paths.change(1), encode_change(change_of(batch, 1, bytes(16))))
        assert sum(map(size_bytes, [*batch, change])) < MULTI_SIZE_MAX_BYTES - 1_024
        assert len(batch) + 3 <= MULTI_OPERATIONS_MAX
        assert len(batch) > 700 or count == len(operations)
    assert count == 4_999 + 2
