"""Refuses to start beside strangers.

The packages `engine`, `coordinator` and `tiering` have names that another distribution could take, and a package
installed over ours would be imported without a word (pypa/pip#4625). So start-up checks that each lies beside
`kafkawire`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

SIBLINGS: Final = ("engine", "coordinator", "tiering")


class StrangeSibling(Exception):
    """A package of ours would be imported from somewhere else; the text is one line for the user."""


def check_siblings() -> None:
    """Raises StrangeSibling when a sibling package is missing or lies elsewhere than beside kafkawire."""
    home = Path(__file__).resolve().parents[2]
    for name in SIBLINGS:
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if found != home / name:
            raise StrangeSibling(
                f"package {name} is at {found or 'no place'}, not beside kafkawire in {home}: "
                "another installed package has the same name; install kafkawire in an environment of its own"
            )
