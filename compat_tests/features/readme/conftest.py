"""A copy of the tree with an environment of its own, for the commands of the README."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.requirements import ROOT
from compat_tests.harness.tools import project_files, run

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED_WITHIN_S = 300.0


@dataclass(frozen=True)
class Installed:
    """A tree as a clone after `make install` has it, once everything is committed, and the seconds that it took."""

    directory: Path
    seconds: float


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    begun_s = time.perf_counter()
    tree = tmp_path_factory.mktemp("clone") / "tree"
    for name in project_files():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    run(["make", "install"], directory=tree, timeout_s=INSTALLED_WITHIN_S)
    return Installed(tree, time.perf_counter() - begun_s)
