"""Scopes of a Python file: whether a name means the one of the module, or one that a function binds itself."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Use(NamedTuple):
    """A name, and the names that functions around it bind. Names in formatted strings have no place (`is_placed`)."""

    node: ast.Name
    bound: frozenset[str]
    is_placed: bool


def uses(tree: ast.Module) -> Iterator[Use]:
    """Each name of a file."""
    yield from _uses(tree, frozenset(), is_placed=True)


def _uses(node: ast.AST, bound: frozenset[str], *, is_placed: bool) -> Iterator[Use]:
    if isinstance(node, ast.Name):
        yield Use(node, bound, is_placed)
    is_placed = is_placed and not isinstance(node, ast.JoinedStr)
    if isinstance(node, ast.ClassDef):
        yield from _uses_of_class(node, bound, is_placed=is_placed)
        return
    if not isinstance(node, FUNCTIONS):
        inner = bound | _targets(node) if isinstance(node, COMPREHENSIONS) else bound
        for child in ast.iter_child_nodes(node):
            yield from _uses(child, inner, is_placed=is_placed)
        return
    for child in _outside(node):
        yield from _uses(child, bound, is_placed=is_placed)
    inside = bound | bound_by(node)
    for child in node.body if isinstance(node.body, list) else [node.body]:
        yield from _uses(child, inside, is_placed=is_placed)


def _uses_of_class(node: ast.ClassDef, bound: frozenset[str], *, is_placed: bool) -> Iterator[Use]:
    """Functions in a class do not see what its body binds."""
    fields = frozenset(
        one.id for one in _of_this_scope(node.body) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    )
    for child in ast.iter_child_nodes(node):
        is_inside = child in node.body and not isinstance(child, FUNCTIONS)
        yield from _uses(child, bound | fields if is_inside else bound, is_placed=is_placed)


def _outside(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.AST]:
    """Decorators, defaults and annotations: they are of the scope around."""
    yield function.args
    if not isinstance(function, ast.Lambda):
        yield from function.decorator_list
        if function.returns is not None:
            yield function.returns


def bound_by(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Parameters, and names that its body assigns or defines; not those that it imports."""
    names, elsewhere = set(), set()
    every = function.args
    for one in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg):
        if one is not None:
            names.add(one.arg)
    for node in _of_this_scope(function.body if isinstance(function.body, list) else [function.body]):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.Global(names=some) | ast.Nonlocal(names=some):
                elsewhere.update(some)
    return frozenset(names - elsewhere)


def _of_this_scope(nodes: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if not isinstance(node, FUNCTIONS | ast.ClassDef):
            yield from _of_this_scope(list(ast.iter_child_nodes(node)))  # type: ignore[arg-type]


def _targets(node: ast.AST) -> frozenset[str]:
    """Names that a comprehension binds."""
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def bound_at_the_top(tree: ast.Module) -> dict[str, int]:
    """Names that the module itself assigns or defines, with a line."""
    found = {}
    for node in _of_this_scope(tree.body):
        match node:
            case ast.Name(id=name, ctx=ast.Store(), lineno=line):
                found[name] = line
            case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
                found[name] = line
            case ast.ClassDef(name=name, lineno=line):
                found[name] = line
    return found
