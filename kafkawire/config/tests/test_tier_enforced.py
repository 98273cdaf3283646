"""Each key of the remote tier, set to another value than its default, changes the behaviour of a running broker."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from engine.batches.batch import Record, build_batch
from kafkawire.config.tests.test_enforced import ask, create, fetch_request, produce
from kafkawire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkawire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.testing import EPOCH_MS, Client, MemoryDeps, OpenBroker, open_broker
from testkit.cold_broker import COLD, cold_broker
from tiering.stores.memory import HEALTHY, Fault, Operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

enforces = pytest.mark.enforces
TIER = {"remote_log_storage_system_enable": "true", "tier_store": "s3://bucket/lake"}
SOON = {"remote_log_manager_task_interval_ms": "1000", "log_retention_check_interval_ms": "1000"}
REQUEST_TIMED_OUT, INVALID_CONFIG = 7, 40
TOPIC, BROKER, SET = 2, 4, 0
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5


@asynccontextmanager
async def tiered(deps: MemoryDeps, count: int = 6, /, **properties: str) -> AsyncIterator[tuple[OpenBroker, Client]]:
    """A topic in the tier with `count` segments of one record, besides the active one."""
    properties = {**TIER, **SOON, "log_initial_task_delay_ms": "1000", **properties}
    async with open_broker(deps, **properties) as opened:
        client = opened.connect()
        await create_tiered(client, "t")
        for number in range(count + 1):
            await produce(client, bytes(700_000), EPOCH_MS + number * 10_000)
        yield opened, client


def segments(deps: MemoryDeps) -> list[str]:
    return [key for key in deps.objects.objects if key.rpartition("/")[2].count("-") == 3]


async def offset_of(client: Client, timestamp: int) -> int:
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])]
    reply = await ask(client, ListOffsetsRequest(topics=topics), 9)
    partition = reply.topics[0].partitions[0]
    assert partition.error_code == 0
    return int(partition.offset)


async def alter(client: Client, kind: int = TOPIC, **configs: str) -> int:
    rows = [
        AlterableConfig(name=name.replace("_", "."), value=value, config_operation=SET)
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name="t" if kind == TOPIC else "", configs=rows)
    reply = await ask(client, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return int(reply.responses[0].error_code)


@enforces("remote.log.storage.system.enable")
async def test_without_a_tier_no_topic_is_in_it() -> None:
    async with open_broker() as opened:
        assert await create(opened.connect(), remote_storage_enable="true") == INVALID_CONFIG
    async with open_broker(**TIER) as opened:
        assert await create(opened.connect(), remote_storage_enable="true") == 0


@enforces("tier.store")
@enforces("remote.storage.enable")
async def test_where_segments_go() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        await trio.sleep(5)
        assert len(segments(deps)) == 6
        assert all(
            key.startswith(f"lake/{opened.broker.coordinator.image.cluster_id}/") for key in deps.objects.objects
        )
        assert await offset_of(client, LATEST_TIERED) == 5
    async with open_broker(MemoryDeps(), **TIER, **SOON) as opened:
        client = opened.connect()
        await create(client, segment_bytes="1048576")
        for _ in range(4):
            await produce(client, bytes(700_000))
        await trio.sleep(5)
        assert not segments(opened.deps)


@enforces("remote.log.copy.disable")
async def test_without_copies_the_tier_is_read_only() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (_, client):
        await trio.sleep(5)
        assert await alter(client, remote_log_copy_disable="true") == 0
        for _ in range(4):
            await produce(client, bytes(700_000))
        await trio.sleep(5)
        assert len(segments(deps)) == 6


@enforces("remote.log.delete.on.disable")
async def test_a_topic_that_leaves_the_tier_deletes_its_remote_segments() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (_, client):
        assert await alter(client, TOPIC, local_retention_bytes="1500000") == 0
        await trio.sleep(10)
        first = await offset_of(client, EARLIEST_LOCAL)
        assert 0 < first < 6
        assert await alter(client, TOPIC, remote_storage_enable="false") == INVALID_CONFIG
        both = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
        assert await alter(client, TOPIC, **both) == 0
        await trio.sleep(100)
        assert not segments(deps)
        assert await offset_of(client, EARLIEST) == first
        assert await offset_of(client, LATEST_TIERED) == -1
        await produce(client, bytes(700_000))
        await trio.sleep(5)
        assert not segments(deps)
        assert await alter(client, TOPIC, remote_storage_enable="true") == 0
        await trio.sleep(5)
        assert len(segments(deps)) == 7 - first


LOCAL = [
    ("local.retention.bytes", "1500000", 4),  # of seven records of 700,000
    ("local.retention.ms", "25000", 3),  # 50 s after the first record; records are 10 s apart
]


@enforces("local.retention.bytes")
@enforces("local.retention.ms")
@pytest.mark.parametrize(("key", "value", "first"), LOCAL)
async def test_how_long_files_stay_here(key: str, value: str, first: int) -> None:
    async with tiered(MemoryDeps()) as (_, client):
        await trio.sleep(50)
        assert await offset_of(client, EARLIEST_LOCAL) == 0
        assert await alter(client, TOPIC, **{key: value}) == 0
        await trio.sleep(3)
        assert await offset_of(client, EARLIEST_LOCAL) == first
        assert await offset_of(client, EARLIEST) == 0
        reply = await ask(client, fetch_request(max_wait_ms=5000), 11)
        assert len(reply.responses[0].partitions[0].records) > 700_000


@enforces("log.local.retention.bytes")
@enforces("log.local.retention.ms")
@pytest.mark.parametrize(("key", "value", "first"), LOCAL)
async def test_how_long_files_of_topics_that_do_not_say_stay_here(key: str, value: str, first: int) -> None:
    async with tiered(MemoryDeps(), **{f"log_{key.replace('.', '_')}": value}) as (_, client):
        await trio.sleep(50)
        assert await offset_of(client, EARLIEST_LOCAL) == first
        assert await offset_of(client, EARLIEST) == 0


@enforces("remote.log.manager.task.interval.ms")
async def test_how_often_is_looked_for_segments() -> None:
    deps = MemoryDeps()
    async with tiered(deps, remote_log_manager_task_interval_ms="60000"):
        await trio.sleep(50)
        assert not segments(deps)
        await trio.sleep(20)
        assert len(segments(deps)) == 6


@enforces("tier.copiers")
async def test_how_many_are_copied_at_a_time() -> None:
    for copiers in (1, 3):
        deps, started_keys = MemoryDeps(), set[str]()

        def slow(operation: Operation, key: str, started_keys: set[str] = started_keys) -> Fault:
            if operation is not Operation.PUT or key.rpartition("/")[2].count("-") != 3:
                return HEALTHY
            started_keys.add(key)
            return Fault(wait_s=10.0)

        async with open_broker(deps, **TIER, **SOON, tier_copiers=str(copiers)) as opened:
            client = opened.connect()
            for name in "abcd":
                await create_tiered(client, name)
                for _ in range(2):
                    await produce_to(client, name)
            deps.objects.fault = slow
            await trio.sleep(9)
            assert len(started_keys) == copiers


async def create_tiered(client: Client, name: str) -> None:
    rows = {"remote.storage.enable": "true", "segment.bytes": "1048576"}
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in rows.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    reply = await ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 6)
    assert reply.topics[0].error_code == 0, reply.topics[0].error_message


async def produce_to(client: Client, topic: str) -> None:

    records = memoryview(build_batch([Record(None, bytes(700_000), EPOCH_MS)]))
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    await ask(client, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)


@enforces("remote.log.manager.copy.max.bytes.per.second")
async def test_how_much_is_copied_in_a_second() -> None:
    deps = MemoryDeps()
    async with tiered(deps, remote_log_manager_copy_max_bytes_per_second="70000") as (_, client):
        await trio.sleep(25)
        assert len(segments(deps)) == 3  # the first one at once
        assert await alter(client, BROKER, remote_log_manager_copy_max_bytes_per_second="700000") == 0
        await trio.sleep(40)
        assert len(segments(deps)) == 6


@enforces("remote.fetch.max.wait.ms")
async def test_a_fetch_without_records_waits_for_the_tier_up_to_the_configured_time() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=10))
        for max_wait_ms, waited_s in (("500", 0.5), ("1500", 1.5), ("9000", 8)):
            assert await alter(cold.client, BROKER, remote_fetch_max_wait_ms=max_wait_ms) == 0
            began_s = trio.current_time()
            row = (await cold.fetch((COLD, 0), max_wait_ms=100))[COLD, 0]
            assert trio.current_time() - began_s == pytest.approx(waited_s)
            assert row.error_code == 0
            assert bool(row.records) == (max_wait_ms == "9000")


@enforces("remote.list.offsets.request.timeout.ms")
async def test_how_long_a_search_waits_for_the_tier() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=40))
        partition = ListOffsetsPartition(partition_index=0, timestamp=EPOCH_MS)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=COLD, partitions=[partition])])
        for timeout_ms, code in (("5000", REQUEST_TIMED_OUT), ("500", REQUEST_TIMED_OUT), ("600000", 0)):
            assert await alter(cold.client, BROKER, remote_list_offsets_request_timeout_ms=timeout_ms) == 0
            began_s = trio.current_time()
            reply = await ask(cold.client, request, 11)
            assert reply.topics[0].partitions[0].error_code == code
            if code:
                assert trio.current_time() - began_s == pytest.approx(int(timeout_ms) / 1000)


@enforces("tier.cache.dir")
@enforces("tier.cache.size.bytes")
@pytest.mark.parametrize("size_bytes", ["0", "100000000"])
async def test_how_much_of_the_tier_is_kept_where(size_bytes: str) -> None:
    deps = MemoryDeps()
    async with tiered(
        deps, 30, tier_cache_dir="/cache/of/tier", tier_cache_size_bytes=size_bytes, log_local_retention_bytes="1"
    ) as (_, client):
        await trio.sleep(60)
        assert deps.filesystem.exists("/cache/of/tier")
        assert not deps.filesystem.exists("/data/tier-cache")
        assert await offset_of(client, EARLIEST_LOCAL) > 25
        gets = []
        for _ in range(2):
            before = deps.objects.requests[Operation.GET]
            await read_through(client)
            gets.append(deps.objects.requests[Operation.GET] - before)
        assert (gets[1] > 5) == (size_bytes == "0")


async def read_through(client: Client) -> None:
    for offset in range(30):
        request: Any = fetch_request(max_wait_ms=5000)
        request.topics[0].partitions[0].fetch_offset = offset
        reply = await ask(client, request, 11)
        assert len(reply.responses[0].partitions[0].records) > 700_000
