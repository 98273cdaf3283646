"""A broker without a server: real handlers, engine and control plane, on a filesystem and a metadata store in memory.

A test sends a request message and gets the response message; both are encoded, and go through dispatch, as over a
connection. Only groups, transactions and markers are fakes: the test answers for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import trio

from coordinator.api import BrokerEndpoint, ClusterImage
from coordinator.cluster_manager import ClusterManager, ClusterManagerSettings
from coordinator.ports import FoundLog, HostChanges, HostedPartition
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeEnsemble, FakeValidator
from engine.api import PartitionLog, TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.log_config import LogConfig, TimestampType
from engine.options import StoreDeps, StoreOptions
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem, SimulatedPool
from engine.testing.simulated_index import SimulatedIndexStore
from engine.waiting_reads import EventClock, WaitingReads
from kafkawire.config.log_levels import LogLevels
from kafkawire.fetching.cold_loads import LOAD_MAX_BYTES, ColdLoads
from kafkawire.fetching.sessions import FetchSessionCache
from kafkawire.handlers import API_TABLE
from kafkawire.replication.followers import Followers
from kafkawire.requests.api import Api
from kafkawire.requests.cold_searches import ColdSearches
from kafkawire.requests.context import Authorizer, BrokerInterfaces, Operation, ResourceType, allow_all
from kafkawire.requests.dispatch import Dispatcher
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.requests.metrics import RequestMetrics
from kafkawire.requests.started import StartedRequest
from kafkawire.requests.throttles import Throttles
from kafkawire.testing import soon
from kafkawire.tests.answers import answer
from kafkawire.tests.fake_configs import FakeConfigs
from kafkawire.tests.fake_groups import FakeGroups
from kafkawire.tests.fake_transactions import FakeMarkers, FakeTransactions
from kafkawire.wire.connection_info import ConnectionInfo

NOW_MS = 1_700_000_000_000
NODE_ID = 1
LISTENER = "PLAINTEXT"


@dataclass(frozen=True)
class Settings:
    """See `kafkawire.requests.context.HandlerConfig`."""

    node_id: int = NODE_ID
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 2
    max_fetch_size_bytes: int = 55 * 1024 * 1024
    max_request_partitions: int = 2_000


@dataclass
class Host:
    """A partition host that opens partitions in the engine, with the topic configs of the tests."""

    store: SegmentStore
    has_unserved_changes = has_unserved = False

    async def start(self, image: ClusterImage, deleted: Collection[bytes]) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        return ()

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[FoundLog]:
        await trio.lowlevel.checkpoint()
        return ()

    @property
    def outwaits_in_ms(self) -> int:
        return 0

    def take_unserved(self) -> Sequence[FoundLog]:
        return ()

    async def open_again(self, image: ClusterImage) -> None:
        await trio.lowlevel.checkpoint()

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        await trio.lowlevel.checkpoint()

    async def apply(self, changes: HostChanges) -> None:
        for one in changes.dropped:
            await self.store.delete_partition(TopicIdPartition(one.topic_id, one.topic, one.partition))
        for one in changes.led:
            partition = TopicIdPartition(one.topic_id, one.topic, one.partition)
            await self.store.open_partition(partition, log_config(one.configs), one.state.leader_epoch)


def log_config(configs: Mapping[str, str]) -> LogConfig:
    return LogConfig(
        max_message_size_bytes=int(configs.get("max.message.bytes", "1048588")),
        segment_size_bytes=int(configs.get("segment.bytes", "1073741824")),
        timestamp_type=TimestampType(configs.get("message.timestamp.type", "CreateTime")),
        min_insync_replicas=int(configs.get("min.insync.replicas", "1")),
    )


@dataclass
class Rewritten:
    """The control plane of a broker in a larger cluster: the test sets the differences of the image."""

    real: ClusterManager
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def image(self) -> ClusterImage:
        return replace(self.real.image, **self.changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@dataclass
class Broker:
    """The broker of a test."""

    interfaces: BrokerInterfaces
    dispatcher: Dispatcher
    connection: ConnectionInfo
    store: SegmentStore
    cluster: Rewritten
    filesystem: SimulatedFileSystem
    groups: FakeGroups
    transactions: FakeTransactions
    markers: FakeMarkers
    correlation_id: int = 0

    def reconfigured(self, table: Sequence[Api] = API_TABLE, **changes: Any) -> Broker:
        """The same broker with other interfaces, such as an authorizer."""
        interfaces = replace(self.interfaces, **changes)
        return replace(self, interfaces=interfaces, dispatcher=Dispatcher(interfaces, table, {}))

    def without(self, *denied: tuple[Operation, ResourceType, str]) -> Broker:
        """The same broker for a client that lacks these rights."""

        def authorizer(*asked: Any) -> bool:
            return asked[2:] not in denied

        return self.reconfigured(authorizer=authorizer)

    def dispatch(self, request: Any, version: int, client_id: str | None = "test") -> StartedRequest:
        self.correlation_id += 1
        frame = bytearray(encode_request(request, version, self.correlation_id, client_id))
        return self.dispatcher.dispatch(frame, self.connection, trio.current_time())

    async def ask(self, request: Any, version: int, client_id: str | None = "test") -> Any:
        """Send a request, and return the decoded response."""
        dispatched = self.dispatch(request, version, client_id)
        return self.read(await answer(dispatched), type(request).API_KEY, version)

    def read(self, segments: Any, api_key: int, version: int) -> Any:
        assert segments is not None
        correlation_id, response = decode_response(join(segments), api_key, version)
        assert correlation_id == self.correlation_id
        return response

    async def create(self, name: str, partition_count: int = 1, **configs: str) -> bytes:
        """Create a topic with configs (keys with underscores), and return its id."""
        topic = await self.cluster.real.create_topic(
            name, partition_count=partition_count, configs={key.replace("_", "."): configs[key] for key in configs}
        )
        return topic.topic_id

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        info = self.cluster.image.topics[topic]
        return self.store.get(TopicIdPartition(info.topic_id, topic, partition))

    async def append(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Append a batch, wait until it is durable, and return its base offset."""
        pending = self.log(topic, partition).append(memoryview(batch(*values)), acks=-1)
        return (await pending.wait()).base_offset


def batch(*values: bytes, timestamp_ms: int = NOW_MS, **options: Any) -> bytearray:
    return build_batch([Record(value=value, timestamp_ms=timestamp_ms) for value in values or (b"v",)], **options)


def join(segments: Sequence[Any]) -> bytes:
    """The bytes of a reply; file ranges are read."""
    return b"".join(
        part.file.read_at(part.position, part.size_bytes) if hasattr(part, "file") else part for part in segments
    )


@asynccontextmanager
async def open_handlers(
    settings: Settings | None = None,
    *,
    authorizer: Authorizer = allow_all,
    host: str = "broker.example",
    queue_max_bytes: int = 64 * 1024 * 1024,
) -> AsyncIterator[Broker]:
    """Open all parts of a broker behind the server."""
    chosen = settings or Settings()
    filesystem = SimulatedFileSystem()
    options = StoreOptions(("/data",), "cluster", NODE_ID, queue_max_bytes=queue_max_bytes)
    index = partial(SimulatedIndexStore, filesystem)
    deps = StoreDeps(filesystem, index, SimulatedPool(), Random(1), lambda: NOW_MS, on_fatal=print, on_problem=print)
    store = SegmentStore(options, deps)
    metadata = FakeEnsemble().connect()
    coordinator = ClusterManager(
        metadata,
        Host(store),
        FakeValidator(),
        ClusterManagerSettings(
            NODE_ID, (BrokerEndpoint(LISTENER, host, 9092),), defaults=TopicDefaults(chosen.num_partitions)
        ),
        Random(7),
    )
    cluster = Rewritten(coordinator)
    groups, transactions, markers = FakeGroups(), FakeTransactions(), FakeMarkers()
    connection = ConnectionInfo(listener_name=LISTENER, peer_host="10.0.0.9", local_address="10.0.0.1")
    async with trio.open_nursery() as nursery:
        interfaces = BrokerInterfaces(
            store=store,
            cluster=cluster,
            groups=groups,
            transactions=transactions,
            markers=markers,
            config=chosen,
            configs=FakeConfigs(),
            cold_loads=ColdLoads(nursery, lambda: 500, cache_size_bytes=LOAD_MAX_BYTES),
            cold_searches=ColdSearches(nursery, lambda: 30_000),
            fetch_sessions=FetchSessionCache(10, Random(1), lambda: NOW_MS),
            metrics=RequestMetrics(),
            log_levels=LogLevels(),
            now_ms=lambda: NOW_MS,
            authorizer=authorizer,
            followers=Followers(WaitingReads(EventClock(lambda: 0))),
            throttles=Throttles(NODE_ID, lambda: 0, samples=11, sample_ms=1000),
            decode_elsewhere=soon,
        )
        await nursery.start(store.run)
        await coordinator.start()
        nursery.start_soon(coordinator.run)
        dispatcher = Dispatcher(interfaces, API_TABLE, {})
        yield Broker(interfaces, dispatcher, connection, store, cluster, filesystem, groups, transactions, markers)
        await store.close()
        await metadata.close()
        nursery.cancel_scope.cancel()
