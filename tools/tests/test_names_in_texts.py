"""Modules and symbols that docstrings and comments name in backticks exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tools.packages import PACKAGES
from tools.suite import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NAMED: Final = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`")


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module, or names in the module before them."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        sources = [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
        if sources:
            text = sources[0].read_text(encoding="utf-8")
            return all(re.search(rf"\b{name}\b", text) for name in parts[length:])
    return False


def wrong_names(path: Path) -> list[str]:
    found = NAMED.findall(path.read_text(encoding="utf-8"))
    return [f"{path.relative_to(ROOT)}: {name}" for name in found if not is_there(name)]


@pytest.mark.parametrize("package", [*PACKAGES, "compat_tests", "benchmarks", "testkit", "tools"])
def test_names_in_backticks_exist(package: str) -> None:
    files = [path for path in (ROOT / package).rglob("*.py") if path.name != "test_rename.py"]
    assert [name for path in files for name in wrong_names(path)] == []


@pytest.mark.parametrize(
    ("dotted", "there"),
    [
        ("engine.api", True),
        ("engine.logs", True),
        ("engine.api.Produced", False),
        ("engine.none", False),
        ("engine.api.PartitionLog.confirm", True),
    ],
)
def test_a_dotted_name_is_found_only_if_it_exists(dotted: str, there: bool) -> None:
    assert is_there(dotted) is there
