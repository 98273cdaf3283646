"""Writes docs/modules.md: who imports whom, as a picture, and what each module is for, in its docstring's words."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "modules.md"
PACKAGES = ("kafkawire", "engine", "coordinator", "tiering", "spark_connectors")
HEAD = """# Modules

<!-- Written by tools/generate_modules_doc.py from the code as it is: `make generate`. -->

The rooms of the house, and what stands in each. How a record passes through them is told in
[ARCHITECTURE](ARCHITECTURE.md); which of them may know which is enforced by the import contracts in pyproject.toml.

An arrow leads from who imports to what is imported, with the number of such imports; those for type checkers alone are
left out. A package by itself is what stands directly in its folder: in `kafkawire` that includes the composition root.
"""


def modules() -> list[str]:
    """All but tests and what is generated, by dotted name."""
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
    """The folder a module stands in; a package stands in itself."""
    return module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]


def arrows() -> Counter[tuple[str, str]]:
    """How many imports lead from one room to another."""
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


def render() -> str:
    lines = [HEAD, *picture()]
    current = ""
    for module in sorted(modules(), key=lambda one: (PACKAGES.index(one.split(".")[0]), room(one), one)):
        if room(module) != current:
            current = room(module)
            folder = current.replace(".", "/")
            lines += ["", f"## {folder}/", "", "| module | what it is for |", "|---|---|"]
        lines.append(f"| `{path_of(module).name}` | {summary(module)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    TARGET.write_text(render())


if __name__ == "__main__":
    main()
