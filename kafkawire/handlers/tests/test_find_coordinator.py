"""FindCoordinator: groups and transactional ids have a coordinator; other keys get an error with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.errors import CoordinatorNotAvailable
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.tests.harness import NODE_ID, Broker, open_handlers

REFUSALS = [(2, 42), (9, 42)]


@pytest.mark.parametrize(("key_type", "code"), REFUSALS)
async def test_each_coordinator_key_gets_its_own_error(key_type: int, code: int) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
    async with open_handlers() as real:
        response = await real.ask(request, 4)
    assert [(one.key, one.error_code, one.node_id) for one in response.coordinators] == [
        ("a", code, -1),
        ("b", code, -1),
    ]
    assert all(one.error_message for one in response.coordinators)


@pytest.mark.parametrize(("key_type", "code"), REFUSALS)
async def test_a_single_key_before_version_4(key_type: int, code: int) -> None:
    async with open_handlers() as real:
        response = await real.ask(FindCoordinatorRequest(key="a", key_type=key_type), 3)
    assert (response.error_code, response.host, response.port, response.coordinators) == (code, "", -1, [])


async def ask_for(broker: Broker, version: int, key_type: int = 0) -> tuple[Any, ...]:
    if version < 4:
        one = await broker.ask(FindCoordinatorRequest(key="a", key_type=key_type), version)
    else:
        request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=key_type)
        (one,) = (await broker.ask(request, version)).coordinators
        assert one.key == "a"
    return one.error_code, one.node_id, one.host, one.port


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_of_a_group(version: int) -> None:
    async with open_handlers() as real:
        assert await ask_for(real, version) == (0, NODE_ID, "broker.example", 9092)
        assert real.groups.calls == [("coordinator_of", "a")]


@pytest.mark.parametrize("version", range(1, 7))
async def test_the_coordinator_of_a_transactional_id(version: int) -> None:
    async with open_handlers() as real:
        assert await ask_for(real, version, key_type=1) == (0, NODE_ID, "broker.example", 9092)
        assert real.transactions.calls == [("coordinator_of", "a")]
        real.transactions.coordinator = CoordinatorNotAvailable()
        assert await ask_for(real, version, key_type=1) == (15, -1, "", -1)


@pytest.mark.parametrize("version", [0, 3, 6])
async def test_a_group_that_has_none(version: int) -> None:
    async with open_handlers() as real:
        real.groups.coordinator = CoordinatorNotAvailable()
        assert await ask_for(real, version) == (15, -1, "", -1)


async def test_a_coordinator_that_is_not_there_or_not_for_this_listener() -> None:
    async with open_handlers() as real:
        real.groups.coordinator = 99
        assert await ask_for(real, 6) == (15, -1, "", -1)
        real.groups.coordinator = NODE_ID
        elsewhere = replace(real, connection=replace(real.connection, listener_name="OTHER"))
        assert await ask_for(elsewhere, 6) == (15, -1, "", -1)
