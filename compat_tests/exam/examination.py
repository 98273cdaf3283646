"""Applies a planted bug to a copy of the sources, and lets the long tests look for it.

The product has no switches for bugs: a patch that does not apply any more is to be written anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
PACKAGES = ("kafkawire", "engine", "coordinator", "tiering", "spark_connectors")
CAUGHT_WITHIN_S = 600
JOBS = str(os.cpu_count() or 1)


@dataclass(frozen=True)
class Examiner:
    """A test that finds bugs. `verdict` matches what it prints when it found one; a crash of its own is no verdict."""

    name: str
    command: tuple[str, ...]
    verdict: str


CRASH_IMAGES = Examiner(
    "crash images",
    ("engine.tests.crash_states", "--workloads", "0:1000", "--share", "0.05", "--budget-s", "150", "--jobs", JOBS),
    r"^python -m engine.tests.crash_states --workload ",
)
SIMULATION = Examiner(
    "simulated broker",
    ("kafkawire.tests.simulation", "--seeds", "0:2000", "--budget-s", "300", "--jobs", JOBS),
    r"^seed \d+ FAILED",
)
EXAMINERS = (CRASH_IMAGES, SIMULATION)


@dataclass(frozen=True)
class Outcome:
    """Who caught a bug, and by which words; None: nobody did."""

    bug: str
    examiner: str | None
    words: str
    seconds: float


def bugs() -> list[str]:
    return sorted(path.stem for path in PATCHES.glob("*.patch"))


def plant(bug: str, directory: Path) -> None:
    """A copy of the sources with the bug; raises CalledProcessError if the patch does not apply."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", directory)
    patch = str(PATCHES / f"{bug}.patch")
    # Not within a repository: a checkout around the copy must not redirect the paths.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    subprocess.run(["git", "apply", patch], cwd=directory, env=environment, check=True, capture_output=True)


def examine(bug: str, directory: Path) -> Outcome:
    """One examiner after the other, until one of them catches it or its time is over."""
    started_s = time.monotonic()
    for examiner in EXAMINERS:
        left_s = CAUGHT_WITHIN_S - (time.monotonic() - started_s)
        if left_s <= 0:
            break
        words = run(examiner, directory, left_s)
        if words is not None:
            return Outcome(bug, examiner.name, words, time.monotonic() - started_s)
    return Outcome(bug, None, "", time.monotonic() - started_s)


def run(examiner: Examiner, directory: Path, timeout_s: float) -> str | None:
    """What it says it found in the sources of `directory`."""
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    environment.pop("KAFKAWIRE_LEDGER_SUMMARY", None)
    process = subprocess.Popen(
        [sys.executable, "-m", *examiner.command],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    found = re.search(f"{examiner.verdict}.*", output, re.MULTILINE)
    if found is None and process.returncode not in (0, -9):
        raise RuntimeError(f"{examiner.name} did not run:\n{output[-2000:]}")
    return None if found is None else found.group()
