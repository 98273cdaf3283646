"""Tests of the checker of readers: it names each anomaly, and a reader that saw all records has none."""

from __future__ import annotations

import pytest

from compat_tests.faults.history import Found, Place
from compat_tests.faults.reader_check import check_reader

LOG = [Found(Place(0, offset), f"w.{offset}") for offset in range(3)]


def kinds(seen: list[Found], *, is_exact: bool = True) -> list[str]:
    return [line.partition(" x ")[0] for line in check_reader(seen, LOG, is_exact=is_exact)]


def test_a_reader_that_saw_all_records_has_no_anomaly() -> None:
    assert kinds(LOG) == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (LOG[:2], ["not seen"]),
        ([*LOG, LOG[0]], ["seen again"]),
        ([LOG[1], LOG[0], LOG[2]], ["seen again"]),
        ([*LOG, Found(Place(0, 3), "w.9")], ["seen of a log that is not"]),
        ([Found(Place(0, 0), "w.9"), *LOG], ["seen of a log that is not", "seen again"]),
    ],
)
def test_each_anomaly_is_named(seen: list[Found], expected: list[str]) -> None:
    assert kinds(seen) == expected


def test_a_reader_that_restarted_may_see_records_twice_but_no_unknown_record() -> None:
    assert kinds([*LOG, *LOG], is_exact=False) == []
    assert kinds([*LOG, Found(Place(0, 0), "w.9")], is_exact=False) == ["seen of a log that is not"]
