"""Choice of the broker for a request, and retries."""

from __future__ import annotations

import pytest
import trio

from kafkawire.client.cluster import GROUPS_AT_ONCE, LEADER_ATTEMPTS, Cluster
from kafkawire.client.connection import Address, Connection
from kafkawire.client.errors import CannotConnect, ClientError, Refusal, refusal
from kafkawire.client.groups import describe_groups, list_groups
from kafkawire.client.offsets import EARLIEST, LATEST, offsets_at, partitions_of
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.tests.fake_cluster import FakeCluster, FakeGroup, FakeLog
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.messages.list_offsets import ListOffsetsRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.requests.errors import ErrorCode

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def reachable(fake: FakeCluster) -> Cluster:
    return Cluster(fake.bootstrap, fake.connect)


async def test_the_next_bootstrap_server_when_the_first_is_away() -> None:
    fake = FakeCluster(broker_count=2)
    fake.unreachable.add(fake.addresses[1])
    async with reachable(fake) as cluster:
        assert await cluster.brokers() == fake.bootstrap
        assert await cluster.any_broker() is await cluster.broker(fake.addresses[2])


async def test_no_bootstrap_server_can_be_reached() -> None:
    fake = FakeCluster(broker_count=2)
    fake.unreachable.update(fake.bootstrap)
    async with reachable(fake) as cluster:
        with pytest.raises(
            CannotConnect, match=r"kafka-1:9092: Connection refused; .*kafka-2:9092: Connection refused"
        ):
            await cluster.brokers()


async def test_repeated_calls_share_one_connection_per_broker() -> None:
    fake = FakeCluster()
    async with reachable(fake) as cluster:
        await list_groups(cluster)
        await list_groups(cluster)
    assert len(fake.requests_of(ApiVersionsRequest)) == 1


async def test_partitions_are_asked_for_where_they_are_led() -> None:
    fake = FakeCluster(broker_count=2)
    fake.topics["orders"] = [FakeLog(3, 10, leader=1), FakeLog(5, 20, leader=2)]
    async with reachable(fake) as cluster:
        assert await offsets_at(cluster, [FIRST, SECOND], EARLIEST) == {FIRST: 3, SECOND: 5}
        assert await offsets_at(cluster, [SECOND, FIRST], LATEST) == {FIRST: 10, SECOND: 20}


async def test_a_new_leader_is_looked_for() -> None:
    fake = FakeCluster()
    fake.topics["orders"] = [FakeLog(0, 10)]
    fake.refuse(ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with reachable(fake) as cluster:
        assert await offsets_at(cluster, [FIRST], LATEST) == {FIRST: 10}
    assert len(fake.requests_of(MetadataRequest)) == 2


async def test_a_partition_may_stay_without_a_leader() -> None:
    fake = FakeCluster()
    fake.topics["orders"] = [FakeLog(0, 10), FakeLog(0, 20, leader=-1)]
    async with reachable(fake) as cluster:
        offsets = await offsets_at(cluster, [FIRST, SECOND], LATEST)
    assert offsets == {FIRST: 10, SECOND: refusal(ErrorCode.LEADER_NOT_AVAILABLE)}
    assert len(fake.requests_of(MetadataRequest)) == LEADER_ATTEMPTS


async def test_topics_and_partitions_that_there_are_not() -> None:
    fake = FakeCluster()
    fake.topics["orders"] = [FakeLog(0, 10)]
    unknown = refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    other = TopicPartition("other", 0)
    async with reachable(fake) as cluster:
        assert await offsets_at(cluster, [SECOND, other], LATEST) == {SECOND: unknown, other: unknown}
        assert await partitions_of(cluster, ["orders", "other"]) == {"orders": [FIRST], "other": unknown}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR],
)
async def test_a_coordinator_is_waited_for(code: ErrorCode) -> None:
    fake = FakeCluster()
    fake.groups["billing"] = FakeGroup()
    fake.refuse(FindCoordinatorRequest, code)
    fake.refuse(DescribeGroupsRequest, code, code)
    fake.refuse(ListGroupsRequest, code)
    async with reachable(fake) as cluster:
        assert not isinstance((await describe_groups(cluster, ["billing"]))["billing"], Refusal)
        assert len(await list_groups(cluster)) == 1
    assert len(fake.requests_of(FindCoordinatorRequest)) == 4


async def test_waiting_for_names_the_awaited_group_after_a_timeout() -> None:
    fake = FakeCluster()
    fake.refuse(FindCoordinatorRequest, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100)
    async with reachable(fake) as cluster:
        with trio.move_on_after(20) as scope:
            await describe_groups(cluster, ["billing"])
        assert scope.cancelled_caught
        assert cluster.waiting_for == "billing: not yet"
    assert 20 < len(fake.requests_of(FindCoordinatorRequest)) < 30


async def test_a_refusal_that_stays_is_the_answer() -> None:
    fake = FakeCluster()
    fake.refuse(FindCoordinatorRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with reachable(fake) as cluster:
        answer = (await describe_groups(cluster, ["billing"]))["billing"]
    assert answer == Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not yet")


async def test_many_groups_go_in_portions() -> None:
    fake = FakeCluster()
    names = [f"group-{number}" for number in range(GROUPS_AT_ONCE + 1)]
    fake.groups.update({name: FakeGroup() for name in names})
    async with reachable(fake) as cluster:
        assert len(await describe_groups(cluster, names)) == len(names)
    assert [len(request.groups) for request in fake.requests_of(DescribeGroupsRequest)] == [GROUPS_AT_ONCE, 1]


async def test_a_group_missing_from_the_replies_raises_a_client_error() -> None:
    async def forget(connection: Connection, theirs: list[str]) -> dict[str, int | Refusal]:
        await trio.lowlevel.checkpoint()
        return {}

    async with reachable(FakeCluster()) as cluster:
        with pytest.raises(ClientError, match="the brokers say nothing of billing"):
            await cluster.at_coordinators(["billing"], forget)


async def test_an_unknown_error_code_is_shown_as_its_number() -> None:
    assert refusal(999).text == "error 999"
    assert refusal(999, "its words").text == "its words"
    assert str(refusal(ErrorCode.CORRUPT_MESSAGE)) == "CORRUPT_MESSAGE"


async def test_a_refused_list_of_groups_raises_a_client_error() -> None:
    fake = FakeCluster()
    fake.refuse(ListGroupsRequest, ErrorCode.UNKNOWN_SERVER_ERROR)
    async with reachable(fake) as cluster:
        with pytest.raises(ClientError, match=r"^kafka-1:9092 does not list its groups: UNKNOWN_SERVER_ERROR$"):
            await list_groups(cluster)


def test_the_address_of_a_broker() -> None:
    assert str(Address("kafka-1", 9092)) == "kafka-1:9092"
