"""Tests of the checker of committed offsets: it finds each anomaly."""

from __future__ import annotations

from compat_tests.faults.committed_offsets import Sight, check_committed


def test_offsets_that_grow_or_stay_are_fine() -> None:
    assert check_committed([Sight("commit", 0, 5, 1, 2), Sight("look", 0, 5, 3, 4), Sight("look", 1, -1, 3, 4)]) == []


def test_an_answer_that_was_asked_for_before_another_came_may_be_older() -> None:
    assert check_committed([Sight("commit", 0, 5, 1, 3), Sight("look", 0, 4, 2, 4)]) == []


def test_an_offset_that_was_acknowledged_must_be_found() -> None:
    [found] = check_committed([Sight("commit", 0, 5, 1, 2), Sight("look", 0, 4, 3, 4)])
    assert found.startswith("committed offset went back x 1: Sight(kind='look', partition=0, offset=4,")


def test_an_offset_that_was_found_must_not_be_gone() -> None:
    [found] = check_committed([Sight("look", 0, 5, 1, 2), Sight("look", 0, -1, 3, 4)])
    assert "went back x 1" in found
