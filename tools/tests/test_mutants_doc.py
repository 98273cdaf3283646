"""Page of the mutants: each with its error, its rules, the test that catches it, and its newest run."""

from __future__ import annotations

from tools.generate_ledger_doc import Run
from tools.generate_mutants_doc import COLUMNS, HEAD, TARGET, Mutant, newest_runs, page, read_mutant, render, rules_of

PATCH = """A commit is acknowledged
before its sync.
Caught-by: named cases

diff --git a/engine/commit/one.py b/engine/commit/one.py
--- a/engine/commit/one.py
+++ b/engine/commit/one.py
@@ -1 +1 @@
-a
+b
"""


def test_the_page_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == page()


def test_a_patch_is_read() -> None:
    read = read_mutant("early-ack", PATCH)
    assert read == Mutant("early-ack", "A commit is acknowledged before its sync.", "named cases", "engine/commit")


def test_the_newest_run_counts() -> None:
    runs = [
        Run("2026-01-01", "aaa", "mutants", "2 of 2 caught: early-ack 7 s, other 9 s", 1, 0),
        Run("2026-01-02", "bbb", "mutants", "1 of 1 caught: early-ack 5 s", 1, 0),
        Run("2026-01-03", "ccc", "kills", "other 1 s", 1, 0),
    ]
    assert newest_runs(runs, {"other": "another"}) == {"early-ack": "2026-01-02, 5 s", "another": "2026-01-01, 9 s"}


def test_rules_that_name_a_mutant() -> None:
    rules = "# Rules\n\n### K1 One\n\n`early-ack`, `engine/one.py`\n\n### K2 Two\n\n`early-ack`\n"
    assert rules_of(rules) == {"early-ack": ["K1", "K2"]}


def test_a_table_for_each_folder() -> None:
    mutants = [
        Mutant("b", "B.", "x", "engine"),
        Mutant("a", "A.", "x", "engine"),
        Mutant("c", "C.", "y", "coordinator"),
    ]
    assert render(mutants, {"a": "2026-01-01, 5 s"}, {"c": ["K1"]}).removeprefix(HEAD) == (
        f"\n## coordinator\n\n{COLUMNS}| c | C. | K1 | y |  |\n"
        f"\n## engine\n\n{COLUMNS}| a | A. |  | x | 2026-01-01, 5 s |\n| b | B. |  | x |  |\n"
    )
