"""An ensemble for the run, and a clock that is the servers' too."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.zookeeper import ZooKeeperEnsemble, zookeeper_ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three servers, all of them serving."""
    with zookeeper_ensemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def chroot() -> str:
    """A path that no other test uses; its node does not exist yet."""
    return f"/tests-{next(_numbers)}"
