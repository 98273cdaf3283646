"""Rules that are cited in code are listed, and each listed rule names code and tests that exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from compat_tests.mutants.trial import mutants
from tools.suite import ROOT
from tools.tests.definitions import defined_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE = (
    "kafkawire",
    "engine",
    "coordinator",
    "tiering",
    "spark_connectors",
    "compat_tests",
    "benchmarks",
    "testkit",
    "tools",
)
MUTANTS = frozenset(mutants())
CITED = re.compile(r"RULES ((?:[A-Z]\d+(?:, | and )?)+)")
RULE = re.compile(r"[A-Z]\d+")
HEADING = re.compile(r"^### ([A-Z]\d+) (\S.*)$", re.MULTILINE)
INDEX_ROW = re.compile(r"^\| \[([A-Z]\d+)\]\(#[\w-]+\) \| (.+) \|$", re.MULTILINE)
PARTS = ["Invariant", "Why", "Enforced by", "Tests"]
PART = re.compile(rf"^\*\*({'|'.join(PARTS)})\.\*\*", re.MULTILINE)
ITEM = re.compile(r"^- (.+(?:\n  .+)*)", re.MULTILINE)
MARKED = re.compile(r"`([^`]+)`")


def document() -> str:
    return (ROOT / "docs/rules.md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """The text of each rule, up to the next heading, by number."""
    parts = re.split(r"^#{2,3} (.*)$", text, flags=re.MULTILINE)[1:]
    titles, bodies = parts[::2], parts[1::2]
    return {title.split()[0]: body for title, body in zip(titles, bodies, strict=True) if RULE.match(title)}


def parts_of(section: str) -> list[tuple[str, str]]:
    """The name and the text of each part of a rule, in their order."""
    found = PART.split(section)[1:]
    return [*zip(found[::2], found[1::2], strict=True)]


def wrong_with(section: str) -> list[str]:
    """All that is wrong with the parts of one rule."""
    parts = parts_of(section)
    if (names := [name for name, _ in parts]) != PARTS:
        return [f"its parts are {names}"]
    found = [f"{name} is empty" for name, text in parts if not text.strip()]
    return found + [wrong for _, text in parts[2:] for wrong in wrong_with_items(text)]


def wrong_with_items(part: str) -> Iterator[str]:
    """Files, names and mutants in the items of a part that do not exist."""
    items = ITEM.findall(part)
    if not items:
        yield "no item names a file"
    for item in items:
        marked = MARKED.findall(item)
        if item.startswith("Mutants: "):
            yield from (f"no mutant {one}" for one in marked if one not in MUTANTS)
        else:
            yield from wrong_with_item(item, marked)


def wrong_with_item(item: str, marked: list[str]) -> Iterator[str]:
    """The errors of an item that names files, and behind a file the names that the file defines."""
    if not marked or "/" not in marked[0]:
        yield f"no file in: {item}"
        return
    path = ROOT
    for one in marked:
        if "/" in one:
            path = ROOT / one
            if not path.is_file():
                yield f"no file {one}"
        elif path.is_file() and one not in defined_in(path):
            yield f"no {one} in {path.relative_to(ROOT)}"


def cited_in(path: Path) -> set[str]:
    return {rule for cited in CITED.findall(path.read_text(encoding="utf-8")) for rule in RULE.findall(cited)}


def test_rules_that_are_cited_are_listed_once() -> None:
    listed = [number for number, _ in HEADING.findall(document())]
    assert len(listed) == len(set(listed))
    unknown = {
        str(path.relative_to(ROOT)): rules
        for folder in CODE
        for path in (ROOT / folder).rglob("*.py")
        if (rules := cited_in(path) - set(listed))
    }
    assert unknown == {}


def test_the_index_names_each_rule_in_its_order() -> None:
    assert INDEX_ROW.findall(document()) == HEADING.findall(document())


def test_each_rule_has_four_parts_that_name_files_and_code_that_exist() -> None:
    found = {number: wrong_with(section) for number, section in sections(document()).items()}
    assert [*found] == [number for number, _ in HEADING.findall(document())]
    assert {number: wrong for number, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("text", "rules"),
    [("(RULES " + "L3)", {"L3"}), ("RULES " + "M2, K5 and L1.", {"M2", "K5", "L1"}), ("rule L3, RULES", set())],
)
def test_citations_are_found(text: str, rules: set[str], tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(text)
    assert cited_in(tmp_path / "one.py") == rules


@pytest.mark.parametrize(
    ("items", "wrong"),
    [
        ("- `tools/suite.py`: `ROOT`\n- `tools/tests/test_rules.py`:\n  `sections`", []),
        ("- `tools/nowhere.py`", ["no file tools/nowhere.py"]),
        ("- `tools/suite.py`: `ROOT`, `nothing`", ["no nothing in tools/suite.py"]),
        ("- Mutants: `ack-before-fsync`,\n  `no-such-mutant`", ["no mutant no-such-mutant"]),
        ("- the engine", ["no file in: the engine"]),
        ("nothing", ["no item names a file"]),
    ],
)
def test_names_that_do_not_exist_are_found(items: str, wrong: list[str]) -> None:
    assert wrong_with(section_of("One.", items)) == wrong


def section_of(invariant: str, tests: str) -> str:
    """The section of a rule."""
    enforced = "**Enforced by.**\n\n- `tools/suite.py`: `ROOT`"
    return f"**Invariant.** {invariant}\n\n**Why.** So.\n\n{enforced}\n\n**Tests.**\n\n{tests}\n"


def test_a_part_that_is_missing_or_empty_is_found() -> None:
    assert wrong_with("**Invariant.** One.\n\n**Tests.** None.\n") == ["its parts are ['Invariant', 'Tests']"]
    assert wrong_with(section_of("", "- `tools/suite.py`")) == ["Invariant is empty"]
    assert wrong_with(section_of("**Not a part.**", "- `tools/suite.py`")) == []
