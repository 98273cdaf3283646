"""Mutants with the renames of a batch: each patch is made anew from the sources before and behind its change."""

from __future__ import annotations

import difflib
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGET = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)


def head_of(patch: str) -> str:
    """The words before the first file of a patch."""
    return re.split(r"^(?=diff --git |--- )", patch, maxsplit=1, flags=re.MULTILINE)[0]


def mutated(patch: str, sources: Mapping[str, str]) -> dict[str, str]:
    """Path -> text of each file that a patch changes. Raises CalledProcessError if it does not apply."""
    paths = TARGET.findall(patch)
    with tempfile.TemporaryDirectory() as scratch:
        for path in paths:
            place = Path(scratch, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(sources[path], encoding="utf-8")
        command = ["patch", "--quiet", "--fuzz=0", "-p1", "-d", scratch]
        subprocess.run(command, input=patch, text=True, check=True, capture_output=True)
        return {path: Path(scratch, path).read_text(encoding="utf-8") for path in paths}


def patch_of(head: str, changes: Mapping[str, tuple[str, str]]) -> str:
    """A patch with that head. `changes`: path -> text before and behind the change."""
    parts = [head]
    for path, (before, behind) in changes.items():
        parts.append(f"diff --git a/{path} b/{path}\n")
        before_lines, behind_lines = before.splitlines(keepends=True), behind.splitlines(keepends=True)
        parts += difflib.unified_diff(before_lines, behind_lines, f"a/{path}", f"b/{path}")
    return "".join(parts)
