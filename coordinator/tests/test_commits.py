"""A multi is done once, even if requests or replies are lost."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import trio

from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NodeExists,
    Operation,
    Put,
    SessionLost,
)
from coordinator.testing.fakes import FakeEnsemble, FakeStore, Loss


async def store_with_a() -> FakeStore:
    store = FakeEnsemble().connect()
    await store.multi([Create("/a", b"0")])
    return store


async def commit_all(store: FakeStore, *operations: Operation) -> None:
    await commit(store, operations)


@pytest.mark.parametrize("loss", [Loss.NOTHING, Loss.REQUEST, Loss.LATE, Loss.REPLY])
async def test_once(loss: Loss) -> None:
    store = await store_with_a()
    store.script.append(loss)
    await commit(store, [Put("/a", b"1", -1), Create("/b", b"mine")])
    assert await store.get("/a") == Node(b"1", 1)
    assert await store.get("/b") == Node(b"mine", 0)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.LATE, Loss.REPLY])
async def test_deleting_once(loss: Loss) -> None:
    store = await store_with_a()
    store.script.append(loss)
    await commit(store, [Check("", 0), Delete("/a", 0)])
    assert await store.children("") == []


async def test_after_a_lost_request_someone_else_may_have_won() -> None:
    store = await store_with_a()
    other = store.ensemble.connect()
    store.script.append(Loss.REQUEST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.multi, [Create("/b", b"theirs")])
        with pytest.raises(NodeExists):
            await commit(store, [Create("/b", b"mine")])
    assert (await store.get("/b")).value == b"theirs"


async def test_the_state_of_a_deposed_leader_does_not_decide_the_outcome_of_a_write() -> None:
    """The deposed leader answers syncs, and shows neither our write nor the later one that fenced us off."""
    store = await store_with_a()
    other = store.ensemble.connect()
    store.has_deposed_leader = True
    store.script.append(Loss.REPLY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit_all, store, Check("/a", 0), Create("/b", b"mine"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await store.sync()
        assert await store.children("") == ["a"]
        await other.multi([Put("/a", b"1", 0)])
    assert (await store.get("/b")).value == b"mine"


@pytest.mark.parametrize("loss", [Loss.REPLY, Loss.REQUEST])
async def test_the_witness_decides_when_the_fence_fails_afterwards(loss: Loss) -> None:
    store = await store_with_a()
    other = store.ensemble.connect()

    async def fence() -> None:
        await trio.sleep(0.01)
        await other.multi([Put("/a", b"1", 0)])

    store.script.append(loss)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fence)
        with nullcontext() if loss is Loss.REPLY else pytest.raises(BadVersion):
            await commit(store, [Check("/a", 0), Create("/b", b"mine")])
    assert await store.exists("/b") == (loss is Loss.REPLY)


async def test_a_node_that_another_session_created_does_not_prove_a_write() -> None:
    store = await store_with_a()
    other = store.ensemble.connect()
    store.script.append(Loss.REQUEST)
    await other.multi([Create("/b", b"theirs")])
    with pytest.raises(NodeExists):
        await commit(store, [Put("/a", b"1", 0), Create("/b", b"mine")])
    assert await store.get("/a") == Node(b"0", 0)


async def test_a_deletion_succeeds_when_its_node_is_gone_though_a_check_fails_afterwards() -> None:
    store = await store_with_a()
    other = store.ensemble.connect()
    await store.multi([Create("/gone", b"")])
    store.script.append(Loss.REPLY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit_all, store, Check("/a", 0), Delete("/gone"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await other.multi([Put("/a", b"1", 0)])
    assert await store.children("") == ["a"]


async def test_a_late_multi_changes_nothing_after_its_retry() -> None:
    store = await store_with_a()
    operations: list[Operation] = [Put("/a", b"1", 0), Create("/b", b"mine")]
    store.script.append(Loss.LATE)
    await commit(store, operations)
    with pytest.raises(BadVersion):
        store.ensemble.order(operations, store.session_id)
    assert await store.get("/a") == Node(b"1", 1)


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_late_multi_and_its_retry_take_effect_once(arrives: bool) -> None:
    store = await store_with_a()
    store.script.append(Loss.LATE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit_all, store, Put("/a", b"1", 0), Create("/b", b"mine"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        if arrives:
            store.land()
        store.late.clear()
    assert (await store.get("/a"), await store.get("/b")) == (Node(b"1", 1), Node(b"mine", 0))


async def test_a_conflict_is_the_callers() -> None:
    store = await store_with_a()
    with pytest.raises(BadVersion):
        await commit(store, [Check("/a", 7), Create("/b", b"")])


async def test_no_answer_in_time_is_an_unknown_outcome() -> None:
    store = await store_with_a()
    store.script.append(Loss.REPLY_AND_LINE)
    with pytest.raises(ConnectionLost):
        await commit(store, [Create("/b", b"mine")])
    store.disconnected = False
    await store.sync()
    assert (await store.get("/b")).value == b"mine"


async def test_requests_that_are_lost_for_ever_end_in_an_error() -> None:
    store = await store_with_a()
    store.script.extend([Loss.REQUEST] * 100)
    with pytest.raises(ConnectionLost):
        await commit(store, [Create("/b", b"mine")])
    assert trio.current_time() < 60


async def test_a_lost_session_is_the_callers() -> None:
    store = await store_with_a()
    store.ensemble.expire(store)
    with pytest.raises(SessionLost):
        await commit(store, [Create("/b", b"mine")])
