"""The control plane of whole brokers over both stores: restarts, races, and a store that misbehaves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from coordinator.api import (
    TRANSACTION_VERSION,
    BrokerEndpoint,
    BrokerState,
    ConfigChange,
    ConfigOperation,
    FeatureUpdate,
    TierDeletion,
    UpgradeType,
)
from coordinator.cluster_manager import RECONNECT_PAUSE_S, ClusterManager, ClusterManagerSettings
from coordinator.errors import (
    CannotStart,
    InvalidConfig,
    InvalidFeatureUpdate,
    InvalidPartitions,
    MetadataUnavailable,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from coordinator.membership.controlled_shutdown import REDIRECTING_S
from coordinator.metadata.change_retention import KEPT_MAX
from coordinator.metadata.changes import change_of
from coordinator.metadata.nodes import (
    encode_change,
    encode_controller_epoch,
    encode_member,
    encode_partition,
    encode_topic,
)
from coordinator.metadata_store import paths
from coordinator.metadata_store.embedded import open_embedded
from coordinator.metadata_store.store import ANY_VERSION, Create, Delete, MetadataStore, Put
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeEnsemble, FakeHost, FakeStore, FakeValidator, Faults, Loss, run_inline
from coordinator.testing.images import epochs_led

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from coordinator.api import ClusterImage, TopicInfo
    from coordinator.ports import HostChanges


@dataclass
class Machine:
    """The things that outlive a broker's process: its metadata and its log dirs."""

    directory: Path | None = None
    ensemble: FakeEnsemble = field(default_factory=FakeEnsemble)
    host: FakeHost = field(default_factory=FakeHost)
    starts: int = 0
    stores: list[MetadataStore] = field(default_factory=list)

    async def open_store(self) -> MetadataStore:
        await trio.lowlevel.checkpoint()
        if self.directory is None:
            self.stores.append(self.ensemble.connect())
        else:
            self.stores.append(await open_embedded(self.directory / "metadata", run_inline))
        return self.stores[-1]


def coordinator_on(store: MetadataStore, host: FakeHost, broker_id: int = 1, seed: int = 0) -> ClusterManager:
    settings = ClusterManagerSettings(
        broker_id,
        (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9_092),),
        defaults=TopicDefaults(partition_count=2, partitions_max=10_000),
    )
    return ClusterManager(store, host, FakeValidator(), settings, Random(f"{broker_id} {seed}"))


@asynccontextmanager
async def running(machine: Machine) -> AsyncIterator[ClusterManager]:
    """A process of the broker; log dirs are closed at its end and their files stay."""
    machine.starts += 1
    machine.host.calls.clear()
    store = await machine.open_store()
    try:
        coordinator = coordinator_on(store, machine.host, seed=machine.starts)
        await coordinator.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.run)
            yield coordinator
            nursery.cancel_scope.cancel()
    finally:
        await store.close()


async def write_change(store: MetadataStore, number: int, *operations: Create | Put) -> None:
    """Write a change as another broker does."""
    change = encode_change(change_of(operations, 9, bytes(16)))
    await store.multi([*operations, Create(paths.change(number), change)])


@pytest.fixture(params=["embedded", "fake"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path if request.param == "embedded" else None)


async def test_a_created_topic_is_in_the_image_and_its_partitions_are_open(machine: Machine) -> None:
    async with running(machine) as coordinator:
        before = coordinator.image
        topic = await coordinator.create_topic("a", partition_count=3, configs={"retention.ms": "5"})
        assert coordinator.image.topics == {"a": topic}
        assert coordinator.image.topics_by_id == {topic.topic_id: topic}
        assert coordinator.image.version > before.version
        assert before.topics == {}
        assert machine.host.epochs == {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
        assert coordinator.image.controller_id == 1
        assert [endpoint.port for endpoint in coordinator.image.brokers[1].endpoints] == [9_092]


async def test_topic_ids_are_random_version_4_uuids(machine: Machine) -> None:
    async with running(machine) as coordinator:
        ids = {(await coordinator.create_topic(f"t{number}")).topic_id for number in range(20)}
    assert len(ids) == 20
    assert all(len(topic_id) == 16 and topic_id[6] >> 4 == 4 and topic_id[8] >> 6 == 2 for topic_id in ids)


async def test_topics_ids_configs_and_cluster_id_survive_and_epochs_rise_with_every_start(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a", configs={"retention.ms": "5"})
        other = await coordinator.create_topic("b")
        cluster_id = coordinator.image.cluster_id
    assert len(cluster_id) == 22
    for start in (1, 2, 3):
        async with running(machine) as coordinator:
            assert coordinator.image.cluster_id == cluster_id
            found = coordinator.image.topics["a"]
            assert (found.topic_id, found.configs) == (topic.topic_id, {"retention.ms": "5"})
            assert coordinator.image.topics["b"].topic_id == other.topic_id
            assert [state.leader_epoch for state in found.partitions] == [start, start]
            assert all(state.incarnation == coordinator.incarnation for state in found.partitions)
            assert machine.host.epochs[("a", 0)] == machine.host.epochs[("b", 1)] == start


async def test_epochs_are_durable_before_the_host_opens_a_partition(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a")

    class Crash(FakeHost):
        async def apply(self, changes: object) -> None:
            raise KeyboardInterrupt

    store = await machine.open_store()
    with pytest.raises(KeyboardInterrupt):
        await coordinator_on(store, Crash(), seed=77).start()
    await store.close()
    async with running(machine) as coordinator:
        assert coordinator.image.topics_by_id[topic.topic_id].partitions[0].leader_epoch == 2


async def test_d3_at_start_the_host_learns_which_topics_a_change_has_deleted(machine: Machine) -> None:
    async with running(machine) as coordinator:
        kept = await coordinator.create_topic("kept")
        deleted = await coordinator.create_topic("deleted")
        await coordinator.delete_topic("deleted")
    machine.host.topic_ids |= {deleted.topic_id, b"of newer times.."}
    async with running(machine):
        assert machine.host.calls == ["start", "apply 2 led, 0 dropped"]
        assert machine.host.topic_ids == {kept.topic_id}
        assert machine.host.strays == {b"of newer times.."}


async def test_a_deleted_topic_is_gone_with_everything_of_it(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a", partition_count=1_500)
        kept = await coordinator.create_topic("b")
        assert await coordinator.delete_topic("a") == topic
        assert coordinator.image.topics == {"b": kept}
        assert coordinator.image.topics_by_id == {kept.topic_id: kept}
        assert machine.host.topic_ids == {kept.topic_id}
        again = await coordinator.create_topic("a")
        assert again.topic_id != topic.topic_id
        assert await coordinator.delete_topic(again.topic_id) == again
    store = await machine.open_store()
    assert await store.children(paths.PARTITIONS) == [kept.topic_id.hex()]
    assert await store.children(paths.TOPICS) == ["b"]
    await store.close()


async def test_a_deleted_topic_with_remote_storage_has_a_pending_tier_deletion(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a", partition_count=1_500, configs={"remote.storage.enable": "true"})
        await coordinator.create_topic("b")
        await coordinator.delete_topic("a")
        await coordinator.delete_topic("b")
    async with running(machine) as coordinator:
        assert await coordinator.tier.pending() == [TierDeletion(topic.topic_id, "a", 1_500)]


async def test_the_deletion_of_an_unknown_topic_is_refused(machine: Machine) -> None:
    async with running(machine) as coordinator:
        with pytest.raises(UnknownTopic, match="The topic 'a' does not exist"):
            await coordinator.delete_topic("a")
        with pytest.raises(UnknownTopicId):
            await coordinator.delete_topic(bytes(16))


async def test_only_one_of_several_concurrent_creations_of_a_topic_succeeds(machine: Machine) -> None:
    outcomes: list[str] = []

    async def create(coordinator: ClusterManager) -> None:
        try:
            await coordinator.create_topic("a")
        except TopicExists:
            assert "a" in coordinator.image.topics
            outcomes.append("exists")
        else:
            outcomes.append("created")

    async with running(machine) as coordinator, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(create, coordinator)
    assert sorted(outcomes) == ["created"] + ["exists"] * 4


async def test_validate_only_changes_nothing(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a", validate_only=True)
        assert len(topic.partitions) == 2
        assert coordinator.image.topics == {}
        with pytest.raises(InvalidConfig):
            await coordinator.create_topic("a", configs={"unknown.key": "1"}, validate_only=True)


async def test_a_creator_cancelled_at_any_point_leaves_image_store_and_host_alike(machine: Machine) -> None:
    outcomes = set()
    async with running(machine) as coordinator:
        for checkpoints in range(12):
            name = f"t{checkpoints}"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(coordinator.create_topic, name)
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            outcomes.add(name in coordinator.image.topics)
        topics = coordinator.image.topics
        assert set(topics) == {name for name, _ in machine.host.epochs}
    assert outcomes == {True, False}
    async with running(machine) as coordinator:
        assert set(coordinator.image.topics) == set(topics)


async def test_waiting_for_a_newer_image(machine: Machine) -> None:
    async with running(machine) as coordinator:
        seen = coordinator.image.version
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.create_topic, "a")
            image = await coordinator.wait_for_image_after(seen)
        assert "a" in image.topics
        assert await coordinator.wait_for_image_after(seen) is coordinator.image


async def test_only_the_last_changes_are_kept(machine: Machine) -> None:
    async with running(machine) as coordinator:
        for number in range(KEPT_MAX // 2 + 5):
            await coordinator.create_topic(f"t{number}", partition_count=1)
            await coordinator.delete_topic(f"t{number}")
        newest = coordinator.image.version
    store = await machine.open_store()
    changes = await store.children(paths.CHANGES)
    assert (len(changes), changes[-1]) == (KEPT_MAX, f"{newest:010}")
    await store.close()


async def test_partition_states_left_by_a_crash_are_swept_after_a_while(machine: Machine) -> None:
    async with running(machine) as coordinator:
        kept = await coordinator.create_topic("kept")
    store = await machine.open_store()
    parent, left = paths.partitions(b"x" * 16), encode_partition(kept.partitions[0])
    await store.multi([Create(parent, b""), *(Create(f"{parent}/{number}", left) for number in range(1_000))])
    await store.multi([Create(f"{parent}/{number}", left) for number in range(1_000, 1_200)])
    await store.close()
    async with running(machine) as coordinator:
        await trio.sleep(30)
        assert len(coordinator.image.aside[b"x" * 16]) == 1_200  # a broker may be making that topic
        await trio.sleep(180)
        assert coordinator.image.aside == {}
    store = await machine.open_store()
    assert await store.children(paths.PARTITIONS) == [kept.topic_id.hex()]
    await store.close()


async def test_a_topic_with_missing_partition_states_is_damaged_and_stops_the_start(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a")
    store = await machine.open_store()
    await store.multi([Delete(paths.partition(topic.topic_id, 1))])
    await store.close()
    with pytest.raises(CannotStart, match="/topics/a is damaged: states of its partitions are missing"):
        async with running(machine):
            raise AssertionError("must not start")
    assert "start" not in machine.host.calls


async def test_a_node_written_by_a_newer_version_stops_the_start(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a")
    store = await machine.open_store()
    newer = encode_topic(topic).replace(b'"v":1', b'"v":2')
    await store.multi([Delete(paths.topic("a")), Create(paths.topic("a"), newer)])
    await store.close()
    with pytest.raises(CannotStart, match="/topics/a has the format 2; this version knows 1 only"):
        async with running(machine):
            raise AssertionError("must not start")


# A store that misbehaves, and several brokers on one


@dataclass
class Member:
    store: FakeStore
    host: FakeHost
    coordinator: ClusterManager


async def two_brokers(nursery: trio.Nursery, ensemble: FakeEnsemble) -> tuple[Member, Member]:
    return await member(nursery, ensemble, 1), await member(nursery, ensemble, 2)


async def member(nursery: trio.Nursery, ensemble: FakeEnsemble, broker_id: int, seed: int = 0) -> Member:
    store, host = ensemble.connect(), FakeHost()
    coordinator = coordinator_on(store, host, broker_id, seed)
    await coordinator.start()
    nursery.start_soon(coordinator.run)
    return Member(store, host, coordinator)


async def elect(ensemble: FakeEnsemble, known_to: Member, topic: TopicInfo, broker_id: int, leader: Member) -> None:
    """Let another writer elect that broker for the first partition, in its second epoch."""
    led = replace(topic.partitions[0], leader=broker_id, leader_epoch=1, incarnation=leader.coordinator.incarnation)
    put = Put(paths.partition(topic.topic_id, 0), encode_partition(led), 0)
    await write_change(ensemble.connect(), known_to.coordinator.image.version + 1, put)


async def test_a_lost_reply_is_looked_up_and_the_topic_created_once() -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        client.script.append(Loss.REPLY)
        topic = await coordinator.create_topic("a")
        client.script.append(Loss.REQUEST)
        await coordinator.create_topic("b")
        client.script.append(Loss.REPLY)
        await coordinator.delete_topic("b")
        assert coordinator.image.topics == {"a": topic}
    created = [
        effect.path for effects in machine.ensemble.history for effect in effects if effect.path == paths.topic("a")
    ]
    assert len(created) == 1


@pytest.mark.parametrize("loss", [Loss.REPLY, Loss.REQUEST])
@pytest.mark.parametrize("step", range(6))
async def test_a_start_survives_a_lost_message_at_every_step(loss: Loss, step: int) -> None:
    machine = Machine()
    for start in range(3):
        store = machine.ensemble.connect()
        store.script.extend([*[Loss.NOTHING] * step, loss])
        coordinator = coordinator_on(store, machine.host, seed=start)
        await coordinator.start()
        if start == 0:
            await coordinator.create_topic("a")
        assert machine.host.epochs[("a", 0)] == start
        assert coordinator.image.controller_id == 1
        await store.close()


async def test_while_the_store_is_away_changes_are_refused_and_the_image_stays() -> None:
    async with trio.open_nursery() as nursery:
        one = await member(nursery, FakeEnsemble(), 1)
        await one.coordinator.create_topic("a")
        one.store.disconnected = True
        with pytest.raises(MetadataUnavailable):
            await one.coordinator.create_topic("b")
        assert set(one.coordinator.image.topics) == {"a"}
        one.store.disconnected = False
        await one.coordinator.create_topic("b")
        assert set(one.coordinator.image.topics) == {"a", "b"}
        nursery.cancel_scope.cancel()


async def test_a_change_with_an_unknown_outcome_is_found_when_the_store_is_back() -> None:
    async with trio.open_nursery() as nursery:
        one = await member(nursery, FakeEnsemble(), 1)

        one.store.script.append(Loss.REPLY_AND_LINE)
        with pytest.raises(MetadataUnavailable):
            await one.coordinator.create_topic("a")
        assert one.coordinator.image.topics == {}
        one.store.disconnected = False
        with pytest.raises(TopicExists):
            await one.coordinator.create_topic("a")
        assert one.host.epochs == {("a", 0): 0, ("a", 1): 0}
        nursery.cancel_scope.cancel()


async def test_a_broker_that_missed_the_reply_to_becoming_controller_becomes_controller_again() -> None:
    """No other broker would: the role is held by a broker that lives."""
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, ensemble := FakeEnsemble())
        await trio.testing.wait_all_tasks_blocked()
        assert one.coordinator.is_controller
        two.store.script.append(Loss.REPLY_AND_LINE)
        one.store.pause()
        ensemble.expire(one.store)
        await trio.sleep(3)
        two.store.disconnected = False
        await trio.sleep(120)
        assert two.coordinator.is_controller
        nursery.cancel_scope.cancel()


async def test_the_second_broker_follows_and_changes_things_without_being_the_controller() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await trio.testing.wait_all_tasks_blocked()
        assert list(one.coordinator.image.brokers) == [1, 2]
        await one.coordinator.create_topic("a", assignments={0: [2], 1: [1]})
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == one.coordinator.image.topics
        assert (one.host.epochs, two.host.epochs) == ({("a", 1): 0}, {("a", 0): 0})
        assert (one.coordinator.is_controller, two.coordinator.is_controller) == (True, False)
        await two.coordinator.create_topic("b", assignments={0: [1]})
        await trio.testing.wait_all_tasks_blocked()
        assert one.host.epochs == {("a", 1): 0, ("b", 0): 0}
        await two.coordinator.delete_topic("b")
        await one.coordinator.delete_topic("a")
        await trio.testing.wait_all_tasks_blocked()
        assert (two.coordinator.image.topics, two.host.epochs) == ({}, {})
        nursery.cancel_scope.cancel()


async def test_a_late_watch_delays_the_image_and_misses_nothing() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await trio.testing.wait_all_tasks_blocked()
        two.store.lagging = True
        await one.coordinator.create_topic("a", assignments={0: [2]})
        await one.coordinator.create_topic("b", assignments={0: [2]})
        await one.coordinator.delete_topic("a")
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == {}
        two.store.lagging = False
        ensemble.catch_up_all()
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == one.coordinator.image.topics
        assert two.host.epochs == {("b", 0): 0}
        nursery.cancel_scope.cancel()


async def test_a_disconnected_broker_catches_up_after_it_reconnects_without_another_event() -> None:
    """A watch is gone with its connection, and a change that came meanwhile may be the last for a long time."""
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await trio.testing.wait_all_tasks_blocked()
        two.store.disconnected = True
        await trio.testing.wait_all_tasks_blocked()
        await one.coordinator.create_topic("a", assignments={0: [2]})
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == {}
        two.store.disconnected = False
        ensemble.catch_up_all()  # the server that it comes to has the change
        await trio.sleep(2 * RECONNECT_PAUSE_S)
        assert two.coordinator.image.topics == one.coordinator.image.topics
        assert two.host.epochs == {("a", 0): 0}
        nursery.cancel_scope.cancel()


async def test_a_reader_that_missed_more_than_is_kept_loads_everything() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await trio.testing.wait_all_tasks_blocked()
        two.store.lagging = True
        topics = [
            await one.coordinator.create_topic(f"t{number}", partition_count=1) for number in range(KEPT_MAX + 10)
        ]
        two.store.lagging = False
        ensemble.catch_up_all()
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == one.coordinator.image.topics
        led = {topic.topic_id for topic in topics if topic.partitions[0].leader == 2}
        forgotten, known = sorted(led)[:2]
        two.store.lagging = True
        await one.coordinator.delete_topic(forgotten)
        for number in range(KEPT_MAX - 1):
            await one.coordinator.create_topic(f"u{number}", partition_count=1)
        await one.coordinator.delete_topic(known)
        two.store.lagging = False
        ensemble.catch_up_all()
        await trio.testing.wait_all_tasks_blocked()
        assert two.host.strays == {forgotten}, "RULES D3: no change that is kept has deleted it"
        assert known not in two.host.topic_ids
        nursery.cancel_scope.cancel()


async def test_the_controller_role_moves_when_the_session_ends_and_the_old_controller_is_fenced() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await one.coordinator.create_topic("a")
        one.store.pause()
        ensemble.expire(one.store)
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.controller_id == 2
        assert list(two.coordinator.image.brokers) == [2]
        await two.coordinator.create_topic("b")
        one.store.resume()
        with pytest.raises(MetadataUnavailable):
            await one.coordinator.create_topic("c")
        await trio.sleep(5)
        assert (one.coordinator.is_controller, two.coordinator.is_controller) == (False, True)
        assert one.coordinator.image == two.coordinator.image
        assert list(one.coordinator.image.brokers) == list(two.coordinator.image.brokers) == [1, 2]
        nursery.cancel_scope.cancel()


async def test_a_single_broker_registers_again_after_its_session_was_lost() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")
        ensemble.expire(one.store)
        await trio.sleep(5)
        await one.coordinator.create_topic("b")
        assert one.host.epochs[("a", 0)] == 1  # the same process in another life
        assert one.coordinator.image.controller_id == 1
        nursery.cancel_scope.cancel()


async def test_a_broker_id_in_use_stops_the_start() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        await member(nursery, ensemble, 1)
        with pytest.raises(CannotStart, match="the broker id 1 is in use by another running broker"):
            await member(nursery, ensemble, 1, seed=9)
        nursery.cancel_scope.cancel()


async def test_a_restart_waits_for_the_session_of_the_process_before() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        before = await member(nursery, ensemble, 1)
        await before.coordinator.create_topic("a")
        before.store.pause()

        async def expire_later() -> None:
            await trio.sleep(10)
            ensemble.expire(before.store)

        nursery.start_soon(expire_later)
        after = await member(nursery, ensemble, 1, seed=9)
        assert after.host.epochs == {("a", 0): 1, ("a", 1): 1}
        nursery.cancel_scope.cancel()


async def test_the_host_opens_partitions_before_the_image_shows_them() -> None:
    class Looking(FakeHost):
        async def apply(self, changes: HostChanges) -> None:
            await super().apply(changes)
            shown.append(set(coordinator.image.topics))

    shown: list[set[str]] = []
    coordinator = coordinator_on(FakeEnsemble().connect(), Looking())
    await coordinator.start()
    await coordinator.create_topic("a")
    await coordinator.create_topic("b")
    assert shown == [set(), {"a"}]


async def test_a_broker_with_the_log_dirs_of_its_old_process_waits_for_no_session() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        before = await member(nursery, ensemble, 1)
        await before.coordinator.create_topic("a")
        before.store.pause()
        started_s, host = trio.current_time(), FakeHost()
        host.log_dirs = before.host.log_dirs
        after = coordinator_on(ensemble.connect(), host, 1, seed=9)
        await after.start()
        assert trio.current_time() == started_s
        assert (after.is_controller, after.image.controller_epoch) == (True, 2)
        assert host.epochs == {("a", 0): 1, ("a", 1): 1}
        assert (after.image.members[1].epoch, after.image.members[1].incarnation) == (1, after.incarnation)
        nursery.cancel_scope.cancel()


async def test_a_controller_whose_epoch_was_raised_writes_nothing() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await trio.testing.wait_all_tasks_blocked()
        other = ensemble.connect()
        await other.multi([Put(paths.CONTROLLER_EPOCH, encode_controller_epoch(3, 9), ANY_VERSION)])
        two.store.pause()
        ensemble.expire(two.store)
        await trio.testing.wait_all_tasks_blocked()
        assert not one.coordinator.is_controller
        assert list(one.coordinator.image.brokers) == [1, 2]
        nursery.cancel_scope.cancel()


async def test_a_leader_recorded_with_another_incarnation_is_elected_in_a_new_epoch() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        topic = await one.coordinator.create_topic("a", assignments={0: [2, 1]})
        await trio.testing.wait_all_tasks_blocked()
        given = replace(topic.partitions[0], leader=2, leader_epoch=1, incarnation=b"two's before it.")
        put = Put(paths.partition(topic.topic_id, 0), encode_partition(given), 0)
        await write_change(ensemble.connect(), one.coordinator.image.version + 1, put)
        await trio.sleep(5)
        assert two.host.epochs == {("a", 0): 2}
        nursery.cancel_scope.cancel()


async def test_a_running_broker_that_is_fenced_registers_again() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await one.coordinator.create_topic("a", assignments={0: [2]})
        await trio.testing.wait_all_tasks_blocked()
        known = one.coordinator.image.members[2]
        put = Put(paths.member(2), encode_member(replace(known, state=BrokerState.FENCED)), known.version)
        await write_change(ensemble.connect(), one.coordinator.image.version + 1, put)
        await trio.sleep(60)
        assert one.coordinator.image == two.coordinator.image
        assert one.coordinator.image.members[2].epoch == known.epoch + 1
        assert two.host.epochs == {("a", 0): 2}
        nursery.cancel_scope.cancel()


async def test_a_leaving_broker_keeps_only_leaderships_that_no_other_replica_can_take() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        await one.coordinator.create_topic("both", assignments={0: [2, 1], 1: [1, 2]})
        await one.coordinator.create_topic("alone", assignments={0: [2]})
        await trio.testing.wait_all_tasks_blocked()
        started_s = trio.current_time()
        await two.coordinator.leave()
        await trio.testing.wait_all_tasks_blocked()
        image = one.coordinator.image
        assert image == two.coordinator.image
        assert [state.leader for state in image.topics["both"].partitions] == [1, 1]
        assert [state.isr for state in image.topics["both"].partitions] == [(1,), (1,)]
        assert (image.topics["alone"].partitions[0].leader, image.members[2].state) == (2, BrokerState.LEAVING)
        assert (list(image.brokers), trio.current_time() - started_s) == ([1, 2], REDIRECTING_S)
        started_s = trio.current_time()
        await one.coordinator.leave()
        assert trio.current_time() == started_s, "nobody else could be named"
        nursery.cancel_scope.cancel()


async def test_a_leaving_broker_hands_over_a_leadership_that_it_was_given_meanwhile() -> None:
    """Another broker writes first: that may be an epoch for this broker."""
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = await two_brokers(nursery, ensemble)
        topic = await one.coordinator.create_topic("both", assignments={0: [1, 2]})
        await trio.testing.wait_all_tasks_blocked()
        two.store.pause()
        await elect(ensemble, one, topic, 2, two)
        nursery.start_soon(two.coordinator.leave)
        await trio.testing.wait_all_tasks_blocked()
        two.store.resume()
        await trio.sleep(0.5)
        assert one.coordinator.image.members[2].state is BrokerState.LEAVING
        assert one.coordinator.image.topics["both"].partitions[0].leader == 1
        assert ("both", 0) not in two.host.epochs
        nursery.cancel_scope.cancel()


async def test_the_controller_hands_over_when_it_leaves_and_does_not_hang_when_disconnected() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        await one.coordinator.create_topic("both", assignments={0: [1, 2]})
        await one.coordinator.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics["both"].partitions[0].leader == 2
        one.store.disconnected = True
        await one.coordinator.leave()
        nursery.cancel_scope.cancel()


async def test_a_broker_that_left_and_lost_its_session_does_not_register_again() -> None:
    """The listeners of the broker are closed: partitions that it led could not be reached."""
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = await two_brokers(nursery, ensemble)
        await two.coordinator.leave()
        ensemble.expire(two.store)
        await trio.sleep(60)
        assert list(one.coordinator.image.brokers) == [1]
        nursery.cancel_scope.cancel()


async def test_leaders_go_back_to_where_they_were_placed_after_a_while() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = await two_brokers(nursery, ensemble)
        topic = await one.coordinator.create_topic("a", assignments={0: [2, 1]})
        await elect(ensemble, one, topic, 1, one)
        await trio.sleep(200)
        assert two.coordinator.image.topics["a"].partitions[0].leader == 1
        await trio.sleep(200)
        assert two.coordinator.image.topics["a"].partitions[0].leader == 2
        nursery.cancel_scope.cancel()


async def test_a_broker_alone_leaves_at_once() -> None:
    async with running(Machine()) as coordinator:
        await coordinator.create_topic("a")
        await coordinator.leave()
        assert coordinator.image.topics["a"].partitions[0].leader == 1


class EpochWitness(FakeHost):
    """Sees over all brokers and restarts that no two processes ever open a partition in the same epoch (RULES L3)."""

    def __init__(self, used: dict[tuple[bytes, int, int], bytes]) -> None:
        super().__init__()
        self.used = used

    async def apply(self, changes: HostChanges) -> None:
        for partition in changes.led:
            key = (partition.topic_id, partition.partition, partition.state.leader_epoch)
            assert self.used.setdefault(key, partition.state.incarnation) == partition.state.incarnation
        await super().apply(changes)


@dataclass
class Mix:
    """Two brokers on one ensemble, and a random mix of requests, lost sessions and restarts."""

    nursery: trio.Nursery
    ensemble: FakeEnsemble
    random: Random
    used: dict[tuple[bytes, int, int], bytes] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    lives: dict[int, trio.CancelScope] = field(default_factory=dict)
    left_in_tier: set[bytes] = field(default_factory=set)

    async def start(self, broker_id: int) -> None:
        while True:
            store, host = self.ensemble.connect(), EpochWitness(self.used)
            coordinator = coordinator_on(store, host, broker_id, seed=self.random.getrandbits(32))
            try:
                await coordinator.start()
            except CannotStart:
                self.ensemble.expire(store)
            else:
                break
        self.members[broker_id] = Member(store, host, coordinator)
        self.nursery.start_soon(self.live, broker_id, coordinator)

    async def live(self, broker_id: int, coordinator: ClusterManager) -> None:
        with trio.CancelScope() as self.lives[broker_id]:
            await coordinator.run()

    def draw_change(self) -> ConfigChange:
        operation = self.random.choice([ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
        return ConfigChange(operation, "cleanup.policy", str(self.random.randrange(4)))

    def draw_update(self, image: ClusterImage) -> FeatureUpdate:
        level = self.random.randrange(3)
        is_upgrade = level >= image.feature_level(TRANSACTION_VERSION)
        upgrade_type = UpgradeType.UPGRADE if is_upgrade else UpgradeType.SAFE_DOWNGRADE
        return FeatureUpdate(TRANSACTION_VERSION, level, upgrade_type)

    async def act(self) -> None:
        broker_id = self.random.choice([1, 2])
        chosen, name, draw = self.members[broker_id], f"t{self.random.randrange(5)}", self.random.random()
        try:
            if draw < 0.05:
                self.ensemble.expire(chosen.store)
            elif draw < 0.1:
                await trio.testing.wait_all_tasks_blocked()  # until `live` has its scope
                self.lives[broker_id].cancel()
                self.ensemble.expire(chosen.store)
                await self.start(broker_id)
            elif draw < 0.2:
                count = self.random.randrange(3, 6)
                await chosen.coordinator.create_partitions(name, count)
            elif draw < 0.3:
                await chosen.coordinator.alter_topic_configs(name, [self.draw_change()])
            elif draw < 0.35:
                await chosen.coordinator.alter_broker_configs(str(broker_id), [self.draw_change()])
            elif draw < 0.4:
                await chosen.coordinator.update_features([self.draw_update(chosen.coordinator.image)])
            elif draw < 0.75:
                configs = {"remote.storage.enable": self.random.choice(["true", "false"])}
                await chosen.coordinator.create_topic(name, replication_factor=1, configs=configs)
            else:
                topic = await chosen.coordinator.delete_topic(name)
                if topic.configs["remote.storage.enable"] == "true":
                    self.left_in_tier.add(topic.topic_id)
        except (InvalidFeatureUpdate, InvalidPartitions, MetadataUnavailable, TopicExists, UnknownTopic):
            await trio.sleep(self.random.random())


@pytest.mark.parametrize("seed", range(40))
async def test_two_brokers_agree_after_any_mix_of_faults(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr("trio._core._run._r", Random(seed))
    ensemble = FakeEnsemble(random, Faults(request_lost=0.05, reply_lost=0.1, replica_lags=0.2))
    async with trio.open_nursery() as nursery:
        mix = Mix(nursery, ensemble, random)
        for broker_id in (1, 2):
            await mix.start(broker_id)
        for _ in range(60):
            await mix.act()
        ensemble.faults = Faults()
        for _ in range(2):
            await trio.sleep(60)
            ensemble.catch_up_all()
        one, two = (each.coordinator.image for each in mix.members.values())
        assert one == two
        assert list(one.brokers) == [1, 2]
        assert all(each.host.broker_configs == one.broker_configs for each in mix.members.values())
        for broker_id, each in mix.members.items():
            assert each.host.epochs == epochs_led(one, broker_id)
        pending = {each.topic_id for each in await mix.members[1].coordinator.tier.pending()}
        assert mix.left_in_tier <= pending
        assert not pending & one.topics_by_id.keys()
        nursery.cancel_scope.cancel()
