"""Reruns of tests in which a Python worker of Spark was late on a busy machine."""

from __future__ import annotations

import pytest

# Spark gives a Python worker ten seconds to start, which is fixed (PythonWorkerFactory). Beside brokers that start and
# stop on the same few cores it may take longer: then the test is run again, as a user would run the query again.
TRIED_AGAIN = pytest.mark.flaky(reruns=2, only_rerun=["Python worker failed to connect back"])
