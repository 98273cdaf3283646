"""The distributions: their files, and that a broker runs from them where nothing else is installed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

import kafkawire
from compat_tests.clients.confluent.clients import wait_until
from compat_tests.features.install.conftest import WITHIN_S, build_wheel
from compat_tests.harness.broker import free_port, someone_listens
from compat_tests.harness.requirements import ROOT
from compat_tests.harness.tools import project_files, run
from kafkawire.cli import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGES = {"kafkawire", "engine", "coordinator", "tiering", "spark_connectors"}
RENAMED = {"spark_connectors/default_source.py": "pyspark_kafkawire.py"}
BESIDE_THEM = {
    "testkit",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "NOTICE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "docs",
    "pyproject.toml",
    "requirements",
    ".gitignore",
}


@pytest.fixture(scope="session")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of commands of an environment with the wheel and its dependencies, as pinned."""
    place = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", str(place)], timeout_s=WITHIN_S)
    locked = (ROOT / "requirements" / "base.txt").read_text()
    pins = place / "pins.txt"
    pins.write_text("\n".join(line.rstrip(" \\") for line in locked.splitlines() if re.match(r"\w", line)))
    pip = str(place / "bin" / "pip")
    run([pip, "install", "--quiet", "--constraint", str(pins), str(wheel)], timeout_s=WITHIN_S)
    run([pip, "check"])
    return place / "bin"


def tops(names: Iterable[str]) -> set[str]:
    return {PurePosixPath(name).parts[0] for name in names}


def shipped_files() -> set[str]:
    """Files of the packages, without the tests, by the names that they are given."""
    names = (name for name in project_files(*PACKAGES) if "tests" not in PurePosixPath(name).parts)
    return {RENAMED.get(name, name) for name in names}


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_sdist_has_the_packages_with_their_tests_and_documents(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert tops(names) == PACKAGES | BESIDE_THEM
    assert "engine/tests/test_log_model.py" in names


def test_the_wheel_has_the_packages_without_their_tests(wheel: Path) -> None:
    metadata = f"kafkawire-{kafkawire.__version__}.dist-info"
    names = files_of(wheel)
    assert tops(names) == {*PACKAGES, *RENAMED.values(), metadata}
    assert {name for name in names if not name.startswith(metadata)} == shipped_files()
    assert {f"{metadata}/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= names


def test_nothing_is_found_wrong_with_the_wheel(wheel: Path) -> None:
    checker = Path(sys.executable).with_name("check-wheel-contents")
    assert run([str(checker), str(wheel)], directory=ROOT) == f"{wheel}: OK\n"


def test_an_image_is_given_all_that_a_wheel_has(wheel: Path, tmp_path: Path) -> None:
    """No image is built here. The files that the Dockerfile copies before `pip install` are enough to build the same
    wheel."""
    source = tmp_path / "src"
    for line in (ROOT / "docker" / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            *names, target = line.split()[1:]
            for name in names:
                place = source / target if len(names) == 1 and not target.endswith("/") else source / target / name
                place.parent.mkdir(parents=True, exist_ok=True)
                run(["cp", "--recursive", str(ROOT / name), str(place)])
    assert files_of(build_wheel(source, tmp_path)) == files_of(wheel)


def test_every_command_has_help(commands: Path, tmp_path: Path) -> None:
    assert alone(commands, tmp_path, "--version") == f"kafkawire, version {kafkawire.__version__}\n"
    helped = alone(commands, tmp_path, "--help")
    for name in COMMANDS:
        assert f"\n  {name} " in helped
        assert alone(commands, tmp_path, name, "--help").startswith(f"Usage: kafkawire {name} ")


def test_records_there_and_back(commands: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    told = json.loads(alone(commands, tmp_path, "demo", "-b", address, "-o", "json", "--timeout", "60"))
    pid = told["started"]["pid"]
    try:
        assert (told["created"], told["records"]) == (True, 1000)
        assert (
            len(alone(commands, tmp_path, "consume", "demo", "-b", address, "--from-beginning", "-n", "3").split()) == 3
        )
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not someone_listens(address), "the broker does not stop")


def alone(commands: Path, directory: Path, *arguments: str) -> str:
    """The output of `kafkawire` away from the sources and from this environment."""
    done = subprocess.run(
        [str(commands / "kafkawire"), *arguments], cwd=directory, env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout
