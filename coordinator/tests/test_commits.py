"""A multi is done once, whatever gets lost on the way."""

from __future__ import annotations

import pytest
import trio

from coordinator.metadata.commits import commit
from coordinator.metadata.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NodeExists,
    Put,
    SessionLost,
)
from coordinator.testing import FakeEnsemble, FakeStore, Loss


async def store_with_a() -> FakeStore:
    store = FakeEnsemble().connect()
    await store.multi([Create("/a", b"0")])
    return store


@pytest.mark.parametrize("loss", [Loss.NOTHING, Loss.REQUEST, Loss.REPLY])
async def test_once(loss: Loss) -> None:
    store = await store_with_a()
    store.script.append(loss)
    await commit(store, [Put("/a", b"1", -1), Create("/b", b"mine")])
    assert await store.get("/a") == Node(b"1", 1)
    assert await store.get("/b") == Node(b"mine", 0)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
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
