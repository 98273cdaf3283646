"""A broker whose metadata are away goes on leading, and refuses changes in time (RULES M2)."""

from __future__ import annotations

from typing import Any

import pytest
import structlog.testing
import trio

from coordinator.api import BrokerState
from coordinator.cluster_manager import DECIDE_TIMEOUT_S
from coordinator.errors import CannotStart, MetadataRolledBack, MetadataUnavailable
from coordinator.membership.controlled_shutdown import LEAVE_TIMEOUT_S, REDIRECTING_S
from coordinator.metadata import failures
from coordinator.metadata.change_log import Overtaken
from coordinator.metadata.failures import PAUSE_MAX_S, Attempts, MetadataFailures
from coordinator.metadata.unlogged_nodes import encode_cluster
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import (
    ConnectionLost,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotAllowed,
    Operation,
    Put,
)
from coordinator.requests.decisions import Decisions
from coordinator.testing.fakes import FakeEnsemble
from coordinator.tests.test_cluster_manager import Member, coordinator_on, member, two_brokers


async def test_a_change_is_refused_within_its_time_while_the_store_is_silent() -> None:
    """A client that waits for longer gives its request up, and does not learn the outcome."""
    async with trio.open_nursery() as nursery:
        one = await member(nursery, FakeEnsemble(), 1)
        one.store.silent = True
        for validate_only in (False, True):
            began_s = trio.current_time()
            with pytest.raises(MetadataUnavailable):
                await one.coordinator.create_topic("b", validate_only=validate_only)
            assert trio.current_time() - began_s == pytest.approx(DECIDE_TIMEOUT_S)
        nursery.cancel_scope.cancel()


async def test_a_write_under_way_when_the_store_goes_silent_is_refused_within_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with trio.open_nursery() as nursery:
        one = await member(nursery, FakeEnsemble(), 1)
        decide = Decisions.creation

        def goes_silent(*arguments: Any) -> Any:
            one.store.silent = True
            return decide(*arguments)

        monkeypatch.setattr(Decisions, "creation", goes_silent)
        began_s = trio.current_time()
        with pytest.raises(MetadataUnavailable):
            await one.coordinator.create_topic("b")
        assert trio.current_time() - began_s == pytest.approx(DECIDE_TIMEOUT_S)
        nursery.cancel_scope.cancel()


async def test_producer_ids_are_refused_within_their_time_while_the_store_is_silent() -> None:
    async with trio.open_nursery() as nursery:
        one = await member(nursery, FakeEnsemble(), 1)
        one.store.silent = True
        began_s = trio.current_time()
        with pytest.raises(MetadataUnavailable):
            await one.coordinator.new_producer_id()
        assert trio.current_time() - began_s == pytest.approx(DECIDE_TIMEOUT_S)
        nursery.cancel_scope.cancel()


async def tree_of(store: MetadataStore, path: str = "") -> dict[str, bytes]:
    """All nodes below, parents first."""
    found: dict[str, bytes] = {}
    for name in await store.children(path):
        below = f"{path}/{name}"
        found |= {below: (await store.get(below)).value, **await tree_of(store, below)}
    return found


async def wipe(store: MetadataStore, *roots: str) -> dict[str, bytes]:
    """Delete these nodes with all below them, as `deleteall` does; return their values."""
    every = await tree_of(store)
    gone = {
        path: value for path, value in every.items() if any(f"{path}/".startswith(f"{root}/") for root in roots or [""])
    }
    for path in reversed([*gone]):
        await store.multi([Delete(path)])
    return gone


async def still_leads(broker: Member) -> None:
    """Check that the broker still leads, with its topics and epochs as before, and refuses changes."""
    await trio.sleep(60)
    assert set(broker.coordinator.image.topics) == {"a"}
    assert broker.host.epochs == {("a", 0): 0, ("a", 1): 0}
    with pytest.raises(MetadataUnavailable):
        await broker.coordinator.create_topic("b")


@pytest.mark.parametrize(
    "roots",
    [
        (),
        (paths.CHANGES,),
        (paths.CLUSTER, paths.CHANGES),
        (paths.CHANGES, paths.BROKERS),
        (paths.TOPICS, paths.CHANGES, paths.CONTROLLER_EPOCH),
    ],
)
async def test_brokers_keep_leading_while_metadata_are_deleted_and_recover_afterwards(
    roots: tuple[str, ...],
) -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")
        operator = ensemble.connect()
        gone = await wipe(operator, *roots)
        await still_leads(one)
        assert one.coordinator.metadata_failures.counts["missing"] > 0
        for path, value in gone.items():
            await operator.multi([Create(path, value)])
        await trio.sleep(60)
        assert set(one.coordinator.image.topics) == {"a"}
        nursery.cancel_scope.cancel()


async def test_topics_that_are_gone_without_a_change_are_not_taken_for_deleted() -> None:
    """A deletion of the topics would delete their data."""
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")
        await wipe(ensemble.connect(), paths.topic("a"))
        with pytest.raises(MetadataUnavailable, match="/topics/a is missing"):
            await one.coordinator.delete_topic("a")
        await trio.sleep(60)
        assert set(one.coordinator.image.topics) == {"a"}
        assert one.host.epochs == {("a", 0): 0, ("a", 1): 0}
        nursery.cancel_scope.cancel()


async def test_a_controller_whose_node_is_deleted_fences_no_broker_and_creates_the_node_again() -> None:
    """The session lasts: an operator, or a script, deletes the node, and those of the other brokers with it."""
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, ensemble)
        operator, gone = ensemble.connect(), [paths.broker(1), paths.broker(2), paths.BROKERS]
        await operator.multi([Delete(path) for path in gone])
        await trio.sleep(60)
        for each in (one, two):
            assert set(each.coordinator.image.brokers) == {1, 2}
        assert one.coordinator.metadata_failures.counts["missing"] > 0
        await operator.multi([Create(paths.BROKERS, b"")])
        await trio.sleep(60)
        assert await operator.children(paths.BROKERS) == ["1", "2"]
        nursery.cancel_scope.cancel()


async def test_brokers_whose_own_nodes_are_deleted_create_them_again_and_keep_their_epochs() -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, ensemble)
        lives = {each.coordinator.broker_epoch for each in (one, two)}
        operator = ensemble.connect()
        await operator.multi([Delete(paths.broker(1)), Delete(paths.broker(2))])
        await trio.sleep(60)
        assert await operator.children(paths.BROKERS) == ["1", "2"]
        assert {each.coordinator.broker_epoch for each in (one, two)} == lives
        nursery.cancel_scope.cancel()


def malformed(image_version: int) -> dict[str, Operation]:
    return {
        "garbled": Create(paths.change(image_version + 1), b"not a change"),
        "other format": Create(paths.change(image_version + 1), b'{"v":9}'),
        "no number": Create(f"{paths.CHANGES}/zzz", b""),
        "other kind": Create(paths.change(image_version + 1), change_of_node("/nowhere", b'{"v":1}')),
        "no topic id": Create(paths.change(image_version + 1), change_of_node("/partitions/x/0", b'{"v":1}')),
        "bad node": Create(paths.change(image_version + 1), change_of_node("/topics/b", b'{"v":1,"x":2}')),
    }


def change_of_node(path: str, value: bytes) -> bytes:
    return b'{"v":2,"writer":9,"nonce":"%s","nodes":[["%s",0,%s]],"deleted":[]}' % (b"0" * 32, path.encode(), value)


@pytest.mark.parametrize("kind", malformed(0))
async def test_brokers_keep_leading_while_metadata_are_malformed_and_recover_afterwards(kind: str) -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, ensemble)
        await one.coordinator.create_topic("a", assignments={0: [1], 1: [1]})
        await two.coordinator.wait_for_image_after(one.coordinator.image.version - 1)
        operator, bad = ensemble.connect(), malformed(one.coordinator.image.version)[kind]
        with structlog.testing.capture_logs() as lines:
            await operator.multi([bad])
            await still_leads(one)
        for each in (one, two):
            assert each.coordinator.metadata_failures.counts["malformed"] > 1
        logged = [line for line in lines if line.get("reason") == "malformed"]
        assert {line["task"] for line in logged} <= {"follower", "controller"}
        assert len(logged) <= 4, "a line each time is a flood"
        assert all(bad.path in line["error"] or kind in {"other kind", "no topic id", "bad node"} for line in logged)
        await operator.multi([Delete(bad.path)])
        await trio.sleep(PAUSE_MAX_S)
        await two.coordinator.create_topic("b")
        await one.coordinator.wait_for_image_after(two.coordinator.image.version - 1)
        assert set(one.coordinator.image.topics) == {"a", "b"}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["garbled", "other format", "no number"])
async def test_malformed_metadata_refuse_a_start_with_a_line_that_names_the_node(kind: str) -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        bad = malformed(one.coordinator.image.version)[kind]
        nursery.cancel_scope.cancel()
    await one.store.close()
    store = ensemble.connect()
    await store.multi([bad])
    with pytest.raises(CannotStart, match=f"^the metadata node {bad.path} (is damaged: |has the format 9)"):
        await coordinator_on(store, one.host).start()


@pytest.mark.parametrize("gone", [paths.CHANGES, paths.CONTROLLER_EPOCH, paths.MEMBERS])
async def test_a_node_that_is_missing_refuses_a_start_with_a_line_that_names_it(gone: str) -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        nursery.cancel_scope.cancel()
    await one.store.close()
    store = ensemble.connect()
    await wipe(store, gone)
    with pytest.raises(CannotStart, match=f"^the metadata node {gone} is missing$"):
        await coordinator_on(store, one.host).start()


async def test_metadata_that_may_not_be_read_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")

        async def forbidden(path: str, wake: object = None) -> list[str]:
            await trio.lowlevel.checkpoint()
            raise NotAllowed(path)

        monkeypatch.setattr(one.store, "children", forbidden)
        one.store.flap()
        await still_leads(one)
        assert one.coordinator.metadata_failures.counts["not_allowed"] > 1
        nursery.cancel_scope.cancel()


# A broker that leaves meanwhile


async def test_a_leaving_broker_that_lost_its_connection_hands_over_after_it_reconnects() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        await one.coordinator.create_topic("a", assignments={0: [2, 1]})
        two.store.disconnected = True
        nursery.start_soon(two.coordinator.leave)
        await trio.sleep(3)
        assert one.coordinator.image.members[2].state is BrokerState.SERVING
        two.store.disconnected = False
        await trio.sleep(1)
        image = one.coordinator.image
        assert (image.members[2].state, image.topics["a"].partitions[0].leader) == (BrokerState.LEAVING, 1)
        nursery.cancel_scope.cancel()


async def test_a_leaving_broker_that_lost_its_session_registers_as_leaving_and_never_serves() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = await two_brokers(nursery, ensemble)
        await one.coordinator.create_topic("both", assignments={0: [2, 1]})
        await one.coordinator.create_topic("alone", assignments={0: [2]})
        states: list[BrokerState] = []
        nursery.start_soon(two.coordinator.leave)
        await trio.sleep(0.5)
        ensemble.expire(two.store)
        for _ in range(8):
            with trio.fail_after(60):
                image = await one.coordinator.wait_for_image_after(one.coordinator.image.version)
            states.append(image.members[2].state)
            if states[-1] is BrokerState.LEAVING:
                break
        assert BrokerState.SERVING not in states
        assert states[-1] is BrokerState.LEAVING
        await trio.sleep(1)
        assert one.coordinator.image.topics["both"].partitions[0].leader == 1
        nursery.cancel_scope.cancel()


async def test_a_broker_leaves_within_its_timeout_while_the_store_is_silent() -> None:
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, FakeEnsemble())
        await one.coordinator.create_topic("a", assignments={0: [2, 1]})
        two.store.silent = True
        with trio.fail_after(LEAVE_TIMEOUT_S + REDIRECTING_S + 0.1):
            await two.coordinator.leave()
        nursery.cancel_scope.cancel()


# A store that was rolled back, or wiped and used by another cluster


async def test_a_rolled_back_store_is_recognised_and_no_change_is_written_over_the_gap() -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")
        operator = ensemble.connect()
        newest = one.coordinator.image.version
        node = await operator.get(paths.change(newest))
        await operator.multi([Delete(paths.change(newest))])
        await still_leads(one)
        assert one.coordinator.metadata_failures.counts["rolled_back"] > 0
        assert not await operator.exists(paths.change(newest + 1))
        await operator.multi([Create(paths.change(newest), node.value)])
        await trio.sleep(PAUSE_MAX_S)
        await one.coordinator.create_topic("b")
        nursery.cancel_scope.cancel()


async def test_a_change_of_the_same_number_with_another_value_is_another_history() -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")
        operator = ensemble.connect()
        newest = one.coordinator.image.version
        other = change_of_node(paths.topic("c"), b'{"v":1}')
        await operator.multi([Delete(paths.change(newest)), Create(paths.change(newest), other)])
        await operator.multi([Create(paths.change(newest + 1), other)])
        await still_leads(one)
        assert one.coordinator.metadata_failures.counts["rolled_back"] > 0
        assert not await operator.exists(paths.change(newest + 2))
        nursery.cancel_scope.cancel()


async def test_the_number_of_a_change_is_used_once() -> None:
    """Both decide on one image, about different nodes: the second finds the number taken, and replaces nothing."""
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, ensemble)
        await one.coordinator.wait_for_image_after(two.coordinator.image.version - 1)
        log, image = two.coordinator._changes, two.coordinator._changes.image
        two.store.lagging = True
        await one.coordinator.create_topic("a")
        first = await ensemble.connect().get(paths.change(image.version + 1))
        with pytest.raises(Overtaken):
            await log.commit(image, [], [Create(paths.FEATURES, b'{"v":1,"levels":{}}')])
        assert await ensemble.connect().get(paths.change(image.version + 1)) == first
        nursery.cancel_scope.cancel()


async def test_a_server_that_lags_behind_is_not_taken_for_a_store_that_was_rolled_back() -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one, two = await two_brokers(nursery, ensemble)
        two.store.lagging = True
        await one.coordinator.create_topic("a")
        two.store.flap()
        await trio.sleep(60)
        assert two.coordinator.metadata_failures.counts["rolled_back"] == 0
        nursery.cancel_scope.cancel()


async def test_a_store_that_another_cluster_has_come_to_use_is_not_followed() -> None:
    ensemble = FakeEnsemble()
    async with trio.open_nursery() as nursery:
        one = await member(nursery, ensemble, 1)
        await one.coordinator.create_topic("a")
        operator = ensemble.connect()
        version = (await operator.get(paths.CLUSTER)).version
        await operator.multi([Put(paths.CLUSTER, encode_cluster("another"), version)])
        with pytest.raises(MetadataRolledBack, match="holds the cluster another"):
            await one.coordinator._changes._load(one.coordinator.image.cluster_id)
        nursery.cancel_scope.cancel()


# The attempts of a task


async def test_a_failure_is_logged_once_and_tried_again_after_longer_and_longer_pauses() -> None:
    failures = MetadataFailures()
    attempts, began_s = Attempts(failures, "a task"), trio.current_time()
    with structlog.testing.capture_logs() as lines:
        for _ in range(8):
            await attempts.pause(NoNode("/changes"))
        assert trio.current_time() - began_s == pytest.approx(0.5 + 1 + 2 + 4 + 8 + 3 * PAUSE_MAX_S)
        attempts.succeeded()
        attempts.succeeded()
    assert [(line["event"], line.get("error")) for line in lines] == [
        ("metadata unusable", "the metadata node /changes is missing"),
        ("metadata usable again", None),
    ]
    assert failures.counts["missing"] == 8


async def test_a_lost_connection_is_tried_again_at_the_same_pace() -> None:
    attempts, began_s = Attempts(MetadataFailures(), "a task"), trio.current_time()
    for _ in range(10):
        await attempts.pause(ConnectionLost())
    assert trio.current_time() - began_s == pytest.approx(10 * failures.PAUSE_S)


def test_each_reason_is_counted_from_the_beginning() -> None:
    failures = MetadataFailures()
    assert failures.counts == dict.fromkeys(
        ["unavailable", "missing", "not_allowed", "rolled_back", "malformed", "other"], 0
    )
    assert failures.note(NodeExists("/x")) == "other"
