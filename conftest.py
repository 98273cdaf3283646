"""Every async test runs on trio with a mock clock that jumps: no test sleeps, whatever it waits for."""

import pytest
import trio.testing


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
