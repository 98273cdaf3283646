"""A cache whose disk hangs answers in bounded time, and is empty when the disk is back."""

from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.state.bounded_cache import ANSWER_TIMEOUT_S, BoundedCache
from coordinator.state.cache import Checkpoint, PartitionChange
from coordinator.state.leveldb_cache import open_state_cache
from coordinator.testing.fakes import SimulatedStateCaches, run_inline

TOPIC_ID = bytes(range(16))


def change(partition: int, value: bytes = b"v") -> PartitionChange:
    return PartitionChange(partition, Checkpoint(TOPIC_ID, 1, 5, 5), {b"k": value})


async def opened(caches: SimulatedStateCaches) -> BoundedCache:
    return BoundedCache(await caches.open(Path("/view")), "__consumer_offsets")


async def test_calls_take_effect_in_the_order_in_which_they_were_made() -> None:
    cache = await opened(SimulatedStateCaches())
    await cache.save([change(0), change(1)])
    cache.discard_soon(0)
    assert await cache.load(0) is None
    loaded = await cache.load(1)
    assert loaded is not None
    assert list(loaded[1]) == [(b"k", b"v")]
    await cache.discard(1)
    assert await cache.load(1) is None


async def test_a_call_that_was_cancelled_takes_effect() -> None:
    caches = SimulatedStateCaches()
    cache = await opened(caches)
    caches.hang()
    with trio.move_on_after(1):
        await cache.save([change(0)])
    caches.answer()
    assert await cache.load(0) is not None


async def test_a_slow_disk_is_waited_for_as_long_as_it_makes_progress() -> None:
    caches = SimulatedStateCaches()
    cache = await opened(caches)
    await cache.save([change(number) for number in range(5)])
    caches.hang()
    found = list[int]()

    async def load(number: int) -> None:
        if await cache.load(number) is not None:
            found.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(load, number)
        for _ in range(5):
            await trio.sleep(ANSWER_TIMEOUT_S * 0.9)
            caches.answer()
            await trio.lowlevel.checkpoint()
            caches.hang()
        caches.answer()
    assert sorted(found) == list(range(5))


async def test_a_cache_that_does_not_answer_is_given_up_and_dropped_when_its_disk_is_back() -> None:
    caches = SimulatedStateCaches()
    cache = await opened(caches)
    await cache.save([change(0)])
    caches.hang()
    started_s = trio.current_time()
    cache.discard_soon(1)
    assert await cache.load(0) is None
    assert trio.current_time() - started_s == ANSWER_TIMEOUT_S
    await cache.save([change(0)])
    assert await cache.load(0) is None
    cache.discard_soon(0)
    await cache.close()
    assert trio.current_time() - started_s == ANSWER_TIMEOUT_S, "nothing waits for it again"
    caches.answer()
    await wait_all_tasks_blocked()
    again = await opened(caches)
    assert await again.load(0) is None, "discards are missing from what the disk has"
    await cache.save([change(0)])
    assert await again.load(0) is None


async def test_discards_that_wait_for_a_hanging_disk_are_bounded() -> None:
    caches = SimulatedStateCaches()
    cache = await opened(caches)
    caches.hang()
    for _ in range(1000):
        cache.discard_soon(0)
        await trio.sleep(1)
    assert len(cache._jobs) <= ANSWER_TIMEOUT_S
    caches.answer()


@pytest.mark.parametrize("is_real", [True, False])
async def test_a_dropped_cache_is_empty_when_it_is_opened_again(tmp_path: Path, *, is_real: bool) -> None:
    caches = SimulatedStateCaches()

    async def open_it() -> BoundedCache:
        directory = tmp_path / "view"
        cache = await open_state_cache(directory, run_inline) if is_real else await caches.open(directory)
        return BoundedCache(cache, "__consumer_offsets")

    cache = await open_it()
    await cache.save([change(0)])
    await cache.drop()
    assert await cache.load(0) is None
    await cache.save([change(0)])
    cache = await open_it()
    assert await cache.load(0) is None
    await cache.save([change(0)])
    await cache.close()
    assert await (await open_it()).load(0) is not None
