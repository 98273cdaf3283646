"""Clients and their versions for the tests, read from versions.toml, the only table of them."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.harness.requirements import need_oldest_python

COMPAT_TESTS = Path(__file__).resolve().parents[1]
# For a test that takes the `age` of its client; with the oldest alone where other tests try the newest.
_OLDEST = pytest.param("oldest", marks=pytest.mark.oldest)
EACH_AGE = pytest.mark.parametrize("age", ["newest", _OLDEST])
OLDEST_AGE = pytest.mark.parametrize("age", [_OLDEST])


@dataclass(frozen=True)
class Client:
    """A row of the table."""

    name: str
    what: str
    newest: str
    tests: list[str]
    oldest: str | None = None
    shown_by: list[str] | None = None  # a command that says which version is installed

    def version(self, age: str) -> str:
        assert age == "newest" or self.oldest is not None, f"{self.name} is tried in one version"
        return self.oldest if age == "oldest" and self.oldest else self.newest


def clients() -> list[Client]:
    rows = tomllib.loads((COMPAT_TESTS / "versions.toml").read_text(encoding="utf-8"))
    return [Client(name, **row) for name, row in rows.items()]


def client(name: str) -> Client:
    return next(each for each in clients() if each.name == name)


def python_with_clients(age: str) -> str:
    """A Python that has the clients written for it, of that age."""
    return sys.executable if age == "newest" else str(need_oldest_python())
