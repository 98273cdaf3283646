"""Three brokers that replicate: acknowledged records are on all replicas in sync, whichever broker is killed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import trio

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from coordinator.controller.probes import INTERVAL_S
from engine.api import TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.errors import StorageError
from kafkawire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkawire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkawire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, leaders, settled, until
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_cluster import produce as produce_to
from testkit import logs
from testkit.logs import batches_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import PartitionState
    from coordinator.ports import HostChanges
    from engine.partitions.partition import Partition

TOPIC = "t"
NO_PRODUCER = -1, -1, -1
Content: TypeAlias = "bytes | Sequence[Record]"  # the value of one record, or the records of a batch
enforces = pytest.mark.enforces


async def create(cluster: MemoryCluster, replicas: Sequence[int] = (), **configs: str) -> None:
    """Create the topic. Without `replicas` the cluster places it; the first replica leads."""
    set_to = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3, configs=set_to)
    if replicas:
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[*replicas])]
    reply = await call(cluster, 1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 6)
    assert reply.topics[0].error_code == 0
    await settled(cluster)


def state(cluster: MemoryCluster, topic: str = TOPIC) -> PartitionState:
    """The state of the topic's first partition in the newest image."""
    images = [one.broker.coordinator.image for one in cluster.brokers.values()]
    found = max(images, key=lambda image: image.version).partition(topic, 0)
    assert found is not None
    return found


async def produce(
    cluster: MemoryCluster,
    content: Content,
    *,
    acks: int = -1,
    producer: tuple[int, int, int] = NO_PRODUCER,
    to: int = 0,
) -> Any:
    """Produce to the leader, or to that broker, and return the row of the reply."""
    reply = await call(cluster, to or state(cluster).leader, request_of(content, acks=acks, producer=producer), 9)
    return reply.responses[0].partition_responses[0]


def request_of(content: Content, *, acks: int = -1, producer: tuple[int, int, int] = NO_PRODUCER) -> ProduceRequest:
    batch = build_batch([Record(None, content)] if isinstance(content, bytes) else content, producer=producer)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data])


async def acknowledged(cluster: MemoryCluster, content: Content, producer: tuple[int, int, int] = NO_PRODUCER) -> int:
    """Produce until a leader acknowledges the record, as clients do, and return its offset."""
    found: list[int] = []

    async def is_done() -> bool:
        leader = state(cluster).leader
        if leader not in cluster.brokers:
            return False
        try:
            row = await produce(cluster, content, producer=producer, to=leader)
        except (EOFError, trio.BrokenResourceError):
            return False
        if row.error_code == 0:
            found.append(row.base_offset)
        return not row.error_code

    await until(is_done)
    return found[0]


async def fetch(cluster: MemoryCluster, broker_id: int, offset: int = 0) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
    request = FetchRequest(max_bytes=2**20, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])
    return (await call(cluster, broker_id, request, 11)).responses[0].partitions[0]


def replica(cluster: MemoryCluster, broker_id: int) -> Partition:
    broker = cluster.brokers[broker_id].broker
    topic = broker.coordinator.image.topics[TOPIC]
    return broker.store.replica(TopicIdPartition(topic.topic_id, TOPIC, 0))


def log_bytes(cluster: MemoryCluster, broker_id: int) -> bytes:
    """All bytes of the broker's log."""
    return logs.log_bytes(cluster.deps_of(broker_id).filesystem, replica(cluster, broker_id).log)


async def kill(cluster: MemoryCluster, *broker_ids: int) -> None:
    """Kill the brokers, and wait until they are dead."""
    for one in broker_ids:
        cluster.kill(one)
    await until_gone(cluster, *broker_ids)


async def until_gone(cluster: MemoryCluster, *broker_ids: int) -> None:
    async def are_gone() -> bool:
        return cluster.brokers.keys().isdisjoint(broker_ids)

    await until(are_gone)


async def led_by_another(cluster: MemoryCluster, broker_id: int, topic: str = TOPIC) -> int:
    """Wait until a broker other than that one leads, and return its id."""

    async def is_led() -> bool:
        return state(cluster, topic).leader not in (-1, broker_id)

    await until(is_led)
    return state(cluster, topic).leader


async def in_sync(cluster: MemoryCluster, *wanted: int) -> float:
    async def is_so() -> bool:
        return sorted(state(cluster).isr) == sorted(wanted)

    return await until(is_so)


async def equal(cluster: MemoryCluster) -> None:
    async def is_so() -> bool:
        return len({log_bytes(cluster, one) for one in cluster.brokers}) == 1

    await until(is_so)


async def test_acknowledged_records_are_on_all_disks() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        assert sorted(state(cluster).isr) == list(BROKERS)
        await acknowledged(cluster, b"0")
        for number in range(1, 5):
            started_s = trio.current_time()
            assert await acknowledged(cluster, b"%d" % number) == number
            assert trio.current_time() - started_s < 0.1, "followers that wait are woken"
            assert {len(log_bytes(cluster, one)) for one in BROKERS} == {len(log_bytes(cluster, 1))}
        assert (await fetch(cluster, state(cluster).leader)).high_watermark == 5
        assert log_bytes(cluster, 1) == log_bytes(cluster, 2) == log_bytes(cluster, 3) != b""


async def values(cluster: MemoryCluster) -> list[bytes]:
    """The values that a consumer reads from the leader."""
    found: list[bytes] = []
    data = (await fetch(cluster, state(cluster).leader)).records
    for _, records in batches_in(bytes(data)):
        found += [one.value for one in records if one.value is not None]
    return found


async def test_killed_follower_leaves_the_isr_and_rejoins_when_it_is_back() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"before")
        leader, (gone, other) = state(cluster).leader, [one for one in BROKERS if one != state(cluster).leader]
        await kill(cluster, gone)
        await acknowledged(cluster, b"without")
        assert sorted(state(cluster).isr) == sorted((leader, other))
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        await acknowledged(cluster, b"after")
        await equal(cluster)
        assert len(cluster.brokers) == 3


async def test_killed_leader_loses_no_acknowledged_records() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        sent = [b"%d" % number for number in range(4)]
        for value in sent:
            await acknowledged(cluster, value)
        first = state(cluster).leader
        await kill(cluster, first)
        await acknowledged(cluster, b"by another")
        assert state(cluster).leader != first
        assert await values(cluster) == [*sent, b"by another"]
        await nursery.start(cluster.serve, first, {})
        await in_sync(cluster, *BROKERS)
        await acknowledged(cluster, b"with all")
        await equal(cluster)
        assert await values(cluster) == [*sent, b"by another", b"with all"]


async def seconds_without_leader(cluster: MemoryCluster, dies: int) -> float:
    """The seconds from the kill of a leader until another one acknowledges a record that all replicas in sync have."""
    started_s = trio.current_time()
    await kill(cluster, dies)
    await acknowledged(cluster, b"by another")
    return trio.current_time() - started_s


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3, 1)], ids=["the controller", "another"])
async def test_killed_leader_is_replaced_as_soon_as_its_peer_connections_end(replicas: tuple[int, ...]) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, replicas)
        assert cluster.brokers[1].broker.coordinator.is_controller
        await trio.sleep(1)  # the controller has reached all others, and they it
        await acknowledged(cluster, b"before")
        assert await seconds_without_leader(cluster, replicas[0]) < INTERVAL_S


async def test_leader_that_applies_its_election_after_its_followers_is_asked_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, (1, 2, 3))
        await trio.sleep(1)  # the controller has reached all others, and they it
        await acknowledged(cluster, b"before")
        host = cluster.brokers[2].broker.coordinator._host
        apply = host.apply

        async def apply_late(changes: HostChanges) -> None:
            await trio.sleep(0.1)
            await apply(changes)

        monkeypatch.setattr(host, "apply", apply_late)
        assert await seconds_without_leader(cluster, 1) < 0.5, "and not after replica.fetch.backoff.ms"


async def test_unacknowledged_record_of_the_old_leader_is_truncated() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"kept")
        first = state(cluster).leader
        others = [one for one in BROKERS if one != first]
        await kill(cluster, *others)
        assert (await produce(cluster, b"lost", acks=1, to=first)).error_code == 0
        await kill(cluster, first)
        for one in others:
            await nursery.start(cluster.serve, one, {})
        await acknowledged(cluster, b"instead")
        await nursery.start(cluster.serve, first, {})
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [b"kept", b"instead"]


@enforces("min.insync.replicas")
async def test_with_too_few_in_sync_nothing_is_acknowledged_and_nothing_lost() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, min_insync_replicas="2")
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        others = [one for one in BROKERS if one != leader]
        await kill(cluster, *others)
        await in_sync(cluster, leader)
        assert (await produce(cluster, b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await values(cluster) == [b"before"]
        for one in others:
            await nursery.start(cluster.serve, one, {})
        await acknowledged(cluster, b"after")
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [b"before", b"after"]


@enforces("min.insync.replicas")
async def test_cluster_keeps_the_min_insync_replicas_of_its_first_broker() -> None:
    """Leaders and the controller must use one value, so another broker's configured value is ignored."""
    async with open_cluster(min_insync_replicas="2") as (cluster, nursery):
        await create(cluster)
        leader = state(cluster).leader
        others = [one for one in BROKERS if one != leader]
        await kill(cluster, *others)
        await in_sync(cluster, leader)
        assert (await produce(cluster, b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await nursery.start(cluster.serve, others[0], {"min_insync_replicas": "1"})
        assert cluster.brokers[others[0]].broker.coordinator.image.broker_configs[""] == {"min.insync.replicas": "2"}
        await acknowledged(cluster, b"y")


@enforces("min.insync.replicas")
async def test_min_insync_replicas_of_the_cluster_default_takes_effect_at_once() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        leader = state(cluster).leader
        await kill(cluster, *[one for one in BROKERS if one != leader])
        await in_sync(cluster, leader)
        for wanted, error in (("2", ErrorCode.NOT_ENOUGH_REPLICAS), ("1", ErrorCode.NONE)):
            change = ConfigChange(ConfigOperation.SET, "min.insync.replicas", wanted)
            await cluster.brokers[leader].broker.coordinator.alter_broker_configs(CLUSTER_DEFAULT, [change])
            await trio.sleep(0.1)
            assert (await produce(cluster, b"x")).error_code == error


async def test_a_consumer_sees_nothing_that_not_all_in_sync_have() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"on all")
        leader = state(cluster).leader
        await kill(cluster, next(one for one in BROKERS if one != leader))
        assert (await produce(cluster, b"on two", acks=1)).error_code == 0
        found = await fetch(cluster, leader)
        assert (found.high_watermark, await values(cluster)) == (1, [b"on all"])

        async def is_seen() -> bool:
            return await values(cluster) == [b"on all", b"on two"]

        await until(is_seen)
        assert len(state(cluster).isr) == 2


async def test_a_producer_that_sends_again_to_another_leader_is_recognised() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        producer = 7, 0, 0
        assert await acknowledged(cluster, b"once", producer) == 0
        first = state(cluster).leader
        await kill(cluster, first)
        assert await acknowledged(cluster, b"once", producer) == 0
        assert state(cluster).leader != first
        assert await acknowledged(cluster, b"twice", (7, 0, 1)) == 1
        assert await values(cluster) == [b"once", b"twice"]


async def test_follower_that_copies_from_the_start_rolls_segments_at_the_leaders_offsets() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, segment_bytes=str(2**20))
        gone = next(one for one in BROKERS if one != state(cluster).leader)
        await kill(cluster, gone)
        for number in range(8):
            await acknowledged(cluster, b"%d" % number * 400_000)
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        bases = {one: [segment.base_offset for segment in replica(cluster, one).log.segments] for one in BROKERS}
        assert len(bases[gone]) > 2
        assert bases[1] == bases[2] == bases[3]


async def test_fetch_as_a_follower_without_authentication_moves_no_high_watermark() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        leader = state(cluster).leader
        await kill(cluster, *[one for one in BROKERS if one != leader])
        assert (await produce(cluster, b"on one", acks=1, to=leader)).error_code == 0
        topic_id = cluster.brokers[leader].broker.coordinator.image.topics[TOPIC].topic_id
        partition = FetchPartition(partition=0, fetch_offset=1, last_fetched_epoch=0, partition_max_bytes=2**20)
        for claimed in BROKERS:
            request = FetchRequest(
                replica_state=ReplicaState(replica_id=claimed, replica_epoch=0),
                topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
            )
            row = (await call(cluster, leader, request, 17)).responses[0].partitions[0]
            assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert replica(cluster, leader).high_watermark == 0


@enforces("replica.lag.time.max.ms")
@pytest.mark.parametrize("lag_max_ms", [30_000, 3_000])
async def test_append_waits_for_a_silent_replica_no_longer_than_the_lag_time(lag_max_ms: int) -> None:
    async with open_cluster(replica_lag_time_max_ms=str(lag_max_ms)) as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        silent = next(one for one in BROKERS if one != leader)
        replica(cluster, silent).close(lambda: StorageError("its disk is gone"))
        started_s = trio.current_time()
        await acknowledged(cluster, b"without")
        assert lag_max_ms <= (trio.current_time() - started_s) * 1000 < 2 * lag_max_ms
        assert silent not in state(cluster).isr
        assert {len(log_bytes(cluster, one)) for one in BROKERS if one != silent} == {len(log_bytes(cluster, leader))}


@enforces("replica.fetch.backoff.ms")
@pytest.mark.parametrize("backoff_ms", [1_000, 5_000])
async def test_follower_with_a_cut_connection_fetches_again_after_the_backoff_time(backoff_ms: int) -> None:
    async with open_cluster(replica_fetch_backoff_ms=str(backoff_ms)) as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"before")
        cluster.brokers[state(cluster).leader].broker.end_links()
        started_s = trio.current_time()
        await acknowledged(cluster, b"after")
        assert backoff_ms <= (trio.current_time() - started_s) * 1000 < backoff_ms + 1_000
        assert sorted(state(cluster).isr) == list(BROKERS)


async def test_a_leader_that_stops_in_order_is_followed_by_one_in_sync() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"before")
        first = state(cluster).leader
        await cluster.stop(first)
        await acknowledged(cluster, b"after")
        assert state(cluster).leader != first
        await nursery.start(cluster.serve, first, {})
        await in_sync(cluster, *BROKERS)
        await equal(cluster)


async def test_new_record_or_new_topic_does_not_wait_for_a_parked_fetch() -> None:
    """Neither the first record on a connection waits, nor that of a new topic while a Fetch for others is parked."""
    async with open_cluster() as (cluster, _):
        for topic in ("first", "second"):
            await trio.sleep(0.7)
            started_s = trio.current_time()
            await create_topic(cluster, 1, topic, 6, 3)
            for number, leader in enumerate(await leaders(cluster, 1, topic)):
                reply = await produce_to(cluster, leader, topic, number)
                assert reply.responses[0].partition_responses[0].error_code == 0
            assert trio.current_time() - started_s < 0.1


async def test_append_after_an_orderly_leader_change_is_acknowledged_without_a_backoff() -> None:
    """A follower's role changes before the image names the new leader, when its Fetch to the old leader has just
    returned."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"before")
        first, started_s = state(cluster).leader, trio.current_time()
        nursery.start_soon(cluster.stop, first)
        await led_by_another(cluster, first)
        await acknowledged(cluster, b"after")
        assert trio.current_time() - started_s < 0.3


@pytest.mark.parametrize("seed", range(3))
async def test_acknowledged_records_stay_while_random_brokers_are_killed(seed: int) -> None:
    """Two of three brokers are up at a time, and an idempotent producer goes on."""
    rng, sent = random.Random(seed), list[bytes]()
    async with open_cluster() as (cluster, nursery):
        await create(cluster, min_insync_replicas="2")
        for number in range(6):
            gone = rng.choice(BROKERS)
            await kill(cluster, gone)
            for _ in range(rng.randint(1, 3)):
                sent.append(b"%d" % len(sent))
                assert await acknowledged(cluster, sent[-1], (7, 0, len(sent) - 1)) == len(sent) - 1
            await nursery.start(cluster.serve, gone, {})
            if number % 2:
                await in_sync(cluster, *BROKERS)
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == sent


async def test_follower_returns_its_lag_and_the_leader_returns_the_elr() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, min_insync_replicas="2")
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        others = [one for one in BROKERS if one != leader]
        replica(cluster, others[0]).note_leader(4)
        reply = await call(cluster, others[0], DescribeLogDirsRequest(topics=None), 4)
        assert [row.offset_lag for one in reply.results for topic in one.topics for row in topic.partitions] == [3]
        await kill(cluster, *others)
        await in_sync(cluster, leader)
        reply = await call(cluster, leader, DescribeTopicPartitionsRequest(topics=[]), 0)
        (row,) = reply.topics[0].partitions
        assert sorted([*row.isr_nodes, *row.eligible_leader_replicas]) == sorted(
            state(cluster).isr + state(cluster).elr
        )
        assert row.eligible_leader_replicas == list(state(cluster).elr) != []
