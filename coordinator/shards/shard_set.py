"""The shards of one internal topic that this broker leads: the partition that a name belongs to, and its leader.

Shards follow the cluster's image: they come and go with the leadership of the topic's partitions. The topic is created
when a client first looks for a coordinator. Changes for the cache of coordinator state are saved now and then; no
coordinator waits for the cache without a bound (`coordinator.state.bounded_cache`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic

import structlog
import trio

from coordinator.api import NO_LEADER
from coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailable,
    NotCoordinator,
    TopicExists,
)
from coordinator.futures import settled
from coordinator.shards.load_waiters import loading
from coordinator.shards.replies import Freshness
from coordinator.shards.shard import Shard, ShardDeps, TableT, ignore
from coordinator.shards.writer import BatchWriter, CacheMode
from coordinator.state.bounded_cache import BoundedCache
from coordinator.state.log import StateLogMoved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coordinator.api import ClusterImage, ClusterService, TopicInfo
    from coordinator.shards.shard import Command, ReplyFuture
    from coordinator.state.cache import StateCache
    from coordinator.state.log import StateLogs, StateMarker, StateProducer

log = structlog.get_logger(__name__)

CACHED_NAME_MAX_LENGTH: Final = 249
FIRST_LOAD_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """How the topic is created, if it does not exist, and if there are enough brokers (KIP-115). Its
    min.insync.replicas is `min_isr`, or `replication_factor` if that is less."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]
    min_isr: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """`cache_mode`, `cache_flush_interval_ms`: offsets.view.mode, offsets.view.flush.interval.ms. `write_timeout_ms`:
    how long a request waits, at least, for a write that may not become durable."""

    broker_id: int
    topic: InternalTopic
    write_timeout_ms: int
    freshness: Freshness = Freshness.NEWEST  # of replies to commands that wrote nothing
    cache_mode: CacheMode = CacheMode.CACHED
    cache_flush_interval_ms: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStorage:
    """The logs that keep coordinator state, and its cache for a faster start."""

    logs: StateLogs
    cache: StateCache


class ShardSet(Generic[TableT]):
    """The shards that this broker leads. Life: `run` in a task; `stop` before the server drains, `close` when it
    has."""

    def __init__(
        self,
        cluster: ClusterService,
        storage: StateStorage,
        options: ShardOptions,
        *,
        new_table: Callable[[], TableT],
        wall_ms: Callable[[], int],
        new_id: Callable[[], str],
        send: Callable[[Shard[TableT], object], None] = ignore,
    ) -> None:
        self._cluster = cluster
        self._cache = cache = BoundedCache(storage.cache, options.topic.name)
        self._options = options
        self._shards: dict[int, Shard[TableT]] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        self._forgotten: set[int] = set()  # partitions that other brokers lead, and that have no cache here
        self._is_stopping = False
        self._unsaved = trio.Event()
        self._loaded = trio.Event()
        self._deps: ShardDeps[TableT] = ShardDeps(
            logs=storage.logs,
            cache=cache,
            writer=BatchWriter(cache, options.cache_mode),
            on_unsaved=self._note_unsaved,
            new_table=new_table,
            wall_ms=wall_ms,
            new_id=new_id,
            freshness=options.freshness,
            send=send,
            on_loaded=self._note_loaded,
        )

    # Life

    async def run(self) -> None:
        """Leads shards and saves the cache of coordinator state, for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deps.writer.run)
            nursery.start_soon(self._refuse_late)
            if self._options.cache_mode is CacheMode.CACHED:
                nursery.start_soon(self._save_now_and_then)
            while True:
                image = self._cluster.image
                self._follow(image, nursery)
                self._forget(image)
                await self._cluster.wait_for_image_after(image.version)

    def stop(self) -> None:
        """Take no more commands and refuse requests that wait for others; writes on their way to the disk are
        answered."""
        self._is_stopping = True
        for shard in self._shards.values():
            shard.stop()

    async def close(self) -> None:
        """Bring the cache of coordinator state up to date. No more commands come."""
        await self._save()
        await self._cache.close()

    def _follow(self, image: ClusterImage, nursery: trio.Nursery) -> None:
        name = self._options.topic.name
        led = _led(image.topics.get(name), self._options.broker_id)
        for partition, shard in list(self._shards.items()):
            if led.get(partition) != (shard.topic_id, shard.leader_epoch):
                shard.fail(StateLogMoved(f"{name}-{partition} is not led any more"))  # nothing more goes to its cache
                self._scopes.pop(partition).cancel()
                del self._shards[partition]
        for partition, (topic_id, leader_epoch) in led.items():
            if partition not in self._shards and not self._is_stopping:
                shard = Shard(topic_id, name, partition, leader_epoch, self._deps)
                scope = trio.CancelScope()
                self._shards[partition], self._scopes[partition] = shard, scope
                nursery.start_soon(_run_in, scope, shard)

    def _forget(self, image: ClusterImage) -> None:
        """Discard the cache of partitions that other brokers lead: a key that is deleted there may be gone from the
        log, and so may its tombstone, before the partition is led here again (RULES C2). The next image does not wait
        for the disk."""
        led_elsewhere = _led_by_others(image.topics.get(self._options.topic.name), self._options.broker_id)
        for partition in led_elsewhere - self._forgotten:
            self._cache.discard_soon(partition)
        self._forgotten = led_elsewhere

    async def _refuse_late(self) -> None:
        timeout_s = self._options.write_timeout_ms / 1000
        while True:
            await trio.sleep(timeout_s / 2)
            for shard in self:
                shard.refuse_late(timeout_s)

    def _note_unsaved(self) -> None:
        self._unsaved.set()

    async def _save_now_and_then(self) -> None:
        while True:
            await self._unsaved.wait()
            self._unsaved = trio.Event()
            await trio.sleep(self._options.cache_flush_interval_ms / 1000)
            await self._save()

    async def _save(self) -> None:
        changes = [change for shard in self._shards.values() if (change := shard.take_unsaved()) is not None]
        if changes:
            await self._cache.save(changes)

    # Where a name is

    def __iter__(self) -> Iterator[Shard[TableT]]:
        """The shards that are led now."""
        return iter(list(self._shards.values()))

    def listing_refusal(self) -> CoordinatorError | None:
        """The reason why there is no complete list now; None: there is one."""
        shards = self._shards.values()
        if not all(shard.is_loaded for shard in shards):
            return loading(self._options.topic.name)
        if not all(shard.is_current for shard in shards):
            return CoordinatorNotAvailable(f"another broker may have begun to lead {self._options.topic.name}")
        return None

    async def coordinator_of(self, name: str) -> int:
        """The broker that coordinates this name. Raises CoordinatorNotAvailable."""
        topic = self._cluster.image.topics.get(self._options.topic.name)
        if topic is None:
            topic = await self._make_topic()
            await self._wait_until_loaded(topic)
        leader = topic.partitions[partition_of(name, len(topic.partitions))].leader
        if leader == NO_LEADER:
            raise CoordinatorNotAvailable(f"the partition of {name} has no leader")
        return leader

    async def _wait_until_loaded(self, topic: TopicInfo) -> None:
        """Wait until the new shards are read, so that the first client finds a ready coordinator: many clients wait
        half a second to ask again."""
        led = _led(topic, self._options.broker_id)
        with trio.move_on_after(FIRST_LOAD_TIMEOUT_S):
            while not all(one in self._shards and self._shards[one].is_loaded for one in led):
                await self._loaded.wait()

    def _note_loaded(self) -> None:
        self._loaded.set()
        self._loaded = trio.Event()

    async def _make_topic(self) -> TopicInfo:
        topic = self._options.topic
        configs = dict(topic.configs)
        if topic.min_isr > 1:
            configs["min.insync.replicas"] = str(min(topic.min_isr, topic.replication_factor))
        try:
            return await self._cluster.create_topic(
                topic.name,
                partition_count=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=configs,
            )
        except TopicExists:
            return self._cluster.image.topics[topic.name]
        except CoordinatorError as error:
            log.warning("internal topic not created", topic=topic.name, reason=str(error))
            raise CoordinatorNotAvailable(str(error)) from error

    def partition_of(self, name: str) -> int:
        """The partition of a name, in the topic as it is, or as it would be created."""
        topic = self._cluster.image.topics.get(self._options.topic.name)
        return partition_of(name, self._options.topic.partition_count if topic is None else len(topic.partitions))

    def has(self, shard: Shard[TableT]) -> bool:
        """Whether this shard is led now."""
        return self._shards.get(shard.partition) is shard

    def find(self, partition: int) -> Shard[TableT] | None:
        """The shard of a partition; None when it is not led here."""
        return self._shards.get(partition)

    def ask(
        self,
        name: str,
        command: Command[TableT],
        *,
        only_reads: bool = False,
        freshness: Freshness | None = None,
        waits: bool = False,
    ) -> ReplyFuture:
        """Run a command in the shard of a name; see `Shard.ask`."""
        topic = self._cluster.image.topics.get(self._options.topic.name)
        shard = self._shards.get(partition_of(name, len(topic.partitions))) if topic is not None else None
        if shard is None:
            return settled(NotCoordinator(f"{name} is not coordinated here"))
        return shard.ask(command, only_reads=only_reads, freshness=freshness, waits=waits)

    def ask_about(self, name: str, transaction: StateProducer | StateMarker, command: Command[TableT]) -> ReplyFuture:
        """Run a command about a transaction in the shard of a name; see `Shard.ask_about`."""
        shard = self._shards.get(self.partition_of(name))
        if shard is None:
            return settled(NotCoordinator(f"{name} is not coordinated here"))
        return shard.ask_about(transaction, command)


async def _run_in(scope: trio.CancelScope, shard: Shard[TableT]) -> None:
    with scope:
        await shard.run()


def _led(topic: TopicInfo | None, broker_id: int) -> dict[int, tuple[bytes, int]]:
    """The partitions that the broker leads, with the topic's id and the epoch."""
    if topic is None:
        return {}
    return {
        partition: (topic.topic_id, state.leader_epoch)
        for partition, state in enumerate(topic.partitions)
        if state.leader == broker_id
    }


def _led_by_others(topic: TopicInfo | None, broker_id: int) -> set[int]:
    if topic is None:
        return set()
    return {number for number, state in enumerate(topic.partitions) if state.leader not in (NO_LEADER, broker_id)}


def partition_of(name: str, partition_count: int) -> int:
    """The partition of a name, as Kafka's partitionFor has it."""
    hashed = _hash if len(name) <= CACHED_NAME_MAX_LENGTH else _hash.__wrapped__
    return hashed(name) % partition_count


@lru_cache(maxsize=16_384)
def _hash(text: str) -> int:
    """Java's hash code, made positive by Utils.abs."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8) + units[at + 1]) % 2**32
    if code == 2**31:  # the least of all ints has no positive counterpart
        return 0
    return min(code, 2**32 - code)
