"""A whole broker without a port, a disk or a clock: `async with open_broker() as broker`.

It is the real broker with other dependencies (`Deps`): memory streams, the simulated disk, a pool whose jobs
run as tasks, a fake metadata ensemble, a seeded random source, trio's clock (a MockClock in tests). The dependencies
outlive the broker: a second broker that is opened on them, after `deps.power_cut()` or not, finds the data of the
first one.
"""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from coordinator.metadata_store.store import MetadataStore
from coordinator.testing.simulated_metadata_store import FakeEnsemble, FakeStore
from coordinator.testing.simulated_state_cache import SimulatedStateCaches
from engine.testing.simulated_delays import DiskDelays
from engine.testing.simulated_disk import SimulatedFileSystem, SimulatedPool
from engine.testing.simulated_index import SimulatedIndexStore
from kafkawire.broker import Broker
from kafkawire.config.broker_config import Config, load
from kafkawire.deps import Deps
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.run_broker import run_broker
from kafkawire.server.memory_transport import MemoryListener, MemoryStream
from kafkawire.server.transport import Listener
from kafkawire.wire.message import Message
from tiering.stores.memory import MemoryStore

SECRET_FILE = "/secret"  # noqa: S105 - where the one is that the brokers of a cluster share
EPOCH_MS = 1_700_000_000_000  # wall clock in ms at time 0 of trio's clock


async def soon(job: Callable[[], Any]) -> Any:
    """Run `job` on the event loop itself, one scheduling step later: deterministic."""
    await trio.lowlevel.checkpoint()
    return job()


def _now_ms() -> int:
    return EPOCH_MS + round(trio.current_time() * 1000)


@dataclass
class MemoryDeps:
    """Dependencies of one broker, in memory. Give them to another broker to restart it on the durable data."""

    seed: int = 0
    filesystem: SimulatedFileSystem = field(default_factory=SimulatedFileSystem)
    delays: DiskDelays = field(default_factory=DiskDelays)  # of the simulated disks, by `engine.files.disk.DiskWorkers`
    ensemble: FakeEnsemble = field(default_factory=FakeEnsemble)
    views: SimulatedStateCaches = field(default_factory=SimulatedStateCaches)
    listeners: dict[int, MemoryListener] = field(default_factory=dict)
    sessions: list[FakeStore] = field(default_factory=list)
    secrets: dict[str, bytes] = field(default_factory=lambda: {SECRET_FILE: b"that brokers of a test share"})  # by file
    objects: MemoryStore = field(default_factory=lambda: MemoryStore(_now_ms))  # for every value of tier.store

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - a test repeats

    def start_deps(self) -> Deps:
        """Dependencies for one start of the broker."""
        return Deps(
            listen=self._listen,
            connect=self._connect,
            open_metadata=self._open_metadata,
            read_secret=lambda path: self.secrets[str(path)],
            open_view=self.views.open,
            filesystem=self.filesystem,
            open_index=partial(SimulatedIndexStore, self.filesystem),
            pool=SimulatedPool(self.delays),
            random=self.random,
            now_ms=_now_ms,
            boot_ms=lambda: round(trio.current_time() * 1000),
            decode_elsewhere=soon,
            crypto=soon,
            open_object_store=lambda *_config: self.objects,
        )

    def power_cut(self) -> None:
        """Lose all data that are not synced, and expire the broker's session. End the broker afterwards."""
        self.filesystem.crash()
        self.views.crash()
        for store in self.sessions:
            self.ensemble.expire(store)

    async def _listen(self, host: str, port: int) -> Listener:
        self.listeners[port] = MemoryListener((host, port))
        return self.listeners[port]

    async def _connect(self, _host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if (listener := self.listeners.get(port)) is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener at port {port}")
        return listener.connect()

    async def _open_metadata(self, _config: Config) -> MetadataStore:
        self.sessions.append(self.ensemble.connect())
        return self.sessions[-1]


@dataclass
class Client:
    """A connection that sends requests and reads the replies in order."""

    stream: MemoryStream
    client_id: str = "test"
    _last_correlation_id: int = 0
    _received: bytearray = field(default_factory=bytearray)
    _versions: dict[int, tuple[int, int]] = field(default_factory=dict)

    async def send(self, *requests: Message, version: int) -> None:
        """Send requests, all at once."""
        stream = bytearray()
        for request in requests:
            self._last_correlation_id += 1
            self._versions[self._last_correlation_id] = (request.API_KEY, version)
            frame = encode_request(request, version, self._last_correlation_id, self.client_id)
            stream += struct.pack(">i", len(frame)) + frame
        await self.stream.send_all(stream)

    async def send_frame(self, frame: bytes) -> None:
        """Send any bytes as a frame."""
        await self.stream.send_all(struct.pack(">i", len(frame)) + frame)

    async def receive(self) -> Message:
        """The next reply. Raises EOFError if the broker closed the connection."""
        frame = await self.receive_frame()
        api_key, version = self._versions.pop(int.from_bytes(frame[:4], "big"))
        return decode_response(frame, api_key, version)[1]

    async def receive_frame(self) -> bytes:
        """The next reply's bytes, without the size. Raises EOFError."""
        size = int.from_bytes(await self._take(4), "big")
        return bytes(await self._take(size))

    async def call(self, request: Message, version: int) -> Message:
        """Send a request and return its reply."""
        await self.send(request, version=version)
        return await self.receive()

    async def _take(self, size: int) -> bytearray:
        while len(self._received) < size:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError("the broker closed the connection")
            self._received += data
        taken = self._received[:size]
        del self._received[:size]
        return taken


@dataclass
class OpenBroker:
    """A broker that serves in memory."""

    broker: Broker
    deps: MemoryDeps

    def connect(self, *, port: int = 9092, peer_host: str = "127.0.0.1") -> Client:
        """A new connection to the listener of that port."""
        return Client(self.deps.listeners[port].connect(peer_host))


@asynccontextmanager
async def open_broker(deps: MemoryDeps | None = None, /, **properties: str) -> AsyncIterator[OpenBroker]:
    """Run a broker. Write underscores for the dots of config keys: `open_broker(num_partitions="3")`.

    Leaving the block stops the broker in order; an exception inside ends it at once, like a crash of the process.
    """
    deps = deps or MemoryDeps()
    settings = {"log.dirs": "/data", "http.listeners": "", "listeners": "PLAINTEXT://memory:9092"}
    settings["journal.slot.bytes"] = "65536"  # slots are written in full: small ones make tests quick
    settings.update({name.replace("_", "."): value for name, value in properties.items()})
    config, _ = load(settings)
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(_run, config, deps.start_deps())
        yield OpenBroker(broker, deps)
        broker.stop.set()


FIRST_PORT = 9092


@dataclass
class MemoryCluster:
    """Several brokers on one ensemble and one network. Each has its own disk, and the port FIRST_PORT + its id."""

    seed: int = 0
    ensemble: FakeEnsemble = field(default_factory=FakeEnsemble)
    deps: dict[int, MemoryDeps] = field(default_factory=dict)
    brokers: dict[int, OpenBroker] = field(default_factory=dict)  # running ones
    _scopes: dict[int, trio.CancelScope] = field(default_factory=dict)

    def deps_of(self, broker_id: int) -> MemoryDeps:
        """Dependencies of a broker, which outlive its processes."""
        if broker_id not in self.deps:
            listeners = next(iter(self.deps.values())).listeners if self.deps else {}
            seed = self.seed * 1_000 + broker_id
            self.deps[broker_id] = MemoryDeps(seed, ensemble=self.ensemble, listeners=listeners)
        return self.deps[broker_id]

    def connect(self, broker_id: int) -> Client:
        """A new connection to this broker."""
        return self.brokers[broker_id].connect(port=FIRST_PORT + broker_id)

    async def serve(
        self,
        broker_id: int,
        properties: Mapping[str, str],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run a broker until it is stopped or killed. After a kill, its session stays open, like that of a process."""
        settings = {
            "zookeeper_connect": "ensemble:2181",
            "inter_broker_secret_file": SECRET_FILE,
            "broker_id": str(broker_id),
            "listeners": f"PLAINTEXT://memory:{FIRST_PORT + broker_id}",
        }
        deps = self.deps_of(broker_id)
        scope = self._scopes[broker_id] = trio.CancelScope()
        try:
            with scope:
                async with open_broker(deps, **settings | dict(properties)) as opened:
                    self.brokers[broker_id] = opened
                    task_status.started()
                    await opened.broker.drained.wait()
        finally:
            self.brokers.pop(broker_id, None)
            if scope.cancelled_caught:
                deps.sessions[-1].disconnected = True
                deps.filesystem.end_process()
                deps.views.end_process()

    def kill(self, broker_id: int) -> None:
        """End the broker at once, like `kill -9`."""
        self._scopes[broker_id].cancel()

    def suspend(self, broker_id: int) -> None:
        """Suspend the broker, like SIGSTOP: it hears neither from peers nor from the metadata store."""
        self.deps[broker_id].sessions[-1].pause()
        self.deps[broker_id].listeners[FIRST_PORT + broker_id].hold(True)

    def resume(self, broker_id: int) -> None:
        """Resume the listener, like SIGCONT: waiting bytes arrive, before any news of the metadata store."""
        self.deps[broker_id].listeners[FIRST_PORT + broker_id].hold(False)

    def resume_session(self, broker_id: int) -> None:
        """Resume the session with the metadata store."""
        self.deps[broker_id].sessions[-1].resume()

    async def stop(self, broker_id: int) -> None:
        """Stop the broker in order."""
        broker = self.brokers[broker_id].broker
        broker.stop.set()
        await broker.drained.wait()


@asynccontextmanager
async def open_cluster(
    count: int = 3, cluster: MemoryCluster | None = None, /, **properties: str
) -> AsyncIterator[tuple[MemoryCluster, trio.Nursery]]:
    """Run brokers 1 to `count`. Start brokers again in the nursery. Leaving the block stops all."""
    cluster = cluster or MemoryCluster()
    async with trio.open_nursery() as nursery:
        for broker_id in range(1, count + 1):
            await nursery.start(cluster.serve, broker_id, properties)
        yield cluster, nursery
        for opened in [*cluster.brokers.values()]:
            opened.broker.stop.set()


async def _run(config: Config, deps: Deps, *, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
    await run_broker(config, deps, task_status.started)
