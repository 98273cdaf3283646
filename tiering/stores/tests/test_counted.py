"""Counts of a store, and when it is away."""

from __future__ import annotations

import pytest
import trio

from testkit.object_store_suite import Conformance
from tiering.object_store import Content, ContentUnreadable, ObjectExists, ObjectMissing, ObjectStore, StoreError
from tiering.stores.counted import ASK_INTERVAL_S, DONE, EXISTS, MISSING, REFUSED, UNAVAILABLE, UNREADABLE, CountedStore
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation

LOST, REFUSING = Fault(is_lost=True), Fault(is_refused=True)


@pytest.fixture
def store() -> ObjectStore:
    return CountedStore(MemoryStore())


class TestCounted(Conformance):
    """The conformance tests, through the counting store."""


def outcomes(counted: CountedStore, operation: str) -> dict[str, int]:
    return dict(counted.statistics.operations[operation].outcomes)


async def test_requests_are_counted_by_operation_and_outcome() -> None:
    below = MemoryStore()
    counted = CountedStore(below)
    await counted.put("a", Content.of(b"12345"), if_absent=True)
    with pytest.raises(ObjectExists):
        await counted.put("a", Content.of(b"1"), if_absent=True)
    with pytest.raises(ContentUnreadable):
        await counted.put("b", Content((b"1",), 0))
    assert outcomes(counted, "put") == {DONE: 1, EXISTS: 1, UNREADABLE: 1}
    assert await counted.get("a", 1, 3) == b"234"
    with pytest.raises(ObjectMissing):
        await counted.get("b")
    assert outcomes(counted, "get") == {DONE: 1, MISSING: 1}
    await counted.head("a")
    assert await counted.head("b") is None
    assert outcomes(counted, "head") == {DONE: 1, MISSING: 1}
    assert len(await counted.list_after("")) == 1
    await counted.delete("a")
    assert outcomes(counted, "delete") == outcomes(counted, "list") == {DONE: 1}
    assert (counted.statistics.sent_bytes, counted.statistics.received_bytes) == (5, 3)
    below.fault = lambda _operation, _key: LOST
    with pytest.raises(StoreError):
        await counted.get("a")
    below.fault = lambda _operation, _key: REFUSING
    with pytest.raises(StoreError):
        await counted.get("a")
    assert outcomes(counted, "get") == {DONE: 1, MISSING: 1, UNAVAILABLE: 1, REFUSED: 1}
    assert counted.statistics.operations["get"].failures == 2


async def test_latency_of_a_request_is_measured() -> None:
    counted = CountedStore(MemoryStore(fault=lambda _operation, _key: Fault(wait_s=2.0)))
    await counted.list_after("")
    assert counted.statistics.operations["list"].latency.sum_s == 2.0
    assert counted.statistics.operations["get"].latency.count == 0


async def test_cancelled_request_is_not_counted() -> None:
    counted = CountedStore(MemoryStore(fault=lambda _operation, _key: Fault(wait_s=2.0)))
    with trio.move_on_after(1):
        await counted.get("a")
    assert counted.statistics.operations["get"].latency.count == 0
    assert not counted.away_s


async def test_store_is_away_from_its_first_failure_until_its_next_reply() -> None:
    below = MemoryStore(fault=lambda operation, _key: Fault(wait_s=1.0, is_lost=operation is not Operation.HEAD))
    counted = CountedStore(below)
    assert counted.away_s == 0
    for _ in range(3):
        with pytest.raises(StoreError):
            await counted.get("a")
    assert counted.away_s == 3.0
    assert counted.last_error == "get a: no reply"
    with pytest.raises(ContentUnreadable):
        await counted.put("b", Content((b"1",), 0))
    assert counted.away_s > 0
    assert await counted.head("a") is None
    assert counted.away_s == 0


async def test_only_a_store_that_is_away_is_polled() -> None:
    below = MemoryStore()
    counted = CountedStore(below)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(counted.ask_while_away, "lake/")
        await trio.sleep(10 * ASK_INTERVAL_S)
        assert not below.requests[Operation.LIST]
        below.fault = lambda _operation, _key: LOST
        with pytest.raises(StoreError):
            await counted.head("a")
        await trio.sleep(10 * ASK_INTERVAL_S)
        assert counted.away_s == 10 * ASK_INTERVAL_S
        below.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(1.5 * ASK_INTERVAL_S)
        assert counted.away_s == 0
        asked = below.requests[Operation.LIST]
        await trio.sleep(10 * ASK_INTERVAL_S)
        assert below.requests[Operation.LIST] == asked
        nursery.cancel_scope.cancel()
