"""Refuses to start if a sibling package is foreign.

Another distribution could have packages named `engine`, `coordinator` or `tiering`, and overwrite kafkawire's silently
(pypa/pip#4625). So the start checks that each of them lies beside `kafkawire`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

SIBLINGS: Final = ("engine", "coordinator", "tiering")


class ForeignSibling(Exception):
    """A package of kafkawire would be imported from elsewhere; the text is the line for the user."""


def check_siblings() -> None:
    """Check that the sibling packages lie beside kafkawire. Raises ForeignSibling."""
    home = Path(__file__).resolve().parents[2]
    for name in SIBLINGS:
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if found != home / name:
            raise ForeignSibling(
                f"package {name} is at {found or 'no place'}, not beside kafkawire in {home}: "
                "another installed package has the same name; install kafkawire in an environment of its own"
            )
