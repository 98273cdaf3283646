"""tools/renames.toml: the renames of this project, in batches; each batch is applied at once, one behind the other."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Batch:
    """Renames that apply together, so that a new name may be another thing's old name.

    `modules`: dotted name -> dotted name, of modules and packages. `symbols`: `module.Symbol`, as it was before the
    batch -> new name without its module. `words`: `folder:word` -> word, for names of methods and attributes in the
    Python files below a folder or in one file. `mutants`: old name -> new name of a mutant's patch; moved by hand.
    `is_planned`: it has not been applied yet.
    """

    name: str
    modules: dict[str, str] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    mutants: dict[str, str] = field(default_factory=dict)
    is_planned: bool = False


def read_batches(path: Path) -> list[Batch]:
    """Batches in the order in which they were applied."""
    return [Batch(**one) for one in tomllib.loads(path.read_text(encoding="utf-8")).get("batches", [])]


def where(batches: list[Batch], old: str) -> list[str]:
    """Each `old name -> present name` for a module, a file, a symbol or a word, or the last part of its name."""
    wanted = old.removesuffix(".py").replace("/", ".").removesuffix(".")
    lines = []
    batches = [one for one in batches if not one.is_planned]
    for number, batch in enumerate(batches):
        later = batches[number + 1 :]
        lines += [f"{was} -> {_now(name, later)}" for was, name in batch.modules.items() if _is_meant(was, wanted)]
        for was, name in batch.symbols.items():
            if _is_meant(was, wanted):
                module = moved(was.rpartition(".")[0], batch.modules)
                lines.append(f"{was} -> {_now(f'{module}.{name}', later)}")
        lines += [f"{was} -> {name}" for was, name in batch.words.items() if was.rpartition(":")[2] == wanted]
        lines += [f"{was} -> {name}" for was, name in batch.mutants.items() if was == wanted]
    return lines


def without_plan(text: str, name: str) -> str:
    """The text of tools/renames.toml with a batch that has been applied."""
    return text.replace(f'name = "{name}"\nis_planned = true\n', f'name = "{name}"\n')


def _is_meant(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith(f".{wanted}")


def _now(name: str, later: list[Batch]) -> str:
    for batch in later:
        if name in batch.symbols:
            name = f"{moved(name.rpartition('.')[0], batch.modules)}.{batch.symbols[name]}"
        else:
            name = moved(name, batch.modules)
    return name


def moved(module: str, modules: dict[str, str]) -> str:
    """The new name of a module, by the longest of the names above it that is renamed."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        above = ".".join(parts[:length])
        if above in modules:
            return ".".join([modules[above], *parts[length:]])
    return module
