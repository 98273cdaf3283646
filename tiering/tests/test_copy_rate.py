"""The rate limit of uploads: order and spread."""

import pytest
import trio
import trio.testing

from tiering.upload.copy_rate import CopyRate


async def test_turn_without_a_limit_does_not_wait() -> None:
    rate, began_s = CopyRate(), trio.current_time()
    for _ in range(3):
        assert await rate.turn(10**12) == pytest.approx(0, abs=0.001)
    assert trio.current_time() == pytest.approx(began_s, abs=0.001)


async def test_all_copiers_share_one_rate_in_their_order() -> None:
    rate, began_s = CopyRate(lambda: 100), trio.current_time()
    begun: dict[str, float] = {}

    async def copy(name: str, size_bytes: int) -> None:
        assert await rate.turn(size_bytes) == size_bytes / 100
        begun[name] = trio.current_time() - began_s

    async with trio.open_nursery() as nursery:
        for name, size_bytes in (("a", 500), ("b", 300), ("c", 200)):
            nursery.start_soon(copy, name, size_bytes)
            await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
    assert begun == pytest.approx({"a": 0, "b": 5, "c": 8}, abs=0.01)
    assert list(begun) == ["a", "b", "c"]
    await trio.sleep(10)  # a quota that was not used is not saved up
    await rate.turn(100)
    await rate.turn(100)
    assert trio.current_time() - began_s == pytest.approx(8 + 10 + 1)


async def test_changed_rate_applies_to_a_waiting_copier() -> None:
    limits = [10]
    rate, began_s = CopyRate(lambda: limits[0]), trio.current_time()
    await rate.turn(1000)
    await trio.sleep(5.5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rate.turn, 10)
        await trio.sleep(0.2)
        limits[0] = 1000
    assert trio.current_time() - began_s == pytest.approx(6.7, abs=1)


async def test_cancelled_copier_takes_no_share_of_the_rate() -> None:
    rate, began_s = CopyRate(lambda: 100), trio.current_time()
    await rate.turn(100)
    with trio.move_on_after(0.5):
        await rate.turn(10**9)
    await rate.turn(1)
    assert trio.current_time() - began_s == pytest.approx(1)
