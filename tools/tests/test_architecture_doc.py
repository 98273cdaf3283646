"""The architecture documents name files and functions that exist.

Documents name code in backticks: `path/file.py`, or `path/file.py::Class.function`, with paths from the root.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tools.suite import ROOT
from tools.tests.definitions import defined_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OVERVIEW: Final = ROOT / "docs" / "ARCHITECTURE.md"
FOLDER: Final = ROOT / "docs" / "architecture"
PAGES: Final = sorted(FOLDER.glob("*.md"))
PRODUCE: Final = FOLDER / "produce.md"
OVERVIEW_MAX_BYTES: Final = 15 * 1024
FUNCTIONS_MIN: Final = 30  # that produce.md names on the way of a record

CODE: Final = re.compile(r"`([^`\n]+)`")
FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PYTHON: Final = re.compile(r"(?P<path>[\w./-]+\.py)(?:::(?P<name>[\w.]+))?")
LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def named_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Each Python file in backticks outside of code blocks, with the function or class beside it."""
    for code in CODE.findall(FENCE.sub("", text)):
        if found := PYTHON.fullmatch(code):
            yield found["path"], found["name"]


def wrong_names(text: str) -> list[str]:
    wrong = []
    for path, name in named_in(text):
        if not (ROOT / path).is_file():
            wrong.append(path)
        elif name is not None and name not in defined_in(ROOT / path):
            wrong.append(f"{path}::{name}")
    return wrong


@pytest.mark.parametrize("page", [OVERVIEW, *PAGES], ids=lambda page: page.name)
def test_files_and_functions_exist(page: Path) -> None:
    assert wrong_names(page.read_text(encoding="utf-8")) == []


def test_the_produce_page_names_the_functions_that_a_record_passes() -> None:
    named = {name for _, name in named_in(PRODUCE.read_text(encoding="utf-8")) if name is not None}
    assert len(named) >= FUNCTIONS_MIN


def test_the_overview_is_short_and_links_to_every_page() -> None:
    text = OVERVIEW.read_text(encoding="utf-8")
    assert len(text.encode()) <= OVERVIEW_MAX_BYTES
    linked = {(OVERVIEW.parent / target).resolve() for target in LINK.findall(text)}
    assert set(PAGES) <= linked


@pytest.mark.parametrize("page", [OVERVIEW, *PAGES], ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    linked = [(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [str(one) for one in linked if one.parent == FOLDER and not one.is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_has_a_picture(page: Path) -> None:
    assert "```text\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`tools/suite.py` and `tools/suite.py::Tally.add`", []),
        ("`tools/suite.py::Stage`, `tools/suite.py::ROOT`, `Stage.name`, tools/none.py", []),
        ("`tools/none.py`", ["tools/none.py"]),
        ("`tools/suite.py::Tally.subtract`", ["tools/suite.py::Tally.subtract"]),
        ("`tools/suite.py::add`", ["tools/suite.py::add"]),
        ("```text\n`tools/none.py`\n```\n", []),
    ],
)
def test_wrong_names_are_found(text: str, wrong: list[str]) -> None:
    assert wrong_names(text) == wrong
