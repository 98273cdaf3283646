"""Names that a Python file defines, for tests of documents that name code."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@cache
def defined_in(path: Path) -> set[str]:
    """Functions, classes and constants of a module, and members of its classes, as `Class.name`."""
    return set(_names(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (prefix + one.id for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id
