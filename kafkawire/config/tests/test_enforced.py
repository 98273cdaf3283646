"""Each key of the configuration, set to another value than its default, changes the behaviour of a running broker.

`enforces` names the key that a test shows. `test_tidy` demands a test for each accepted key, and the table in
docs/configs.md is made from them.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pytest
import trio

from engine.batches.batch import Record, build_batch
from engine.files.io_workers import LoopPool
from engine.testing.simulated_index import SimulatedIndexStore
from kafkawire.adapters.metadata import metadata_directory
from kafkawire.config.broker_config import Config
from kafkawire.deps import Deps
from kafkawire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.testing import EPOCH_MS, Client, MemoryDeps, open_broker

T = TypeVar("T")
enforces = pytest.mark.enforces
HOUR_MS = 3_600_000


async def ask(client: Client, request: Any, version: int) -> Any:
    return await client.call(request, version)


async def metadata(client: Client, *topics: str) -> Any:
    return await ask(client, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]), 9)


async def create(client: Client, partitions: int = 1, replicas: int = -1, /, **configs: str) -> int:
    rows = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=replicas, configs=rows)
    reply = await ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 6)
    return int(reply.topics[0].error_code)


async def produce(
    client: Client,
    value: bytes = b"v",
    timestamp_ms: int = EPOCH_MS,
    partition: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    key: bytes | None = None,
) -> Any:
    records = memoryview(build_batch([Record(key, value, timestamp_ms=timestamp_ms)], producer=producer))
    data = PartitionProduceData(index=partition, records=records)
    topics = [TopicProduceData(name="t", partition_data=[data])]
    reply = await ask(client, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    return reply.responses[0].partition_responses[0]


def fetch_request(**fields: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**30)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    return FetchRequest(**{"max_bytes": 2**31 - 1, "min_bytes": 1, "topics": topics, **fields})


async def is_closed(client: Client) -> bool:
    with pytest.raises(EOFError):
        await client.receive()
    return True


@enforces("node.id")
@enforces("broker.rack")
async def test_identity() -> None:
    async with open_broker(node_id="7", broker_rack="r1") as opened:
        [broker] = (await metadata(opened.connect())).brokers
        assert (broker.node_id, broker.rack) == (7, "r1")


@enforces("listeners")
@enforces("advertised.listeners")
async def test_each_listener_advertises_its_own_address() -> None:
    async with open_broker(
        listeners="PLAINTEXT://memory:9092,OTHER://memory:9093", advertised_listeners="OTHER://outside:1234"
    ) as opened:
        for port, address in [(9092, ("memory", 9092)), (9093, ("outside", 1234))]:
            [broker] = (await metadata(opened.connect(port=port))).brokers
            assert (broker.host, broker.port) == address


@enforces("log.dirs")
async def test_partitions_spread_over_log_dirs() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, log_dirs="/a,/b") as opened:
        await create(opened.connect(), 4)
        for directory in ("/a", "/b"):
            assert len([name for name in deps.filesystem.list_dir(directory) if name.startswith("t-")]) == 2


class Witness(MemoryDeps):
    """Dependencies that record the broker's requests to them."""

    metadata_directory: Path | None = None
    workers: set[int]

    def start_deps(self) -> Deps:
        witness = self
        witness.workers = set()

        class Pool(LoopPool):
            async def run(self, worker: int, job: Callable[[], T]) -> T:
                witness.workers.add(worker)
                return await super().run(worker, job)

        plain = super().start_deps()

        async def open_metadata(config: Config) -> Any:
            witness.metadata_directory = metadata_directory(config)
            return await plain.open_metadata(config)

        return dataclasses.replace(plain, pool=Pool(), open_metadata=open_metadata)


@enforces("metadata.log.dir")
async def test_where_the_metadata_lies() -> None:
    deps = Witness()
    async with open_broker(deps):
        assert deps.metadata_directory == Path("/data/metadata")
    async with open_broker(deps, metadata_log_dir="/elsewhere"):
        assert deps.metadata_directory == Path("/elsewhere")


@enforces("io.workers")
@pytest.mark.parametrize("workers", [1, 3])
async def test_workers_beside_the_one_of_each_log_dir(workers: int) -> None:
    deps = Witness()
    async with open_broker(deps, io_workers=str(workers)) as opened:
        client = opened.connect()
        await create(client, 12)
        for partition in range(12):
            assert (await produce(client, partition=partition)).error_code == 0
    assert len(deps.workers) == workers + 3  # and the threads for commit batches, for flushes and for the index


@enforces("disk.reject.ratio")
async def test_a_disk_that_is_nearly_full() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, disk_reject_ratio="0.5") as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client)).error_code == 0
        deps.filesystem.capacity_bytes = 10
        await trio.sleep(10)
        assert (await produce(client)).error_code == 56


def clock_ms() -> int:
    return EPOCH_MS + round(trio.current_time() * 1000)


async def removed(
    deps: MemoryDeps, after_s: float, of_topic: Mapping[str, str] = MappingProxyType({}), /, **configs: str
) -> list[int]:
    """Removed segments of a topic after that time. It has segments of 1 MiB with records of 3, 2, 1 and 0 hours ago."""
    now_ms = clock_ms()
    async with open_broker(deps, log_segment_bytes=str(1 << 20), **configs) as opened:
        client = opened.connect()
        await create(client, **of_topic)
        for hours in (3, 2, 1, 0):
            await produce(client, bytes(700_000), now_ms - hours * HOUR_MS)
        await trio.sleep(after_s)
        names = [name for name in deps.filesystem.list_dir("/data/t-0") if name.endswith(".log")]
        return sorted({0, 1, 2, 3} - {int(name[:-4]) for name in names})


@enforces("log.retention.ms")
@enforces("log.retention.minutes")
@enforces("log.retention.hours")
@enforces("retention.ms")
async def test_how_old_records_get() -> None:
    for configs in (
        {"log_retention_ms": str(HOUR_MS + HOUR_MS // 2), "log_retention_minutes": "1"},
        {"log_retention_minutes": "90", "log_retention_hours": "1"},
    ):
        assert await removed(MemoryDeps(), 60, **configs) == [0, 1]
    assert await removed(MemoryDeps(), 60, log_retention_hours="2") == [0, 1]
    assert await removed(MemoryDeps(), 60, log_retention_hours="-1") == []
    assert await removed(MemoryDeps(), 60, {"retention_ms": str(2 * HOUR_MS)}, log_retention_hours="1") == [0, 1]
    assert await removed(MemoryDeps(), 60, log_retention_minutes="-2") == []


@enforces("log.retention.bytes")
@enforces("retention.bytes")
async def test_how_large_a_partition_gets() -> None:
    assert await removed(MemoryDeps(), 60, log_retention_bytes="1500000") == [0]
    topic = {"retention_bytes": "1000000"}
    assert await removed(MemoryDeps(), 60, topic, log_retention_bytes="1500000") == [0, 1]


@enforces("log.retention.check.interval.ms")
async def test_how_often_retention_looks() -> None:
    configs = {"log_retention_hours": "4"}
    assert await removed(MemoryDeps(), HOUR_MS / 1000 + 40, **configs, log_retention_check_interval_ms="30000") == [0]
    assert await removed(MemoryDeps(), HOUR_MS / 1000 + 40, **configs, log_retention_check_interval_ms="7200000") == []


@enforces("log.initial.task.delay.ms")
async def test_when_retention_looks_first() -> None:
    configs = {"log_retention_minutes": "120"}
    assert await removed(MemoryDeps(), 100, **configs, log_initial_task_delay_ms="60000") == [0, 1]
    assert await removed(MemoryDeps(), 100, **configs, log_initial_task_delay_ms="120000") == []


@enforces("log.cleanup.window")
async def test_when_retention_may_run() -> None:
    for minutes, expected in ((50, list[int]()), (62, [0, 1])):
        now = datetime.fromtimestamp(clock_ms() / 1000)
        begin, end = now + timedelta(hours=1), now + timedelta(hours=2)
        window = f"{begin:%H:%M}-{end:%H:%M}"
        found = await removed(MemoryDeps(), minutes * 60, log_retention_minutes="150", log_cleanup_window=window)
        assert found == expected


@enforces("disk.max.used.ratio")
async def test_a_disk_that_is_too_full_costs_old_records() -> None:
    deps = MemoryDeps()
    deps.filesystem.capacity_bytes = 4 << 20
    assert await removed(deps, 10, disk_max_used_ratio="0.6", journal_slot_bytes="65536") == [0]


@enforces("journal.slot.bytes")
async def test_size_of_the_journal() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, journal_slot_bytes="131072") as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client)).error_code == 0
        await trio.sleep(1)
        assert len(deps.filesystem.content("/data/journal/0.journal")) == 131072


@enforces("producer.id.expiration.ms")
@enforces("producer.id.expiration.check.interval.ms")
async def test_when_a_silent_producer_is_forgotten() -> None:
    ages = {"producer_id_expiration_ms": "60000", "producer_id_expiration_check_interval_ms": "10000"}
    async with open_broker(**ages) as opened:
        client = opened.connect()
        await create(client)
        assert (await produce(client, producer=(7, 0, 0))).error_code == 0
        assert (await produce(client, producer=(7, 0, 5))).error_code == 45
        await trio.sleep(71)
        assert (await produce(client, producer=(7, 0, 5))).error_code == 0, "nobody knows better any more"


@enforces("num.partitions")
async def test_partitions_of_a_created_topic() -> None:
    async with open_broker(num_partitions="3") as opened:
        assert len((await metadata(opened.connect(), "t")).topics[0].partitions) == 3


@enforces("default.replication.factor")
async def test_default_replicas_beyond_the_brokers() -> None:
    async with open_broker(default_replication_factor="2") as opened:
        assert await create(opened.connect()) == 38
        assert await create(opened.connect(), 1, 1) == 0


@enforces("auto.create.topics.enable")
async def test_no_automatic_creation() -> None:
    async with open_broker(auto_create_topics_enable="false") as opened:
        assert (await metadata(opened.connect(), "t")).topics[0].error_code == 3


@enforces("delete.topic.enable")
async def test_no_deletion() -> None:
    async with open_broker(delete_topic_enable="false") as opened:
        client = opened.connect()
        await create(client)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert (await ask(client, request, 6)).responses[0].error_code == 73


@enforces("message.max.bytes")
@enforces("max.message.bytes")
@pytest.mark.parametrize(("broker", "topic"), [({"message_max_bytes": "200"}, {}), ({}, {"max_message_bytes": "200"})])
async def test_largest_batch(broker: dict[str, str], topic: dict[str, str]) -> None:
    async with open_broker(**broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        assert (await produce(client, bytes(100))).error_code == 0
        assert (await produce(client, bytes(200))).error_code == 10


@enforces("log.segment.bytes")
@enforces("segment.bytes")
@pytest.mark.parametrize(
    ("broker", "topic"), [({"log_segment_bytes": "1048576"}, {}), ({}, {"segment_bytes": "1048576"})]
)
async def test_a_segment_that_is_full_rolls(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        for _ in range(2):
            assert (await produce(client, bytes(700_000))).error_code == 0
        segments = [name for name in deps.filesystem.list_dir("/data/t-0") if name.endswith(".log")]
        assert sorted(segments) == ["00000000000000000000.log", "00000000000000000001.log"]


def syncs(deps: MemoryDeps) -> int:
    operations = deps.filesystem.operations
    return sum(one.kind == "fdatasync" and one.path.startswith("/data/t-0/") for one in operations)


@enforces("log.index.keys")
@enforces("index.keys")
@pytest.mark.parametrize(
    ("broker", "topic"), [({"log_index_keys": "true"}, {}), ({}, {"index_keys": "true"}), ({}, {})]
)
async def test_keys_of_finished_segments_are_indexed(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, log_segment_bytes="1048576", **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        for _ in range(2):
            assert (await produce(client, bytes(700_000), key=b"k")).error_code == 0
        await trio.sleep(1)
    has_keys = bool(SimulatedIndexStore(deps.filesystem, "/data/index").scan(b"k", b"l"))
    assert has_keys is bool(broker or topic)


@enforces("log.flush.policy")
@enforces("flush.policy")
@enforces("log.flush.interval.messages")
@enforces("flush.messages")
@enforces("log.flush.interval.ms")
@enforces("log.flush.scheduler.interval.ms")
@enforces("flush.ms")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [
        ({}, {"flush_policy": "async", "flush_messages": "3", "flush_ms": "5000"}),
        ({"log_flush_policy": "async", "log_flush_interval_messages": "3", "log_flush_interval_ms": "5000"}, {}),
        ({"log_flush_scheduler_interval_ms": "5000"}, {"flush_policy": "async", "flush_messages": "3"}),
    ],
)
async def test_when_a_topic_is_flushed(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        at_first = syncs(deps)
        after = []
        for _ in range(4):
            assert (await produce(client)).error_code == 0
            after.append(syncs(deps) - at_first)
        assert after == [0, 0, 1, 1], "the third batch makes three messages, and waits for the sync"
        await trio.sleep(4.9)
        assert syncs(deps) - at_first == 1
        await trio.sleep(0.2)
        assert syncs(deps) - at_first == 2


def segments(deps: MemoryDeps, suffix: str = ".log") -> int:
    return sum(name.endswith(suffix) for name in deps.filesystem.list_dir("/data/t-0"))


@enforces("log.roll.ms")
@enforces("log.roll.hours")
@enforces("segment.ms")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [({"log_roll_hours": "1"}, {}), ({"log_roll_ms": "3600000"}, {}), ({}, {"segment_ms": "3600000"})],
)
async def test_a_segment_that_is_old_rolls(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        for timestamp_ms, expected in ((0, 1), (HOUR_MS, 1), (HOUR_MS + 1, 2)):
            assert (await produce(client, timestamp_ms=EPOCH_MS - 2 * HOUR_MS + timestamp_ms)).error_code == 0
            assert segments(deps) == expected


@enforces("log.roll.jitter.ms")
@enforces("log.roll.jitter.hours")
@enforces("segment.jitter.ms")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [
        ({"log_roll_jitter_hours": "100"}, {}),
        ({"log_roll_jitter_ms": "360000000"}, {}),
        ({}, {"segment_jitter_ms": "360000000"}),
    ],
)
async def test_a_segment_rolls_earlier_by_chance(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        week = range(0, 168, 4)
        for hour in week:
            assert (await produce(client, timestamp_ms=EPOCH_MS + (hour - 168) * HOUR_MS)).error_code == 0
        assert segments(deps) > 1


@enforces("log.index.size.max.bytes")
@enforces("segment.index.bytes")
@pytest.mark.parametrize(
    ("broker", "topic"), [({"log_index_size_max_bytes": "4"}, {}), ({}, {"segment_index_bytes": "4"})]
)
async def test_a_segment_whose_index_is_full_rolls(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        for _ in range(2):
            assert (await produce(client)).error_code == 0
        assert segments(deps) == 2


@enforces("log.preallocate")
@enforces("preallocate")
@pytest.mark.parametrize(("broker", "topic"), [({"log_preallocate": "true"}, {}), ({}, {"preallocate": "true"})])
async def test_a_segment_is_preallocated_while_it_is_active(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **broker, log_segment_bytes="2097152", log_index_size_max_bytes="4") as opened:
        client = opened.connect()
        await create(client, **topic)
        for _ in range(2):
            assert (await produce(client)).error_code == 0
        names = [name for name in deps.filesystem.list_dir("/data/t-0") if name.endswith(".log")]
        assert [deps.filesystem.allocated_bytes(f"/data/t-0/{name}") for name in names] == [0, 2097152]


@enforces("log.segment.delete.delay.ms")
@enforces("file.delete.delay.ms")
@pytest.mark.parametrize(
    ("broker", "topic"), [({"log_segment_delete_delay_ms": "5000"}, {}), ({}, {"file_delete_delay_ms": "5000"})]
)
async def test_files_of_deleted_records_stay_a_while(broker: dict[str, str], topic: dict[str, str]) -> None:
    deps = MemoryDeps()
    async with open_broker(deps, log_index_size_max_bytes="4", **broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        for _ in range(2):
            assert (await produce(client)).error_code == 0
        partition = DeleteRecordsPartition(partition_index=0, offset=-1)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])])
        assert (await ask(client, request, 2)).topics[0].partitions[0].low_watermark == 2
        await trio.sleep(4)
        assert segments(deps, ".deleted") == 1
        await trio.sleep(3)
        assert segments(deps, ".deleted") == 0


@enforces("min.insync.replicas")
@pytest.mark.parametrize(("broker", "topic"), [({"min_insync_replicas": "2"}, {}), ({}, {"min_insync_replicas": "2"})])
async def test_more_replicas_in_sync_than_there_are_replicas(broker: dict[str, str], topic: dict[str, str]) -> None:
    """The number of replicas is the upper bound, as in Kafka (Partition.effectiveMinIsr)."""
    async with open_broker(**broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        assert (await produce(client)).error_code == 0


@enforces("log.message.timestamp.type")
@enforces("message.timestamp.type")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [({"log_message_timestamp_type": "LogAppendTime"}, {}), ({}, {"message_timestamp_type": "LogAppendTime"})],
)
async def test_log_append_time(broker: dict[str, str], topic: dict[str, str]) -> None:
    async with open_broker(**broker) as opened:
        client = opened.connect()
        await create(client, **topic)
        assert (await produce(client, timestamp_ms=1)).log_append_time_ms >= EPOCH_MS


@enforces("log.message.timestamp.before.max.ms")
@enforces("message.timestamp.before.max.ms")
@enforces("log.message.timestamp.after.max.ms")
@enforces("message.timestamp.after.max.ms")
@pytest.mark.parametrize(("side", "sign"), [("before", -1), ("after", 1)])
@pytest.mark.parametrize("of_topic", [False, True])
async def test_timestamp_limits(side: str, sign: int, of_topic: bool) -> None:
    limit = {f"message_timestamp_{side}_max_ms": "1000"}
    broker = {} if of_topic else {f"log_{key}": value for key, value in limit.items()}
    async with open_broker(**broker) as opened:
        client = opened.connect()
        await create(client, **(limit if of_topic else {}))
        assert (await produce(client, timestamp_ms=EPOCH_MS + sign * 500)).error_code == 0
        assert (await produce(client, timestamp_ms=EPOCH_MS + sign * 60_000)).error_code == 32


@enforces("fetch.max.bytes")
async def test_largest_fetch() -> None:
    async with open_broker(fetch_max_bytes="1024") as opened:
        client = opened.connect()
        await create(client)
        for _ in range(4):
            await produce(client, bytes(800))
        reply = await ask(client, fetch_request(), 12)
        assert 0 < len(reply.responses[0].partitions[0].records) <= 1024


@enforces("max.incremental.fetch.session.cache.slots")
@pytest.mark.parametrize(("slots", "has_session"), [("0", False), ("1", True)])
async def test_fetch_sessions(slots: str, has_session: bool) -> None:
    async with open_broker(max_incremental_fetch_session_cache_slots=slots) as opened:
        client = opened.connect()
        await create(client)
        reply = await ask(client, fetch_request(session_epoch=0, max_wait_ms=0), 12)
        assert bool(reply.session_id) is has_session


@enforces("max.request.partition.size.limit")
async def test_partitions_of_a_page() -> None:
    async with open_broker(max_request_partition_size_limit="2") as opened:
        client = opened.connect()
        await create(client, 3)
        [row] = (await ask(client, DescribeTopicPartitionsRequest(topics=[]), 0)).topics
        assert [one.partition_index for one in row.partitions] == [0, 1]


@enforces("socket.request.max.bytes")
async def test_largest_request() -> None:
    async with open_broker(socket_request_max_bytes="1000") as opened:
        client = opened.connect()
        await create(client)
        await client.send_frame(bytes(1001))
        assert await is_closed(client)


@enforces("queued.max.request.bytes")
async def test_requests_held_by_all_connections() -> None:
    """When large requests have reached their share of the bound, a second one is received only after the first."""
    async with open_broker(queued_max_request_bytes=str(1024 * 1024)) as opened:
        await create(opened.connect())
        await opened.connect().stream.send_all(struct.pack(">i", 2 << 20) + bytes(1 << 20))
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        await metadata(opened.connect())
        assert trio.current_time() == started
        padding = [ForgottenTopic(topic="t", partitions=list(range(90_000)))]
        client = opened.connect()
        await client.send(fetch_request(forgotten_topics_data=padding, session_epoch=-1), version=12)
        await client.receive()
        assert 0 < trio.current_time() - started < 60


@enforces("max.connections")
async def test_connections_in_all() -> None:
    async with open_broker(max_connections="1") as opened:
        first, second = opened.connect(), opened.connect(peer_host="10.0.0.2")
        assert (await metadata(first)).brokers
        assert await is_closed(second)


@enforces("max.connections.per.ip")
async def test_connections_per_address() -> None:
    async with open_broker(max_connections_per_ip="1") as opened:
        first, second, other = opened.connect(), opened.connect(), opened.connect(peer_host="10.0.0.2")
        assert (await metadata(first)).brokers
        assert await is_closed(second)
        assert (await metadata(other)).brokers


@enforces("connections.max.idle.ms")
async def test_idle_connections_are_closed() -> None:
    async with open_broker(connections_max_idle_ms="5000") as opened:
        client = opened.connect()
        await metadata(client)
        started = trio.current_time()
        assert await is_closed(client)
        assert 5 <= trio.current_time() - started < 7


async def scrubbed_bytes(deps: MemoryDeps, after_s: float, **configs: str) -> int:
    """Scrubbed bytes of a topic with two sealed segments of 700,000 bytes."""
    async with open_broker(deps, log_segment_bytes=str(1 << 20), log_retention_hours="-1", **configs) as opened:
        client = opened.connect()
        await create(client)
        for _ in range(3):
            await produce(client, bytes(700_000))
        await trio.sleep(after_s)
        return opened.broker.store.stats.scrubbed_bytes


@enforces("scrub.interval.ms")
async def test_how_often_segments_are_read_again() -> None:
    assert await scrubbed_bytes(MemoryDeps(), 100) == 0
    assert 1_400_000 < await scrubbed_bytes(MemoryDeps(), 100, scrub_interval_ms="60000") < 1_500_000
    assert 2_800_000 < await scrubbed_bytes(MemoryDeps(), 150, scrub_interval_ms="60000") < 3_000_000


@enforces("scrub.bytes.per.second")
async def test_how_fast_segments_are_read_again() -> None:
    configs = {"scrub_interval_ms": "10000", "scrub_bytes_per_second": "10000"}
    assert 700_000 <= await scrubbed_bytes(MemoryDeps(), 60, **configs) < 1_400_000
    assert await scrubbed_bytes(MemoryDeps(), 100, scrub_interval_ms="10000", scrub_bytes_per_second="0") == 0
