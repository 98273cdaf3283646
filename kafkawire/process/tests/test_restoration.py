"""Restore of a broker from its remote tier, in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from engine.log_dirs.layout import Identity
from engine.log_dirs.restoration import restore_log_dir
from kafkawire.broker import StartError
from kafkawire.config.broker_config import Config, load
from kafkawire.config.tests.test_enforced import ask, fetch_request, produce
from kafkawire.config.tests.test_tier_enforced import EARLIEST, SOON, TIER, offset_of, segments, tiered
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkawire.process.restoration import Restoration, Restored, RestorePlan, RestoreRefused
from kafkawire.testing import Client, MemoryDeps, OpenBroker, open_broker
from tiering.stores.memory import HEALTHY, Fault, Operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LATEST = -1
SETTINGS = {"log.dirs": "/data", "http.listeners": "", "listeners": "PLAINTEXT://memory:9092"}


def config(**properties: str) -> Config:
    given = {name.replace("_", "."): value for name, value in {**TIER, **SOON, **properties}.items()}
    return load({**SETTINGS, "journal.slot.bytes": "65536", **given})[0]


async def commit(client: Client, group: str, offset: int) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="mine")]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    await ask(client, FindCoordinatorRequest(key=group), 3)
    reply = await ask(client, OffsetCommitRequest(group_id=group, topics=topics), 8)
    assert reply.topics[0].partitions[0].error_code == 0


async def committed(client: Client, group: str) -> int:
    await ask(client, FindCoordinatorRequest(key=group), 3)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    reply = await ask(client, OffsetFetchRequest(group_id=group, topics=topics), 7)
    return int(reply.topics[0].partitions[0].committed_offset)


async def records(client: Client, offset: int) -> bytes:
    request: Any = fetch_request(max_wait_ms=5000)
    request.topics[0].partitions[0].fetch_offset = offset
    reply = await ask(client, request, 11)
    partition = reply.responses[0].partitions[0]
    assert partition.error_code == 0
    return bytes(partition.records)


async def lost() -> tuple[MemoryDeps, list[bytes]]:
    """Dependencies with the tier of a broker whose machine is lost, and the copied records."""
    deps = MemoryDeps()
    async with tiered(deps) as (_, client):
        await commit(client, "behind", 2)
        await commit(client, "ahead", 7)
        await trio.sleep(70)
        assert len(segments(deps)) == 6
        before = [await records(client, offset) for offset in range(6)]
    return MemoryDeps(seed=5, objects=deps.objects), before


async def restored(deps: MemoryDeps, cluster_id: str | None = None, **properties: str) -> tuple[RestorePlan, Restored]:
    restoration = Restoration(config(**properties), deps.start_deps(), lambda _line: None)
    plan = await restoration.plan(cluster_id)
    return plan, await restoration.carry_out(plan)


@asynccontextmanager
async def opened(deps: MemoryDeps) -> AsyncIterator[tuple[OpenBroker, Client]]:
    async with open_broker(deps, **TIER, **SOON) as broker:
        yield broker, broker.connect()


async def test_keys_of_listeners_are_for_other_listeners() -> None:
    """Offsets are committed by a broker with a listener of its own."""
    deps, _ = await lost()
    of_listener = {"listeners": "SSL://memory:9093", "listener.name.ssl.ssl.client.auth": "none"}
    _, found = await restored(deps, **of_listener)
    assert found.offsets == 2


async def test_everything_that_was_copied_comes_back() -> None:
    deps, before = await lost()
    plan, what = await restored(deps)
    assert (what.offsets, what.clamped, what.problems) == (2, 1, [])
    [(topic, _, holding)] = plan.partitions()
    assert (topic.topic.topic, holding.log_start, holding.end, holding.segments) == ("t", 0, 6, 6)
    async with opened(deps) as (broker, client):
        image = broker.broker.coordinator.image
        assert image.cluster_id == plan.part.cluster_id
        assert dict(image.topics["t"].configs) == {"remote.storage.enable": "true", "segment.bytes": "1048576"}
        await trio.sleep(3)
        assert (await offset_of(client, EARLIEST), await offset_of(client, LATEST)) == (0, 6)
        assert [await records(client, offset) for offset in range(6)] == before
        assert (await committed(client, "behind"), await committed(client, "ahead")) == (2, 6)


async def test_restored_broker_appends_and_uploads_and_restarts_with_all_records() -> None:
    deps, before = await lost()
    await restored(deps)
    async with opened(deps) as (_, client):
        for _ in range(4):
            await produce(client, bytes(700_000))
        await trio.sleep(10)
        assert len(segments(deps)) == 9
        assert await offset_of(client, LATEST) == 10
    async with opened(deps) as (_, client):
        await trio.sleep(3)
        assert [await records(client, offset) for offset in range(6)] == before
        assert len(await records(client, 9)) > 700_000


async def test_second_restore_includes_records_uploaded_after_the_first_restore() -> None:
    deps, _ = await lost()
    await restored(deps)
    async with opened(deps) as (_, client):
        for _ in range(4):
            await produce(client, bytes(700_000))
        await trio.sleep(100)
    again = MemoryDeps(seed=6, objects=deps.objects)
    plan, _ = await restored(again)
    assert plan.owner_generation == 2
    assert [holding.end for _, _, holding in plan.partitions()] == [9]


async def test_the_cluster_of_before_is_fenced() -> None:
    before = MemoryDeps()
    async with tiered(before) as (_, client):
        await trio.sleep(70)
        deps = MemoryDeps(seed=5, objects=before.objects)
        await restored(deps)
        manifests = [key for key in deps.objects.objects if "/manifest/" in key]
        for _ in range(4):
            await produce(client, bytes(700_000))
        await trio.sleep(10)
        assert [key for key in deps.objects.objects if "/manifest/" in key] == manifests
        assert len(segments(before)) == 6
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match="the cluster was restored from there")):
        async with opened(before):
            raise AssertionError("it has started")


async def test_a_cluster_of_several_is_not_restored() -> None:
    deps, _ = await lost()
    with pytest.raises(RestoreRefused, match="only a broker without ZooKeeper"):
        await restored(deps, zookeeper_connect="zk:2181", inter_broker_secret_file="/secret")


async def test_directories_that_are_used_are_left_alone() -> None:
    deps, _ = await lost()
    async with opened(MemoryDeps(seed=9, filesystem=deps.filesystem)) as (broker, _):
        other = broker.broker.coordinator.image.cluster_id
    objects = dict(deps.objects.objects)
    with pytest.raises(RestoreRefused, match=f"has nothing of cluster {other}"):
        await restored(deps)
    cluster_id = next(iter(objects)).split("/")[1]
    with pytest.raises(RestoreRefused, match=f"/data belongs to broker 1 of cluster {other}"):
        await restored(deps, cluster_id)
    deps.filesystem.make_dir("/data/metadata")
    deps.filesystem.open("/data/metadata/CURRENT", create=True)
    with pytest.raises(RestoreRefused, match="/data/metadata is not empty"):
        await restored(deps, cluster_id)
    with pytest.raises(RestoreRefused, match="/data is not empty, and other log dirs are"):
        await restored(deps, cluster_id, log_dirs="/data,/more", metadata_log_dir="/elsewhere")
    assert deps.objects.objects == objects


async def test_log_dirs_that_were_kept_are_taken_as_they_are() -> None:
    """Only the metadata were lost: log dirs have records that were not copied, and topics outside the tier."""
    before = MemoryDeps()
    async with tiered(before) as (opened_before, client):
        await commit(client, "group", 6)
        await trio.sleep(70)
        topic_id = opened_before.broker.coordinator.image.topics["t"].topic_id
        content = [await records(client, offset) for offset in range(7)]
    deps = MemoryDeps(seed=5, filesystem=before.filesystem, objects=before.objects)
    _, what = await restored(deps)
    assert what.offsets == 0
    async with opened(deps) as (broker, client):
        assert broker.broker.coordinator.image.topics["t"].topic_id == topic_id
        await trio.sleep(3)
        assert [await records(client, offset) for offset in range(7)] == content
        assert await committed(client, "group") == 6
        for _ in range(4):
            await produce(client, bytes(700_000))
        await trio.sleep(5)
        assert len(segments(deps)) == 10


async def test_a_restore_that_was_broken_off_starts_no_broker_and_is_gone_on_with() -> None:
    deps, before = await lost()
    restoration = Restoration(config(), deps.start_deps(), lambda _line: None)
    plan = await restoration.plan(None)
    await restoration._fence(plan)
    await restoration._make_log_dirs(plan)
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match="the log dirs belong to the cluster")):
        async with opened(deps):
            raise AssertionError("it has started")
    again = MemoryDeps(seed=6, filesystem=deps.filesystem, objects=deps.objects)
    await restored(again, plan.part.cluster_id)
    async with opened(again) as (_, client):
        await trio.sleep(3)
        assert [await records(client, offset) for offset in range(6)] == before


async def test_restore_refuses_log_dirs_that_lack_a_partition_of_the_tier() -> None:
    deps, _ = await lost()
    restoration = Restoration(config(), deps.start_deps(), lambda _line: None)
    plan = await restoration.plan(None)
    identity = Identity(plan.part.cluster_id, 1)
    restore_log_dir(deps.filesystem, "/data", identity, [])
    with pytest.raises(RestoreRefused, match="the log dirs have no partition t-0"):
        await restoration.carry_out(plan)


async def test_a_deleted_topic_does_not_come_back() -> None:
    deps, _ = await lost()
    await restored(deps)
    async with opened(deps) as (broker, _):
        await broker.broker.coordinator.delete_topic("t")
        await trio.sleep(5)
    plan, _ = await restored(MemoryDeps(seed=6, objects=deps.objects))
    assert not plan.topics


async def test_damaged_manifest_is_listed_as_a_problem_and_its_topic_is_left_out() -> None:
    deps, _ = await lost()
    newest = max(key for key in deps.objects.objects if "/manifest/" in key)
    data, moment_ms = deps.objects.objects[newest]
    deps.objects.objects[newest] = data[:-2], moment_ms
    restoration = Restoration(config(), deps.start_deps(), lambda _line: None)
    plan = await restoration.plan(None)
    assert not plan.topics
    assert "fails its CRC" in plan.problems[0]


async def test_a_store_that_is_away_changes_nothing() -> None:
    deps, _ = await lost()
    for operation in Operation:
        objects = dict(deps.objects.objects)
        deps.objects.fault = lambda asked, _key, operation=operation: Fault(is_lost=asked is operation)  # type: ignore[misc]
        if operation is not Operation.DELETE:
            with pytest.raises(RestoreRefused):
                await restored(deps)
        assert deps.objects.objects == objects
        assert not deps.filesystem.exists("/data")
    deps.objects.fault = lambda _operation, _key: HEALTHY
    await restored(deps)


async def test_which_cluster_has_to_be_said_when_there_are_several() -> None:
    deps, _ = await lost()
    async with open_broker(MemoryDeps(seed=77, objects=deps.objects), **TIER, **SOON):
        pass
    with pytest.raises(RestoreRefused, match="say which cluster is meant"):
        await restored(deps)
    empty = MemoryDeps()
    with pytest.raises(RestoreRefused, match="there are: none"):
        await restored(empty)


async def test_producers_do_not_get_ids_that_others_have() -> None:
    deps, _ = await lost()
    await restored(deps)
    async with opened(deps) as (broker, _):
        assert await broker.broker.coordinator.new_producer_id() >= 999_999
