"""Clients written in other languages. They are built under .cache: nothing is left beside their sources."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from compat_tests.harness import versions
from compat_tests.harness.requirements import ROOT, need_command
from compat_tests.harness.tools import run
from compat_tests.harness.versions import COMPAT_TESTS, Client

if TYPE_CHECKING:
    from pathlib import Path

BUILT_WITHIN_S = 400.0
MANIFESTS = ("package.json", "Cargo.toml")  # Go has a whole file for another version, with its sums


def workspace(folder: str, client: Client, age: str) -> Path:
    """A directory with the newest sources of a client, and with what was built of them before, of that version."""
    version = client.version(age)
    place = ROOT / ".cache" / "clients" / f"{client.name}-{version}"
    sources = COMPAT_TESTS / folder
    shutil.copytree(sources, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for manifest in (place / name for name in MANIFESTS if (place / name).exists()):
        manifest.write_text(manifest.read_text(encoding="utf-8").replace(client.newest, version), encoding="utf-8")
    return place


def go_program(folder: str) -> str:
    """The path of what was built of a folder of the programs for franz-go."""
    go = need_command("go", "install Go 1.23.8 or newer")
    place = workspace("go", versions.client("franz-go"), "newest")
    run([go, "build", "-o", f"{folder}.program", f"./{folder}"], directory=place, timeout_s=BUILT_WITHIN_S)
    return str(place / f"{folder}.program")
