"""Renames in a Python file: imports, names, attributes of modules, docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING, NamedTuple

from tools.rename.batches import moved
from tools.rename.paths import rename_paths, renamed_paths
from tools.rename.project import module_of, top_statements
from tools.rename.scopes import bound_at_the_top, uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.rename.batches import Batch
    from tools.rename.project import Project

DOTTED = re.compile(r"(?<![\w./])[a-z]\w*(?:\.\w+)+")


class Edit(NamedTuple):
    """Replaces the bytes from `begin` to `end`."""

    begin: int
    end: int
    text: str


class ClashError(Exception):
    """A new name is used for something else in that file."""


def rename_source(path: str, text: str, project: Project, batch: Batch) -> str:
    """The text of a Python file with all renames. Raises ClashError where a new name would hide another."""
    return apply_edits(text, _Renaming(path, text, project, batch).edits())


def apply_edits(text: str, edits: list[Edit]) -> str:
    """Edits must not overlap."""
    source = text.encode()
    parts, at = [], 0
    for one in sorted(set(edits)):
        assert one.begin >= at, f"overlapping edits: {one}"
        parts += [source[at : one.begin], one.text.encode()]
        at = one.end
    return b"".join([*parts, source[at:]]).decode()


class _Renaming:
    """The edits of one file."""

    def __init__(self, path: str, text: str, project: Project, batch: Batch) -> None:
        self._path, self._text, self._project, self._batch = path, text, project, batch
        self._module = module_of(path)
        self._tree = ast.parse(text)
        self._text_lines = text.split("\n")  # as the parser counts them: splitlines() knows other ends
        self._lines = [0]
        for line in self._text_lines:
            self._lines.append(self._lines[-1] + len(line.encode()) + 1)
        self._modules: dict[str, str] = {}  # local name -> module it stands for
        self._symbols: dict[str, str] = {}  # local name -> new name
        self._at_the_top = set(top_statements(self._tree.body))
        self._targets: dict[str, str] = {}  # new local name -> what it is imported as
        self._words = _words_in(path, batch)

    def edits(self) -> list[Edit]:
        found = [*self._imports()]
        self._symbols |= self._own_symbols()
        found += self._names()
        found += self._texts()
        return found + self._dotted(found)

    def _dotted(self, others: list[Edit]) -> list[Edit]:
        """Modules by their whole names, as in `import a.b`."""
        found = []
        for begin, end, new in renamed_paths(self._text, self._batch.modules):
            one = Edit(len(self._text[:begin].encode()), len(self._text[:end].encode()), new)
            if not any(one.begin < other.end and other.begin < one.end for other in others):
                found.append(one)
        return found

    def _own_symbols(self) -> dict[str, str]:
        """The renamed symbols that this module defines at its top."""
        prefix = f"{self._module}."
        symbols = self._batch.symbols.items()
        return {
            was.removeprefix(prefix): name
            for was, name in symbols
            if was.startswith(prefix) and "." not in was.removeprefix(prefix)
        }

    def _imports(self) -> Iterator[Edit]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    if one.asname:
                        self._modules[one.asname] = one.name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from self._import_from(node, node.module)

    def _import_from(self, node: ast.ImportFrom, package: str) -> Iterator[Edit]:
        by_package: dict[str, list[str]] = {}
        for one in node.names:
            new_package, new_name = self._imported(package, one.name)
            local = one.asname or one.name
            if self._project.is_module(f"{package}.{one.name}"):
                self._modules[local] = f"{package}.{one.name}"
            is_same = one.asname is None or one.asname == one.name
            if is_same and new_name != one.name:
                self._symbols[local] = new_name
            imported = f"{new_name} as {new_name if is_same else one.asname}" if one.asname else new_name
            by_package.setdefault(new_package, []).append(imported)
            if node in self._at_the_top:
                self._bind(new_name if is_same else local, f"{new_package}.{new_name}", node.lineno)
        before = {moved(package, self._batch.modules): [_import_text(one) for one in node.names]}
        if by_package == before and moved(package, self._batch.modules) == package:
            return
        begin, end = self._span(node)
        if "#" in (comment := self._text.encode()[begin:end].decode()):
            raise ClashError(f"{self._path}:{node.lineno}: a comment inside an import: {comment}")
        statements = [f"from {where} import ({', '.join(names)})" for where, names in by_package.items()]
        yield Edit(begin, end, f"\n{' ' * node.col_offset}".join(statements).replace("(*)", "*"))

    def _bind(self, local: str, target: str, line: int) -> None:
        """Refuse two imports by one name."""
        if self._targets.setdefault(local, target) != target:
            raise ClashError(f"{self._path}:{line}: {local} is imported as {self._targets[local]} and as {target}")

    def _imported(self, package: str, name: str) -> tuple[str, str]:
        """Where `from package import name` finds it after the batch."""
        modules = self._batch.modules
        if self._project.is_module(whole := f"{package}.{name}"):
            new_package, _, new_name = moved(whole, modules).rpartition(".")
            return new_package, new_name
        return moved(package, modules), self._new_symbol(package, name) or name

    def _new_symbol(self, module: str, name: str) -> str | None:
        defining = self._project.defining(module, name)
        return self._batch.symbols.get(".".join(defining)) if defining else None

    def _names(self) -> Iterator[Edit]:
        """Names that mean what is renamed. Raises ClashError where the new name means something else."""
        yield from self._definitions()
        for node, bound, is_placed in uses(self._tree):
            new_name = self._symbols.get(node.id)
            if new_name is None or node.id in bound:
                continue
            if new_name in bound:
                place = f"{self._path}:{node.lineno}"
                raise ClashError(f"{place}: {new_name} is something else ({node.id} is renamed to it)")
            if is_placed:
                begin = self._place(node.lineno, node.col_offset)
                yield Edit(begin, begin + len(node.id.encode()), new_name)
        for attribute in _outside_of_strings(self._tree):
            if isinstance(attribute, ast.Attribute):
                yield from self._attribute(attribute)

    def _definitions(self) -> Iterator[Edit]:
        own, at_the_top = self._own_symbols(), bound_at_the_top(self._tree)
        for old, new in self._symbols.items():
            if new in at_the_top and new not in self._symbols:
                raise ClashError(f"{self._path}:{at_the_top[new]}: {new} is there already ({old} is renamed to it)")
        for top in self._tree.body:
            if isinstance(top, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and top.name in own:
                yield self._definition(top, own[top.name])

    def _attribute(self, node: ast.Attribute) -> Iterator[Edit]:
        if new := self._new_attribute(node):
            end = self._place(node.end_lineno or 0, node.end_col_offset or 0)
            yield Edit(end - len(node.attr.encode()), end, new)

    def _new_attribute(self, node: ast.Attribute) -> str | None:
        dotted = ast.unparse(node.value)
        module = self._modules.get(dotted, dotted)
        return self._new_symbol(module, node.attr) if self._project.is_module(module) else None

    def _definition(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, new: str) -> Edit:
        begin, end = self._span(node)
        whole = self._text.encode()
        found = re.compile(rb"\b(?:class|def)\s+(" + node.name.encode() + rb")\b").search(whole, begin, end)
        assert found is not None
        return Edit(found.start(1), found.end(1), new)

    def _texts(self) -> Iterator[Edit]:
        """Comments and strings that name what is renamed here; and words."""
        imports = [self._span(node) for node in ast.walk(self._tree) if isinstance(node, ast.ImportFrom)]
        in_strings = self._in_formatted_strings()
        for token in tokenize.generate_tokens(io.StringIO(self._text).readline):
            begin, end = self._char_place(token.start), self._char_place(token.end)
            new = token.string
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                new = self._renamed_text(new, in_strings)
            elif token.type == tokenize.NAME and not any(one <= begin < other for one, other in imports):
                new = self._words.get(new, new)
            if new != token.string:
                yield Edit(begin, end, new)

    def _renamed_text(self, text: str, in_strings: dict[str, str]) -> str:
        text = DOTTED.sub(lambda found: self._renamed_attribute(found.group()), text)
        text = rename_paths(text, self._batch.modules)
        if re.match(r"[rR]?[fF]", text):
            for old, new in in_strings.items():
                text = re.sub(rf"(?<![\w.]){re.escape(old)}\b", new, text)
        for old, new in self._symbols.items():
            if _is_distinct(old):
                text = re.sub(rf"(?<![\w.]){old}\b", new, text)
        for old, new in self._words.items():
            text = re.sub(rf"`{old}`", f"`{new}`", text)
            text = re.sub(rf"^(['\"]){old}\1$", rf"\g<1>{new}\1", text)  # as in `__slots__`
        return text

    def _renamed_attribute(self, dotted: str) -> str:
        """The new name of a symbol that a text names with its module, as in a test that replaces it."""
        module, _, symbol = dotted.rpartition(".")
        new = self._new_symbol(module, symbol) if self._project.is_module(module) else None
        return f"{module}.{new}" if new else dotted

    def _in_formatted_strings(self) -> dict[str, str]:
        """Expressions in formatted strings: their nodes have no places of their own."""
        found = {}
        strings = [node for node in ast.walk(self._tree) if isinstance(node, ast.JoinedStr)]
        for node in (inner for one in strings for inner in ast.walk(one)):
            if isinstance(node, ast.Name) and node.id in self._symbols:
                found[node.id] = self._symbols[node.id]
            elif isinstance(node, ast.Attribute) and (new := self._new_attribute(node)):
                dotted = ast.unparse(node.value)
                found[f"{dotted}.{node.attr}"] = f"{self._symbols.get(dotted, dotted)}.{new}"
            elif isinstance(node, ast.Attribute) and node.attr in self._words:
                found[ast.unparse(node)] = f"{ast.unparse(node.value)}.{self._words[node.attr]}"
        return dict(sorted(found.items(), key=lambda one: -len(one[0])))

    def _span(self, node: ast.stmt) -> tuple[int, int]:
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno or 0, node.end_col_offset or 0)

    def _place(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _char_place(self, place: tuple[int, int]) -> int:
        """The place of a line and a column in characters, in bytes."""
        row, column = place[0] - 1, place[1]
        line = self._text_lines[row] if row < len(self._text_lines) else ""
        return self._lines[min(row, len(self._lines) - 1)] + len(line[:column].encode())


def _outside_of_strings(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of formatted strings."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.JoinedStr):
            yield from _outside_of_strings(child)


def _import_text(one: ast.alias) -> str:
    return f"{one.name} as {one.asname}" if one.asname else one.name


def _is_distinct(name: str) -> bool:
    """Whether a text that has this name means it: an English word does not."""
    return "_" in name or any(letter.isupper() for letter in name[1:]) or name[:1].isupper()


def _words_in(path: str, batch: Batch) -> dict[str, str]:
    words = {}
    for where, new in batch.words.items():
        folder, _, old = where.rpartition(":")
        if path == folder or path.startswith(f"{folder}/"):
            words[old] = new
    return words
