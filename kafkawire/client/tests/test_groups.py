"""Requests of administrators about groups."""

from __future__ import annotations

import pytest

from kafkawire.client.cluster import Cluster
from kafkawire.client.errors import NotSupported, Refusal, refusal
from kafkawire.client.groups import (
    Committed,
    Group,
    commit_offsets,
    committed_offsets,
    delete_groups,
    delete_offsets,
    describe_groups,
    list_groups,
)
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.tests.fake_cluster import FakeCluster, FakeGroup, FakeMember, encode_assignment
from kafkawire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.requests.errors import ErrorCode

ORDERS, EVENTS = TopicPartition("orders", 0), TopicPartition("events", 1)
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def cluster_with(**groups: FakeGroup) -> FakeCluster:
    fake = FakeCluster(broker_count=2)
    fake.groups.update(groups)
    return fake


def reachable(fake: FakeCluster) -> Cluster:
    return Cluster(fake.bootstrap, fake.connect)


def described(answer: Group | Refusal) -> Group:
    assert isinstance(answer, Group), answer
    return answer


async def test_groups_of_all_brokers_by_name() -> None:
    fake = cluster_with(b=FakeGroup(coordinator=1), a=FakeGroup("Stable", "connect", coordinator=2))
    async with reachable(fake) as cluster:
        assert await list_groups(cluster) == [
            ("a", "Stable", "classic", "connect"),
            ("b", "Empty", "classic", "consumer"),
        ]
        assert [one.group_id for one in await list_groups(cluster, states=["Empty"])] == ["b"]
        assert await list_groups(cluster, types=["share"]) == []


@pytest.mark.parametrize(("filters", "version"), [({"states": ["Empty"]}, 3), ({"types": ["classic"]}, 4)])
async def test_an_old_broker_cannot_filter(filters: dict[str, list[str]], version: int) -> None:
    fake = cluster_with()
    fake.versions[ListGroupsRequest.API_KEY] = (0, version)
    async with reachable(fake) as cluster:
        assert await list_groups(cluster) == []
        with pytest.raises(NotSupported):
            await list_groups(cluster, **filters)


async def test_members_are_described_with_their_assignments() -> None:
    member = FakeMember("m-1", encode_assignment({"orders": [0], "events": [1]}), instance_id="static-1")
    fake = cluster_with(billing=FakeGroup("Stable", assignor="range", members=[member], coordinator=2))
    async with reachable(fake) as cluster:
        group = described((await describe_groups(cluster, ["billing"]))["billing"])
    assert (group.state, group.assignor, str(group.coordinator)) == ("Stable", "range", "kafka-2:9092")
    (found,) = group.members
    assert (found.member_id, found.instance_id, found.client_id, found.client_host, found.partitions) == (
        "m-1", "static-1", "client", "/10.0.0.1", [EVENTS, ORDERS],
    )  # fmt: skip


async def test_assignments_of_other_protocol_types_are_not_decoded() -> None:
    group = FakeGroup("Stable", "connect", members=[FakeMember("m-1", encode_assignment({"orders": [0]}))])
    async with reachable(cluster_with(workers=group)) as cluster:
        found = described((await describe_groups(cluster, ["workers"]))["workers"])
    assert (found.protocol_type, found.members[0].partitions) == ("connect", None)


@pytest.mark.parametrize("version", [5, 6])
async def test_a_group_that_there_is_not(version: int) -> None:
    fake = cluster_with()
    fake.versions[DescribeGroupsRequest.API_KEY] = (0, version)
    async with reachable(fake) as cluster:
        answer = (await describe_groups(cluster, ["nobody"]))["nobody"]
        assert isinstance(answer, Refusal)
        assert answer.code == NOT_FOUND
        assert await committed_offsets(cluster, ["nobody"]) == {"nobody": {}}


async def test_a_group_of_the_consumer_protocol() -> None:
    group = FakeGroup("Stable", assignor="uniform", members=[FakeMember("m-1")], group_type="consumer")
    group.subscribed = {"orders"}
    fake = cluster_with(modern=group)
    async with reachable(fake) as cluster:
        found = described((await describe_groups(cluster, ["modern"]))["modern"])
        assert (found.group_type, found.assignor, found.members[0].partitions) == ("consumer", "uniform", [ORDERS])
    fake.versions[ConsumerGroupDescribeRequest.API_KEY] = None
    async with reachable(fake) as cluster:
        assert isinstance((await describe_groups(cluster, ["modern"]))["modern"], Refusal)


async def test_committed_offsets_of_several_groups_are_returned() -> None:
    fake = cluster_with(a=FakeGroup(offsets={ORDERS: 5, EVENTS: -1}), b=FakeGroup(offsets={EVENTS: 7}, coordinator=2))
    async with reachable(fake) as cluster:
        assert await committed_offsets(cluster, ["a", "b"]) == {"a": {ORDERS: Committed(5, 3)}, "b": {EVENTS: (7, 3)}}
        fake.refuse(OffsetFetchRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert await committed_offsets(cluster, ["a"]) == {"a": refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)}


async def test_a_commit_without_a_member_succeeds_only_in_a_group_without_members() -> None:
    fake = cluster_with(active=FakeGroup("Stable", members=[FakeMember("m-1")]))
    fake.refuse(OffsetCommitRequest, ErrorCode.NOT_COORDINATOR)
    async with reachable(fake) as cluster:
        assert await commit_offsets(cluster, "new", {ORDERS: 5, EVENTS: 6}) == {ORDERS: None, EVENTS: None}
        assert fake.groups["new"].offsets == {ORDERS: 5, EVENTS: 6}
        refused = await commit_offsets(cluster, "active", {ORDERS: 5})
    assert str(refused) == "the group has active members"


async def test_offsets_are_deleted_unless_they_are_in_use() -> None:
    fake = cluster_with(billing=FakeGroup(offsets={ORDERS: 5, EVENTS: 6}, subscribed={"orders"}))
    async with reachable(fake) as cluster:
        in_use = refusal(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        assert await delete_offsets(cluster, "billing", [ORDERS, EVENTS]) == {ORDERS: in_use, EVENTS: None}
        assert await delete_offsets(cluster, "billing", [ORDERS]) == in_use
        assert await delete_offsets(cluster, "nobody", [ORDERS]) == refusal(NOT_FOUND)
    assert fake.groups["billing"].offsets == {ORDERS: 5}


async def test_groups_are_deleted_unless_they_have_members() -> None:
    fake = cluster_with(old=FakeGroup(), active=FakeGroup("Stable", members=[FakeMember("m-1")], coordinator=2))
    async with reachable(fake) as cluster:
        assert await delete_groups(cluster, ["old", "active", "nobody"]) == {
            "old": None,
            "active": refusal(ErrorCode.NON_EMPTY_GROUP),
            "nobody": refusal(NOT_FOUND),
        }
    assert list(fake.groups) == ["active"]
