"""The whole broker in memory: acknowledged records survive stops and crashes, epochs rise, a failed start gives the
reason."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing

from coordinator.metadata_store.store import MetadataStore
from engine.batches.batch import Record, build_batch
from engine.files.disk import DiskWorkers
from engine.files.filesystem import File
from engine.files.io_workers import LoopPool
from engine.log_dirs.layout import CLEAN_SHUTDOWN
from engine.testing.simulated_disk import Fault
from kafkawire.adapters.leaving import LEAVE_MAX_S
from kafkawire.broker import Broker, BrokerFailed, StartError
from kafkawire.config.broker_config import Config, load
from kafkawire.deps import Deps
from kafkawire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkawire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafkawire.process.run import STOP_MAX_S
from kafkawire.run_broker import run_broker
from kafkawire.server.descriptors import Descriptors
from kafkawire.testing import Client, MemoryDeps, open_broker


class HangingStart(MemoryDeps):
    """The metadata store does not answer during a start."""

    async def _open_metadata(self, _config: Config) -> MetadataStore:
        await trio.sleep_forever()
        raise AssertionError


async def test_broker_that_is_stopped_before_it_is_ready_exits() -> None:
    stop = trio.Event()
    ready: list[Broker] = []
    config, _ = load({"log.dirs": "/data", "http.listeners": "", "listeners": "PLAINTEXT://memory:9092"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_broker, config, HangingStart().start_deps(), ready.append, stop)
        await trio.testing.wait_all_tasks_blocked()
        stop.set()
    assert not ready


class SlowPool(LoopPool):
    """A pool whose syncs take a second, so that replies that wait for a sync come late."""

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await trio.sleep(1)
        await super().sync(worker, files, is_urgent=is_urgent)


class SlowDeps(MemoryDeps):
    def start_deps(self) -> Deps:
        return replace(super().start_deps(), pool=SlowPool())


class Crash(Exception):
    """Ends a broker the way kill -9 does."""


def produce_request(value: bytes, acks: int = -1) -> ProduceRequest:
    records = memoryview(build_batch([Record(value=value)]))
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


async def create(client: Client) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    reply = await client.call(request, 12)
    assert isinstance(reply, MetadataResponse)
    assert [topic.error_code for topic in reply.topics] == [0]
    return reply


async def produce(client: Client, value: bytes, acks: int = -1) -> int:
    reply = await client.call(produce_request(value, acks), 9)
    assert isinstance(reply, ProduceResponse)
    [row] = reply.responses[0].partition_responses
    assert row.error_code == 0
    return row.base_offset


async def read_all(client: Client) -> bytes:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)])
    reply = await client.call(request, 12)
    assert isinstance(reply, FetchResponse)
    [row] = reply.responses[0].partitions
    assert row.error_code == 0
    assert isinstance(row.records, memoryview)
    return bytes(row.records)


async def latest_offset(client: Client) -> int:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    reply = await client.call(request, 5)
    assert isinstance(reply, ListOffsetsResponse)
    [row] = reply.topics[0].partitions
    assert row.error_code == 0
    return row.offset


async def leader_epoch(client: Client) -> int:
    reply = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    assert isinstance(reply, MetadataResponse)
    return reply.topics[0].partitions[0].leader_epoch


async def test_an_acknowledged_record_survives_a_restart_and_the_epoch_rises() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        client = opened.connect()
        await create(client)
        assert await produce(client, b"first") == 0
        assert await leader_epoch(client) == 0
        stored = await read_all(client)
    async with open_broker(deps) as opened:
        client = opened.connect()
        assert await read_all(client) == stored
        assert await leader_epoch(client) == 1
        assert await produce(client, b"second") == 1


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_acknowledged_record_is_found_at_once_by_others(acks: int) -> None:
    async with open_broker(SlowDeps()) as opened:
        producer, other = opened.connect(), opened.connect()
        await create(producer)
        for number in range(10):
            value = b"number %d" % number
            assert await produce(producer, value, acks) == number
            assert await latest_offset(other) == number + 1
            assert value in await read_all(other)


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_acknowledged_record_survives_a_power_cut(acks: int) -> None:
    deps = SlowDeps()
    with pytest.RaisesGroup(Crash):
        async with open_broker(deps) as opened:
            client = opened.connect()
            await create(client)
            await produce(client, b"kept", acks)
            deps.power_cut()
            raise Crash
    async with open_broker(deps) as opened:
        client = opened.connect()
        assert b"kept" in await read_all(client)
        assert await produce(client, b"next") == 1


async def test_pipelined_requests_are_appended_and_answered_in_order() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client)
        await client.send(*(produce_request(b"%d" % number) for number in range(40)), version=9)
        offsets = []
        for _ in range(40):
            reply = await client.receive()
            assert isinstance(reply, ProduceResponse)
            offsets.append(reply.responses[0].partition_responses[0].base_offset)
        assert offsets == list(range(40))


async def test_requests_in_flight_share_a_durability_step() -> None:
    deps = MemoryDeps()
    async with open_broker(deps) as opened:
        client = opened.connect()
        await create(client)
        await produce(client, b"warm")
        deps.filesystem.operations.clear()
        await client.send(*[produce_request(b"x") for _ in range(10)], version=9)
        for _ in range(10):
            await client.receive()
        synced = [one.path for one in deps.filesystem.operations if one.kind == "fdatasync"]
        assert len([path for path in synced if not path.endswith(".tmp")]) <= 2  # `.tmp` files are in no commit batch


async def test_the_last_log_dir_failing_ends_the_broker_with_one_line() -> None:
    deps = MemoryDeps()
    with pytest.RaisesGroup(BrokerFailed, flatten_subgroups=True) as caught:
        async with open_broker(deps) as opened:
            client = opened.connect()
            await create(client)
            deps.filesystem.faults.append(Fault("fdatasync", errno.EIO, ".log"))
            await client.call(produce_request(b"lost"), 9)
            await trio.sleep_forever()
    [error] = caught.value.exceptions
    assert "the last log dir went offline" in str(error)
    assert "\n" not in str(error)


async def test_hanging_disk_does_not_keep_other_log_dirs_from_their_clean_shutdown_marker() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, log_dirs="/a,/b", num_partitions="2") as opened:
        client = opened.connect()
        await create(client)
        await produce(client, b"x")
        workers = DiskWorkers.of(0, opened.broker.config.io_workers).all
        deps.delays.hang(workers)
        deps.views.hang()
        try:
            await client.send(produce_request(b"never answered"), version=9)
            await trio.sleep(1)
            opened.broker.stop.set()
            await trio.sleep(STOP_MAX_S - LEAVE_MAX_S)  # a broker alone has no others to wait for
            assert deps.filesystem.exists(f"/b/{CLEAN_SHUTDOWN}")
            assert not deps.filesystem.exists(f"/a/{CLEAN_SHUTDOWN}")
        finally:
            deps.delays.set(workers)
            deps.views.answer()


async def test_two_brokers_on_one_log_dir_do_not_start() -> None:
    deps = MemoryDeps()
    async with open_broker(deps):
        with pytest.RaisesGroup(StartError, flatten_subgroups=True) as caught:
            async with open_broker(MemoryDeps(filesystem=deps.filesystem, ensemble=deps.ensemble)):
                pass
    [error] = caught.value.exceptions
    assert "\n" not in str(error)


async def test_a_parked_fetch_is_answered_when_the_broker_stops() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        await create(client)
        partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
        topics = [FetchTopic(topic="t", partitions=partitions)]
        await client.send(FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=topics), version=12)
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        opened.broker.stop.set()
        assert isinstance(await client.receive(), FetchResponse)
        assert trio.current_time() - started < 1


async def test_broker_creates_the_same_topic_id_again_with_the_same_seed() -> None:
    async def topic_id() -> bytes:
        async with open_broker(MemoryDeps(seed=7)) as opened:
            return (await create(opened.connect())).topics[0].topic_id

    assert await topic_id() == await topic_id()


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_refusal_that_quotes_the_request_fits_into_its_reply(version: int) -> None:
    long_value = CreatableTopicConfig(name="max.message.bytes", value="\u20ac" * 10_000)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[long_value])
    async with open_broker() as broker:
        reply = await broker.connect().call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version)
        assert isinstance(reply, CreateTopicsResponse)
        [row] = reply.topics
        assert row.error_code == 40
        assert row.error_message is not None
        assert row.error_message.startswith("Invalid value")


class FewDescriptors(MemoryDeps):
    def start_deps(self) -> Deps:
        return replace(super().start_deps(), descriptors=Descriptors.divide(8))


async def test_connections_do_not_take_the_descriptors_of_the_log_dirs() -> None:
    async with open_broker(FewDescriptors(), max_connections="100") as broker:
        clients = [broker.connect() for _ in range(3)]
        for client in clients[:2]:
            await create(client)
        with pytest.raises(EOFError):
            await clients[2].receive()


async def test_unused_fetch_session_expires() -> None:
    """The client of an expired session gets FETCH_SESSION_ID_NOT_FOUND."""
    async with open_broker() as opened:
        asked = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1_000)])]
        client = opened.connect()
        await create(client)
        begun = await client.call(FetchRequest(session_epoch=0, max_wait_ms=0, topics=asked), 12)
        assert isinstance(begun, FetchResponse)
        again = FetchRequest(session_id=begun.session_id, session_epoch=1, max_wait_ms=0)
        for seconds, error_code in ((500, 0), (700, 70)):
            await trio.sleep(seconds)
            answer = await opened.connect().call(again, 12)
            assert isinstance(answer, FetchResponse)
            assert answer.error_code == error_code
            again.session_epoch += 1
