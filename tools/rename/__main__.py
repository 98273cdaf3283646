"""Rename over the whole project.

`python -m tools.rename apply BATCH` applies a batch of tools/renames.toml to code, contracts, documents and mutants.
`python -m tools.rename where NAME` prints the present name of an old one. `python -m tools.rename rebase` makes the
patches of all mutants anew for the sources as they are, with their line numbers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.rename.batches import Batch, moved, read_batches, where, without_plan
from tools.rename.documents import rename_document
from tools.rename.mutants import head_of, mutated, patch_of
from tools.rename.paths import rename_paths
from tools.rename.project import Project, module_of
from tools.rename.source import ClashError, rename_source

ROOT = Path(__file__).resolve().parents[2]
BATCHES = ROOT / "tools" / "renames.toml"
RUFF = [str(Path(sys.executable).parent / "ruff")]
TEXT_NAMES = ".toml .yaml .yml .cfg .ini .in .json .service .sh .importlinter Makefile Dockerfile"
HISTORY = ("docs/ledger", "benchmarks/results", "tools/renames.toml", "CHANGELOG.md")  # tell of what was


def main() -> int:
    """Run one of the commands; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.rename", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("apply", help="Apply one batch.").add_argument("batch", help="Name of the batch.")
    commands.add_parser("where", help="Print the present name of an old one.").add_argument(
        "name", help="The old name."
    )
    commands.add_parser("rebase", help="Make the patches of all mutants anew.")
    asked = parser.parse_args()
    batches = read_batches(BATCHES)
    if asked.command == "where":
        lines = where(batches, asked.name)
        print("\n".join(lines) or f"{asked.name} has not been renamed")
        return 0 if lines else 1
    chosen = {one.name: one for one in batches}
    if asked.command == "apply" and asked.batch not in chosen:
        parser.error(f"{BATCHES.name} has no batch {asked.batch!r}, but {', '.join(chosen)}")
    Tree(ROOT, Batch("rebase") if asked.command == "rebase" else chosen[asked.batch]).apply()
    if asked.command == "apply":
        BATCHES.write_text(without_plan(BATCHES.read_text(encoding="utf-8"), asked.batch), encoding="utf-8")
    return 0


class Tree:
    """The files of a git checkout, and a batch for them."""

    def __init__(self, root: Path, batch: Batch) -> None:
        self._root, self._batch = root, batch
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
        self._paths = [path for path in sorted(set(listed.splitlines())) if (root / path).is_file()]
        self._sources = {path: self._read(path) for path in self._paths if path.endswith(".py")}
        self._project = Project(self._sources)
        self._ambiguous = self._project.ambiguous()

    def apply(self) -> None:
        """Write all files, or stop before the first is written."""
        self._refuse_unknown()
        new = self._new_sources()
        texts = {path: self._renamed_text(path) for path in self._paths if self._is_text(path)}
        mutants = {path: self._mutated(path) for path in self._paths if path.endswith(".patch")}
        changed = [path for path, text in new.items() if self._sources.get(path) != text]
        for path, text in (new | texts).items():
            self._write(path, text)
        gone = [path for path in self._paths if self._new_path(path) != path]
        for path in gone:
            self._take_away(path, is_new=path in new)
        self._tidy(changed)
        for path, files in mutants.items():
            self._write_patch(path, files)
        print(f"{self._batch.name}: {len(gone)} files moved, {len(changed)} changed, {len(mutants)} patches made anew")

    def _take_away(self, path: str, *, is_new: bool) -> None:
        """Remove a Python file from its old place, unless another is there now (`is_new`); move any other file."""
        new = self._root / self._new_path(path)
        if not path.endswith(".py"):
            new.parent.mkdir(parents=True, exist_ok=True)
            (self._root / path).rename(new)
        elif not is_new:
            (self._root / path).unlink()

    def _read(self, path: str) -> str:
        return (self._root / path).read_text(encoding="utf-8")

    def _new_sources(self) -> dict[str, str]:
        """New path -> text. Stops where new names clash."""
        new, clashes = {}, []
        for path, text in self._sources.items():
            try:
                new[self._new_path(path)] = rename_source(path, text, self._project, self._batch)
            except ClashError as clash:
                clashes.append(str(clash))
        if clashes:
            raise SystemExit("\n".join(clashes))
        return new

    def _refuse_unknown(self) -> None:
        modules = self._project.modules
        packages = {name.rpartition(".")[0] for name in modules}
        unknown = [name for name in self._batch.modules if name not in modules and name not in packages]
        for name in self._batch.symbols:
            module, _, symbol = name.rpartition(".")
            if module not in modules or symbol not in modules[module].defined:
                unknown.append(name)
        if unknown:
            raise SystemExit(f"not there: {', '.join(unknown)}")

    def _new_path(self, path: str) -> str:
        modules = self._batch.modules
        if not path.endswith(".py"):
            folder, _, name = path.rpartition("/")
            package = folder.replace("/", ".")
            return path if moved(package, modules) == package else f"{moved(package, modules).replace('.', '/')}/{name}"
        module = module_of(path)
        if module == moved(module, modules):
            return path
        return f"{moved(module, modules).replace('.', '/')}{'/__init__' if path.endswith('/__init__.py') else ''}.py"

    def _is_text(self, path: str) -> bool:
        return path.endswith((".md", *TEXT_NAMES.split())) and not path.startswith(HISTORY)

    def _renamed_text(self, path: str) -> str:
        text = self._read(path)
        return (
            rename_document(text, self._batch, self._ambiguous)
            if path.endswith(".md")
            else rename_paths(text, self._batch.modules)
        )

    def _mutated(self, path: str) -> dict[str, str]:
        """New path -> text of each file with the mutant in it."""
        try:
            files = mutated(self._read(path), self._sources)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"{path} does not apply: {error.stdout}{error.stderr}") from error
        return {
            self._new_path(one): rename_source(one, text, self._project, self._batch) for one, text in files.items()
        }

    def _write_patch(self, path: str, files: dict[str, str]) -> None:
        """Write a patch anew. The sources are written before: ruff has to find the modules that they import."""
        before = {one: self._read(one) for one in files}
        changed = {one for one in files if before[one] != self._sources.get(one)}
        changes = {
            one: (before[one], self._tidied(one, text) if one in changed else text) for one, text in files.items()
        }
        path = self._new_path(path)
        self._write(path, patch_of(rename_document(head_of(self._read(path)), self._batch, self._ambiguous), changes))

    def _write(self, path: str, text: str) -> None:
        place = self._root / path
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def _tidy(self, paths: list[str]) -> None:
        for command in (["check", "--quiet", "--fix", "--exit-zero", "--select", "I"], ["format", "--quiet"]):
            if paths:
                subprocess.run([*RUFF, *command, *paths], cwd=self._root, check=True)

    def _tidied(self, path: str, text: str) -> str:
        """The tidied text of a source that is no file."""
        name = ["--quiet", "--stdin-filename", path, "-"]
        for command in (["check", "--fix", "--exit-zero", "--select", "I", *name], ["format", *name]):
            done = subprocess.run(
                [*RUFF, *command], input=text, cwd=self._root, check=True, capture_output=True, text=True
            )
            text = done.stdout
        return text


if __name__ == "__main__":
    sys.exit(main())
