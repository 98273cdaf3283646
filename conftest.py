"""Every async test runs on trio with a mock clock that jumps: no test sleeps, whatever it waits for."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
import trio.testing
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from testkit.certificates import Authority

# How fast a machine is that does other things as well says nothing about the code.
settings.register_profile("patient", settings(), suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("patient")

# Where rich happens to be installed, a traceback would show all variables, which takes seconds.
renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.fixture
def authority(tmp_path: Path) -> "Authority":
    """A certificate authority that writes its files into the directory of the test."""
    from testkit.certificates import Authority, shared_ca  # tests of installed packages lack what it needs

    return Authority(tmp_path, shared_ca())
