"""Groups in the whole broker: they are coordinated, survive restarts, and obey the broker's configuration."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kafkawire.config.broker_config import ConfigError
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import Client, MemoryDeps, OpenBroker, open_broker

enforces = pytest.mark.enforces
OFFSETS_TOPIC = "__consumer_offsets"
FEW = {"offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0"}
HOUR_S = 3_600


async def ask(client: Client, request: Any, version: int) -> Any:
    return await client.call(request, version)


async def connected(opened: OpenBroker) -> Client:
    """A client that knows its coordinator, of a broker with a topic `t`."""
    client = opened.connect()
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    await ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 6)
    found = await ask(client, FindCoordinatorRequest(key="g", key_type=0), 3)
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
    await trio.testing.wait_all_tasks_blocked()  # the partitions are read
    return client


async def commit(client: Client, offset: int, metadata: str = "", **fields: Any) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    given = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", **fields}
    reply = await ask(client, OffsetCommitRequest(topics=topics, **given), 7)
    return int(reply.topics[0].partitions[0].error_code)


async def committed(client: Client) -> int | None:
    reply = await ask(client, OffsetFetchRequest(group_id="g", topics=None), 5)
    assert reply.error_code == ErrorCode.NONE
    return reply.topics[0].partitions[0].committed_offset if reply.topics else None


def join_request(member_id: str = "", session_timeout_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t")],
    )


async def join(client: Client, **fields: Any) -> Any:
    return await ask(client, join_request(**fields), 3)


async def settled(client: Client) -> dict[str, Any]:
    """A member that has joined and synced, as the fields by which it names itself."""
    joined = await join(client)
    named = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    await ask(client, SyncGroupRequest(assignments=assignments, **named), 2)
    return named


class Crash(Exception):
    """Ends a broker as a power cut does."""


@pytest.mark.parametrize("mode", ["cached", "direct"])
@enforces("offsets.view.mode")
async def test_groups_outlive_a_power_cut(mode: str) -> None:
    deps = MemoryDeps()
    named: dict[str, Any] = {}
    with pytest.RaisesGroup(Crash):
        async with open_broker(deps, **FEW, offsets_view_mode=mode) as opened:
            client = await connected(opened)
            assert await commit(client, 5) == ErrorCode.NONE
            named = await settled(client)
            given = {"generation_id_or_member_epoch": named["generation_id"], "member_id": named["member_id"]}
            assert await commit(client, 6, **given) == ErrorCode.NONE
            assert (deps.views.writes > 0) == (mode == "direct")
            deps.power_cut()
            raise Crash
    async with open_broker(deps, **FEW, offsets_view_mode=mode) as opened:
        client = await connected(opened)
        assert await committed(client) == 6
        assert (await ask(client, HeartbeatRequest(**named), 3)).error_code == ErrorCode.NONE


@enforces("offsets.view.flush.interval.ms")
async def test_the_view_is_written_now_and_then_and_at_the_end() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **FEW, offsets_view_flush_interval_ms="5000") as opened:
        client = await connected(opened)
        await commit(client, 5)
        await trio.sleep(4.9)
        assert deps.views.writes == 0
        await trio.sleep(0.2)
        assert deps.views.writes == 1
        await commit(client, 6)
        opened.broker.stop.set()
        await opened.broker.drained.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert deps.views.writes == 2


async def test_a_stopping_broker_does_not_wait_for_members() -> None:
    async with open_broker(**FEW) as opened:
        client = await connected(opened)
        await settled(client)
        second = opened.connect()
        await second.send(join_request(), version=3)
        await trio.testing.wait_all_tasks_blocked()
        began_s = trio.current_time()
        opened.broker.stop.set()
        reply: Any = await second.receive()
        assert reply.error_code == ErrorCode.NOT_COORDINATOR
        assert trio.current_time() - began_s < 1


@enforces("offsets.topic.num.partitions")
@enforces("offsets.topic.replication.factor")
async def test_the_topic_of_offsets() -> None:
    async with open_broker(offsets_topic_num_partitions="3", offsets_topic_replication_factor="3") as opened:
        client = await connected(opened)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)])
        [topic] = (await ask(client, request, 9)).topics
        assert topic.is_internal
        assert [len(one.replica_nodes) for one in topic.partitions] == [1, 1, 1], "as many replicas as brokers"


@enforces("offsets.topic.segment.bytes")
async def test_segments_of_the_topic_of_offsets() -> None:
    async with open_broker(**FEW, offsets_topic_segment_bytes="2097152") as opened:
        await connected(opened)
        configs = opened.broker.coordinator.image.topics[OFFSETS_TOPIC].configs
        assert configs == {"cleanup.policy": "compact", "segment.bytes": "2097152"}


async def test_offsets_of_a_deleted_topic_are_gone() -> None:
    async with open_broker(**FEW) as opened:
        client = await connected(opened)
        await commit(client, 5)
        await ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
        await trio.testing.wait_all_tasks_blocked()
        assert await committed(client) is None


@enforces("group.min.session.timeout.ms")
@enforces("group.max.session.timeout.ms")
async def test_session_timeouts_have_bounds() -> None:
    bounds = {"group_min_session_timeout_ms": "2000", "group_max_session_timeout_ms": "3000"}
    async with open_broker(**FEW, **bounds) as opened:
        client = await connected(opened)
        codes = [(await join(client, session_timeout_ms=timeout_ms)).error_code for timeout_ms in (1_999, 3_001, 2_000)]
        assert codes == [ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.NONE]
    with pytest.raises(ConfigError, match=r"group\.min\.session"):
        async with open_broker(group_min_session_timeout_ms="3000", group_max_session_timeout_ms="2000"):
            pass


@enforces("group.max.size")
async def test_a_group_can_be_full() -> None:
    async with open_broker(**FEW, group_max_size="1") as opened:
        client = await connected(opened)
        await settled(client)
        assert (await join(opened.connect())).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@enforces("group.initial.rebalance.delay.ms")
async def test_the_first_rebalance_waits_for_more_members() -> None:
    few = {**FEW, "group_initial_rebalance_delay_ms": "700"}
    async with open_broker(**few) as opened:
        client = await connected(opened)
        began_s = trio.current_time()
        await join(client)
        assert trio.current_time() - began_s == pytest.approx(0.7, abs=0.01)


@enforces("offset.metadata.max.bytes")
async def test_metadata_has_a_limit() -> None:
    async with open_broker(**FEW, offset_metadata_max_bytes="3") as opened:
        client = await connected(opened)
        assert await commit(client, 5, "1234") == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await commit(client, 5, "123") == ErrorCode.NONE


@enforces("offsets.retention.minutes")
@enforces("offsets.retention.check.interval.ms")
async def test_offsets_expire() -> None:
    retention = {"offsets_retention_minutes": "60", "offsets_retention_check_interval_ms": "1200000"}
    async with open_broker(**FEW, **retention) as opened:
        client = await connected(opened)
        await commit(client, 5)
        await trio.sleep(HOUR_S - 100)
        assert await committed(opened.connect()) == 5
        await trio.sleep(0.4 * HOUR_S)
        assert await committed(opened.connect()) is None
