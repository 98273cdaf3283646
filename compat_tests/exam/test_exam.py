"""Every patch still applies, and some mutants are caught quickly; `make long` tests them all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.exam.examination import EXAMINERS, bugs, examine, examiners_of, plant, run

PLANTED = 268
QUICK = ("ack-before-fsync", "record-read-before-fencing", "sequence-check-skipped", "torn-tail-kept")


def test_all_bugs_are_there() -> None:
    assert len(bugs()) == PLANTED
    assert all(len(examiners_of(bug)) == len(EXAMINERS) for bug in bugs())


@pytest.mark.parametrize("bug", bugs())
def test_patch_applies(bug: str, tmp_path: Path) -> None:
    plant(bug, tmp_path)


@pytest.mark.parametrize("bug", QUICK)
def test_bug_is_caught(bug: str, tmp_path: Path) -> None:
    plant(bug, tmp_path)
    assert examine(bug, tmp_path).examiner == examiners_of(bug)[0].name


@pytest.mark.parametrize("words", ["NameError: name 'x' is not defined", "simulation crashed: KeyError"])
def test_what_breaks_the_examiner_is_no_catch(words: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        f"print('seed 1 FAILED: command'); print({'  ' + words!r}); raise SystemExit(1)"
    )
    with pytest.raises(RuntimeError):
        run(replace(EXAMINERS[1], command=("broken",)), tmp_path, timeout_s=60)
