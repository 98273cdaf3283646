"""A request for cold segments waits no longer than its timeout, whatever becomes of the searches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from kafkawire.requests.cold_searches import SEARCHES_MAX, ColdSearches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

TIMEOUT_S = 30


class Searching:
    """Fake searches that take `n` seconds and find `n`; `started` and `ended` list these numbers."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.cold = ColdSearches(nursery, lambda: TIMEOUT_S * 1000)
        self.started: list[float] = []
        self.ended: list[float] = []

    async def search(self, takes_s: float) -> float:
        self.started.append(takes_s)
        with trio.CancelScope(shield=True):  # a request to a store cannot be cancelled
            await trio.sleep(takes_s)
        self.ended.append(takes_s)
        return takes_s

    async def perform(self, *take_s: float, timeout_ms: int = 0) -> list[float | None]:
        return await self.cold.perform([partial(self.search, one) for one in take_s], timeout_ms)


@pytest.fixture
async def nursery() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as opened:
        yield opened


@pytest.fixture
async def searching(nursery: trio.Nursery) -> Searching:
    return Searching(nursery)


async def test_all_are_done_at_once(searching: Searching) -> None:
    began_s = trio.current_time()
    assert await searching.perform(3, 1, 2) == [3, 1, 2]
    assert trio.current_time() - began_s == 3
    assert await searching.perform() == []


@pytest.mark.parametrize(("timeout_ms", "waited_s"), [(0, TIMEOUT_S), (-1, TIMEOUT_S), (1500, 1.5), (45_000, 45)])
async def test_long_search_returns_none_at_its_timeout(searching: Searching, timeout_ms: int, waited_s: float) -> None:
    """The other results are returned in time; the long search goes on."""
    began_s = trio.current_time()
    assert await searching.perform(1, 1000, timeout_ms=timeout_ms) == [1, None]
    assert trio.current_time() - began_s == waited_s
    await trio.sleep(1000)
    assert searching.ended == [1, 1000]


async def test_search_that_has_not_begun_in_time_is_given_up(searching: Searching, nursery: trio.Nursery) -> None:
    nursery.start_soon(searching.perform, *[100] * SEARCHES_MAX)
    await trio.sleep(1)
    assert await searching.perform(1) == [None]
    with trio.move_on_after(1):  # a cancelled request gives its search up, too
        await searching.perform(2)
    assert await searching.perform(3, timeout_ms=100_000) == [3]
    assert searching.started == [100] * SEARCHES_MAX + [3]


async def test_failed_search_raises_in_its_request_only_while_the_request_waits(searching: Searching) -> None:
    async def fail() -> float:
        await trio.sleep(1)
        raise RuntimeError("of a test")

    began_s = trio.current_time()
    searches: list[Callable[[], Awaitable[float]]] = [fail, partial(searching.search, 10)]
    with pytest.raises(RuntimeError, match="of a test"):
        await searching.cold.perform(searches)
    assert trio.current_time() - began_s == 1
    assert await searching.cold.perform([fail], 500) == [None]
    await trio.sleep(1)  # a failure without a waiting request ends nothing
