"""Page of the long runs: a row for each stage, with its newest run."""

from __future__ import annotations

from tools.generate_ledger_doc import HEAD, RESULT_MAX, RUNS, TARGET, Run, read_runs, render


def test_the_page_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(read_runs(RUNS.read_text(encoding="utf-8")))


def test_a_stage_has_a_row_with_its_newest_run() -> None:
    runs = [
        Run("2026-01-01", "aaa", "kills", "KILLS=1", 0, 1),
        Run("2026-01-02", "bbb", "cuts", "a | b", 2, 0),
        Run("2026-01-03", "ccc", "kills", "KILLS=2", 1, 0),
    ]
    assert render(runs).removeprefix(HEAD).splitlines() == [
        "| kills | 2 | 1 | 2026-01-03 | ccc | 1 | 0 | KILLS=2 |",
        "| cuts | 1 | 0 | 2026-01-02 | bbb | 2 | 0 | a \\| b |",
    ]


def test_a_long_result_is_cut() -> None:
    row = render([Run("2026-01-01", "aaa", "mutants", "x" * 1000, 1, 0)]).removeprefix(HEAD)
    assert row.endswith(f"| {'x' * RESULT_MAX} … |\n")
