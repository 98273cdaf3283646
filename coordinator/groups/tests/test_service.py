"""Shards come and go with the leadership of __consumer_offsets; a group is found where Kafka would look for it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.api import BrokerInfo, ClusterImage, PartitionState, TopicInfo
from coordinator.errors import (
    ConcurrentTransactions,
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupError,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    MetadataUnavailable,
    NotCoordinator,
    StaleProducerEpoch,
    TopicExists,
)
from coordinator.futures import SettableFuture, settled
from coordinator.groups.api import Claim, GroupFigures, GroupListing, GroupState, OffsetToCommit, TopicPartition
from coordinator.groups.commands import CommitOffsets, DeleteGroup, DeleteOffsets, FetchOffsets, Heartbeat, LeaveGroup
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.service import OFFSETS_TOPIC, GroupCoordinators, GroupOptions
from coordinator.groups.step import GroupSettings
from coordinator.groups.tests.answers import result_of
from coordinator.shards.shard_set import partition_of
from coordinator.state.bounded_cache import ANSWER_TIMEOUT_S
from coordinator.state.log import FIRST_PROTOCOL, SECOND_PROTOCOL, StateBatch, StateMarker, StateProducer, StateRecord
from coordinator.testing import images as images
from coordinator.testing.fakes import FakeStateLog, SimulatedStateCaches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import FeatureRange, Future
    from coordinator.state.cache import PartitionChange, StateCache

BROKER = 1
NO_MEMBER = Claim("")


@dataclass
class FakeCluster:
    """The part of a `ClusterService` that groups use."""

    image: ClusterImage = field(
        default_factory=lambda: ClusterImage(1, "cluster", brokers={BROKER: BrokerInfo(BROKER, ())})
    )
    created: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._changed = trio.Event()

    def publish(self, *topics: TopicInfo, removed: tuple[TopicInfo, ...] = ()) -> None:
        self.image = images.with_topics(self.image, topics, removed)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_image_after(self, version: int) -> ClusterImage:
        while self.image.version <= version:
            await self._changed.wait()
        return self.image

    async def create_topic(self, name: str, **request: Any) -> TopicInfo:
        self.created.append({"name": name, **request})
        if self.error is not None:
            raise self.error
        made = topic(name, partitions=request["partition_count"])
        self.publish(made)
        return made

    async def new_producer_id(self) -> int:
        raise NotImplementedError

    async def delete_topic(self, topic: str | bytes) -> TopicInfo:
        raise NotImplementedError

    async def create_partitions(self, topic: str, partition_count: int, **request: Any) -> TopicInfo:
        raise NotImplementedError

    async def alter_topic_configs(self, topic: str, changes: object, **request: Any) -> TopicInfo:
        raise NotImplementedError

    async def alter_broker_configs(self, broker: str, changes: object, **request: Any) -> None:
        raise NotImplementedError

    @property
    def supported_features(self) -> dict[str, FeatureRange]:
        raise NotImplementedError

    async def reassign(self, asked: object, **request: Any) -> list[CoordinatorError | None]:
        raise NotImplementedError

    async def elect_leaders(self, kind: object, partitions: object) -> list[CoordinatorError | None]:
        raise NotImplementedError

    async def unregister_broker(self, broker_id: int) -> None:
        raise NotImplementedError

    async def update_features(self, updates: object, **request: Any) -> None:
        raise NotImplementedError


@dataclass
class Logs:
    """State logs, one for each partition."""

    logs: dict[int, FakeStateLog] = field(default_factory=dict)

    async def get(self, topic_id: bytes, topic: str, partition: int) -> FakeStateLog:
        return await self.logs.setdefault(partition, FakeStateLog(topic_id)).get(topic_id, topic, partition)


class CountingCache:
    """A cache that counts its writes."""

    def __init__(self, cache: StateCache) -> None:
        self._cache = cache
        self.saves = 0
        self.is_closed = False
        self.load, self.discard, self.drop = cache.load, cache.discard, cache.drop

    async def save(self, changes: Sequence[PartitionChange]) -> None:
        self.saves += 1
        await self._cache.save(changes)

    async def close(self) -> None:
        self.is_closed = True
        await self._cache.close()


@dataclass
class World:
    cluster: FakeCluster
    logs: Logs
    caches: SimulatedStateCaches
    cache: CountingCache
    groups: GroupCoordinators


def topic(
    name: str, topic_id: bytes | None = None, leader: int = BROKER, partitions: int = 4, epoch: int = 0
) -> TopicInfo:
    state = PartitionState(leader, epoch, (leader,), (leader,))
    return TopicInfo(name, topic_id or name.encode().ljust(16, b"_")[:16], (state,) * partitions)


@asynccontextmanager
async def coordinating(**options: Any) -> AsyncIterator[World]:
    caches = SimulatedStateCaches()
    cluster, logs, cache = FakeCluster(), Logs(), CountingCache(await caches.open(Path("view")))
    given = GroupOptions(
        broker_id=BROKER, groups=GroupSettings(), offsets=OffsetSettings(), topic_configs={"k": "v"}, **options
    )
    groups = GroupCoordinators(cluster, logs, cache, given, random.Random(1), lambda: int(trio.current_time() * 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(groups.run)
        await wait_all_tasks_blocked()
        try:
            yield World(cluster, logs, caches, cache, groups)
        finally:
            caches.answer()
        nursery.cancel_scope.cancel()


def commit(world: World, group: str = "g", offset: int = 5) -> Future[list[GroupError | None]]:
    return world.groups.ask(CommitOffsets(group, NO_MEMBER, [OffsetToCommit("t", 0, offset, -1, "")]))


async def offset(world: World, group: str = "g") -> int | None:
    (found,) = await result_of(world.groups.ask(FetchOffsets(group, [("t", [0])])))
    assert not isinstance(found, GroupError)
    return None if found is None else found.offset


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("", 0), ("a", 47), ("my-group", 12), ("polygenelubricants", 0), ("😀 group", 6), ("console-consumer-1", 24)],
)
def test_a_group_is_where_java_looks_for_it(group_id: str, partition: int) -> None:
    """The partitions are those of `Utils.abs(groupId.hashCode()) % 50` in Java."""
    assert partition_of(group_id, 50) == partition


async def test_the_topic_is_made_when_a_coordinator_is_looked_for() -> None:
    async with coordinating(partition_count=7, replication_factor=3) as world:
        assert await world.groups.coordinator_of("g") == BROKER
        assert await world.groups.coordinator_of("g") == BROKER
        assert world.cluster.created == [
            {"name": OFFSETS_TOPIC, "partition_count": 7, "replication_factor": 3, "configs": {"k": "v"}}
        ]


async def test_a_broker_that_loses_the_race_to_create_the_topic_uses_the_existing_topic() -> None:
    async with coordinating() as world:
        made = topic(OFFSETS_TOPIC)

        async def lose_the_race(name: str, **_: Any) -> TopicInfo:
            world.cluster.publish(made)
            raise TopicExists(name)

        world.cluster.create_topic = lose_the_race  # type: ignore[method-assign]
        assert await world.groups.coordinator_of("g") == BROKER


async def test_no_topic_no_coordinator() -> None:
    async with coordinating() as world:
        world.cluster.error = MetadataUnavailable("away")
        with pytest.raises(CoordinatorNotAvailable, match="away"):
            await world.groups.coordinator_of("g")
        with pytest.raises(NotCoordinator):
            await result_of(commit(world))
        assert await result_of(world.groups.list_groups()) == []


async def test_a_partition_without_a_leader_has_no_coordinator() -> None:
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC, leader=-1))
        with pytest.raises(CoordinatorNotAvailable):
            await world.groups.coordinator_of("g")


async def test_groups_are_served_while_their_partition_is_led() -> None:
    async with coordinating() as world:
        led = topic(OFFSETS_TOPIC)
        world.cluster.publish(led)
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert await result_of(commit(world)) == [None]
        assert await offset(world) == 5
        world.cluster.publish(replace(led, partitions=(replace(led.partitions[0], leader=2),) * 4))
        await wait_all_tasks_blocked()
        with pytest.raises(NotCoordinator):
            await result_of(commit(world))
        world.cluster.publish(replace(led, partitions=(replace(led.partitions[0], leader_epoch=2),) * 4))
        with pytest.raises(NotCoordinator):
            await result_of(commit(world))
        await wait_all_tasks_blocked()
        assert await offset(world) == 5


async def test_the_cache_of_a_partition_is_discarded_when_another_broker_leads_it() -> None:
    """When it is led here again, the cleaner may have removed records that were deleted meanwhile, and their
    tombstones."""
    async with coordinating() as world:
        led, at = topic(OFFSETS_TOPIC), partition_of("g", 4)
        world.cluster.publish(led)
        await wait_all_tasks_blocked()
        assert await result_of(commit(world)) == [None]
        await trio.sleep(1)
        for leader, has_cache in ((-1, True), (2, False)):
            world.cluster.publish(replace(led, partitions=(replace(led.partitions[0], leader=leader),) * 4))
            await wait_all_tasks_blocked()
            assert (await world.cache.load(at) is not None) == has_cache
        (written,) = world.logs.logs[at].batches
        assert isinstance(written.content, StateBatch)
        written.content = StateBatch([StateRecord(one.key, None) for one in written.content.records])
        world.cluster.publish(replace(led, partitions=(replace(led.partitions[0], leader_epoch=2),) * 4))
        await wait_all_tasks_blocked()
        assert await offset(world) is None


async def test_coordinators_start_and_stop_while_the_disk_of_their_cache_hangs() -> None:
    """The cache lies in one log dir, and the coordinators' partitions in all of them."""
    async with coordinating() as world:
        led = topic(OFFSETS_TOPIC)
        elsewhere = replace(led, partitions=(replace(led.partitions[0], leader=2),) * 4)
        again = replace(led, partitions=(replace(led.partitions[0], leader_epoch=2),) * 4)
        world.cluster.publish(led)
        await wait_all_tasks_blocked()
        assert await result_of(commit(world)) == [None]
        world.caches.hang()
        world.cluster.publish(elsewhere)
        await wait_all_tasks_blocked()
        world.cluster.publish(again)
        await wait_all_tasks_blocked()
        await trio.sleep(ANSWER_TIMEOUT_S + 1)
        assert await offset(world) == 5
        world.cluster.publish(elsewhere)
        await wait_all_tasks_blocked()
        with pytest.raises(NotCoordinator):
            await result_of(commit(world))
        with trio.fail_after(ANSWER_TIMEOUT_S + 1):
            await world.groups.close()


async def test_groups_that_may_be_missing_are_not_listed() -> None:
    async with coordinating() as world:
        world.logs.logs[2] = FakeStateLog()
        world.logs.logs[2].is_broken = True
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        with pytest.raises(CoordinatorLoading):
            await result_of(world.groups.list_groups())


async def test_a_list_is_of_all_shards_and_durable() -> None:
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        await result_of(commit(world, "a"))
        await result_of(commit(world, "b"))
        expected = [GroupListing("a", "", GroupState.EMPTY), GroupListing("b", "", GroupState.EMPTY)]
        assert sorted(await result_of(world.groups.list_groups())) == expected
        for log in world.logs.logs.values():
            log.is_slow = True
        commit(world, "a")
        listing = world.groups.list_groups()
        await wait_all_tasks_blocked()
        assert not listing.is_settled
        for log in world.logs.logs.values():
            log.sync()
        await wait_all_tasks_blocked()
        assert sorted(listing.result()) == expected


async def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    async with coordinating() as world:
        read = topic("t")
        world.cluster.publish(topic(OFFSETS_TOPIC), read)
        await wait_all_tasks_blocked()
        await result_of(commit(world))
        world.cluster.publish(removed=(read,))
        await wait_all_tasks_blocked()
        assert await offset(world) is None


async def test_offsets_expire_at_the_next_check() -> None:
    async with coordinating(retention_check_interval_ms=3_600_000) as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        await result_of(commit(world))
        await trio.sleep(7 * 24 * 3_600 - 10)
        assert await offset(world) == 5
        await trio.sleep(3_600)
        assert await offset(world) is None


async def test_a_save_of_the_cache_covers_all_shards() -> None:
    async with coordinating(cache_flush_interval_ms=100) as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        for group in "abcdef":
            await result_of(commit(world, group))
        assert world.cache.saves == 0
        await trio.sleep(0.15)
        assert world.cache.saves == 1
        await trio.sleep(1)
        assert world.cache.saves == 1
        await result_of(commit(world))
        world.groups.stop()
        await world.groups.close()
        assert (world.cache.saves, world.cache.is_closed) == (2, True)


async def test_a_group_needs_an_id_but_to_commit() -> None:
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        refused = (
            world.groups.ask(Heartbeat("", NO_MEMBER)),
            world.groups.ask(LeaveGroup("", [NO_MEMBER])),
            world.groups.ask(DeleteOffsets("", [])),
        )
        for asked in refused:
            with pytest.raises(InvalidGroupId):
                asked.result()
        assert await result_of(commit(world, "")) == [None]


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"), [(-1, 0, InvalidProducerIdMapping), (5, -1, StaleProducerEpoch)]
)
async def test_a_transactional_commit_of_an_impossible_producer_is_refused_and_not_appended(
    producer_id: int, epoch: int, error: type[CoordinatorError]
) -> None:
    """The log would refuse it, and the groups of the whole partition would be read anew for one bad request."""
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        offsets = [OffsetToCommit("t", 0, 5, -1, "")]
        asked = world.groups.commit_in_transaction("g", NO_MEMBER, producer_id, epoch, offsets)
        with pytest.raises(error):
            asked.result()
        await wait_all_tasks_blocked()
        assert [log.batches for log in world.logs.logs.values()] == [[]] * 4
        assert await result_of(commit(world)) == [None]


PRODUCER = StateProducer(5, 3)


def commit_if(world: World, allowed: SettableFuture[object], protocol: int) -> Any:
    offsets = [OffsetToCommit("t", 0, 5, -1, "")]
    return world.groups.commit_in_transaction("g", NO_MEMBER, *PRODUCER, offsets, allowed=allowed, protocol=protocol)  # type: ignore[arg-type]  # a promise of nothing


async def end(world: World, protocol: int, *, is_commit: bool = True) -> None:
    epoch = PRODUCER.epoch + (protocol == SECOND_PROTOCOL)
    marker = StateMarker(PRODUCER.producer_id, epoch, 0, is_commit, protocol)
    await result_of(world.groups.end_transaction(world.groups.partition_of("g"), marker))


async def offset_of(world: World) -> int | None:
    [found] = await result_of(world.groups.ask(FetchOffsets("g", [("t", [0])], require_stable=True)))
    assert not isinstance(found, GroupError)
    return None if found is None else found.offset


def guards_of(world: World) -> int:
    return sum(len(shard.table.offsets.guards) for shard in world.groups._shards)


@pytest.mark.parametrize("protocol", [FIRST_PROTOCOL, SECOND_PROTOCOL])
async def test_offsets_are_written_when_that_is_allowed(protocol: int) -> None:
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        allowed = SettableFuture[object]()
        committing = commit_if(world, allowed, protocol)
        await wait_all_tasks_blocked()
        assert (committing.is_settled, await offset_of(world)) == (False, None)
        allowed.settle(None)
        assert await result_of(committing) == [None]
        await end(world, protocol)
        assert (await offset_of(world), guards_of(world)) == (5, 0)


@pytest.mark.parametrize("protocol", [FIRST_PROTOCOL, SECOND_PROTOCOL])
async def test_offsets_that_are_not_allowed_are_not_written(protocol: int) -> None:
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        committing = commit_if(world, settled(ConcurrentTransactions("x")), protocol)
        with pytest.raises(ConcurrentTransactions):
            committing.result()
        assert (await offset_of(world), guards_of(world)) == (None, 0)


@pytest.mark.parametrize(
    ("protocol", "error"), [(FIRST_PROTOCOL, InvalidTransactionState), (SECOND_PROTOCOL, StaleProducerEpoch)]
)
async def test_offsets_of_a_transaction_that_ended_meanwhile(protocol: int, error: type[CoordinatorError]) -> None:
    """Named case 7: they would be pending until the producer ends another transaction there."""
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        allowed = SettableFuture[object]()
        committing = commit_if(world, allowed, protocol)
        await end(world, protocol, is_commit=False)
        allowed.settle(None)
        with pytest.raises(error):
            await result_of(committing)
        assert (await offset_of(world), guards_of(world)) == (None, 0)


async def test_the_marker_of_the_previous_transaction_does_not_refuse_a_commit_under_verification() -> None:
    """A producer that knows its next epoch goes on while the markers are on their way (KIP-890)."""
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        allowed = SettableFuture[object]()
        committing = commit_if(world, allowed, SECOND_PROTOCOL)
        before = StateMarker(PRODUCER.producer_id, PRODUCER.epoch, 0, is_commit=True, protocol=SECOND_PROTOCOL)
        await result_of(world.groups.end_transaction(world.groups.partition_of("g"), before))
        allowed.settle(None)
        assert await result_of(committing) == [None]


@pytest.mark.parametrize("epoch", [PRODUCER.epoch, PRODUCER.epoch + 1])
async def test_a_verified_commit_that_the_shard_refuses_leaves_no_guard_behind(epoch: int) -> None:
    """The refusal comes from a shard that is being read, or from the log's state of the producer."""
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        await result_of(world.groups.end_transaction(world.groups.partition_of("g"), StateMarker(5, epoch, 0, True)))
        shard = world.groups._shards.find(world.groups.partition_of("g"))
        assert shard is not None
        shard.is_loaded = epoch != PRODUCER.epoch
        committing = commit_if(world, settled(None), FIRST_PROTOCOL)
        with pytest.raises(StaleProducerEpoch if shard.is_loaded else CoordinatorLoading):
            committing.result()
        assert guards_of(world) == 0
        shard.is_loaded = True


@pytest.mark.parametrize("is_led_at_first", [False, True])
async def test_offsets_are_tried_again_when_the_partition_was_read_meanwhile(*, is_led_at_first: bool) -> None:
    """The markers that came before are not known."""
    async with coordinating() as world:
        if is_led_at_first:
            world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        allowed = SettableFuture[object]()
        committing = commit_if(world, allowed, FIRST_PROTOCOL)
        world.cluster.publish(topic(OFFSETS_TOPIC, epoch=1))
        await wait_all_tasks_blocked()
        allowed.settle(None)
        with pytest.raises(CoordinatorLoading):
            await result_of(committing)


async def test_a_stopping_broker_coordinates_nothing() -> None:
    async with coordinating() as world:
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        world.groups.stop()
        with pytest.raises(NotCoordinator):
            await result_of(commit(world))


async def test_figures_show_committed_offsets_and_counters_count_commits() -> None:
    async with coordinating() as world:
        await world.groups.coordinator_of("g")
        await wait_all_tasks_blocked()
        await result_of(commit(world))
        await result_of(commit(world, "other", offset=7))
        figures = sorted(world.groups.figures())
        assert figures == [
            GroupFigures("g", GroupState.EMPTY, 0, [(TopicPartition("t", 0), 5)]),
            GroupFigures("other", GroupState.EMPTY, 0, [(TopicPartition("t", 0), 7)]),
        ]
        looking = world.groups.figures()
        next(looking)
        await result_of(world.groups.ask(DeleteGroup("g")))
        await result_of(world.groups.ask(DeleteGroup("other")))
        assert list(looking) == []
        assert world.groups.counters.commits == 2
