"""Probes of usable and unusable stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tiering.object_store import Content, StoreUnavailable
from tiering.probe import SKEW_MAX_MS, probe
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_000_000_000


def store() -> MemoryStore:
    return MemoryStore(lambda: NOW_MS)


async def test_a_good_store_keeps_nothing_of_it() -> None:
    good = store()
    assert await probe(good, "lake/", "name", NOW_MS) is None
    assert not good.objects


async def test_a_store_that_ignores_conditions_is_refused() -> None:
    bad = store()

    async def whatever(key: str, content: Content, *, if_absent: bool = False) -> None:
        await original(key, content)

    original, bad.put = bad.put, whatever  # type: ignore[method-assign]
    assert "If-None-Match" in (await probe(bad, "", "name", NOW_MS) or "")
    assert not bad.objects


def only(operation: Operation, fault: Fault) -> Callable[[Operation, str], Fault]:
    return lambda asked, _key: fault if asked is operation else HEALTHY


@pytest.mark.parametrize(
    ("operation", "fault", "expected"),
    [
        (Operation.PUT, Fault(is_refused=True), "refuses"),
        (Operation.GET, Fault(is_flipped=True), "does not return"),
        (Operation.GET, Fault(is_refused=True), "refuses"),
        (Operation.LIST, Fault(is_stale=True), "does not return"),
        (Operation.DELETE, Fault(is_refused=True), "refuses"),
    ],
)
async def test_probe_returns_the_fault_of_a_store(operation: Operation, fault: Fault, expected: str) -> None:
    bad = store()
    bad.fault = only(operation, fault)
    assert expected in (await probe(bad, "", "name", NOW_MS) or "")


async def test_a_store_that_is_away_is_no_bad_one() -> None:
    away = store()
    away.fault = only(Operation.PUT, Fault(is_lost=True))
    with pytest.raises(StoreUnavailable):
        await probe(away, "", "name", NOW_MS)


async def test_probe_finds_a_store_that_does_not_delete() -> None:
    bad = store()

    async def nothing(_key: str) -> None: ...

    bad.delete = nothing  # type: ignore[method-assign, assignment]
    assert await probe(bad, "", "name", NOW_MS) == "the store does not delete"


@pytest.mark.parametrize("sign", [-1, 1])
async def test_probe_finds_clocks_beyond_the_maximum_skew(sign: int) -> None:
    assert "301 s apart" in (await probe(store(), "", "name", NOW_MS + sign * (SKEW_MAX_MS + 1000)) or "")
    assert await probe(store(), "", "name", NOW_MS + sign * SKEW_MAX_MS) is None


async def test_probe_with_a_name_in_use_returns_a_problem() -> None:
    other = store()
    await other.put("probe/name", Content.of(b""))
    assert "does not carry out a request" in (await probe(other, "", "name", NOW_MS) or "")
