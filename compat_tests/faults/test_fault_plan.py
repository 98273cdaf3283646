"""Tests of the decisions of a fault plan."""

from __future__ import annotations

from collections import Counter

import pytest

from compat_tests.faults.fault_plan import (
    COMES_LATER,
    FAULTS,
    NAMES_TRANSACTION_FROM,
    NO_FAULT,
    Api,
    Fault,
    Plan,
    block_length,
)

NEWEST = 99
OLD = 3
FETCH = 1
ONCE = Counter(FAULTS)


def faults(plan: Plan, api: Api, version: int, block: int) -> Counter[Fault]:
    length = block_length(api, version)
    numbers = range(block * length, (block + 1) * length)
    decided = [plan.decide(api, version, number).fault for number in numbers]
    return Counter(fault for fault in decided if fault is not Fault.NONE)


@pytest.mark.parametrize("api", Api)
def test_each_fault_hits_once_in_each_block(api: Api) -> None:
    assert all(faults(Plan(1), api, NEWEST, block) == ONCE for block in range(20))


@pytest.mark.parametrize("api", Api)
def test_requests_that_cannot_name_their_transaction_come_late_only_if_merciless(api: Api) -> None:
    spared = COMES_LATER if api in NAMES_TRANSACTION_FROM else frozenset[Fault]()
    assert faults(Plan(1), api, OLD, 0).keys() == ONCE.keys() - spared
    assert faults(Plan(1, is_merciless=True), api, OLD, 0) == ONCE


def test_requests_of_apis_without_transactions_get_no_fault() -> None:
    assert {Plan(1).decide(FETCH, NEWEST, number) for number in range(1000)} == {NO_FAULT}


def test_a_seed_decides_the_same_again_and_another_differently() -> None:
    def decided(seed: int) -> list[object]:
        return [Plan(seed).decide(api, NEWEST, number) for api in Api for number in range(200)]

    assert decided(1) == decided(1)
    assert decided(1) != decided(2)


def test_delays_are_as_long_as_they_should_be() -> None:
    decided = [Plan(1).decide(Api.PRODUCE, NEWEST, number) for number in range(10_000)]
    later = sorted(decision.delay_s for decision in decided if decision.fault in COMES_LATER)
    assert 0.02 <= later[0] < 0.03 < 2 < later[-1] <= 3.0
    delayed = sorted(
        decision.delay_s for decision in decided if decision.fault in (Fault.REQUEST_DELAYED, Fault.REPLY_DELAYED)
    )
    assert 0.005 <= delayed[0] < 0.01 < 0.2 < delayed[-1] <= 0.3
    assert {decision.delay_s for decision in decided if decision.fault is Fault.REPLY_LOST} == {0.0}
