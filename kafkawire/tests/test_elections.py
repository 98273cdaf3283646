"""Elections that happen, or do not, because of a changed config."""

from __future__ import annotations

import pytest

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS
from kafkawire.tests.test_replication import TOPIC, acknowledged, create, equal, in_sync, kill, state, values
from kafkawire.tests.test_repudiation import create_on, filled, led, stays_without_leader, wipe


async def configure(cluster: MemoryCluster, key: str, value: str, *, is_default: bool = False) -> None:
    """Set a config of the topic, or the default of all brokers."""
    coordinator = next(iter(cluster.brokers.values())).broker.coordinator
    change = ConfigChange(ConfigOperation.SET, key, value)
    if is_default:
        await coordinator.alter_broker_configs(CLUSTER_DEFAULT, [change])
    else:
        await coordinator.alter_topic_configs(TOPIC, [change])


@pytest.mark.enforces("unclean.leader.election.enable")
@pytest.mark.parametrize("is_default", [False, True])
async def test_empty_log_of_a_single_replica_leads_only_once_unclean_election_is_enabled(*, is_default: bool) -> None:
    async with open_cluster() as (cluster, nursery):
        await create_on(cluster, 2)
        await filled(cluster)
        await kill(cluster, 2)
        wipe(cluster, 2)
        await nursery.start(cluster.serve, 2, {})
        await stays_without_leader(cluster)
        await configure(cluster, "unclean.leader.election.enable", "true", is_default=is_default)
        assert await led(cluster) == 2
        found = state(cluster)
        assert (found.unclean_since, found.isr) == (found.leader_epoch, (2,))
        assert await acknowledged(cluster, b"anew") == 0


async def test_an_unclean_election_is_held_as_soon_as_the_topic_allows_it() -> None:
    """Records that the new leader lacks are truncated on the other replicas, even below the high watermark
    (RULES K18)."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"on all")
        first, (second, third) = state(cluster).leader, [one for one in BROKERS if one != state(cluster).leader]
        await kill(cluster, second, third)
        await acknowledged(cluster, b"on one")
        await in_sync(cluster, first)
        await kill(cluster, first)
        await nursery.start(cluster.serve, second, {})
        await stays_without_leader(cluster)
        await configure(cluster, "unclean.leader.election.enable", "true")
        assert await led(cluster) == second
        await acknowledged(cluster, b"instead")
        for one in (first, third):
            await nursery.start(cluster.serve, one, {})
        await in_sync(cluster, *BROKERS)
        await equal(cluster)
        assert await values(cluster) == [b"on all", b"instead"]


async def test_lowered_min_isr_elects_no_replica_that_lacks_later_acknowledged_records() -> None:
    """A replica that left the ISR below min.insync.replicas does not know the records acknowledged since (KIP-966)."""
    async with open_cluster() as (cluster, nursery):
        await create(cluster, min_insync_replicas="2")
        await acknowledged(cluster, b"on all")
        first, *others = state(cluster).leader, *[one for one in BROKERS if one != state(cluster).leader]
        await kill(cluster, *others)
        await in_sync(cluster, first)
        assert sorted(state(cluster).elr) != []
        await configure(cluster, "min.insync.replicas", "1")
        assert state(cluster).elr == ()
        await acknowledged(cluster, b"on one")
        await kill(cluster, first)
        for one in others:
            await nursery.start(cluster.serve, one, {})
        await stays_without_leader(cluster)
        await nursery.start(cluster.serve, first, {})
        await in_sync(cluster, *BROKERS)
        assert await values(cluster) == [b"on all", b"on one"]
