"""The group coordinators of one broker: one shard for each partition of `__consumer_offsets` that is led here.

Offsets of a deleted topic are deleted with it. The service decides nothing about groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast
from uuid import UUID

import trio

from coordinator.errors import (
    InvalidGroupId,
    InvalidProducerIdMapping,
    NotCoordinator,
    StaleProducerEpoch,
)
from coordinator.futures import after_all, followed, settled
from coordinator.groups.api import GroupCounters
from coordinator.groups.guards import Guard, Guards
from coordinator.groups.table import GroupTable
from coordinator.shards.replies import Freshness
from coordinator.shards.shard import ReplyFuture, Shard
from coordinator.shards.shard_set import InternalTopic, ShardOptions, ShardSet, StateStorage
from coordinator.shards.writer import CacheMode
from coordinator.state.log import FIRST_PROTOCOL, StateMarker, StateProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from random import Random

    from coordinator.api import ClusterImage, ClusterService, Future
    from coordinator.errors import GroupError
    from coordinator.groups.api import (
        Claim,
        GroupFigures,
        GroupListing,
        OffsetToCommit,
    )
    from coordinator.groups.commands import GroupCommand
    from coordinator.groups.entry import OffsetSettings
    from coordinator.groups.step import GroupSettings
    from coordinator.state.cache import StateCache
    from coordinator.state.log import StateLogs

ResultT = TypeVar("ResultT")

OFFSETS_TOPIC: Final = "__consumer_offsets"

Table = GroupTable[ReplyFuture]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Settings of the operator; defaults are Kafka's, where Kafka has them."""

    broker_id: int
    groups: GroupSettings
    offsets: OffsetSettings
    topic_configs: Mapping[str, str]
    partition_count: int = 50  # offsets.topic.num.partitions
    replication_factor: int = 1  # offsets.topic.replication.factor
    retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    cache_mode: CacheMode = CacheMode.CACHED
    cache_flush_interval_ms: int = 100  # offsets.view.flush.interval.ms
    commit_timeout_ms: int = 5_000  # offsets.commit.timeout.ms

    def shard_options(self) -> ShardOptions:
        """The settings of the shards."""
        topic = InternalTopic(
            name=OFFSETS_TOPIC,
            partition_count=self.partition_count,
            replication_factor=self.replication_factor,
            configs=self.topic_configs,
        )
        return ShardOptions(
            broker_id=self.broker_id,
            topic=topic,
            cache_mode=self.cache_mode,
            cache_flush_interval_ms=self.cache_flush_interval_ms,
            write_timeout_ms=self.commit_timeout_ms,
            freshness=Freshness.MAY_BE_STALE,
        )


class GroupCoordinators:
    """`GroupService` and `GroupStatistics`.

    Life: `run` in a task; `stop` before the server drains, `close` when it has.
    """

    def __init__(
        self,
        cluster: ClusterService,
        logs: StateLogs,
        cache: StateCache,
        options: GroupOptions,
        random: Random,
        wall_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._wall_ms = wall_ms
        self.counters = GroupCounters()
        self._shards: ShardSet[Table] = ShardSet(
            cluster,
            StateStorage(logs=logs, cache=cache),
            options.shard_options(),
            new_table=lambda: GroupTable(options.groups, options.offsets, self.counters),
            wall_ms=wall_ms,
            new_id=lambda: str(UUID(int=random.getrandbits(128), version=4)),
        )

    # Life

    async def run(self) -> None:
        """Leads shards, saves the cache of coordinator state and lets offsets expire, for as long as the broker
        lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shards.run)
            nursery.start_soon(self._sweep_now_and_then)
            await self._follow_deletions(nursery)

    def stop(self) -> None:
        """Take no more commands and refuse requests that wait for others; writes on their way to the disk are
        answered."""
        self._shards.stop()

    async def close(self) -> None:
        """Bring the cache of coordinator state up to date. No more commands come."""
        await self._shards.close()

    async def _follow_deletions(self, nursery: trio.Nursery) -> None:
        before: ClusterImage | None = None
        while True:
            image = self._cluster.image
            if before is not None:
                topics = before.topics_by_id.items()
                gone = {topic.name for topic_id, topic in topics if topic_id not in image.topics_by_id}
                for shard in self._shards if gone else ():
                    nursery.start_soon(_forget_topics, shard, gone, self._wall_ms())
            before = image
            await self._cluster.wait_for_image_after(image.version)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await trio.sleep(self._options.retention_check_interval_ms / 1000)
            for shard in self._shards:
                await shard.ask_each(
                    lambda table: table.group_ids(), lambda table, moment, group_id: table.sweep(moment, group_id)
                )

    # Where a group is

    async def coordinator_of(self, group_id: str) -> int:
        """See `GroupService`."""
        return await self._shards.coordinator_of(group_id)

    def partition_of(self, group_id: str) -> int:
        """See `GroupService`."""
        return self._shards.partition_of(group_id)

    # Commands

    def ask(self, command: GroupCommand[ResultT]) -> Future[ResultT]:
        """See `GroupService`."""
        if command.needs_name and not command.group_id:
            return cast("Future[ResultT]", _unnamed())
        freshness = None
        if command.only_reads:
            freshness = Freshness.NEWEST if command.needs_newest else Freshness.MAY_FALL_BACK
        future = self._shards.ask(
            command.group_id,
            lambda table, moment, future: table.perform(command, moment, future),
            only_reads=command.only_reads,
            freshness=freshness,
            waits=True,
        )
        return cast("Future[ResultT]", future)

    def commit_in_transaction(
        self,
        group_id: str,
        claim: Claim,
        producer_id: int,
        epoch: int,
        offsets: Sequence[OffsetToCommit],
        *,
        allowed: Future[None] | None = None,
        protocol: int = FIRST_PROTOCOL,
    ) -> Future[list[GroupError | None]]:
        """See `GroupService`."""
        if not group_id:
            return cast("Future[list[GroupError | None]]", _unnamed())
        producer = StateProducer(producer_id, epoch)
        if producer_id < 0:
            refused = InvalidProducerIdMapping(f"producer id {producer_id} belongs to no producer")
            return cast("Future[list[GroupError | None]]", settled(refused))
        if epoch < 0:
            stale = StaleProducerEpoch(f"no producer is in epoch {epoch}")
            return cast("Future[list[GroupError | None]]", settled(stale))
        guard: Guard | None = None

        def write() -> ReplyFuture:
            future = self._shards.ask_about(
                group_id,
                producer,
                lambda table, moment, future: table.offsets.commit_in_transaction(
                    moment, group_id, claim, producer, offsets, future, guard
                ),
            )
            _give_back(guard)  # if the table was not asked
            return future

        if allowed is None:
            return cast("Future[list[GroupError | None]]", write())
        if protocol == FIRST_PROTOCOL:  # in the second protocol the epoch shows late writes
            guard = self._guard(group_id, producer_id)
        return cast("Future[list[GroupError | None]]", followed(allowed, write, partial(_give_back, guard)))

    def _guard(self, group_id: str, producer_id: int) -> Guard:
        shard = self._shards.find(self._shards.partition_of(group_id))
        # While it is read, markers of transactions that ended long ago would void it.
        guards = shard.table.offsets.guards if shard is not None and shard.is_loaded else Guards()
        return guards.take(producer_id)

    def end_transaction(self, partition: int, marker: StateMarker) -> Future[None]:
        """End a producer's transaction: its offsets count from now on, or never. `partition` of the offsets' topic.

        Raises NotCoordinator, CoordinatorLoading, StaleProducerEpoch, TransactionCoordinatorFenced.
        """
        shard = self._shards.find(partition)
        if shard is None:
            return cast("Future[None]", settled(NotCoordinator(f"{OFFSETS_TOPIC}-{partition} is not led here")))
        future = shard.ask_about(marker, lambda table, _, future: table.offsets.end_transaction(marker, future))
        return cast("Future[None]", future)

    def list_groups(self) -> Future[list[GroupListing]]:
        """See `GroupService`."""
        shards = list(self._shards)
        found = [listing for shard in shards for listing in shard.table.listings()]
        if (refusal := self._shards.listing_refusal()) is not None:
            return cast("Future[list[GroupListing]]", settled(refusal))
        return cast("Future[list[GroupListing]]", after_all([shard.when_durable() for shard in shards], found))

    def figures(self) -> Iterator[GroupFigures]:
        """See `GroupStatistics`."""
        for shard in self._shards:
            yield from shard.table.figures()


def _unnamed() -> ReplyFuture:
    return settled(InvalidGroupId("the group id is empty"))


async def _forget_topics(shard: Shard[Table], topics: Collection[str], deleted_ms: int) -> None:
    await shard.wait_until_writable()
    await shard.ask_each(
        lambda table: table.group_ids(),
        lambda table, _, group_id: table.offsets.forget_topics(group_id, topics, deleted_ms),
    )


def _give_back(guard: Guard | None) -> None:
    """Give a guard back, as nothing is written by it any more."""
    if guard is not None:
        guard.guards.give_back(guard)
