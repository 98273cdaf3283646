"""Tests of the history checker: it names each anomaly, and a correct log has none."""

from __future__ import annotations

import pytest

from compat_tests.faults.history import NO_OFFSET, Found, History, Place

LOG = [Found(Place(0, offset), f"w.{offset}") for offset in range(4)]


def kinds(read: list[Found]) -> set[str]:
    history = History()
    history.ack(0, 1, "w.1")
    return {line.partition(" x ")[0] for line in history.check(read)}


def test_an_honest_log_has_no_anomaly() -> None:
    other = [Found(Place(1, 0), "w.9"), Found(Place(1, 1), "v.0")]
    assert kinds(LOG + other) == set()


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (LOG[:1], {"lost"}),
        ([LOG[0], *LOG[2:]], {"lost", "gap"}),
        ([*LOG, Found(Place(0, 4), "w.1")], {"doubled", "reordered"}),
        ([Found(Place(0, 0), "w.1"), Found(Place(0, 1), "w.0")], {"reordered", "inconsistent offset"}),
        ([Found(Place(1, 0), "w.1")], {"inconsistent offset"}),
        (LOG[1:], {"gap"}),
    ],
)
def test_each_anomaly_is_named(read: list[Found], expected: set[str]) -> None:
    assert kinds(read) == expected


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (LOG, []),
        (LOG[:1], ["lost"]),
        ([Found(Place(1, 0), "w.1")], ["inconsistent offset"]),
        ([*LOG, Found(Place(0, 4), "w.1")], ["reordered", "doubled"]),
    ],
)
def test_a_record_acknowledged_without_an_offset_must_be_once_in_its_partition(
    read: list[Found], expected: list[str]
) -> None:
    history = History()
    history.ack(0, NO_OFFSET, "w.1")
    assert [line.partition(" x ")[0] for line in history.check(read)] == expected
