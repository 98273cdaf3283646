"""Clients written in other languages. They are built under .cache: nothing is left beside their sources."""

from __future__ import annotations

import shutil
from pathlib import Path

from compat_tests.harness.requirements import ROOT

COMPAT_TESTS = Path(__file__).resolve().parents[1]
BUILT_WITHIN_S = 400.0


def workspace(client: str) -> Path:
    """A directory with the newest sources of a client, and with what was built of them before."""
    place = ROOT / ".cache" / "clients" / client
    sources = COMPAT_TESTS / client
    shutil.copytree(sources, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return place
