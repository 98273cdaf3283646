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


async def found(deps: MemoryDeps) -> list[Finding]:
    return await examine_tier(config(), deps.start_deps())


async def test_a_tier_that_is_fine_needs_no_word() -> None:
    deps = MemoryDeps()
    assert await found(deps) == []
    assert not deps.objects.objects
    assert await examine_tier(load({"log.dirs": "/data"})[0], deps.start_deps()) == []


@pytest.mark.parametrize(
    ("fault", "severity", "text"),
    [
        (Fault(is_refused=True), Severity.PROBLEM, "the store refuses"),
        (Fault(is_lost=True), Severity.WARNING, "it cannot be reached"),
    ],
)
async def test_refusing_store_is_problem_and_lost_store_is_warning(fault: Fault, severity: Severity, text: str) -> None:
    deps = MemoryDeps()
    deps.objects.fault = lambda _operation, _key: fault
    [one] = await found(deps)
    assert (one.severity, one.text.startswith(text)) == (severity, True)


async def test_a_store_that_ignores_conditions() -> None:
    deps = MemoryDeps()
    put = deps.objects.put

    async def put_unconditionally(key: str, content: Content, *, if_absent: bool = False) -> None:
        await put(key, content)

    deps.objects.put = put_unconditionally  # type: ignore[method-assign]
    [one] = await found(deps)
    assert "ignores If-None-Match" in one.text


async def test_a_clock_that_is_wrong() -> None:
    deps = MemoryDeps()
    deps.objects._now_ms = lambda: 0
    [one] = await found(deps)
    assert "clocks of this machine and the store are" in one.text


async def test_data_of_another_cluster() -> None:
    deps, _ = await lost()
    [one] = await found(deps)
    assert (one.severity, "has data of other clusters" in one.text) == (Severity.NOTE, True)
    await restored(deps)
    [one] = await found(deps)
    assert one.text == "the cluster was restored from there, 1 times so far"


async def test_store_that_refuses_a_later_list_request_is_a_problem() -> None:
    deps = MemoryDeps()
    listed = deps.objects.list_after

    async def refuse(prefix: str, after: str = "", count_max: int = 1000) -> object:
        if not prefix.endswith("probe/"):
            raise StoreRefused("no list")
        return await listed(prefix, after, count_max)

    deps.objects.list_after = refuse  # type: ignore[method-assign,assignment]
    [one] = await found(deps)
    assert (one.severity, one.text) == (Severity.PROBLEM, "no list")
    assert deps.objects.requests[Operation.LIST]
