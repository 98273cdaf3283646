"""Findings of `kafkawire doctor` about the remote tier: one clear line for each problem."""

from __future__ import annotations

import pytest

from kafkawire.config.broker_config import load
from kafkawire.process.doctor import Finding, Severity
from kafkawire.process.tests.test_restoration import config, lost, restored
from kafkawire.process.tier_findings import examine_tier
from kafkawire.testing import MemoryDeps
from tiering.object_store import Content, StoreRefused
from tiering.stores.memory import Fault, Operation


async def found(world: MemoryDeps) -> list[Finding]:
    return await examine_tier(config(), world.surroundings())


async def test_a_tier_that_is_fine_needs_no_word() -> None:
    world = MemoryDeps()
    assert await found(world) == []
    assert not world.objects.objects
    assert await examine_tier(load({"log.dirs": "/data"})[0], world.surroundings()) == []


@pytest.mark.parametrize(
    ("fault", "severity", "text"),
    [
        (Fault(is_refused=True), Severity.PROBLEM, "the store refuses"),
        (Fault(is_lost=True), Severity.WARNING, "it cannot be reached"),
    ],
)
async def test_refusing_store_is_problem_and_lost_store_is_warning(fault: Fault, severity: Severity, text: str) -> None:
    world = MemoryDeps()
    world.objects.fault = lambda _operation, _key: fault
    [one] = await found(world)
    assert (one.severity, one.text.startswith(text)) == (severity, True)


async def test_a_store_that_ignores_conditions() -> None:
    world = MemoryDeps()
    put = world.objects.put

    async def whatever(key: str, content: Content, *, if_absent: bool = False) -> None:
        await put(key, content)

    world.objects.put = whatever  # type: ignore[method-assign]
    [one] = await found(world)
    assert "ignores If-None-Match" in one.text


async def test_a_clock_that_is_wrong() -> None:
    world = MemoryDeps()
    world.objects._now_ms = lambda: 0
    [one] = await found(world)
    assert "clocks of this machine and the store are" in one.text


async def test_data_of_another_cluster() -> None:
    world, _ = await lost()
    [one] = await found(world)
    assert (one.severity, "has data of other clusters" in one.text) == (Severity.NOTE, True)
    await restored(world)
    [one] = await found(world)
    assert one.text == "the cluster was restored from there, 1 times so far"


async def test_store_that_refuses_a_later_list_request_is_a_problem() -> None:
    world = MemoryDeps()
    listed = world.objects.list_after

    async def refuse(prefix: str, after: str = "", count_max: int = 1000) -> object:
        if not prefix.endswith("probe/"):
            raise StoreRefused("no list")
        return await listed(prefix, after, count_max)

    world.objects.list_after = refuse  # type: ignore[method-assign,assignment]
    [one] = await found(world)
    assert (one.severity, one.text) == (Severity.PROBLEM, "no list")
    assert world.objects.requests[Operation.LIST]
