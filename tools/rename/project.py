"""Names of a project: its modules, what each defines at its top, and what an imported name stands for."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Module:
    """The names at the top of a module. `defined`: its own; `imported`: local name -> (module, symbol)."""

    name: str
    defined: frozenset[str]
    imported: Mapping[str, tuple[str, str]]


class Project:
    """The modules of a project, by their dotted names."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        """`sources`: path below the root -> text, of Python files."""
        self.modules = {}
        for path, text in sources.items():
            name = module_of(path)
            self.modules[name] = _read(name, ast.parse(text))

    def defining(self, module: str, symbol: str) -> tuple[str, str] | None:
        """The module that defines what `module` calls `symbol`, and its name there; None: not one of the project's."""
        seen = set()
        while (module, symbol) not in seen and (found := self.modules.get(module)) is not None:
            seen.add((module, symbol))
            if symbol in found.defined:
                return module, symbol
            if symbol not in found.imported:
                return None
            module, symbol = found.imported[symbol]
        return None

    def ambiguous(self) -> set[str]:
        """Names that several modules define."""
        counts = Counter(symbol for module in self.modules.values() for symbol in module.defined)
        return {symbol for symbol, count in counts.items() if count > 1}

    def is_module(self, name: str) -> bool:
        return name in self.modules


def module_of(path: str) -> str:
    """The dotted name of a Python file."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _read(name: str, tree: ast.Module) -> Module:
    defined, imported = set(), {}
    for node in top_statements(tree.body):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                defined.add(node.name)
            case ast.Assign(targets=targets):
                defined.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=target)):
                defined.add(target)
            case ast.ImportFrom(module=str(module)):
                imported.update({one.asname or one.name: (module, one.name) for one in node.names})
    return Module(name, frozenset(defined), imported)


def top_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top, and below `if` and `try` there."""
    for node in body:
        yield node
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try):
                yield from top_statements(getattr(node, inner, []))
