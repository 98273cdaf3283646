"""The same work for many items."""

from __future__ import annotations

import pytest
import trio

from tiering.object_store import Content, StoreUnavailable
from tiering.parallel import for_each, keys_below
from tiering.stores.memory import MemoryStore


async def test_all_keys_come_in_their_order() -> None:
    store = MemoryStore()
    keys = [f"a/{number:04d}" for number in range(2_500)]
    for key in [*reversed(keys), "b/1"]:
        await store.put(key, Content.of(b""))
    assert await keys_below(store, "a/") == keys
    assert await keys_below(store, "c/") == []


async def test_some_are_done_at_a_time() -> None:
    async def wait(_: int) -> None:
        await trio.sleep(1)

    began_s = trio.current_time()
    await for_each(range(9), wait, 4)
    assert trio.current_time() - began_s == pytest.approx(3)


@pytest.mark.parametrize(("stops", "tried"), [(False, 9), (True, 4)])
async def test_first_error_of_a_sweep_is_raised_unchanged(stops: bool, tried: int) -> None:
    done: list[int] = []

    async def fail(number: int) -> None:
        done.append(number)
        await trio.sleep(1 + number)
        raise StoreUnavailable(f"{number}")

    with pytest.raises(StoreUnavailable) as failed:
        await for_each(range(9), fail, 2, stops=stops)
    assert str(failed.value) == str(min(done[:2]))
    assert len(done) <= tried
    assert stops or len(done) == 9
