"""Every patch still applies, and some bugs are caught while one waits; `make long` examines them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.exam.examination import bugs, examine, plant

PLANTED = 12
QUICK = ("ack-before-fsync", "sequence-check-skipped", "high-watermark-ahead-of-the-durable-end")


def test_all_bugs_are_there() -> None:
    assert len(bugs()) == PLANTED


@pytest.mark.parametrize("bug", bugs())
def test_patch_applies(bug: str, tmp_path: Path) -> None:
    plant(bug, tmp_path)


@pytest.mark.parametrize("bug", QUICK)
def test_bug_is_caught(bug: str, tmp_path: Path) -> None:
    plant(bug, tmp_path)
    assert examine(bug, tmp_path).examiner is not None
