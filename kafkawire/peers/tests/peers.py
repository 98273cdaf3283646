"""Brokers with peer connections to each other: real dispatchers behind real servers, on memory streams, under one
image."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, cast

import trio

from coordinator.api import BrokerEndpoint, BrokerInfo, ClusterImage, PartitionState, TopicInfo
from kafkawire.peers.connection import PeerLimits
from kafkawire.peers.peers import Peers, PeerSettings
from kafkawire.security.accepted_links import AcceptedLinks, Receiver
from kafkawire.server.memory_transport import MemoryListener, MemoryStream
from kafkawire.server.server import ServerLimits, serve
from kafkawire.tests.harness import LISTENER, Broker, Settings, open_handlers

SECRET = b"a secret of the brokers"
ME = 1
LINKS = "BROKERS"


def broker_info(broker_id: int, epoch: int = 1) -> BrokerInfo:
    """The broker's registration with that epoch; its port is its id."""
    endpoints = BrokerEndpoint(LISTENER, "clients", broker_id), BrokerEndpoint(LINKS, "memory", broker_id)
    return BrokerInfo(broker_id, endpoints, incarnation=broker_id.to_bytes(8) + epoch.to_bytes(8), epoch=epoch)


def image_of(brokers: Sequence[BrokerInfo], topics: Mapping[str, Sequence[int]]) -> ClusterImage:
    """An image. `topics`: the leader of each partition."""
    infos = {
        name: TopicInfo(
            name, name.encode().ljust(16, b"\0"), tuple(PartitionState(one, 0, (one,), (one,)) for one in leaders)
        )
        for name, leaders in topics.items()
    }
    up = {one.broker_id: one for one in brokers}
    return ClusterImage(1, "cluster", members=up, brokers=up, topics=infos)


class FakeCluster:
    """A cluster whose image the test sets."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._has_changed = trio.Event()

    def change(self, **changes: Any) -> None:
        self.image = replace(self.image, version=self.image.version + 1, **changes)
        self._has_changed.set()
        self._has_changed = trio.Event()

    def lead(self, topic: str, *leaders: int) -> None:
        """Set the leaders of a topic's partitions."""
        found = image_of((), {topic: leaders}).topics
        self.change(topics={**self.image.topics, **found})

    def register(self, *brokers: BrokerInfo) -> None:
        """Register brokers, beside the others."""
        up = {**self.image.brokers, **{one.broker_id: one for one in brokers}}
        self.change(brokers=up, members=up)

    def lose(self, broker_id: int) -> None:
        """Remove a broker from the registered ones."""
        self.change(brokers={one: info for one, info in self.image.brokers.items() if one != broker_id})

    async def wait_for_image_after(self, version: int) -> ClusterImage:
        while self.image.version <= version:
            await self._has_changed.wait()
        return self.image


class SlowStream(trio.abc.Stream):
    """A stream that can hold back sent data, and deliver it long after the sender has gone."""

    def __init__(self, inner: MemoryStream) -> None:
        self.inner = inner
        self.is_held = False
        self.held = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_held:
            await trio.lowlevel.checkpoint()
            self.held += data
        else:
            await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        if not self.is_held:
            self.inner.close()
        await trio.lowlevel.checkpoint()

    async def arrive(self) -> None:
        """Deliver the held data."""
        self.is_held = False
        await self.inner.send_all(self.held)


@dataclass
class Network:
    """Listeners by port. `opened`: all connections that were opened."""

    listeners: dict[int, MemoryListener] = field(default_factory=dict)
    opened: list[SlowStream] = field(default_factory=list)
    attempts: int = 0

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        self.attempts += 1
        await trio.lowlevel.checkpoint()
        if port not in self.listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        stream = SlowStream(self.listeners[port].connect())
        self.opened.append(stream)
        return stream


@dataclass
class World:
    """The peer connections of one broker, and the other brokers."""

    cluster: FakeCluster
    network: Network
    nursery: trio.Nursery
    links: Peers
    epoch: int = 1
    peers: dict[int, Broker] = field(default_factory=dict)

    def start(self, run: Callable[[], Any]) -> None:
        self.nursery.start_soon(run)


@asynccontextmanager
async def open_world(
    *, secret: bytes = SECRET, limits: PeerLimits | None = None, topics: Mapping[str, Sequence[int]] | None = None
) -> AsyncIterator[World]:
    """Peer connections of broker 1; others come with `open_peer`."""
    cluster, network = FakeCluster(image_of([broker_info(one) for one in (1, 2, 3)], topics or {})), Network()
    settings = PeerSettings(broker_id=ME, listener_name=LINKS, secret=secret, limits=limits or PeerLimits())
    async with trio.open_nursery() as nursery:
        world: World
        links = Peers(settings, cast(Any, cluster), lambda: world.epoch, network.connect, Random(1))
        world = World(cluster, network, nursery, links)
        nursery.start_soon(links.run)
        yield world
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_peer(world: World, broker_id: int, **changes: Any) -> AsyncIterator[Broker]:
    """A broker that serves. It has the same image of the cluster, except for topics that it has created itself."""
    async with open_handlers(Settings(node_id=broker_id)) as real:
        receiver = Receiver(
            broker_id=broker_id,
            listener_name=LINKS,
            secret=SECRET,
            incarnation=lambda: world.cluster.image.members[broker_id].incarnation,
            image=lambda: world.cluster.image,
            random_bytes=Random(broker_id).randbytes,
        )
        broker = real.reconfigured(links=AcceptedLinks(receiver), **changes)
        listener, stop = MemoryListener(), trio.Event()
        world.network.listeners[broker_id] = listener
        world.peers[broker_id] = broker
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, {LINKS: [listener]}, broker.dispatcher, ServerLimits(), stop=stop))
            yield broker
            nursery.cancel_scope.cancel()
