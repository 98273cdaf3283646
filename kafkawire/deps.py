"""Dependencies of a broker on the outside, and the real ones. `testing.py` gives others."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

import trio

from coordinator.metadata_store.store import MetadataStore
from coordinator.state.cache import StateCache
from coordinator.state.leveldb_cache import open_state_cache
from engine.files.filesystem import FileSystem, PosixFileSystem
from engine.files.io_workers import ThreadPool, WorkerPool, Workers
from engine.index.store import LevelDbStore, OpenIndex
from kafkawire.adapters.metadata import open_metadata
from kafkawire.adapters.tier import open_object_store
from kafkawire.config.broker_config import Config
from kafkawire.config.log_levels import LEVELS, LogLevels
from kafkawire.requests.context import Elsewhere
from kafkawire.security.secret import read_secret
from kafkawire.server.descriptors import PLENTY, Descriptors
from kafkawire.server.transport import Listener, open_listener
from tiering.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """Dependencies of a broker: network, disk, threads, metadata store, randomness, time, log output."""

    listen: Callable[[str, int], Awaitable[Listener]]
    connect: Callable[[str, int], Awaitable[trio.abc.Stream]]  # raises OSError
    open_metadata: Callable[[Config], Awaitable[MetadataStore]]
    read_secret: Callable[[Path], bytes]  # raises SecretRefused
    open_view: Callable[[Path], Awaitable[StateCache]]
    filesystem: FileSystem
    open_index: OpenIndex
    pool: WorkerPool
    random: Random
    now_ms: Callable[[], int]
    boot_ms: Callable[[], int]  # ms since some moment, including sleep of the machine
    decode_elsewhere: Elsewhere
    crypto: Elsewhere  # the crypto thread
    log_levels: LogLevels = field(default_factory=LogLevels)
    descriptors: Descriptors = PLENTY
    open_object_store: Callable[[Config, Workers, Random], ObjectStore] = open_object_store


def real_deps() -> Deps:
    """The real dependencies: sockets, the disk, threads, the system's clock. Call it inside `trio.run`."""
    return Deps(
        listen=open_listener,
        connect=trio.open_tcp_stream,
        open_metadata=open_metadata,
        read_secret=read_secret,
        open_view=partial(open_state_cache, run=partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1))),
        filesystem=PosixFileSystem(),
        open_index=LevelDbStore,
        pool=ThreadPool(),
        random=SystemRandom(),
        now_ms=lambda: time.time_ns() // 1_000_000,
        boot_ms=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
        decode_elsewhere=partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1)),
        crypto=partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1)),
        log_levels=LEVELS,
        descriptors=Descriptors.of_this_process(),
    )
