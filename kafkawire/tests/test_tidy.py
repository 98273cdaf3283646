"""House rules that readers rely on and no linter checks (after TigerBeetle's tidy test)."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest

from kafkawire.handlers import API_TABLE
from spark_connectors.jobs.__main__ import COMMANDS
from tools import generate_config_doc
from tools.packages import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "kafkawire/messages/"
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600  # a longer module has more than one reason to change
MACHINE_PATHS = re.compile("/" + "work/|/" + "root/|/" + "home/[a-z]")


@cache
def tracked(suffix: str = "") -> list[Path]:
    """Files of the working tree that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    return [ROOT / name for name in sorted(listing) if name.endswith(suffix) and (ROOT / name).is_file()]


def modules() -> list[Path]:
    """Hand-written modules that are shipped."""
    return [
        path
        for path in tracked(".py")
        if path.relative_to(ROOT).parts[0] in PACKAGES and "tests" not in path.parts and not is_generated(path)
    ]


def is_generated(path: Path) -> bool:
    return str(path.relative_to(ROOT)).startswith(GENERATED)


def test_the_engine_has_no_circle_of_imports() -> None:
    """Imports for type checkers count too: two modules that know each other are one."""
    graph = grimp.build_graph("engine", cache_dir=None)
    remaining = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    while ready := [one for one, imported in remaining.items() if not imported & remaining.keys()]:
        for one in ready:
            del remaining[one]
    assert not remaining


def test_handler_files_match_the_rows_of_the_api_table() -> None:
    files = {path.stem for path in (ROOT / "kafkawire/handlers").glob("*.py")} - {"__init__"}
    assert files == {api.name for api in API_TABLE}
    assert files <= {path.stem for path in (ROOT / "kafkawire/messages").glob("*.py")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MODULE_LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_orphan_module() -> None:
    """Each module is imported by another shipped one, or is an entry point."""
    imported: set[str] = set()
    for path in modules():
        imported |= imports_of(path)
    entry_points = {
        "kafkawire.__main__",
        "kafkawire.testing",
        "coordinator.testing.fakes",
        "coordinator.testing.images",
        "spark_connectors.default_source",
        "spark_connectors.jobs.__main__",
        "spark_connectors.lag",
        *(f"spark_connectors.jobs.cli.{name}" for name in COMMANDS),
        *(f"kafkawire.handlers.{api.name}" for api in API_TABLE),
    }
    orphans = {dotted(path) for path in modules()} - imported - entry_points
    assert not orphans


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Dotted names that a module imports, with their parents; a subcommand named in a table counts."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("kafkawire."):
            names.add(node.value)
    return names | {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 1)}


ALLOWS_EVERYTHING = {"allow_all", "ANONYMOUS"}


def defaults_of(node: ast.AST) -> list[ast.expr]:
    """The default values of arguments and of fields."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
    if isinstance(node, ast.ClassDef):
        return [one.value for one in node.body if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None]
    return []


def opens(default: ast.expr) -> bool:
    named = {one.id for one in ast.walk(default) if isinstance(one, ast.Name)}
    return bool(ALLOWS_EVERYTHING & (named | {one.attr for one in ast.walk(default) if isinstance(one, ast.Attribute)}))


def test_a_default_that_opens_is_seen() -> None:
    guilty = """
def function(authorizer=allow_all, *, principal=context.ANONYMOUS): ...
class Values:
    authorizer: Authorizer = field(default=allow_all)
    innocent: Authorizer
"""
    found = [one for node in ast.walk(ast.parse(guilty)) for one in defaults_of(node) if opens(one)]
    assert [one.lineno for one in found] == [2, 2, 4]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_open_by_default(path: Path) -> None:
    """Permissions come from the composition root: an omitted argument allows nothing."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert [ast.unparse(one) for one in defaults_of(node) if opens(one)] == []


def texts() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_no_path_of_one_machine() -> None:
    assert [f"{path}: {hit.group()}" for path, text in texts() for hit in MACHINE_PATHS.finditer(text)] == []


def test_every_rule_that_is_named_is_written_down() -> None:
    listed = (ROOT / "docs/rules.md").read_text(encoding="utf-8")
    rules = set(re.findall(r"^### ([A-Z]\d+) ", listed, re.MULTILINE))
    named = {rule for _, text in texts() for rule in re.findall(r"RULES ([A-Z]\d+)\b", text)}
    assert named
    assert named <= rules


def test_configuration_document_is_current() -> None:
    """Each accepted key also has a test that shows its effect: the generator refuses otherwise."""
    assert (ROOT / "docs/configs.md").read_text(encoding="utf-8") == generate_config_doc.render()
