"""Tests of the bookkeeping: it finds each anomaly, and none in a correct history."""

from __future__ import annotations

import pytest

from compat_tests.faults.atomicity import Output, check_atomicity

FIRST, SECOND = "a-1/2", "b-1/1"
FINAL = [Output(0, 0, FIRST, "x"), Output(1, 0, FIRST, "y"), Output(0, 2, SECOND, "z")]


def kinds(final: list[Output], read: list[Output]) -> list[str]:
    return [anomaly.partition(" x ")[0] for anomaly in check_atomicity(final, read)]


def test_nothing_is_wrong_when_all_is_there() -> None:
    for count in range(len(FINAL) + 1):
        assert check_atomicity(FINAL, FINAL[:count]) == []


@pytest.mark.parametrize(
    ("final", "read", "kind"),
    [
        (FINAL, [FINAL[0], Output(0, 1, "c-1/1", "w")], "aborted read"),
        (FINAL, [Output(0, 0, FIRST, "other")], "changed"),
        (FINAL, [FINAL[2], FINAL[0]], "unordered read"),
        (FINAL, [FINAL[0], FINAL[0]], "unordered read"),
        (FINAL, [FINAL[2]], "fractured read"),
        (FINAL[1:], [], "torn"),
        ([*FINAL, Output(1, 5, FIRST, "x")], [], "torn"),
    ],
)
def test_each_anomaly_is_named(final: list[Output], read: list[Output], kind: str) -> None:
    assert kinds(final, read) == [kind]
