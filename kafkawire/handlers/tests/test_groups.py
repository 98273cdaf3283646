"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup on the wire, in front of a fake group service."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing

from coordinator import errors
from coordinator.errors import GroupError
from coordinator.futures import SettableFuture
from coordinator.groups.api import Claim, Join, Joined, MemberProtocol, Synced
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkawire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkawire.requests.pending_reply import PendingReply, code_of
from kafkawire.server.memory_transport import MemoryListener
from kafkawire.server.server import ServerLimits, serve
from kafkawire.testing import Client
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import LISTENER, Broker, batch, open_handlers

JOIN_VERSIONS = range(10)
SYNC_VERSIONS = range(6)
HEARTBEAT_VERSIONS = range(5)
LEAVE_VERSIONS = range(6)

# Every error a group has, by class.
CODES: list[tuple[GroupError, int]] = [
    (errors.GroupTooLarge(), -1),
    (errors.OffsetMetadataTooLarge(), 12),
    (errors.CoordinatorLoading(), 14),
    (errors.CoordinatorNotAvailable(), 15),
    (errors.NotCoordinator(), 16),
    (errors.IllegalGeneration(), 22),
    (errors.InconsistentProtocol(), 23),
    (errors.InvalidGroupId(), 24),
    (errors.UnknownMember(), 25),
    (errors.InvalidSessionTimeout(), 26),
    (errors.RebalanceInProgress(), 27),
    (errors.GroupNotEmpty(), 68),
    (errors.UnknownGroup(), 69),
    (errors.MemberIdRequired("given"), 79),
    (errors.GroupIsFull(), 81),
    (errors.FencedInstance(), 82),
    (errors.SubscribedToTopic(), 86),
    (errors.UnstableOffset(), 88),
]
# The member id in a refused JoinGroup is the request's, but for these.
MEMBER_IDS = {79: "given", 81: "", 14: "", 15: "", 16: ""}


def join_request(**fields: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name="range", metadata=b"one"),
            JoinGroupRequestProtocol(name="sticky", metadata=b"two"),
        ],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_all_errors_of_groups_are_here() -> None:
    assert {type(error) for error, _ in CODES} == set(GroupError.__subclasses__())


# JoinGroup


@pytest.mark.parametrize("version", JOIN_VERSIONS)
async def test_a_join_is_passed_to_the_coordinator_with_the_fields_of_its_version(version: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["join"] = Joined(1, "consumer", "range", "m", "m")
        await broker.ask(join_request(group_instance_id="i", reason="why not"), version)
        assert broker.groups.calls == [
            (
                "join",
                "g",
                Join(
                    member_id="m",
                    instance_id="i" if version >= 5 else None,
                    client_id="test",
                    client_host="/10.0.0.9",
                    protocol_type="consumer",
                    protocols=(MemberProtocol("range", b"one"), MemberProtocol("sticky", b"two")),
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
                    must_know_its_id=version >= 4,
                    may_skip_assignment=version >= 9,
                ),
            )
        ]


async def test_a_client_without_a_name() -> None:
    async with open_handlers() as broker:
        broker.groups.answers["join"] = errors.MemberIdRequired("-1")
        await broker.ask(join_request(member_id=""), 5, client_id=None)
        assert broker.groups.calls[0][2].client_id == ""


@pytest.mark.parametrize("version", JOIN_VERSIONS)
async def test_a_join_reply_to_the_group_leader_lists_the_members(version: int) -> None:
    members = (("m", "i", b"one"), ("n", None, b"other"))
    async with open_handlers() as broker:
        broker.groups.answers["join"] = Joined(3, "consumer", "range", "m", "m", members, skips_assignment=True)
        reply = await broker.ask(join_request(), version)
    assert (reply.error_code, reply.throttle_time_ms, reply.generation_id) == (0, 0, 3)
    assert (reply.leader, reply.member_id, reply.protocol_name) == ("m", "m", "range")
    assert reply.protocol_type == ("consumer" if version >= 7 else None)
    assert reply.skip_assignment == (version >= 9)
    assert [(one.member_id, one.group_instance_id, one.metadata) for one in reply.members] == [
        ("m", "i" if version >= 5 else None, b"one"),
        ("n", None, b"other"),
    ]


@pytest.mark.parametrize("version", JOIN_VERSIONS)
@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_join(version: int, error: GroupError, code: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["join"] = error
        reply = await broker.ask(join_request(), version)
    assert (reply.error_code, reply.generation_id, reply.leader, reply.members) == (code, -1, "", [])
    assert (reply.protocol_type, reply.protocol_name) == (None, None if version >= 7 else "")
    assert reply.member_id == MEMBER_IDS.get(code, "m")


# SyncGroup


def sync_request(**fields: Any) -> SyncGroupRequest:
    parts = [
        SyncGroupRequestAssignment(member_id="m", assignment=b"old"),
        SyncGroupRequestAssignment(member_id="n", assignment=b"his"),
        SyncGroupRequestAssignment(member_id="m", assignment=b"mine"),
    ]
    return SyncGroupRequest(group_id="g", generation_id=3, member_id="m", assignments=parts, **fields)


@pytest.mark.parametrize("version", SYNC_VERSIONS)
async def test_an_assignment(version: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["sync"] = Synced("consumer", "range", b"mine")
        reply = await broker.ask(
            sync_request(group_instance_id="i", protocol_type="consumer", protocol_name="range"), version
        )
        expected = ("consumer", "range") if version >= 5 else (None, None)
        claim = Claim("m", "i" if version >= 3 else None, 3)
        assert broker.groups.calls == [("sync", "g", claim, expected, {"m": b"mine", "n": b"his"})]
    assert (reply.error_code, reply.throttle_time_ms, reply.assignment) == (0, 0, b"mine")
    assert (reply.protocol_type, reply.protocol_name) == expected


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_sync(error: GroupError, code: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["sync"] = error
        reply = await broker.ask(sync_request(protocol_type="consumer", protocol_name="range"), 5)
    assert (reply.error_code, reply.protocol_type, reply.protocol_name, reply.assignment) == (code, None, None, b"")


@pytest.mark.parametrize("fields", [{}, {"protocol_type": "consumer"}, {"protocol_name": "range"}])
async def test_a_sync_without_a_protocol(fields: dict[str, str]) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["sync"] = Synced("consumer", "range", b"")
        assert (await broker.ask(sync_request(**fields), 5)).error_code == 23
        assert broker.groups.calls == []
        assert (await broker.ask(sync_request(**fields), 4)).error_code == 0


# Heartbeat


@pytest.mark.parametrize("version", HEARTBEAT_VERSIONS)
async def test_a_heartbeat(version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i")
    async with open_handlers() as broker:
        broker.groups.answers["heartbeat"] = None
        reply = await broker.ask(request, version)
        assert (reply.error_code, reply.throttle_time_ms) == (0, 0)
        assert broker.groups.calls == [("heartbeat", "g", Claim("m", "i" if version >= 3 else None, 3))]


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_heartbeat(error: GroupError, code: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["heartbeat"] = error
        reply = await broker.ask(HeartbeatRequest(group_id="g"), 4)
    assert reply.error_code == (0 if isinstance(error, errors.CoordinatorLoading) else code)


# LeaveGroup


@pytest.mark.parametrize("version", LEAVE_VERSIONS)
async def test_members_that_leave(version: int) -> None:
    members = [MemberIdentity(member_id="m", reason="tired"), MemberIdentity(group_instance_id="i")]
    async with open_handlers() as broker:
        many = version >= 3
        broker.groups.answers["leave"] = [None, errors.UnknownMember()] if many else [errors.UnknownMember()]
        reply = await broker.ask(LeaveGroupRequest(group_id="g", member_id="m", members=members), version)
        leaving = [Claim("m"), Claim("", "i")] if many else [Claim("m")]
        assert broker.groups.calls == [("leave", "g", leaving)]
    assert (reply.error_code, reply.throttle_time_ms) == (0 if many else 25, 0)
    rows = [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members]
    assert rows == ([("m", None, 0), ("", "i", 25)] if many else [])


async def test_the_only_member_of_an_old_request_leaves() -> None:
    async with open_handlers() as broker:
        broker.groups.answers["leave"] = [None]
        reply = await broker.ask(LeaveGroupRequest(group_id="g", member_id="m"), 2)
    assert (reply.error_code, reply.members) == (0, [])


@pytest.mark.parametrize("version", [2, 5])
@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
async def test_a_refused_leave_returns_an_error_without_members(version: int, error: GroupError, code: int) -> None:
    async with open_handlers() as broker:
        broker.groups.answers["leave"] = error
        reply = await broker.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), version)
    assert (reply.error_code, reply.members) == (code, [])


# Parked


@dataclass
class Served:
    """The handlers behind a server in memory."""

    broker: Broker
    listener: MemoryListener
    stop: trio.Event

    def connect(self) -> Client:
        return Client(self.listener.connect())


@asynccontextmanager
async def open_server() -> AsyncIterator[Served]:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        served = Served(broker, MemoryListener(("memory", 9092)), trio.Event())

        async def run(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            limits = ServerLimits()
            listeners = {LISTENER: [served.listener]}
            await serve(listeners, broker.dispatcher, limits, stop=served.stop, task_status=task_status)

        await nursery.start(run)
        yield served
        nursery.cancel_scope.cancel()


async def test_a_parked_join_holds_back_its_own_connection_alone() -> None:
    async with open_server() as served:
        groups = served.broker.groups
        groups.answers["heartbeat"] = None
        mine, other = served.connect(), served.connect()
        await mine.send(join_request(), version=9)
        await mine.send(HeartbeatRequest(group_id="g", member_id="m"), version=4)
        await mine.send(MetadataRequest(topics=[]), version=9)
        reply: Any = await other.call(HeartbeatRequest(group_id="g", member_id="n"), 4)
        assert reply.error_code == 0
        with trio.move_on_after(300) as scope:
            await mine.receive()
        assert scope.cancelled_caught
        assert [(call[0], call[2].member_id) for call in groups.calls] == [
            ("join", "m"),
            ("heartbeat", "m"),
            ("heartbeat", "n"),
        ], "what comes behind it takes effect in its order"
        groups.asked[0].settle(Joined(1, "consumer", "range", "m", "m"))
        replies = [await mine.receive() for _ in range(3)]
        assert [type(reply).__name__ for reply in replies] == [
            "JoinGroupResponse",
            "HeartbeatResponse",
            "MetadataResponse",
        ]


async def test_many_parked_joins_are_answered_together() -> None:
    async with open_server() as served:
        clients = [served.connect() for _ in range(50)]
        for client in clients:
            await client.send(join_request(), version=9)
        await trio.testing.wait_all_tasks_blocked()
        for number, future in enumerate(served.broker.groups.asked):
            future.settle(Joined(number, "consumer", "range", "m", "m"))
        replies: list[Any] = [await client.receive() for client in clients]
        assert {reply.generation_id for reply in replies} == set(range(50))


async def test_a_parked_join_of_a_closed_connection_is_not_withdrawn() -> None:
    async with open_server() as served:
        gone, other = served.connect(), served.connect()
        await gone.send(join_request(), version=9)
        await trio.testing.wait_all_tasks_blocked()
        await gone.stream.aclose()
        await other.send(join_request(), version=9)
        await trio.testing.wait_all_tasks_blocked()
        for future in served.broker.groups.asked:
            future.settle(errors.RebalanceInProgress())
        reply: Any = await other.receive()
        assert reply.error_code == 27
        assert [call[0] for call in served.broker.groups.calls] == ["join", "join"], "nobody is taken back"


async def test_with_full_queues_a_member_is_heard_in_time_and_a_producer_waits() -> None:
    """Heartbeats are answered while the disk hangs. Appends of a coordinator wait for room by themselves."""
    async with open_handlers(queue_max_bytes=1) as broker:
        await broker.create("t")
        broker.log("t").append(memoryview(batch()), acks=-1)
        broker.groups.answers["heartbeat"] = None
        dispatched = broker.dispatch(HeartbeatRequest(group_id="g"), 4)
        assert dispatched.is_settled
        assert [call[0] for call in broker.groups.calls] == ["heartbeat"]
        assert not broker.dispatch(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[]), 9).two_stage


async def test_a_reply_that_waits_for_several_answers() -> None:
    first, second = SettableFuture[int](), SettableFuture[int]()
    reply = PendingReply([first, second], lambda: first.result() + second.result())
    called: list[int] = []
    reply.call_when_settled(lambda: called.append(reply.response_now()))
    first.settle(1)
    assert (reply.is_settled, called) == (False, [])
    second.settle(2)
    assert (reply.is_settled, called) == (True, [3])


def test_a_reply_of_refused_futures_settles_with_the_last_refusal() -> None:
    futures = [SettableFuture[None](), SettableFuture[None]()]
    reply = PendingReply(futures, lambda: [code_of(one) for one in futures])
    for future, error in zip(futures, (errors.RebalanceInProgress(), errors.UnknownMember()), strict=True):
        assert not reply.is_settled
        future.settle(error)
    assert reply.is_settled
    assert reply.response_now() == [27, 25]


async def test_a_request_that_was_answered_leaves_no_cycle_behind() -> None:
    async with open_handlers() as broker:
        for _ in range(2):
            gc.collect()
            dispatched = broker.dispatch(join_request(), 9)
            ready = trio.Event()
            dispatched.call_when_settled(ready.set)
            broker.groups.asked.pop().settle(Joined(1, "consumer", "range", "m", "m"))
            assert await answer(dispatched)
            del dispatched
        assert gc.collect() == 0  # else the garbage collector would be busy with them
