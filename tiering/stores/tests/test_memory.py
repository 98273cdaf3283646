"""The store in memory, and its faults."""

from __future__ import annotations

import pytest
import trio

from testkit.object_store_suite import Conformance
from tiering.object_store import Content, ObjectStore, StoreRefused, StoreUnavailable
from tiering.stores.memory import Fault, MemoryStore, Operation


@pytest.fixture
def store() -> ObjectStore:
    return MemoryStore()


class TestMemory(Conformance):
    pass


async def test_a_request_that_gets_lost_has_no_effect() -> None:
    store = MemoryStore(fault=lambda _operation, _key: Fault(is_lost=True))
    with pytest.raises(StoreUnavailable):
        await store.put("a", Content.of(b"x"))
    assert not store.objects


async def test_a_reply_that_gets_lost_leaves_the_effect() -> None:
    store = MemoryStore(fault=lambda _operation, _key: Fault(is_reply_lost=True))
    with pytest.raises(StoreUnavailable):
        await store.put("a", Content.of(b"x"))
    assert set(store.objects) == {"a"}


async def test_a_request_takes_effect_late() -> None:
    async with trio.open_nursery() as nursery:
        store = MemoryStore(fault=lambda _operation, _key: Fault(late_s=10.0), nursery=nursery)
        with pytest.raises(StoreUnavailable):
            await store.put("a", Content.of(b"x"))
        assert not store.objects
        await trio.sleep(11)
        assert set(store.objects) == {"a"}


async def test_memory_store_with_a_fault_returns_short_or_flipped_bytes() -> None:
    store = MemoryStore()
    await store.put("a", Content.of(b"0123"))
    store.fault = lambda _operation, _key: Fault(is_short=True)
    assert await store.get("a") == b"01"
    store.fault = lambda _operation, _key: Fault(is_flipped=True)
    assert await store.get("a") == b"0133"


async def test_a_listing_may_lag_behind() -> None:
    store = MemoryStore()
    await store.put("a", Content.of(b"x"))
    await store.put("b", Content.of(b"x"))
    store.fault = lambda _operation, _key: Fault(is_stale=True)
    assert [one.key for one in await store.list_after("")] == ["a"]


async def test_a_store_may_refuse() -> None:
    store = MemoryStore(fault=lambda operation, _key: Fault(is_refused=operation is Operation.GET))
    await store.put("a", Content.of(b"x"))
    with pytest.raises(StoreRefused):
        await store.get("a")
    assert store.requests[Operation.PUT] == store.requests[Operation.GET] == 1


async def test_a_torn_put_leaves_the_beginning_of_an_object() -> None:
    store = MemoryStore(fault=lambda _operation, _key: Fault(is_torn=True))
    with pytest.raises(StoreUnavailable):
        await store.put("a", Content.of(b"right"))
    assert store.objects["a"][0] == b"ri"
