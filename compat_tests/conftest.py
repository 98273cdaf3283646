"""The broker under test, shared by the tests of a run, and topic names that never meet."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.late_workers import TRIED_AGAIN
from compat_tests.harness.target import TARGET, target_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker

HERE = Path(__file__).parent
WITH_SPARK = {HERE / folder for folder in ("applications/spark", "applications/jobs", "features/install")}

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests for a single broker if there are three, and rerun tests of Spark if a Python worker was late."""
    for item in items if TARGET == "cluster" else ():
        mark = item.get_closest_marker("one_broker")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
    for item in items:
        if item.path.parent in WITH_SPARK:
            item.add_marker(TRIED_AGAIN)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with its default configuration for the whole run."""
    with target_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic does not exist yet."""
    return f"{request.node.originalname.removeprefix('test_')[:40]}-{next(_numbers)}"
