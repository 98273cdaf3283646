"""Clients written in other languages. They are built under .cache: nothing is left beside their sources."""

from __future__ import annotations

import fcntl
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness import versions
from compat_tests.harness.requirements import ROOT, need_command
from compat_tests.harness.tools import run
from compat_tests.harness.versions import COMPAT_TESTS

if TYPE_CHECKING:
    from compat_tests.harness.versions import Client

BUILT_WITHIN_S = 400.0
NODE = "install Node 18 or newer"
MANIFESTS = ("package.json", "Cargo.toml")  # Go has a whole file for another version, with its sums


def built(folder: str, client: Client, age: str, command: list[str]) -> Path:
    """A directory with the newest sources of `clients/<folder>`, and with the result of `command` for that version.

    Test runs beside each other share it: one builds at a time, and a file that is right is left alone, as it may be in
    use.
    """
    version = client.version(age)
    place = ROOT / ".cache" / "clients" / f"{client.name}-{version}"
    place.mkdir(parents=True, exist_ok=True)
    put = partial(_put, client, version)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        others = shutil.ignore_patterns("*.py", "__pycache__")
        shutil.copytree(COMPAT_TESTS / "clients" / folder, place, dirs_exist_ok=True, ignore=others, copy_function=put)
        run(command, directory=place, timeout_s=BUILT_WITHIN_S)
    return place


def _put(client: Client, version: str, source: str, target: str) -> None:
    text, there = Path(source).read_text(encoding="utf-8"), Path(target)
    if there.name in MANIFESTS:
        text = text.replace(client.newest, version)
    if not there.exists() or there.read_text(encoding="utf-8") != text:
        there.write_text(text, encoding="utf-8")


def kafkajs_program(name: str, age: str) -> list[str]:
    """The command that runs a program for kafkajs."""
    return [need_command("node", NODE), str(_npm_installed("node", versions.client("kafkajs"), age) / name)]


def platformatic_program(name: str) -> list[str]:
    """The command that runs a program for @platformatic/kafka, with the Node that is installed with it."""
    place = _npm_installed("platformatic", versions.client("platformatic-kafka"), "newest")
    return [str(place / "node_modules" / "node" / "bin" / "node"), str(place / name)]


def _npm_installed(folder: str, client: Client, age: str) -> Path:
    npm = need_command("npm", NODE)
    install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    return built(folder, client, age, install)


def go_program(folder: str) -> str:
    """The path of the built program of a folder with sources for franz-go."""
    go = need_command("go", "install Go 1.23.8 or newer")
    build = [go, "build", "-o", f"{folder}.program", f"./{folder}"]
    return str(built("go", versions.client("franz-go"), "newest", build) / f"{folder}.program")
