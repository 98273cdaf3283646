"""A kill hits the request it was made for, once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from compat_tests.features.object_stores.store_faults import Fault, StoreRequest
from compat_tests.features.tiering.kill_plan import HOW_FAR, PASSING, SELDOM, SELDOM_MAX, STEPS, KillPlan, new_kill

KEYS = {
    "manifest": "0/manifest/1",
    "collected": "0/collected/0",
    "page": "0/page/a",
    "probe": "probe/a",
    "owner": "owner/0",
    "segment": "0/a",
}


def asked(kind: str, number: int = 1) -> StoreRequest:
    method, _, what = kind.partition(" ")
    return StoreRequest(method, KEYS[what], number)


def test_a_kill_hits_the_request_of_its_kind_and_number_once() -> None:
    for kind in STEPS:
        plan = KillPlan(1)
        kill = new_kill(kind, random.Random(1))
        plan.prepare(kill)
        gates = [plan.decide(asked(kind)).gate for _ in range(30)]
        assert [number for number, gate in enumerate(gates, 1) if gate is not None] == [kill.number]
        assert plan.kills == {(kind, kill.decision.fault): 1}


def test_a_withdrawn_kill_hits_no_request() -> None:
    plan = KillPlan(1)
    plan.prepare(new_kill("LIST manifest", random.Random(1)))
    assert plan.withdraw()
    assert plan.decide(asked("LIST manifest")).gate is None
    assert not plan.withdraw()


def test_rare_requests_are_hit_whenever_they_come_up_to_a_maximum() -> None:
    plan = KillPlan(1)
    for _ in range(2 * SELDOM_MAX):
        plan.prepare(new_kill("PUT segment", random.Random(1)))
        plan.decide(asked(SELDOM[0]))
    assert sum(plan.kills.values()) == SELDOM_MAX


def test_requests_that_change_something_are_caught_at_every_length() -> None:
    choice = random.Random(1)
    assert {new_kill("PUT segment", choice).decision.fault for _ in range(100)} == set(HOW_FAR)
    assert {new_kill("GET segment", choice).decision.fault for _ in range(100)} == {
        Fault.REQUEST_LOST,
        Fault.REPLY_LOST,
    }


def test_other_requests_meet_every_fault() -> None:
    plan = KillPlan(1)
    met = Counter(plan.decide(asked("GET manifest")).fault for _ in range(5_000))
    assert set(met) == {Fault.NONE, *PASSING}
    assert met[Fault.NONE] > 4_500


@pytest.mark.parametrize("kind", ["PUT probe", "LIST probe", "PUT owner", "LIST owner"])
def test_requests_without_which_a_broker_does_not_start_meet_none(kind: str) -> None:
    plan = KillPlan(1)
    assert {plan.decide(asked(kind)).fault for _ in range(2_000)} == {Fault.NONE}
