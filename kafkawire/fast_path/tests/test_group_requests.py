"""Commits among heartbeats, to a broker with fast paths and to one without: only the costs may differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.api import Future
from coordinator.groups.commands import CommitOffsets, GroupCommand
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.service import GroupCoordinators, GroupOptions
from coordinator.groups.step import GroupSettings
from coordinator.testing.fakes import SimulatedStateCaches
from engine.api import Isolation
from engine.batches.batch import HEADER_SIZE_BYTES, parse_header, walk_records
from kafkawire.adapters.state_logs import EngineStateLogs
from kafkawire.fast_path import fast_paths
from kafkawire.fast_path.tests.produce_traffic import ProduceTraffic
from kafkawire.fast_path.tests.two_brokers import FRAMES, SEED, CountingFastPath
from kafkawire.handlers import API_TABLE
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkawire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.dispatch import Dispatcher
from kafkawire.requests.headers import decode_request_header, decode_response, encode_request
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import NODE_ID, NOW_MS, Broker, join, open_handlers
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.tests.mutation import wound
from testkit.recorded_requests import Recorded, recorded

PRODUCE, OFFSET_COMMIT, HEARTBEAT = 0, 8, 12
PARTITIONS = {"plain": 3, "wide": 300, "secret": 3, "__secret_group": 1}
STATIC = "instance-1"


@dataclass
class Side:
    """A broker of the two, with its requests and outcomes."""

    broker: Broker
    groups: GroupCoordinators
    dispatcher: Dispatcher
    fast_paths: dict[int, CountingFastPath]
    asked: list[tuple[object, ...]]
    outcomes: list[object] = field(default_factory=list)

    def start(self, frame: bytes) -> Any:
        """The started request, or the reason why the connection is closed."""
        try:
            return self.dispatcher.dispatch(bytearray(frame), self.broker.connection, trio.current_time())
        except ProtocolViolation as error:
            return str(error)

    async def finish(self, started: Any) -> None:
        try:
            reply = started if isinstance(started, str) else await answer(started)
        except ProtocolViolation as error:
            reply = str(error)
        self.outcomes.append(join(reply) if isinstance(reply, list) else reply)

    async def ask(self, request: Any, version: int) -> Any:
        """The response."""
        started = self.start(encode_request(request, version, 1, "setup"))
        segments: Any = await answer(started)
        return decode_response(join(segments), request.API_KEY, version)[1]

    @property
    def taken(self) -> int:
        return self.fast_paths[OFFSET_COMMIT].taken

    def state(self) -> dict[str, object]:
        """The resulting state, to compare both brokers."""
        metrics = self.broker.interfaces.metrics
        found: dict[str, object] = {
            "asked": self.asked,
            "violations": metrics.protocol_violations,
            "counters": self.groups.counters,
            "apis": {key: metrics.by_api[key] for key in (PRODUCE, OFFSET_COMMIT, HEARTBEAT)},
            "topics": metrics.by_topic,
            "groups": dict(self._groups()),
        }
        image = self.broker.cluster.real.image
        for name, topic in image.topics.items():
            for partition in range(len(topic.partitions)):
                found[f"{name}-{partition}"] = self._records(name, partition)
        return found

    def _groups(self) -> Iterator[tuple[str, object]]:
        groups: Any = self.groups
        for shard in groups._shards:
            for group_id, entry in shard.table._entries.items():
                group = entry.group
                members = [(one.member_id, one.deadline_ms, one.protocols) for one in group.members]
                yield group_id, (group.state, group.generation_id, members, list(entry.offsets.items()))

    def _records(self, name: str, partition: int) -> list[tuple[bytes | None, bytes | None, int]]:
        """Records of a partition, without the bounds of batches."""
        log = self.broker.log(name, partition)
        read = log.read(log.log_start_offset, 1 << 30, Isolation.READ_UNCOMMITTED, at_least_one=True)
        data, position, records = join(read.records), 0, []
        while position < len(data):
            header = parse_header(data, position)
            body = data[position + HEADER_SIZE_BYTES : position + header.size_bytes]
            records += [(one.key, one.value, one.timestamp_ms) for one in walk_records(header, body)]
            position += header.size_bytes
        return records


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Side, Side]]:
    """Two brokers with the same seed; the second one has fast paths."""
    async with open_side(with_fast_paths=False) as plain, open_side(with_fast_paths=True) as fast:
        yield plain, fast


@asynccontextmanager
async def open_side(*, with_fast_paths: bool) -> AsyncIterator[Side]:
    asked: list[tuple[object, ...]] = []

    def authorize(principal: str, host: str, operation: Operation, kind: ResourceType, name: str, /) -> bool:
        asked.append((principal, host, operation, kind, name))
        return not name.startswith("secret")

    async with open_handlers(authorizer=authorize) as broker, trio.open_nursery() as nursery:
        cluster = broker.cluster.real
        options = GroupOptions(
            broker_id=NODE_ID,
            groups=GroupSettings(initial_rebalance_delay_ms=0),
            offsets=OffsetSettings(),
            topic_configs={},
            partition_count=3,
        )
        view = await SimulatedStateCaches().open(Path("view"))
        logs = EngineStateLogs(broker.store)
        groups = GroupCoordinators(cluster, logs, view, options, Random(1), lambda: NOW_MS)
        nursery.start_soon(groups.run)
        interfaces = replace(broker.interfaces, cluster=cluster, groups=groups)
        counting = (
            {key: CountingFastPath(one) for key, one in fast_paths(interfaces, API_TABLE).items()}
            if with_fast_paths
            else {}
        )
        for name, count in PARTITIONS.items():
            await broker.create(name, count)
        await groups.coordinator_of("any")
        await wait_all_tasks_blocked()
        yield Side(broker, groups, Dispatcher(interfaces, API_TABLE, counting), counting, asked)
        nursery.cancel_scope.cancel()


def joining(group: str, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=2**31 - 1,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\5plain")],
    )


async def settle(side: Side, group: str, instance_id: str | None = None, *, syncs: bool = True) -> dict[str, Any]:
    """Add a member that has joined and, by default, synced. Return the fields that identify it."""
    joined = await side.ask(joining(group, instance_id), 5 if instance_id else 3)
    named = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    if syncs:
        assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
        await side.ask(SyncGroupRequest(assignments=assignments, **named), 2)
    return named | {"group_instance_id": instance_id}


async def settle_groups(side: Side) -> list[dict[str, Any]]:
    """Add a member in a group of each state. In a preparing group, another member waits for the first."""
    stable = [await settle(side, f"stable-{number}") for number in range(3)]
    members = [*stable, await settle(side, "static", STATIC), await settle(side, "completing", syncs=False)]
    preparing = await settle(side, "preparing")
    side.start(encode_request(joining("preparing"), 3, 1, "second"))
    return [*members, preparing]


async def leave_and_come_back(side: Side, member: dict[str, Any]) -> dict[str, Any]:
    group = member["group_id"]
    leaving = [MemberIdentity(member_id=member["member_id"])]
    await side.ask(LeaveGroupRequest(group_id=group, members=leaving), 3)
    return await settle(side, group)


class GroupTraffic:
    """Generator of frames, such as members and other clients send, and some that they would not send."""

    def __init__(self, draw: Random, ids: dict[str, bytes], members: list[dict[str, Any]]) -> None:
        self._draw = draw
        self._ids = ids
        self._members = members
        self._others = ProduceTraffic(draw, ids)
        self._correlation_id = 0

    def frames(self) -> list[bytes]:
        """Frames of one connection, in order; some are of other APIs."""
        draw = self._draw
        frames = [self.commit() if draw.random() < 0.7 else self.heartbeat() for _ in range(draw.choice((1, 1, 4)))]
        if draw.random() < 0.1:
            frames.insert(draw.randrange(len(frames) + 1), self._others.frame())
        if draw.random() < 0.1:
            frames.append(self._encoded(OffsetFetchRequest(group_id=draw.choice(self._members)["group_id"]), 5))
        return frames

    def heartbeat(self) -> bytes:
        return self._encoded(HeartbeatRequest(**self._member()), self._draw.randrange(5))

    def commit(self) -> bytes:
        draw = self._draw
        member = self._member()
        if draw.random() < 0.4:
            group = draw.choice(("alone", "alone", "groß", "", "secret-group", "g" * 300, "stable-0"))
            member = {"group_id": group, "member_id": "", "generation_id": -1, "group_instance_id": None}
        member["generation_id_or_member_epoch"] = member.pop("generation_id")
        shapes = ((1,),) * 6 + ((4, 4), (12,), (1, 3), (3, 1), (150,), (0,), ())
        request = OffsetCommitRequest(
            topics=[self._topic(count) for count in draw.choice(shapes)],
            retention_time_ms=draw.choice((-1, -1, 3_600_000, -5, 2**63 - 1)),
            **member,
        )
        return self._encoded(request, draw.choice((2, 3, 4, 5, 6, 7, 8, 9, 9, 10)))

    def _encoded(self, request: Any, version: int) -> bytes:
        self._correlation_id += 1
        client = self._draw.choice(("consumer-1", "consumer-1", "", None, "x" * 600))
        return encode_request(request, version, self._correlation_id, client)

    def _member(self) -> dict[str, Any]:
        draw = self._draw
        member = dict(draw.choice(self._members))
        if draw.random() < 0.2:
            wrong = {"generation_id": (-1, 0, 77), "member_id": ("", "stranger"), "group_instance_id": (None, "other")}
            key = draw.choice(list(wrong))
            member[key] = draw.choice(wrong[key])
        if draw.random() < 0.05:
            member["group_id"] = draw.choice(("", "secret-group", "no group", "static"))
        return member

    def _topic(self, count: int) -> OffsetCommitRequestTopic:
        draw = self._draw
        names = ("plain", "wide") if draw.random() < 0.9 else ("secret", "unknown", "", "wide" * 40)
        name = draw.choice(names)
        metadata = draw.choice(("",) * 9 + (None, "kgo-1234", "grüße", "x" * 200, "m" * 4097))
        partitions = [self._partition(index, metadata) for index in draw.sample(range(PARTITIONS.get(name, 3)), k=1)]
        if count != 1:
            first = draw.randrange(3)
            partitions = [
                self._partition(index % PARTITIONS.get(name, 3), metadata) for index in range(first, first + count)
            ]
        if partitions and draw.random() < 0.03:
            partitions[-1].partition_index = draw.choice((-1, 300, 2**31 - 1))
        if partitions and draw.random() < 0.05:
            partitions[-1].committed_metadata = draw.choice((None, "another", "m" * 4097))
        return OffsetCommitRequestTopic(name=name, topic_id=self._ids.get(name, bytes(16)), partitions=partitions)

    def _partition(self, index: int, metadata: str | None) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=self._draw.choice((0, 5, 2**40, -1)),
            committed_leader_epoch=self._draw.choice((-1, 0, 3)),
            committed_metadata=metadata,
        )


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_group_requests_with_fast_paths_return_the_same_as_without(seed: int) -> None:
    draw = Random(seed)
    async with two_brokers() as (plain, fast):
        members = [await settle_groups(side) for side in (plain, fast)]
        assert members[0] == members[1]
        before = fast.taken
        ids = {name: topic.topic_id for name, topic in plain.broker.cluster.image.topics.items()}
        traffic = GroupTraffic(draw, ids, members[0])
        number = valid = 0
        while number < FRAMES:
            frames = traffic.frames()
            valid += sum(frame[1] == OFFSET_COMMIT for frame in frames)
            if draw.random() < 0.3:
                wounded = bytearray(frames[0])
                wound(wounded, draw)
                frames.append(bytes(wounded))
            number += len(frames)
            started = [[side.start(frame) for frame in frames] for side in (plain, fast)]
            for side, requests in zip((plain, fast), started, strict=True):
                for one in requests:
                    await side.finish(one)
            assert plain.outcomes[-len(frames) :] == fast.outcomes[-len(frames) :], [one.hex() for one in frames]
            if draw.random() < 0.005:
                member = draw.choice(members[0][:3])
                back = [await leave_and_come_back(side, member) for side in (plain, fast)]
                assert back[0] == back[1]
                member.update(back[0])
            if draw.random() < 0.01:
                for side in (plain, fast):
                    await side.broker.create(f"another-{number}")  # another image
        assert plain.state() == fast.state()
        assert fast.taken - before >= valid / 2, (fast.taken, valid)


async def test_commits_as_clients_send_them_take_the_fast_path() -> None:
    frames = list(recorded(OFFSET_COMMIT))
    async with open_handlers() as broker:
        await broker.create("wide", 100)
        image = broker.cluster.real.image
        names = {topic.name: image.topics["wide"] for one in frames for topic in topics_of(one)}
        cluster: Any = SimpleNamespace(image=replace(image, topics=names))
        fast_path = fast_paths(replace(broker.interfaces, cluster=cluster), API_TABLE)[OFFSET_COMMIT]
        taken: dict[str, list[bool]] = {}
        for one in frames:
            started = fast_path.take(bytearray(one.frame), broker.connection, trio.current_time())
            taken.setdefault(one.client, []).append(started is not None)
    assert len(taken) >= 7
    for client, each in taken.items():
        assert sum(each) >= 0.95 * len(each), client


def topics_of(one: Recorded) -> list[OffsetCommitRequestTopic]:
    header, body_start = decode_request_header(one.frame)
    return OffsetCommitRequest.decode(one.frame, header.api_version, body_start).topics


def commit_frame(
    *, group: str = "g", client: str = "c", offset: int = 1, version: int = 9, topics: tuple[str, ...] = ("plain",)
) -> bytes:
    """A commit of one offset for each topic, outside any group."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    asked = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in topics]
    request = OffsetCommitRequest(
        group_id=group, member_id="", generation_id_or_member_epoch=-1, retention_time_ms=2**63 - 1, topics=asked
    )
    return encode_request(request, version, 7, client)


async def test_the_prefix_cache_is_cleared_when_the_cluster_changes() -> None:
    async with two_brokers() as (plain, fast):
        for side in (plain, fast):
            for offset in (1, 2):
                await side.finish(side.start(commit_frame(offset=offset)))
            await side.broker.cluster.real.delete_topic("plain")
            await side.finish(side.start(commit_frame(offset=3)))
            await side.broker.create("plain", 1)
            await side.finish(side.start(commit_frame(offset=4)))
        assert fast.taken == 3
        assert plain.outcomes == fast.outcomes
        assert plain.outcomes[0] == plain.outcomes[1] == plain.outcomes[3] != plain.outcomes[2]
        assert plain.state() == fast.state()


async def test_a_request_with_trailing_bytes_is_left_to_the_general_path() -> None:
    """The bytes behind a request may look like the end of a request."""
    async with two_brokers() as (plain, fast):
        for side in (plain, fast):
            for version in (7, 9):
                for rest in (b"\0\0", b"\1\0\0\0", b""):
                    await side.finish(side.start(commit_frame(offset=0, version=version) + rest))
                    await side.finish(side.start(commit_frame(offset=256, version=version) + rest))
        assert fast.taken == 4
        assert plain.outcomes == fast.outcomes
        assert plain.state() == fast.state()


async def test_the_prefix_cache_is_bounded_in_entries_and_client_id_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkawire.fast_path.prefix_cache.CACHED_MAX", 5)
    async with two_brokers() as (_, side):
        committing: Any = side.fast_paths[OFFSET_COMMIT].fast_path
        for number in range(12):
            await side.finish(side.start(commit_frame(group=f"group-{number}")))
        assert side.taken == 12
        for client in ("c" * 600, "c" * 20_000):
            await side.finish(side.start(commit_frame(client=client)))
        assert side.taken == 12
        prefixes, _, singles = committing._shapes[9]
        assert len(prefixes._learned) == len(singles._learned) == 2


async def test_a_bug_behind_a_fast_path_is_answered_as_one_behind_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = GroupCoordinators.ask

    def fail(groups: GroupCoordinators, command: GroupCommand[Any]) -> Future[Any]:
        if isinstance(command, CommitOffsets):
            raise ZeroDivisionError("a bug")
        return ask(groups, command)

    monkeypatch.setattr(GroupCoordinators, "ask", fail)
    async with two_brokers() as (plain, fast):
        for side in (plain, fast):
            await side.finish(side.start(commit_frame()))
            await side.finish(side.start(commit_frame(topics=("plain", "secret"))))
        assert fast.taken == 2
        assert plain.outcomes == fast.outcomes
        assert plain.state() == fast.state()
