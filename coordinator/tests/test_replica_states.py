"""The facts that a broker tells of its replicas, and the times when it opens logs again."""

from __future__ import annotations

from random import Random

import trio

from coordinator.api import BrokerInfo, BrokerState, ClusterImage
from coordinator.cluster_manager import ClusterManager, ClusterManagerSettings
from coordinator.membership.membership import Membership
from coordinator.membership.replica_states import OPEN_AGAIN_INTERVAL_S, ReplicaStates
from coordinator.metadata.change_log import ChangeLog
from coordinator.ports import FoundLog, HostedPartition, LogCondition
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeEnsemble, FakeHost, FakeStore, FakeValidator

COUNT = 40


def facts_of(host: FakeHost) -> ReplicaStates:
    changes = ChangeLog(FakeEnsemble().connect(), 1, Random(0))
    membership = Membership(changes._store, changes, BrokerInfo(1, ()), Random(0))
    return ReplicaStates(host, changes, membership, trio.Lock(), lambda: None)


async def test_logs_are_opened_again_as_long_as_one_is_not_open() -> None:
    host = FakeHost()
    facts, image = facts_of(host), ClusterImage(0, "c")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(facts.open_again, lambda: image)
        await trio.sleep(10 * OPEN_AGAIN_INTERVAL_S)
        assert host.calls == []
        host.has_unserved = True
        facts.note_loss()
        await trio.sleep(3.5 * OPEN_AGAIN_INTERVAL_S)
        assert host.calls == ["open again"] * 3
        host.has_unserved = False
        await trio.sleep(10 * OPEN_AGAIN_INTERVAL_S)
        assert len(host.calls) == 4
        nursery.cancel_scope.cancel()


async def test_a_log_that_is_not_open_is_opened_again_also_after_the_session_was_lost() -> None:
    """The task that opens logs again is started anew then, and no log has been closed since."""
    host = FakeHost()
    facts, image = facts_of(host), ClusterImage(0, "c")
    host.has_unserved = True
    facts.note_loss()
    for _ in range(2):
        host.calls.clear()
        with trio.move_on_after(2.5 * OPEN_AGAIN_INTERVAL_S):
            await facts.open_again(lambda: image)
        assert host.calls == ["open again"] * 2


async def test_all_that_a_broker_does_not_serve_is_one_change() -> None:
    host = FakeHost()
    store: FakeStore = FakeEnsemble().connect()
    settings = ClusterManagerSettings(1, (), defaults=TopicDefaults(COUNT))
    cluster = ClusterManager(store, host, FakeValidator(), settings, Random(0))
    await cluster.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run)
        topic = await cluster.create_topic("t")
        before = cluster.image.version
        states = enumerate(topic.partitions)
        host.losses = [
            FoundLog(HostedPartition("t", topic.topic_id, number, one, {}), LogCondition.CLOSED, (0, 0))
            for number, one in states
        ]
        cluster.note_loss()
        await trio.sleep(1)
        assert all(one.offline == (1,) for one in cluster.image.topics["t"].partitions)
        assert cluster.image.version == before + 2, "what it does not serve, and that nobody leads it"
        assert cluster.image.members[1].state is BrokerState.SERVING
        nursery.cancel_scope.cancel()
