"""The remote tier of a broker, put together: its object store, cold reads, the uploader and deletions.

A store that refuses requests, or that two leaders could not share, stops the start. A store that cannot be reached does
not: the broker serves the log dirs meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog
import trio

from engine.files.filesystem import PosixFileSystem
from engine.files.io_workers import Workers
from kafkawire.adapters.tier_cluster import ClusterCopies, ClusterSource
from kafkawire.adapters.tier_deletions import DeletionDeps, DeletionOptions, TierDeletions
from tiering.cluster_objects import ClusterObjects
from tiering.errors import Fenced, TierError
from tiering.object_store import StoreError, StoreUnavailable
from tiering.ownership import confirm_owner
from tiering.probe import probe
from tiering.read.chunks import FLIGHTS_MAX, ChunkCache, ChunkFiles
from tiering.read.cold_tier import ColdTier
from tiering.stores.counted import CountedStore
from tiering.stores.directory import DirectoryStore
from tiering.upload.follower_notices import FollowerNotices
from tiering.upload.uploader import Identity, Uploader, UploaderDeps, UploaderOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from random import Random

    from coordinator.api import ClusterService, TierRegister, TopicInfo
    from engine.files.filesystem import FileSystem
    from engine.files.io_workers import WorkerPool
    from engine.tier import SegmentTier, TierableLog
    from kafkawire.adapters.tier_cluster import Groups
    from kafkawire.config.broker_config import Config
    from tiering.object_store import ObjectStore

_log = structlog.get_logger(__name__)

JOB_WORKERS = range(-8, -4)  # threads of the pool; those of log dirs have other numbers
WORKERS_SPARE = 4  # for manifests
CACHE_DIRECTORY = "tier-cache"
TOPICS_NAMED_MAX = 3  # in one line for the operator


class TierRefused(Exception):
    """The broker cannot start with this store; its text is the one line for the operator."""


@dataclass(frozen=True, slots=True)
class RemoteTier:
    """The parts of a broker's remote tier: object store, cold reads, uploader, chunk cache, copies of the cluster,
    deletions."""

    store: CountedStore
    segments: SegmentTier
    uploader: Uploader
    cache: ChunkCache
    copies: ClusterObjects
    deletions: TierDeletions
    broker_id: int
    interval_ms: int
    now_ms: Callable[[], int]

    def follow(
        self,
        nursery: trio.Nursery,
        cluster: ClusterService,
        groups: Groups,
        is_in_tier: Callable[[TopicInfo], bool],
    ) -> None:
        """Start to copy changes of topics and committed offsets to the tier, and to delete the objects of deleted
        topics."""
        source = ClusterSource(self.broker_id, cluster, groups, is_in_tier, self.now_ms, log_problem)
        nursery.start_soon(self.deletions.serve, cluster)
        nursery.start_soon(ClusterCopies(self.copies, source, self.interval_ms).serve)


class OpenLogs(Protocol):
    def __call__(self, *, is_led: bool) -> Iterable[TierableLog]: ...


@dataclass(frozen=True, slots=True)
class TierOpening:
    """The cluster, and its contents of the tier. `tiered`: topics by name; `logs`: partitions that are open."""

    cluster_id: str
    register: TierRegister
    tiered: Sequence[str]
    logs: OpenLogs


class TierDeps(Protocol):
    """Dependencies of the tier. `open_object_store` has the signature of that function in this module."""

    @property
    def open_object_store(self) -> Callable[[Config, Workers, Random], ObjectStore]: ...
    @property
    def filesystem(self) -> FileSystem: ...
    @property
    def pool(self) -> WorkerPool: ...
    @property
    def random(self) -> Random: ...
    @property
    def now_ms(self) -> Callable[[], int]: ...


async def open_tier(
    current: Callable[[], Config],
    opening: TierOpening,
    deps: TierDeps,
    nursery: trio.Nursery,
) -> RemoteTier | None:
    """Open the configured tier and start its tasks; None if none is configured. `current`: the present configuration of
    the broker. Raises TierRefused, CannotStart."""
    config = current()
    if config.tier_store is None:
        _refuse_to_disable(opening.tiered)
        return None
    workers, jobs = Workers(deps.pool, store_workers(config.tier_copiers)), Workers(deps.pool, JOB_WORKERS)
    opened = deps.open_object_store(config, workers, deps.random)
    store, root = CountedStore(opened), config.tier_store.root
    await _prepare(opened)
    await _probe(store, root, deps)
    generation = await opening.register.claim(str(config.tier_store), is_used=bool(opening.tiered))
    await _confirm(store, root, opening.cluster_id, generation, deps)
    identity = Identity(root, opening.cluster_id, generation, deps.random.randbytes(16).hex())
    uploader = Uploader(
        store,
        identity,
        UploaderOptions(config.tier_copiers, config.tier_interval_ms, lambda: current().tier_copy_max_bytes_per_s),
        UploaderDeps(partial(opening.logs, is_led=True), deps.now_ms, deps.random, log_problem),
    )
    followed = FollowerNotices(partial(opening.logs, is_led=False), uploader.catalogue, config.tier_interval_ms)
    files = await _cache_files(config, deps, jobs)
    cache = ChunkCache(store, files, jobs, nursery, config.tier_cache_size_bytes, uploader.topics)
    nursery.start_soon(uploader.serve)
    nursery.start_soon(followed.serve)
    nursery.start_soon(store.ask_while_away, root)
    nursery.start_soon(cache.leave_files)
    nursery.start_soon(_close_at_the_end, store)
    options = DeletionOptions(config.node_id, config.tier_interval_ms)
    deletion_deps = DeletionDeps(deps.now_ms, deps.random, log_problem)
    copies = ClusterObjects(store, root, opening.cluster_id)
    deletions = TierDeletions(store, identity, copies, opening.register, options, deletion_deps)
    return RemoteTier(
        store,
        ColdTier(store, uploader, cache, jobs),
        uploader,
        cache,
        copies,
        deletions,
        config.node_id,
        config.tier_interval_ms,
        deps.now_ms,
    )


def _refuse_to_disable(tiered: Sequence[str]) -> None:
    """Refuse to start without a tier if topics use it, like Kafka's
    LogConfig.validateRemoteStorageOnlyIfSystemEnabled."""
    if tiered:
        named = ", ".join(sorted(tiered)[:TOPICS_NAMED_MAX]) + (" …" if len(tiered) > TOPICS_NAMED_MAX else "")
        raise TierRefused(
            f"remote.log.storage.system.enable: topics with remote.storage.enable=true have to be deleted before it "
            f"can be false: {named}"
        )


async def _confirm(store: ObjectStore, root: str, cluster_id: str, generation: int, deps: TierDeps) -> None:
    """Confirm that the cluster was not restored elsewhere meanwhile. A store that is away was reported already."""
    try:
        await confirm_owner(store, root, cluster_id, generation, deps.now_ms())
    except Fenced as error:
        raise TierRefused(f"tier.store: {error}") from error
    except StoreUnavailable:
        return
    except (StoreError, TierError) as error:
        raise TierRefused(f"tier.store: {error}") from error


def store_workers(copiers: int) -> range:
    """More threads than requests at a time: cold reads do not wait behind the upload of a segment."""
    return range(JOB_WORKERS.start - FLIGHTS_MAX - copiers - WORKERS_SPARE, JOB_WORKERS.start)


async def _close_at_the_end(store: ObjectStore) -> None:
    """Close the store when the broker stops, so that no thread waits for a reply that is not needed any more."""
    try:
        await trio.sleep_forever()
    finally:
        store.close()


async def _cache_files(config: Config, deps: TierDeps, jobs: Workers) -> ChunkFiles:
    directory = (config.tier_cache_dir or config.log_dirs[0] / CACHE_DIRECTORY).absolute()
    files = ChunkFiles(deps.filesystem, str(directory))
    try:
        await jobs.run(partial(_clear, deps.filesystem, directory, files))
    except OSError as error:
        raise TierRefused(f"tier.cache.dir: {directory}: {error.strerror or error}") from error
    return files


async def _prepare(store: ObjectStore) -> None:
    if isinstance(store, DirectoryStore):
        try:
            await store.prepare()
        except StoreError as error:
            raise TierRefused(f"tier.store: {error}") from error


async def _probe(store: ObjectStore, root: str, deps: TierDeps) -> None:
    try:
        wrong = await probe(store, root, deps.random.randbytes(16).hex(), deps.now_ms())
    except StoreUnavailable as error:
        log_problem(f"it cannot be reached: {error}")
        return
    if wrong is not None:
        raise TierRefused(f"tier.store: {wrong}")


def _clear(filesystem: FileSystem, directory: Path, files: ChunkFiles) -> None:
    for one in (*reversed(directory.parents), directory):
        if not filesystem.exists(str(one)):
            filesystem.make_dir(str(one))
    files.clear()


def log_problem(problem: str) -> None:
    _log.error("remote tier problem found", problem=problem)


def open_object_store(config: Config, workers: Workers, random: Random) -> ObjectStore:
    """Open the object store that `tier.store` names."""
    url = config.tier_store
    assert url is not None
    if not url.is_s3:
        return DirectoryStore(url.bucket, workers, lambda: random.randbytes(16).hex(), PosixFileSystem().open)
    from tiering.stores.s3 import S3Options, S3Store, found_credentials  # takes memory, so not without an S3 store

    credentials = found_credentials(config.tier_s3_access_key, config.tier_s3_secret_key)
    endpoint = config.tier_s3_endpoint or f"https://s3.{config.tier_s3_region}.amazonaws.com"
    return S3Store(S3Options(endpoint.rstrip("/"), url.bucket, config.tier_s3_region, credentials), workers)
