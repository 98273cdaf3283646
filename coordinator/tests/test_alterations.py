"""More partitions and other configs over whole brokers: races, restarts, followers, and a store that misbehaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from coordinator.errors import InvalidConfig, InvalidPartitions, MetadataUnavailable
from coordinator.metadata.nodes import encode_broker_configs, encode_partition, encode_topic
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Put
from coordinator.testing.fakes import FakeEnsemble, FakeHost, FakeStore, Loss
from coordinator.tests.test_cluster_manager import Machine, member, running, write_change

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture(params=["embedded", "fake"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path if request.param == "embedded" else None)


def put(key: str, value: str) -> ConfigChange:
    return ConfigChange(ConfigOperation.SET, key, value)


def append(value: str) -> ConfigChange:
    return ConfigChange(ConfigOperation.APPEND, "cleanup.policy", value)


async def test_new_partitions_are_in_the_image_open_and_durable(machine: Machine) -> None:
    async with running(machine) as coordinator:
        before = await coordinator.create_topic("a", partition_count=1, configs={"retention.ms": "1"})
        machine.host.calls.clear()
        topic = await coordinator.create_partitions("a", 3)
        assert coordinator.image.topics["a"] == topic
        assert coordinator.image.topics_by_id == {topic.topic_id: topic}
        assert (len(topic.partitions), topic.partitions[0]) == (3, before.partitions[0])
        assert machine.host.calls == ["apply 2 led, 0 dropped"]
        assert machine.host.epochs == {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
    async with running(machine) as coordinator:
        found = coordinator.image.topics["a"]
        assert (found.topic_id, found.configs) == (topic.topic_id, {"retention.ms": "1"})
        assert [state.leader_epoch for state in found.partitions] == [1, 1, 1]
        await coordinator.delete_topic("a")
    store = await machine.open_store()
    assert await store.children(paths.PARTITIONS) == []
    await store.close()


async def test_topic_configs_are_in_the_image_told_the_host_and_durable(machine: Machine) -> None:
    async with running(machine) as coordinator:
        await coordinator.create_topic("a", partition_count=2, configs={"kept.ms": "1"})
        machine.host.calls.clear()
        topic = await coordinator.alter_topic_configs("a", [put("retention.ms", "5")])
        assert coordinator.image.topics["a"].configs == topic.configs == {"kept.ms": "1", "retention.ms": "5"}
        assert machine.host.calls == ["apply 2 led, 0 dropped"]
        await coordinator.alter_topic_configs("a", [put("retention.ms", "5")])
        assert machine.host.calls == ["apply 2 led, 0 dropped"]
        await coordinator.alter_topic_configs("a", [put("retention.ms", "6")], replace=True)
    async with running(machine) as coordinator:
        assert coordinator.image.topics["a"].configs == {"retention.ms": "6"}


async def test_broker_configs_are_in_the_image_told_the_host_and_durable(machine: Machine) -> None:
    async with running(machine) as coordinator:
        assert coordinator.image.broker_configs == {}
        await coordinator.create_topic("a")
        assert "configure" not in machine.host.calls
        await coordinator.alter_broker_configs("1", [put("own.key", "1")])
        await coordinator.alter_broker_configs(CLUSTER_DEFAULT, [put("b.key", "2")])
        expected = {"": {"b.key": "2"}, "1": {"own.key": "1"}}
        assert coordinator.image.broker_configs == machine.host.broker_configs == expected
        assert "a" in coordinator.image.topics
        machine.host.broker_configs = {}
    async with running(machine) as coordinator:
        assert coordinator.image.broker_configs == machine.host.broker_configs == expected
        assert machine.host.calls == ["start", "configure", "apply 2 led, 0 dropped"]
        await coordinator.alter_broker_configs("1", [], replace=True)
        assert machine.host.broker_configs == {"": {"b.key": "2"}}


async def test_validate_only_changes_nothing(machine: Machine) -> None:
    async with running(machine) as coordinator:
        before = await coordinator.create_topic("a", partition_count=1)
        version = coordinator.image.version
        grown = await coordinator.create_partitions("a", 3, validate_only=True)
        altered = await coordinator.alter_topic_configs("a", [put("k", "v")], validate_only=True)
        await coordinator.alter_broker_configs("1", [put("k", "v")], validate_only=True)
        assert (len(grown.partitions), altered.configs) == (3, {"k": "v"})
        with pytest.raises(InvalidConfig):
            await coordinator.alter_topic_configs("a", [put("unknown.key", "v")], validate_only=True)
        with pytest.raises(InvalidConfig):
            await coordinator.alter_broker_configs("1", [put("unknown.key", "v")], validate_only=True)
        assert coordinator.image.topics == {"a": before}
        assert (coordinator.image.version, coordinator.image.broker_configs) == (version, {})


async def test_concurrent_appends_to_a_list_config_all_take_effect(machine: Machine) -> None:
    async with running(machine) as coordinator:
        await coordinator.create_topic("a")
        async with trio.open_nursery() as nursery:
            for value in ("x", "y", "z"):
                nursery.start_soon(coordinator.alter_topic_configs, "a", [append(value)])
        assert sorted(coordinator.image.topics["a"].configs["cleanup.policy"].split(",")) == ["delete", "x", "y", "z"]


async def test_the_second_of_two_concurrent_partition_additions_is_refused(machine: Machine) -> None:
    outcomes: list[str] = []

    async with running(machine) as coordinator:
        await coordinator.create_topic("a", partition_count=1)

        async def grow() -> None:
            try:
                outcomes.append(str(len((await coordinator.create_partitions("a", 4)).partitions)))
            except InvalidPartitions as error:
                outcomes.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(grow)
            nursery.start_soon(grow)
    assert sorted(outcomes) == ["4", "Topic already has 4 partition(s)."]


async def test_growth_and_configs_at_once_both_count(machine: Machine) -> None:
    async with running(machine) as coordinator:
        await coordinator.create_topic("a", partition_count=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.create_partitions, "a", 3)
            nursery.start_soon(coordinator.alter_topic_configs, "a", [put("k", "v")])
        found = coordinator.image.topics["a"]
        assert (len(found.partitions), found.configs) == (3, {"k": "v"})


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
async def test_a_lost_message_changes_nothing_of_the_outcome(loss: Loss) -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        await coordinator.create_topic("a", partition_count=1)
        for step in range(3):
            client.script.extend([*[Loss.NOTHING] * step, loss])
            await coordinator.create_partitions("a", 1 + (step + 1) * 1_500)
            client.script.clear()
            client.script.append(loss)
            await coordinator.alter_topic_configs("a", [append(str(step))])
            client.script.append(loss)
            await coordinator.alter_broker_configs("1", [put("k", str(step))])
        topic = coordinator.image.topics["a"]
        assert (len(topic.partitions), topic.configs) == (4_501, {"cleanup.policy": "delete,0,1,2"})
    async with running(machine) as coordinator:
        found = coordinator.image.topics["a"]
        assert (len(found.partitions), found.configs) == (4_501, topic.configs)
        assert coordinator.image.broker_configs == {"1": {"k": "2"}}


async def test_partitions_left_by_an_interrupted_addition_do_not_block_the_next_addition(machine: Machine) -> None:
    async with running(machine) as coordinator:
        topic = await coordinator.create_topic("a", partition_count=1)
    store = await machine.open_store()
    left = [encode_partition(replace(topic.partitions[0], leader_epoch=number)) for number in range(4)]
    await store.multi([Create(paths.partition(topic.topic_id, number), left[number]) for number in (1, 2, 3)])
    await store.close()
    async with running(machine) as coordinator:
        assert len(coordinator.image.topics["a"].partitions) == 1
        await coordinator.create_partitions("a", 3)
    async with running(machine) as coordinator:
        assert len(coordinator.image.topics["a"].partitions) == 3
    store = await machine.open_store()
    assert await store.children(paths.partitions(topic.topic_id)) == ["0", "1", "2"]
    await store.close()


async def test_an_image_that_is_behind_the_store_is_loaded_before_anything_is_decided_on_it() -> None:
    """Another broker has made a change that this one has not taken yet."""
    async with running(machine := Machine()) as coordinator:
        topic = await coordinator.create_topic("a", partition_count=1)
        other = machine.ensemble.connect()
        moved = encode_topic(topic).replace(b'"configs":{}', b'"configs":{"cleanup.policy":"compact"}')
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        client.lagging = True
        theirs = Create(paths.BROKER_CONFIGS, encode_broker_configs({"1": {"their.key": "1"}}))
        await write_change(other, coordinator.image.version + 1, Put(paths.topic("a"), moved, topic.version), theirs)
        await coordinator.alter_topic_configs("a", [append("delete")])
        assert coordinator.image.topics["a"].configs == {"cleanup.policy": "compact,delete"}
        await coordinator.alter_broker_configs("1", [put("own.key", "1")])
        assert coordinator.image.broker_configs == {"1": {"their.key": "1", "own.key": "1"}}


async def test_changes_are_refused_and_the_image_stays_while_the_store_is_disconnected() -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        await coordinator.create_topic("a", partition_count=1)
        before = coordinator.image
        client.disconnected = True
        with pytest.raises(MetadataUnavailable):
            await coordinator.create_partitions("a", 2)
        with pytest.raises(MetadataUnavailable):
            await coordinator.alter_topic_configs("a", [append("x")])
        with pytest.raises(MetadataUnavailable):
            await coordinator.alter_broker_configs("1", [put("k", "v")])
        assert coordinator.image is before


async def test_a_change_with_an_unknown_outcome_takes_effect_once() -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        await coordinator.create_topic("a", partition_count=1)
        client.script.append(Loss.REPLY_AND_LINE)
        with pytest.raises(MetadataUnavailable):
            await coordinator.create_partitions("a", 2)
        client.disconnected = False
        with pytest.raises(InvalidPartitions, match="already has 2"):
            await coordinator.create_partitions("a", 2)
        assert machine.host.epochs == {("a", 0): 0, ("a", 1): 0}


async def test_any_broker_changes_things_and_the_others_follow() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await one.coordinator.create_topic("a", assignments={0: [1]})
        await one.coordinator.create_partitions("a", 3, assignments=[[2], [1]])
        await one.coordinator.alter_topic_configs("a", [put("k", "v")])
        await one.coordinator.alter_broker_configs("2", [put("k", "v")])
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == one.coordinator.image.topics
        assert (one.host.epochs, two.host.epochs) == ({("a", 0): 0, ("a", 2): 0}, {("a", 1): 0})
        assert two.host.broker_configs == two.coordinator.image.broker_configs == {"2": {"k": "v"}}
        await two.coordinator.create_partitions("a", 4, assignments=[[1]])
        await two.coordinator.alter_topic_configs("a", [put("k", "w")])
        await two.coordinator.alter_broker_configs("1", [put("k", "v")])
        await trio.testing.wait_all_tasks_blocked()
        assert one.coordinator.image == two.coordinator.image
        assert one.host.epochs == {("a", 0): 0, ("a", 2): 0, ("a", 3): 0}
        nursery.cancel_scope.cancel()


async def test_a_broker_that_follows_late_ends_with_the_same_metadata() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await one.coordinator.create_topic("a", assignments={0: [2]})
        await one.coordinator.create_topic("b", assignments={0: [2]})
        await trio.testing.wait_all_tasks_blocked()
        two.store.lagging = True
        await one.coordinator.create_partitions("a", 2, assignments=[[2]])
        await one.coordinator.alter_topic_configs("a", [put("k", "v")])
        await one.coordinator.create_partitions("a", 3, assignments=[[2]])
        await one.coordinator.alter_topic_configs("b", [put("k", "v")])
        await one.coordinator.delete_topic("b")
        await one.coordinator.alter_broker_configs("1", [put("k", "v")])
        two.store.lagging = False
        ensemble.catch_up_all()
        await trio.testing.wait_all_tasks_blocked()
        assert two.coordinator.image.topics == one.coordinator.image.topics
        assert two.coordinator.image.broker_configs == one.coordinator.image.broker_configs
        assert two.host.epochs == {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
        nursery.cancel_scope.cancel()


async def test_the_host_is_configured_before_the_image_shows_it() -> None:
    class Looking(FakeHost):
        async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
            await super().configure(broker_configs)
            shown.append(dict(coordinator.image.broker_configs))

    shown: list[object] = []
    host = Looking()
    async with running(Machine(host=host)) as coordinator:
        await coordinator.alter_broker_configs("1", [put("k", "v")])
    assert shown == [{}]
