"""Dotted names and file names of modules in any text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def rename_paths(text: str, modules: Mapping[str, str]) -> str:
    """The text with the new dotted names and paths of modules: all at once, the longest name first."""
    for begin, end, new in reversed(list(renamed_paths(text, modules))):
        text = text[:begin] + new + text[end:]
    return text


def renamed_paths(text: str, modules: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Begin, end and new name of each module that a text names."""
    if modules:
        for found in _pattern(tuple(sorted(modules))).finditer(text):
            yield found.start(), found.end(), _renamed(found.group(), modules)


@lru_cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    forms = sorted((form for name in names for form in (name, name.replace(".", "/"))), key=len, reverse=True)
    return re.compile(rf"(?:(?<![\w./])|(?<=\.\./))(?:{'|'.join(map(re.escape, forms))})(?!\w)")


def _renamed(form: str, modules: Mapping[str, str]) -> str:
    if form in modules:
        return modules[form]
    return modules[form.replace("/", ".")].replace(".", "/")
