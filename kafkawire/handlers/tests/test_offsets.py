"""OffsetCommit, OffsetFetch and OffsetDelete on the wire, in front of a fake group service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator import errors
from coordinator.errors import GroupError
from coordinator.groups.api import Claim, CommittedOffset, FetchedOffset, OffsetToCommit, TopicPartition
from kafkawire.handlers.tests.test_groups import CODES
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import NOW_MS, Broker, open_handlers

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
UNKNOWN_ID = bytes(range(16))
NO_ID = bytes(16)


def id_of(broker: Broker, name: str) -> bytes:
    found = broker.cluster.image.topics.get(name)
    return UNKNOWN_ID if found is None else found.topic_id


# OffsetCommit


def commit_request(broker: Broker, *asked: tuple[str, Sequence[int]], **fields: Any) -> OffsetCommitRequest:
    """A request that commits offset 10 + index for each partition `index`."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            topic_id=id_of(broker, name),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=10 + index, committed_leader_epoch=4, committed_metadata="x"
                )
                for index in indexes
            ],
        )
        for name, indexes in asked
    ]
    return OffsetCommitRequest(group_id="g", topics=topics, **fields)


def codes(reply: Any) -> list[list[tuple[int, int]]]:
    return [[(row.partition_index, row.error_code) for row in topic.partitions] for topic in reply.topics]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_a_commit_is_passed_to_the_coordinator_with_the_fields_of_its_version(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 3)
        broker.groups.answers["commit"] = [None, errors.OffsetMetadataTooLarge()]
        request = commit_request(
            broker,
            ("t", (2, 0)),
            generation_id_or_member_epoch=5,
            member_id="m",
            group_instance_id="i",
            retention_time_ms=77,
        )
        reply = await broker.ask(request, version)
        epoch = 4 if version >= 6 else -1
        claim = Claim("m", "i" if version >= 7 else None, 5)
        offsets = [OffsetToCommit("t", 2, 12, epoch, "x"), OffsetToCommit("t", 0, 10, epoch, "x")]
        assert broker.groups.calls == [("commit", "g", claim, offsets, 77 if version <= 4 else -1)]
    assert reply.throttle_time_ms == 0
    assert [(one.name, one.topic_id) for one in reply.topics] == [("", topic_id) if version >= 10 else ("t", NO_ID)]
    assert codes(reply) == [[(2, 0), (0, 12)]]


async def test_metadata_that_is_null_is_empty() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.groups.answers["commit"] = [None]
        request = commit_request(broker, ("t", (0,)))
        request.topics[0].partitions[0].committed_metadata = None
        await broker.ask(request, 9)
        assert broker.groups.calls[0][3][0].metadata == ""


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_commits_to_unknown_partitions_are_refused_beside_valid_commits(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.groups.answers["commit"] = [None]
        reply = await broker.ask(commit_request(broker, ("missing", (0, 1)), ("t", (2, 1, -1))), version)
        assert [one[1] for one in broker.groups.calls[0][3]] == [1]
        assert codes(reply) == [[(0, unknown(version)), (1, unknown(version))], [(2, 3), (1, 0), (-1, 3)]]


def unknown(version: int) -> int:
    return 100 if version >= 10 else 3


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_a_commit_without_known_partitions_does_not_reach_the_coordinator(version: int) -> None:
    async with open_handlers() as broker:
        reply = await broker.ask(commit_request(broker, ("missing", (0,))), version)
        assert (codes(reply), broker.groups.calls) == ([[(0, unknown(version))]], [])
        assert codes(await broker.ask(commit_request(broker), version)) == []


async def test_no_id_is_no_topic() -> None:
    async with open_handlers() as broker:
        request = commit_request(broker, ("t", (0,)))
        request.topics[0].topic_id = NO_ID
        assert codes(await broker.ask(request, 10)) == [[(0, 100)]]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_commit(version: int, error: GroupError, code: int) -> None:
    if isinstance(error, errors.UnknownGroup) and version < 9:
        code = 22
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.groups.answers["commit"] = error
        reply = await broker.ask(commit_request(broker, ("t", (0, 1, 2)), ("missing", (0,))), version)
    assert codes(reply) == [[(0, code), (1, code), (2, 3)], [(0, unknown(version))]]


# OffsetFetch


def fetch_request(
    broker: Broker, version: int, *asked: tuple[str, Sequence[int]], everything: bool = False
) -> OffsetFetchRequest:
    """A request for offsets of group `g`."""
    if version < 8:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes)) for name, indexes in asked]
        return OffsetFetchRequest(group_id="g", topics=None if everything else old)
    topics = [
        OffsetFetchRequestTopics(name=name, topic_id=id_of(broker, name), partition_indexes=list(indexes))
        for name, indexes in asked
    ]
    group = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3, topics=None if everything else topics)
    return OffsetFetchRequest(groups=[group], require_stable=True)


def fetched(reply: Any, version: int) -> tuple[int, list[tuple[Any, list[tuple[int, int, int, str, int]]]]]:
    """The group's error, and by topic all fields of the partitions."""
    group = reply
    if version >= 8:
        (group,) = reply.groups
        assert group.group_id == "g"
    rows = [
        (
            topic.name if version < 10 else topic.topic_id,
            [
                (row.partition_index, row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code)
                for row in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return group.error_code, rows


COMMITTED = CommittedOffset(7, 2, "x", NOW_MS)


def stable(version: int) -> list[bool]:
    """The `require_stable` argument that `fetch_request` leads to, if any."""
    return [True] if version >= 8 else []


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_committed_offsets(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 3)
        broker.groups.answers["fetch_offsets"] = [None, COMMITTED]
        reply = await broker.ask(fetch_request(broker, version, ("t", (5, 0))), version)
        assert broker.groups.calls == [("fetch_offsets", "g", [("t", [5, 0])], *stable(version))]
    epoch = 2 if version >= 5 else -1
    name = topic_id if version >= 10 else "t"
    assert fetched(reply, version) == (0, [(name, [(5, -1, -1, "", 0), (0, 7, epoch, "x", 0)])])
    assert reply.throttle_time_ms == 0


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 7])
async def test_an_unstable_offset_is_returned_as_an_error_of_its_partition_only(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 3)
        broker.groups.answers["fetch_offsets"] = [errors.UnstableOffset("t-0"), COMMITTED]
        reply = await broker.ask(fetch_request(broker, version, ("t", (0, 1))), version)
    name = topic_id if version >= 10 else "t"
    assert fetched(reply, version) == (0, [(name, [(0, -1, -1, "", 88), (1, 7, 2, "x", 0)])])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_offsets_of_a_topic_that_there_is_not(version: int) -> None:
    async with open_handlers() as broker:
        known = version < 10
        broker.groups.answers["fetch_offsets"] = [COMMITTED] if known else []
        reply = await broker.ask(fetch_request(broker, version, ("gone", (0,))), version)
        assert broker.groups.calls == [("fetch_offsets", "g", [("gone", [0])] if known else [], *stable(version))]
    (row,) = fetched(reply, version)[1][0][1]
    assert (row[1], row[4]) == ((7, 0) if known else (-1, 100))


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 2])
async def test_all_offsets_of_a_group(version: int) -> None:
    found = [FetchedOffset("t", 1, COMMITTED), FetchedOffset("gone", 0, COMMITTED), FetchedOffset("t", 0, COMMITTED)]
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 2)
        broker.groups.answers["fetch_all_offsets"] = found
        reply = await broker.ask(fetch_request(broker, version, everything=True), version)
        assert broker.groups.calls == [("fetch_all_offsets", "g", *stable(version))]
    code, topics = fetched(reply, version)
    shown = [(name, [row[:2] for row in rows]) for name, rows in topics]
    if version >= 10:
        assert (code, shown) == (0, [(topic_id, [(1, 7), (0, 7)])])
    else:
        assert (code, shown) == (0, [("t", [(1, 7), (0, 7)]), ("gone", [(0, 7)])])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_fetch(version: int, error: GroupError, code: int) -> None:
    if isinstance(error, errors.CoordinatorNotAvailable):
        code = 16
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.groups.answers["fetch_offsets"] = error
        reply = await broker.ask(fetch_request(broker, version, ("t", (0, 1))), version)
    if version >= 2:
        assert fetched(reply, version) == (code, [])
    else:
        assert fetched(reply, version) == (0, [("t", [(0, -1, -1, "", code), (1, -1, -1, "", code)])])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_a_group_that_may_not_be_asked(version: int) -> None:
    async with open_handlers(authorizer=lambda *_: False) as broker:
        await broker.create("t")
        reply = await broker.ask(fetch_request(broker, version, ("t", (0,))), version)
        assert broker.groups.calls == []
    assert fetched(reply, version) == ((30, []) if version >= 2 else (0, [("t", [(0, -1, -1, "", 30)])]))


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_several_groups_are_answered_each_by_itself(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        wanted = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="a", topics=wanted),
                OffsetFetchRequestGroup(group_id="b", topics=None),
                OffsetFetchRequestGroup(group_id="c", topics=wanted),
            ]
        )
        broker.groups.answers["fetch_offsets", "a"] = [COMMITTED]
        broker.groups.answers["fetch_all_offsets", "b"] = errors.NotCoordinator()
        dispatched = broker.dispatch(request, version)
        assert not dispatched.is_settled
        broker.groups.asked[2].settle([None])
        reply = broker.read(await answer(dispatched), OffsetFetchRequest.API_KEY, version)
    rows = [
        (group.group_id, group.error_code, [topic.partitions[0].committed_offset for topic in group.topics])
        for group in reply.groups
    ]
    assert rows == [("a", 0, [7]), ("b", 16, []), ("c", 0, [-1])]


# OffsetDelete


def delete_request(*asked: tuple[str, Sequence[int]]) -> OffsetDeleteRequest:
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in asked
    ]
    return OffsetDeleteRequest(group_id="g", topics=topics)


async def test_deleted_offsets() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.groups.answers["delete_offsets"] = [None, errors.SubscribedToTopic()]
        reply = await broker.ask(delete_request(("missing", (0,)), ("t", (0, 2, 1))), 0)
        assert broker.groups.calls == [("delete_offsets", "g", [TopicPartition("t", 0), TopicPartition("t", 1)])]
    assert (reply.error_code, reply.throttle_time_ms) == (0, 0)
    assert [topic.name for topic in reply.topics] == ["missing", "t"]
    assert codes(reply) == [[(0, 3)], [(0, 0), (2, 3), (1, 86)]]


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_deletion(error: GroupError, code: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["delete_offsets"] = error
        reply = await broker.ask(delete_request(("missing", (0,))), 0)
        assert broker.groups.calls == [("delete_offsets", "g", [])], "the group is asked all the same"
    assert (reply.error_code, reply.topics) == (code, [])
