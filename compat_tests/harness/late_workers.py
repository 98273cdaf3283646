"""What Spark is late with on a machine that is busy."""

from __future__ import annotations

import pytest

# Spark gives a Python worker ten seconds to start, which is fixed (PythonWorkerFactory). Beside brokers that start and
# stop on the same few cores it may take longer: then a test is tried again, as whoever runs such a query does.
TRIED_AGAIN = pytest.mark.flaky(reruns=2, only_rerun=["Python worker failed to connect back"])
