"""Each module with the first sentence of its docstring, by folder; with `--picture` the imports between folders too.

`python -m tools.modules [FOLDER]` prints Markdown. An arrow of the picture leads from the importing folder to the
imported one, with the number of such imports; those for type checkers alone are left out.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from pathlib import Path

import grimp

from tools.packages import PACKAGES

ROOT = Path(__file__).parent.parent


def modules() -> list[str]:
    """All modules but tests and generated ones, by dotted name."""
    found = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if ".tests" not in name and not name.startswith("kafkawire.messages."):
                found.append(name)
    return sorted(found)


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def summary(module: str) -> str:
    """The first sentence of the docstring, or its first line."""
    docstring = ast.get_docstring(ast.parse(path_of(module).read_text())) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".").replace("|", "\\|")


def room(module: str) -> str:
    """The folder of a module; a package is its own folder."""
    return module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]


def arrows() -> Counter[tuple[str, str]]:
    """The number of imports from one folder to another."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    known = set(modules())
    found: Counter[tuple[str, str]] = Counter()
    for importer in known:
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = room(importer), room(imported if imported in known else imported.rpartition(".")[0])
            if pair[0] != pair[1]:
                found[pair] += 1
    return found


def picture() -> list[str]:
    lines = ["```mermaid", "flowchart TD"]
    rooms = sorted({room(module) for module in modules()})
    for package in PACKAGES:
        lines.append(f"  subgraph {package}_[{package}]")
        lines += [f"    {each.replace('.', '_')}[{each}]" for each in rooms if each.split(".")[0] == package]
        lines.append("  end")
    lines += [
        f"  {importer.replace('.', '_')} -->|{count}| {imported.replace('.', '_')}"
        for (importer, imported), count in sorted(arrows().items())
    ]
    return [*lines, "```"]


def tables(folder: str = "") -> list[str]:
    """A table for each folder below `folder`."""
    lines: list[str] = []
    current = ""
    for module in sorted(modules(), key=lambda one: (PACKAGES.index(one.split(".")[0]), room(one), one)):
        here = room(module).replace(".", "/")
        if not f"{here}/".startswith(folder):
            continue
        if here != current:
            current = here
            lines += ["", f"## {here}/", "", "| module | purpose |", "|---|---|"]
        lines.append(f"| `{path_of(module).name}` | {summary(module)} |")
    return lines


def main() -> int:
    """Print the tables, and the picture if it is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.modules", description="Print each module with its purpose.")
    parser.add_argument("folder", nargs="?", default="", help="Only modules below this folder, such as engine/logs.")
    parser.add_argument("--picture", action="store_true", help="Print the imports between folders as a Mermaid graph.")
    asked = parser.parse_args()
    print("\n".join([*(picture() if asked.picture else []), *tables(asked.folder)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
