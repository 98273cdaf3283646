"""The group coordinators of one broker: which partition a group belongs to, and one shard for each that is led here.

It follows the cluster's image: shards come and go with the leadership of `__consumer_offsets`, and what was committed
to a deleted topic goes with it. It decides nothing about groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import structlog
import trio

from coordinator.api import NO_LEADER
from coordinator.errors import (
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidGroupId,
    NotCoordinator,
    TopicExists,
)
from coordinator.groups.api import DEFAULT_RETENTION_MS, GroupCounters
from coordinator.groups.pending import after_all, settled
from coordinator.groups.shard import Shard, ShardWorld, Table
from coordinator.groups.table import GroupTable
from coordinator.groups.writer import RoundWriter, ViewMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from random import Random

    from coordinator.api import ClusterImage, ClusterService, TopicInfo
    from coordinator.errors import GroupError
    from coordinator.groups.api import (
        Claim,
        CommittedOffset,
        FetchedOffset,
        GroupDescription,
        GroupFigures,
        GroupListing,
        Join,
        Joined,
        OffsetToCommit,
        Pending,
        Synced,
        TopicPartition,
    )
    from coordinator.groups.entry import Effects, Moment, OffsetSettings
    from coordinator.groups.shard import Asker
    from coordinator.groups.turn import GroupSettings
    from coordinator.state_log import StateLogs
    from coordinator.state_view import StateView

log = structlog.get_logger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
CACHED_ID_MAX_LENGTH: Final = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """What the operator decides; defaults are Kafka's, where Kafka has them."""

    broker_id: int
    groups: GroupSettings
    offsets: OffsetSettings
    topic_configs: Mapping[str, str]
    partition_count: int = 50  # offsets.topic.num.partitions
    replication_factor: int = 1  # offsets.topic.replication.factor
    retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    view_mode: ViewMode = ViewMode.CACHED
    view_flush_interval_ms: int = 100  # offsets.view.flush.interval.ms


class GroupCoordinators:
    """`GroupService` and `GroupStatistics`.

    Life: `run` in a task; `stop` before the server drains, `close` when it has.
    """

    def __init__(
        self,
        cluster: ClusterService,
        logs: StateLogs,
        view: StateView,
        options: GroupOptions,
        random: Random,
        wall_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._options = options
        self._shards: dict[int, Shard] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        self.counters = GroupCounters()
        self._is_stopping = False
        self._unsaved = trio.Event()
        self._world = ShardWorld(
            logs=logs,
            view=view,
            writer=RoundWriter(view, options.view_mode),
            on_unsaved=self._note_unsaved,
            new_table=lambda: GroupTable(options.groups, options.offsets, self.counters),
            wall_ms=wall_ms,
            new_id=lambda: str(UUID(int=random.getrandbits(128), version=4)),
        )

    # Life

    async def run(self) -> None:
        """Leads shards, flushes the view and lets offsets expire, for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._world.writer.run)
            if self._options.view_mode is ViewMode.CACHED:
                nursery.start_soon(self._save_now_and_then)
            nursery.start_soon(self._sweep_now_and_then)
            before: ClusterImage | None = None
            while True:
                image = self._cluster.image
                self._follow(before, image, nursery)
                before = image
                await self._cluster.wait_for_image_after(image.version)

    def stop(self) -> None:
        """Takes no more commands and sends away who waits for others; what is on its way to the disk is answered."""
        self._is_stopping = True
        for shard in self._shards.values():
            shard.stop()

    async def close(self) -> None:
        """Brings the view up to date. Nothing is asked any more."""
        await self._save()
        await self._view.close()

    def _follow(self, before: ClusterImage | None, image: ClusterImage, nursery: trio.Nursery) -> None:
        led = _led(image.topics.get(OFFSETS_TOPIC), self._options.broker_id)
        for partition, shard in list(self._shards.items()):
            if led.get(partition) != (shard.topic_id, shard.leader_epoch):
                self._scopes.pop(partition).cancel()
                del self._shards[partition]
        for partition, (topic_id, leader_epoch) in led.items():
            if partition not in self._shards and not self._is_stopping:
                shard = Shard(topic_id, OFFSETS_TOPIC, partition, leader_epoch, self._world)
                scope = trio.CancelScope()
                self._shards[partition], self._scopes[partition] = shard, scope
                nursery.start_soon(_run_in, scope, shard)
        if before is not None:
            gone = {topic.name for topic_id, topic in before.topics_by_id.items() if topic_id not in image.topics_by_id}
            if gone:
                nursery.start_soon(self._forget_topics, gone, self._world.wall_ms())

    async def _forget_topics(self, topics: Collection[str], deleted_ms: int) -> None:
        for shard in list(self._shards.values()):
            await shard.forget_topics(topics, deleted_ms)

    def _note_unsaved(self) -> None:
        self._unsaved.set()

    async def _save_now_and_then(self) -> None:
        while True:
            await self._unsaved.wait()
            self._unsaved = trio.Event()
            await trio.sleep(self._options.view_flush_interval_ms / 1000)
            await self._save()

    async def _save(self) -> None:
        changes = [change for shard in self._shards.values() if (change := shard.take_unsaved()) is not None]
        if changes:
            await self._view.save(changes)

    async def _sweep_now_and_then(self) -> None:
        while True:
            await trio.sleep(self._options.retention_check_interval_ms / 1000)
            for shard in list(self._shards.values()):
                await shard.sweep()

    # Where a group is

    async def coordinator_of(self, group_id: str) -> int:
        """See `GroupService`."""
        topic = self._cluster.image.topics.get(OFFSETS_TOPIC) or await self._make_topic()
        leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        if leader == NO_LEADER:
            raise CoordinatorNotAvailable(f"nobody leads the partition of group {group_id}")
        return leader

    async def _make_topic(self) -> TopicInfo:
        options = self._options
        brokers = len(self._cluster.image.brokers)
        try:
            return await self._cluster.create_topic(
                OFFSETS_TOPIC,
                partition_count=options.partition_count,
                replication_factor=max(1, min(options.replication_factor, brokers)),
                configs=options.topic_configs,
            )
        except TopicExists:
            return self._cluster.image.topics[OFFSETS_TOPIC]
        except CoordinatorError as error:
            log.warning("the topic of offsets cannot be made", reason=str(error))
            raise CoordinatorNotAvailable(str(error)) from error

    def _ask(self, group_id: str, command: Callable[[Table, Moment, Asker], Effects[Asker]]) -> Pending[Any]:
        topic = self._cluster.image.topics.get(OFFSETS_TOPIC)
        shard = self._shards.get(partition_of(group_id, len(topic.partitions))) if topic is not None else None
        if shard is None:
            return settled(NotCoordinator(f"group {group_id} is not coordinated here"))
        return shard.ask(command)

    def _ask_named(self, group_id: str, command: Callable[[Table, Moment, Asker], Effects[Asker]]) -> Pending[Any]:
        """Offsets alone may be of a group without a name."""
        return self._ask(group_id, command) if group_id else settled(InvalidGroupId("the group id is empty"))

    # What is asked

    def join(self, group_id: str, join: Join) -> Pending[Joined]:
        """See `GroupService`."""
        return self._ask_named(group_id, lambda table, moment, asker: table.join(moment, group_id, join, asker))

    def sync(
        self, group_id: str, claim: Claim, protocol: tuple[str | None, str | None], assignments: Mapping[str, bytes]
    ) -> Pending[Synced]:
        """See `GroupService`."""
        return self._ask_named(
            group_id, lambda table, moment, asker: table.sync(moment, group_id, claim, protocol, assignments, asker)
        )

    def heartbeat(self, group_id: str, claim: Claim) -> Pending[None]:
        """See `GroupService`."""
        return self._ask_named(group_id, lambda table, moment, asker: table.heartbeat(moment, group_id, claim, asker))

    def leave(self, group_id: str, leaving: Sequence[Claim]) -> Pending[list[GroupError | None]]:
        """See `GroupService`."""
        return self._ask_named(group_id, lambda table, moment, asker: table.leave(moment, group_id, leaving, asker))

    def commit(
        self,
        group_id: str,
        claim: Claim,
        offsets: Sequence[OffsetToCommit],
        retention_ms: int = DEFAULT_RETENTION_MS,
    ) -> Pending[list[GroupError | None]]:
        """See `GroupService`."""
        return self._ask(
            group_id, lambda table, moment, asker: table.commit(moment, group_id, claim, offsets, retention_ms, asker)
        )

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, Sequence[int]]]
    ) -> Pending[list[CommittedOffset | None]]:
        """See `GroupService`."""
        return self._ask(group_id, lambda table, _, asker: table.fetch_offsets(group_id, partitions, asker))

    def fetch_all_offsets(self, group_id: str) -> Pending[list[FetchedOffset]]:
        """See `GroupService`."""
        return self._ask(group_id, lambda table, _, asker: table.fetch_all_offsets(group_id, asker))

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Pending[list[GroupError | None]]:
        """See `GroupService`."""
        return self._ask_named(group_id, lambda table, _, asker: table.delete_offsets(group_id, partitions, asker))

    def describe(self, group_id: str) -> Pending[GroupDescription]:
        """See `GroupService`."""
        return self._ask(group_id, lambda table, _, asker: table.describe(group_id, asker))

    def list_groups(self) -> Pending[list[GroupListing]]:
        """See `GroupService`."""
        shards = list(self._shards.values())
        if not all(shard.is_loaded for shard in shards):
            return cast("Pending[list[GroupListing]]", settled(CoordinatorLoading("groups are being read")))
        found = [listing for shard in shards for listing in shard.table.listings()]
        return cast("Pending[list[GroupListing]]", after_all([shard.when_durable() for shard in shards], found))

    def delete_group(self, group_id: str) -> Pending[None]:
        """See `GroupService`."""
        return self._ask(group_id, lambda table, _, asker: table.delete_group(group_id, asker))

    def figures(self) -> Iterator[GroupFigures]:
        """See `GroupStatistics`."""
        for shard in list(self._shards.values()):
            yield from shard.table.figures()


async def _run_in(scope: trio.CancelScope, shard: Shard) -> None:
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


def partition_of(group_id: str, partition_count: int) -> int:
    """As Kafka's partitionFor."""
    hashed = _hash if len(group_id) <= CACHED_ID_MAX_LENGTH else _hash.__wrapped__
    return hashed(group_id) % partition_count


@lru_cache(maxsize=16_384)
def _hash(text: str) -> int:
    """Java's hash code, and what Utils.abs makes of it."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8) + units[at + 1]) % 2**32
    if code == 2**31:  # the least of all ints has no positive counterpart
        return 0
    return min(code, 2**32 - code)
