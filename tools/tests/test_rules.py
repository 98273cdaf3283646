"""Rules that are named in code are listed, so that whoever meets a name finds what it means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tools.suite import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CODE = ("kafkawire", "engine", "coordinator", "tiering", "spark_connectors", "compat_tests", "benchmarks", "tools")
CITED = re.compile(r"RULES ((?:[A-Z]\d+(?:, | and )?)+)")
RULE = re.compile(r"[A-Z]\d+")
LISTED = re.compile(r"^- \*\*([A-Z]\d+)\*\* ", re.MULTILINE)


def cited_in(path: Path) -> set[str]:
    return {rule for cited in CITED.findall(path.read_text(encoding="utf-8")) for rule in RULE.findall(cited)}


def test_rules_that_are_cited_are_listed_once() -> None:
    listed = LISTED.findall((ROOT / "docs/rules.md").read_text(encoding="utf-8"))
    assert len(listed) == len(set(listed))
    unknown = {
        str(path.relative_to(ROOT)): rules
        for folder in CODE
        for path in (ROOT / folder).rglob("*.py")
        if (rules := cited_in(path) - set(listed))
    }
    assert unknown == {}


@pytest.mark.parametrize(
    ("text", "rules"),
    [("(RULES " + "L3)", {"L3"}), ("RULES " + "M2, K5 and L1.", {"M2", "K5", "L1"}), ("rule L3, RULES", set())],
)
def test_citations_are_found(text: str, rules: set[str], tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(text)
    assert cited_in(tmp_path / "one.py") == rules
