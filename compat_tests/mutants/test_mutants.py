"""Every patch still applies, and some mutants are caught quickly; `make long` tests them all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.mutants.trial import TESTS, apply_mutant, finders_of, mutants, run, try_mutant

MUTANTS_COUNT = 283
QUICK = ("ack-before-fsync", "query-record-read-before-fencing", "sequence-check-skipped", "torn-tail-kept")


def test_all_mutants_are_there() -> None:
    assert len(mutants()) == MUTANTS_COUNT
    assert len({*mutants()}) == MUTANTS_COUNT
    for mutant in mutants():
        first, *_ = tests = finders_of(mutant)
        assert first.name == next(one.name for one in tests if one in TESTS)


@pytest.mark.parametrize("mutant", mutants())
def test_patch_applies(mutant: str, tmp_path: Path) -> None:
    apply_mutant(mutant, tmp_path)


@pytest.mark.parametrize("mutant", QUICK)
def test_mutant_is_caught(mutant: str, tmp_path: Path) -> None:
    apply_mutant(mutant, tmp_path)
    assert try_mutant(mutant, tmp_path).test == finders_of(mutant)[0].name


@pytest.mark.parametrize("words", ["NameError: name 'x' is not defined", "simulation crashed: KeyError"])
def test_error_in_the_mutants_test_itself_is_no_catch(words: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        f"print('seed 1 FAILED: command'); print({'  ' + words!r}); raise SystemExit(1)"
    )
    with pytest.raises(RuntimeError):
        run(replace(TESTS[1], command=("broken",)), tmp_path, timeout_s=60)
