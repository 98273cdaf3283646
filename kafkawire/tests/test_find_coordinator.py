"""FindCoordinator before there is a coordinator: groups are told to come back, the rest why not."""

from __future__ import annotations

import pytest

from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.tests.harness import open_handlers

REFUSALS = [(0, 15), (1, 42), (2, 42), (9, 42)]


@pytest.mark.parametrize(("key_type", "code"), REFUSALS)
async def test_one_answer_per_key(key_type: int, code: int) -> None:
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


async def test_version_0_knows_groups_only() -> None:
    async with open_handlers() as real:
        response = await real.ask(FindCoordinatorRequest(key="a"), 0)
    assert response.error_code == 15
