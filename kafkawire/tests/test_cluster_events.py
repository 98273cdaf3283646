"""Log lines about a cluster in which brokers die, leave, come back and lose data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from coordinator.event_log import LINES_PER_CHANGE_MAX
from coordinator.metadata.transitions import Election
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled, until
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_elections import configure
from kafkawire.tests.test_replication import (
    TOPIC,
    acknowledged,
    create,
    in_sync,
    kill,
    led_by_another,
    replica,
    state,
)
from kafkawire.tests.test_repudiation import stays_without_leader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.cluster_events import ClusterCounters

Lines = list[Any]


def events_of(lines: Iterable[Mapping[str, Any]], event: str, **fields: object) -> Lines:
    """The lines with that event and those fields, without the event."""
    found = [dict(line) for line in lines if line["event"] == event]
    return [line for line in found if line.pop("event") and fields.items() <= line.items()]


def counters(cluster: MemoryCluster) -> ClusterCounters:
    """The counters of the controller."""
    [controller] = [one.broker for one in cluster.brokers.values() if one.broker.coordinator.is_controller]
    return controller.coordinator.counters


def led_by(cluster: MemoryCluster, broker_id: int) -> int:
    """The count of the topic's partitions that a broker leads: the greatest one in the images of running brokers."""
    topics = [one.broker.coordinator.image.topics[TOPIC] for one in cluster.brokers.values()]
    return max(sum(state.leader == broker_id for state in topic.partitions) for topic in topics)


async def test_a_leader_that_dies_is_fenced_and_another_is_elected() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"before")
        before = state(cluster)
        with capture_logs() as lines:
            await kill(cluster, before.leader)
            leader = await led_by_another(cluster, before.leader)
            after = state(cluster)
            await nursery.start(cluster.serve, before.leader, {})
            await in_sync(cluster, *BROKERS)
        [fenced] = events_of(lines, "broker fenced")
        assert fenced == {"broker": before.leader, "broker_epoch": 0, "log_level": "warning"}
        elected = events_of(lines, "leader elected", leader=leader, epoch=after.leader_epoch)
        expected = {"topic": TOPIC, "partition": 0, "previous_leader": before.leader, "reason": "broker_fenced"}
        assert expected.items() <= elected[0].items()
        assert len(elected) == 2, "the controller and the other replica"
        shrunk = events_of(lines, "isr shrunk", topic=TOPIC, removed=[before.leader], reason="broker_fenced")
        assert [one["isr"] for one in shrunk] == [list(after.isr)] * 2
        assert events_of(lines, "isr expanded", topic=TOPIC, added=[before.leader], reason="caught_up")
        assert events_of(lines, "broker registered", broker=before.leader, broker_epoch=1)
        assert events_of(lines, "broker unfenced", broker=before.leader)


async def test_broker_logs_each_role_change_of_its_replicas() -> None:
    async with open_cluster() as (cluster, nursery):
        with capture_logs() as lines:
            await create(cluster, replicas=(1, 2, 3))
        assert events_of(lines, "replica became leader", topic=TOPIC, partition=0, epoch=0)
        assert len(events_of(lines, "replica became follower", topic=TOPIC, leader=1, epoch=0)) == 2
        with capture_logs() as lines:
            await kill(cluster, 1)
            leader = await led_by_another(cluster, 1)
            await settled(cluster)
        assert len(events_of(lines, "replica became leader", topic=TOPIC, epoch=1)) == 1
        assert len(events_of(lines, "replica became follower", topic=TOPIC, leader=leader, epoch=1)) == 1
        with capture_logs() as lines:
            await configure(cluster, "retention.ms", "100000")
            await settled(cluster)
        assert not events_of(lines, "replica became leader"), "another config is no other role"
        with capture_logs() as lines:
            await nursery.start(cluster.serve, 1, {})
            await in_sync(cluster, *BROKERS)
        assert events_of(lines, "replica became follower", topic=TOPIC, leader=leader, epoch=1)
        with capture_logs() as lines:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=10_000)
            await call(cluster, leader, request, 6)
            await settled(cluster)
        assert len(events_of(lines, "replica deleted", topic=TOPIC, partition=0)) == 3


async def test_a_broker_that_stops_in_order_says_so_and_the_controller_counts_by_reason() -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster, replicas=(2, 3))
        with capture_logs() as lines:
            await cluster.stop(2)
            await led_by_another(cluster, 2)
        assert events_of(lines, "controlled shutdown begun", broker=2)
        assert events_of(lines, "leader elected", topic=TOPIC, leader=3, reason="controlled_shutdown")
        assert counters(cluster).elections[Election.CONTROLLED_SHUTDOWN] == 1
        assert counters(cluster).elections[Election.BROKER_FENCED] == 0


async def test_many_partitions_that_move_at_once_write_few_lines_and_are_counted() -> None:
    async with open_cluster() as (cluster, _):
        assert await create_topic(cluster, 1, TOPIC, 9 * LINES_PER_CHANGE_MAX, replicas=3) == 0
        await settled(cluster)
        victim = next(one for one in BROKERS if not cluster.brokers[one].broker.coordinator.is_controller)
        led = led_by(cluster, victim)
        assert led > LINES_PER_CHANGE_MAX

        async def are_moved() -> bool:
            return led_by(cluster, victim) == 0

        with capture_logs() as lines:
            await kill(cluster, victim)
            await until(are_moved)
        assert len(lines) < 12 * LINES_PER_CHANGE_MAX
        summary = {"count": led, "logged": LINES_PER_CHANGE_MAX, "reasons": {"broker_fenced": led}, "log_level": "info"}
        assert events_of(lines, "leaders elected") == [summary] * 2
        assert sum(one["count"] for one in events_of(lines, "replicas became leaders")) == led
        assert counters(cluster).elections[Election.BROKER_FENCED] == led
        assert counters(cluster).brokers_fenced == 1


async def test_an_unclean_election_is_a_warning_that_says_that_records_may_be_lost() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"on all")
        first, (second, third) = state(cluster).leader, [one for one in BROKERS if one != state(cluster).leader]
        await kill(cluster, second, third)
        await acknowledged(cluster, b"on one")
        await in_sync(cluster, first)
        await kill(cluster, first)
        await nursery.start(cluster.serve, second, {})
        with capture_logs() as lines:
            await stays_without_leader(cluster)
            await configure(cluster, "unclean.leader.election.enable", "true")
            await led_by_another(cluster, first)
        [elected] = events_of(lines, "unclean leader elected")
        found = state(cluster)
        assert elected == {
            "topic": TOPIC,
            "partition": 0,
            "leader": second,
            "previous_leader": -1,
            "epoch": found.leader_epoch,
            "isr": [second],
            "reason": "unclean",
            "harm": "acknowledged records may be lost",
            "log_level": "warning",
        }
        assert events_of(lines, "replica became leader", topic=TOPIC, epoch=found.leader_epoch, unclean=True)
        assert counters(cluster).elections[Election.UNCLEAN] == 1


async def test_a_topic_that_is_not_synced_elects_the_log_with_most_and_warns() -> None:
    """The election needs no request: all replicas were killed, and none of them can know whether it has all records."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster, flush_policy="async")
        await acknowledged(cluster, b"before")
        assert replica(cluster, 1).log_end_offset == 1
        await kill(cluster, *BROKERS)
        with capture_logs() as lines:
            for one in BROKERS:
                await nursery.start(cluster.serve, one, {})
            await in_sync(cluster, *BROKERS)
        elected = events_of(lines, "unclean leader elected", topic=TOPIC, reason="reconciled")
        assert elected
        assert counters(cluster).elections[Election.RECONCILED] == 1


async def test_isr_below_min_insync_replicas_logs_a_warning_and_the_elr_is_elected() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, replicas=(2, 3), min_insync_replicas="2")
        await acknowledged(cluster, b"before")
        with capture_logs() as lines:
            await kill(cluster, 3)
            await in_sync(cluster, 2)
            await kill(cluster, 2)
            await nursery.start(cluster.serve, 3, {})
            await led_by_another(cluster, 2)
        warned = events_of(lines, "isr shrunk below min.insync.replicas", topic=TOPIC, removed=[3], isr=[2])
        assert {line["log_level"] for line in warned} == {"warning"}
        assert counters(cluster).elections_from_elr == 1, "3 left an ISR that was too small, and has all"


async def test_the_lines_of_a_lost_leader() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster, replicas=(3,))
        with capture_logs() as lines:
            await kill(cluster, 3)
            await stays_without_leader(cluster)
        [lost] = events_of(lines, "leader lost")
        expected = {"topic": TOPIC, "previous_leader": 3, "reason": "broker_fenced", "isr": [3], "log_level": "warning"}
        assert expected.items() <= lost.items()
        with capture_logs() as lines:
            await nursery.start(cluster.serve, 3, {})
            await led_by_another(cluster, -1)
        assert events_of(lines, "leader elected", topic=TOPIC, leader=3, reason="replica_returned")
