"""Run functions as on executors without this project's modules: they are pickled by value, and run without imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

RUN = """
import pickle, sys
sys.modules["spark_connectors"] = None  # an import of it fails, as where it is not installed
print(pickle.load(sys.stdin.buffer)())
"""


def printed_elsewhere(task: Callable[[], object]) -> str:
    """Run the task in another process. Returns the printed result."""
    cloudpickle = pytest.importorskip(
        "pyspark.cloudpickle", reason="needs pyspark: pip install -r requirements/spark.txt"
    )
    import spark_connectors

    cloudpickle.register_pickle_by_value(spark_connectors)
    try:
        pickled = cloudpickle.dumps(task)
    finally:
        cloudpickle.unregister_pickle_by_value(spark_connectors)
    done = subprocess.run([sys.executable, "-c", RUN], input=pickled, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    printed: str = done.stdout.decode().strip()
    return printed
