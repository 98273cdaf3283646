"""Tests of one package do not import tests of another: what they share is in `testkit`."""

from __future__ import annotations

import ast

import pytest

from tools.packages import PACKAGES
from tools.suite import ROOT

TREES = (*PACKAGES, "compat_tests", "benchmarks", "testkit", "tools")


def imported(source: str) -> set[str]:
    """The modules that a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found


@pytest.mark.parametrize("tree", TREES)
def test_no_tests_of_another_package_are_imported(tree: str) -> None:
    foreign = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in (ROOT / tree).rglob("*.py")
        for module in imported(path.read_text(encoding="utf-8"))
        if "tests" in module.split(".") and module.split(".")[0] in set(PACKAGES) - {tree}
    }
    assert not foreign


@pytest.mark.parametrize("package", PACKAGES)
def test_only_tests_import_the_testkit(package: str) -> None:
    """The testkit is not shipped."""
    wrong = [
        path.relative_to(ROOT)
        for path in (ROOT / package).rglob("*.py")
        if "tests" not in path.relative_to(ROOT).parts
        and any(module.split(".")[0] == "testkit" for module in imported(path.read_text(encoding="utf-8")))
    ]
    assert not wrong
