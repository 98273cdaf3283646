"""Strays of a log dir that no broker has open: rename them back to partition directories, and delete them.

For the command line: blocking, within `inspection.held`. The next start of the broker decides about restored ones.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.files.filesystem import FileSystem
from engine.log_dirs.layout import directory_name
from engine.log_dirs.stray_files import Stray, delete_strays, find_strays, rename_back


class StrayReport(NamedTuple):
    """The lines of a command, one for each stray."""

    done: list[str]
    problems: list[str]


def restore(filesystem: FileSystem, path: str, names: Sequence[str]) -> StrayReport:
    """Rename strays to partition directories. Their checkpoint entries go with them (RULES D3)."""
    outcome, taken = StrayReport([], []), set[str]()
    for name, stray in _named(filesystem, path, names, outcome):
        if stray.metadata is None:
            outcome.problems.append(f"{name}: stray.metadata is missing or damaged")
            continue
        plain = directory_name(stray.metadata.partition)
        if plain in taken or filesystem.exists(f"{path}/{plain}"):
            outcome.problems.append(f"{name}: there is a directory {plain}")
            continue
        rename_back(filesystem, path, [stray])
        taken.add(plain)
        outcome.done.append(f"{name} is {plain} again")
    return outcome


def delete(filesystem: FileSystem, path: str, names: Sequence[str]) -> StrayReport:
    """Delete strays, with or without metadata."""
    outcome = StrayReport([], [])
    for name, stray in _named(filesystem, path, names, outcome):
        delete_strays(filesystem, path, [name])
        outcome.done.append(f"{name} is deleted: {stray.size_bytes} bytes of topic {stray.topic}")
    return outcome


def _named(filesystem: FileSystem, path: str, names: Sequence[str], outcome: StrayReport) -> list[tuple[str, Stray]]:
    known = {one.name: one for one in find_strays(filesystem, path)}
    outcome.problems.extend(f"{name}: there is no such stray" for name in names if name not in known)
    return [(name, known[name]) for name in dict.fromkeys(names) if name in known]
