"""DescribeGroups, ListGroups and DeleteGroups on the wire, in front of a fake group service."""

from __future__ import annotations

import pytest

from coordinator import errors
from coordinator.errors import GroupError
from coordinator.groups.api import GroupDescription, GroupListing, GroupState, MemberDescription
from kafkawire.handlers.tests.test_groups import CODES
from kafkawire.messages.delete_groups import DeleteGroupsRequest
from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.requests.context import Authorizer, Operation, ResourceType
from kafkawire.tests.harness import open_handlers

DESCRIBE_VERSIONS = range(7)
LIST_VERSIONS = range(6)
DELETE_VERSIONS = range(4)
NOT_ASKED = -(2**31)
MEMBER = MemberDescription("m", "i", "client", "/10.0.0.9", b"metadata", b"assignment")
STABLE = GroupDescription("g", GroupState.STABLE, "consumer", "range", (MEMBER,))


def may_all_but(refused: str) -> Authorizer:
    """An authorizer that denies this group, and the cluster."""

    def authorize(principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return resource is not ResourceType.CLUSTER and name != refused

    return authorize


# DescribeGroups


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
async def test_a_described_group(version: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["describe"] = STABLE
        reply = await broker.ask(DescribeGroupsRequest(groups=["g"]), version)
        assert broker.groups.calls == [("describe", "g")]
    (group,) = reply.groups
    assert (reply.throttle_time_ms, group.error_code, group.error_message) == (0, 0, None)
    assert (group.group_id, group.group_state) == ("g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations == NOT_ASKED
    (member,) = group.members
    assert (member.member_id, member.group_instance_id) == ("m", "i" if version >= 4 else None)
    assert (member.client_id, member.client_host) == ("client", "/10.0.0.9")
    assert (member.member_metadata, member.member_assignment) == (b"metadata", b"assignment")


@pytest.mark.parametrize("version", [version for version in DESCRIBE_VERSIONS if version >= 3])
async def test_describe_groups_returns_the_authorized_operations(version: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["describe"] = STABLE
        reply = await broker.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), version)
    all_of_them = sum(1 << bit for bit in (3, 6, 8, 10, 11))  # read, delete, describe, describe and alter configs
    assert reply.groups[0].authorized_operations == all_of_them


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
async def test_a_group_that_there_is_not_is_dead(version: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["describe"] = errors.UnknownGroup()
        reply = await broker.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), version)
    (group,) = reply.groups
    assert (group.group_id, group.group_state, group.members) == ("g", "Dead", [])
    if version >= 6:
        assert (group.error_code, group.error_message) == (69, "Group g not found.")
        assert group.authorized_operations == NOT_ASKED
    else:
        assert (group.error_code, group.error_message) == (0, None)
        assert (group.authorized_operations == NOT_ASKED) == (version < 3)


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_groups_are_described_each_by_itself(error: GroupError, code: int) -> None:
    async with open_handlers(authorizer=may_all_but("secret")) as broker:
        broker.groups.answers["describe", "bad"] = error
        broker.groups.answers["describe", "g"] = STABLE
        request = DescribeGroupsRequest(groups=["bad", "secret", "g"], include_authorized_operations=True)
        reply = await broker.ask(request, 6)
        assert broker.groups.calls == [("describe", "bad"), ("describe", "g")]
    assert [(one.group_id, one.error_code) for one in reply.groups] == [("bad", code), ("secret", 30), ("g", 0)]
    assert [one.authorized_operations == NOT_ASKED for one in reply.groups] == [True, True, False]
    assert [one.group_state for one in reply.groups] == ["Dead" if code == 69 else "", "", "Stable"]


async def test_no_groups_to_describe() -> None:
    async with open_handlers() as broker:
        assert (await broker.ask(DescribeGroupsRequest(groups=[]), 6)).groups == []


# ListGroups

LISTED = [
    GroupListing("a", "consumer", GroupState.STABLE),
    GroupListing("b", "connect", GroupState.PREPARING_REBALANCE),
    GroupListing("c", "", GroupState.EMPTY),
]


@pytest.mark.parametrize("version", LIST_VERSIONS)
async def test_all_groups(version: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["list_groups"] = LISTED
        reply = await broker.ask(ListGroupsRequest(), version)
    assert (reply.error_code, reply.throttle_time_ms) == (0, 0)
    assert [(one.group_id, one.protocol_type) for one in reply.groups] == [
        ("a", "consumer"),
        ("b", "connect"),
        ("c", ""),
    ]
    states = ["Stable", "PreparingRebalance", "Empty"] if version >= 4 else [""] * 3
    assert [one.group_state for one in reply.groups] == states
    assert [one.group_type for one in reply.groups] == (["classic"] if version >= 5 else [""]) * 3


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["Stable"], [], "a"),
        (["stable", "EMPTY"], [], "ac"),
        ([" preparingrebalance "], [], "b"),
        (["CompletingRebalance"], [], ""),
        (["Sleeping"], [], ""),
        (["Sleeping", "Empty"], [], "c"),
        ([], ["classic"], "abc"),
        ([], ["CLASSIC", "share"], "abc"),
        ([], ["consumer"], ""),
        ([], ["unheard-of"], ""),
        (["Stable"], ["Classic"], "a"),
        (["Stable"], ["share"], ""),
    ],
)
async def test_filters(states: list[str], types: list[str], found: str) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["list_groups"] = LISTED
        reply = await broker.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert [one.group_id for one in reply.groups] == list(found)


async def test_groups_that_may_not_be_described_are_not_listed() -> None:
    async with open_handlers(authorizer=may_all_but("b")) as broker:
        broker.groups.answers["list_groups"] = LISTED
        reply = await broker.ask(ListGroupsRequest(), 5)
    assert (reply.error_code, [one.group_id for one in reply.groups]) == (0, ["a", "c"])


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_list_that_cannot_be_had(error: GroupError, code: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["list_groups"] = error
        reply = await broker.ask(ListGroupsRequest(), 5)
    assert (reply.error_code, reply.groups) == (code, [])


# DeleteGroups


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_groups_are_deleted_each_by_itself(version: int) -> None:
    async with open_handlers(authorizer=may_all_but("secret")) as broker:
        broker.groups.answers["delete_group"] = None
        for error, code in CODES:
            broker.groups.answers["delete_group", str(code)] = error
        names = ["g", "secret", *(str(code) for _, code in CODES), "g"]
        reply = await broker.ask(DeleteGroupsRequest(groups_names=names), version)
        assert [call[1] for call in broker.groups.calls] == ["g", *(str(code) for _, code in CODES)]
    assert reply.throttle_time_ms == 0
    assert [(one.group_id, one.error_code) for one in reply.results] == [
        ("g", 0),
        ("secret", 30),
        *((str(code), code) for _, code in CODES),
    ]
    assert {one.error_message for one in reply.results} == {None}
