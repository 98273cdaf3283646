"""The distributions, built once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.requirements import ROOT
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from pathlib import Path

WITHIN_S = 300.0  # with packages to fetch


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(place)], directory=ROOT)
    (found,) = place.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def wheel(sdist: Path) -> Path:
    """The wheel, built from the sdist, so that the sdist must have all that a build needs."""
    return build_wheel(sdist, sdist.parent)


def build_wheel(source: Path, place: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", str(place), str(source)], timeout_s=WITHIN_S)
    (found,) = place.glob("*.whl")
    return found
