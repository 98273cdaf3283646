"""OffsetCommit: the request, refused partitions, and retries."""

from __future__ import annotations

from typing import Any

import pytest

from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from spark_connectors.progress.commits import commit
from spark_connectors.progress.groups import Commit, CommitResult
from spark_connectors.wire import Address, Cluster, ErrorCode, GaveUp, MalformedReply, Settings, TopicPartition
from spark_connectors.wire.tests.fakes import FakeBroker, FakeClock, FakeNetwork

WHERE = Address("one", 9092)
POSITIONS = {TopicPartition("u", 0): 3, TopicPartition("t", 1): 2, TopicPartition("t", 0): 1}


class World:
    """A broker with its codes for partitions; `every` has codes for all of them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.codes: dict[TopicPartition, int] = {}
        self.every: list[int] = []
        self.find_error = 0
        self.broker = FakeBroker((FindCoordinatorRequest, self.find), (OffsetCommitRequest, self.answer))
        self.network.brokers[WHERE] = self.broker
        self.cluster = Cluster([WHERE], Settings(patience_s=5.0), connect=self.network, clock=self.clock)

    def find(self, request: Any) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        found = Coordinator(key=key, host=WHERE.host, port=WHERE.port, error_code=self.find_error)
        return FindCoordinatorResponse(coordinators=[found])

    def answer(self, request: Any) -> OffsetCommitResponse:
        of_all = self.every.pop(0) if self.every else 0
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=of_all or self.codes.get(TopicPartition(topic.name, row.partition_index), 0),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    def commit(self) -> CommitResult:
        return commit(self.cluster, Commit("g", POSITIONS))


@pytest.fixture
def world() -> World:
    return World()


def test_commit_request_has_no_member_id_and_no_generation(world: World) -> None:
    assert world.commit() == CommitResult(POSITIONS)
    (asked,) = world.broker.asked(OffsetCommitRequest)
    assert (asked.group_id, asked.generation_id_or_member_epoch, asked.member_id) == ("g", -1, "")
    assert asked.group_instance_id is None
    said = {
        topic.name: [(row.partition_index, row.committed_offset) for row in topic.partitions] for topic in asked.topics
    }
    assert said == {"t": [(0, 1), (1, 2)], "u": [(0, 3)]}


def test_a_topic_that_is_gone_leaves_others_alone(world: World) -> None:
    world.codes = {TopicPartition("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    outcome = world.commit()
    assert outcome.committed == {TopicPartition("t", 1): 2, TopicPartition("u", 0): 3}
    assert outcome.refusal == (
        "group g refuses offsets of t-0: UNKNOWN_TOPIC_OR_PARTITION (no such topic, or it has fewer partitions)"
    )
    assert world.clock.pauses_s == []


def test_a_group_with_members_refuses_all(world: World) -> None:
    world.every = [ErrorCode.UNKNOWN_MEMBER_ID]
    outcome = world.commit()
    assert outcome.committed == {}
    assert outcome.refusal is not None
    assert "t-0, t-1, u-0: UNKNOWN_MEMBER_ID (the group has members" in outcome.refusal


def test_many_partitions_are_not_all_named(world: World) -> None:
    positions = {TopicPartition("t", number): 1 for number in range(9)}
    world.every = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    refusal = commit(world.cluster, Commit("g", positions)).refusal
    assert refusal == "group g refuses offsets of t-0, t-1, t-2, t-3, t-4 and 4 more: TOPIC_AUTHORIZATION_FAILED"


def test_a_group_that_is_not_for_us(world: World) -> None:
    world.find_error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.commit() == CommitResult({}, "coordinator of g: GROUP_AUTHORIZATION_FAILED")


def test_a_coordinator_that_starts_is_asked_again(world: World) -> None:
    world.every = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    assert world.commit() == CommitResult(POSITIONS)
    assert len(world.broker.asked(OffsetCommitRequest)) == 3


def test_a_cluster_that_is_away(world: World) -> None:
    world.broker.is_down = True
    with pytest.raises(GaveUp, match="cannot connect to one:9092"):
        world.commit()


def test_an_answer_about_something_else(world: World) -> None:
    world.broker.handlers[OffsetCommitRequest] = lambda _: OffsetCommitResponse(topics=[])
    with pytest.raises(MalformedReply, match="other partitions"):
        world.commit()
