"""Tests of the anomalies that a campaign with transformers finds."""

from __future__ import annotations

import pytest

from compat_tests.faults.copies import check_copies

INPUTS = {0: ["a", "b", "c"], 1: ["d"]}


def test_a_copy_is_sound() -> None:
    assert check_copies(INPUTS, {0: ["a", "b", "c"], 1: ["d"]}) == []


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ({0: ["a", "b", "c"]}, ["lost x 1: d of 1"]),
        ({0: ["a", "c"], 1: ["d"]}, ["lost x 1: b of 0"]),
        ({0: ["a", "b", "b", "c"], 1: ["d"]}, ["doubled x 1: b of 0: 2 times"]),
        ({0: ["a", "b", "c", "e"], 1: ["d"]}, ["invented x 1: e in 0"]),
        ({0: ["a", "c", "b"], 1: ["d"]}, ["reordered x 2: c in 0; b in 0"]),
        ({0: ["a", "b", "c", "d"], 1: []}, ["lost x 1: d of 1", "invented x 1: d in 0"]),
    ],
)
def test_each_anomaly_of_a_copy_is_named(outputs: dict[int, list[str]], told: list[str]) -> None:
    assert check_copies(INPUTS, outputs) == told
