"""Says what a test needs from the machine and skips it, with a reason, where that is missing.

Every reason begins with `needs `: tools/suite.py counts such a skip as a failure in CI.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KAFKA_JARS = ROOT / ".cache" / "jars" / "kafka"
SPARK_JARS = ROOT / ".cache" / "jars" / "spark"
KASKADE = ROOT / ".cache" / "kaskade"


def need_command(name: str, remedy: str) -> str:
    """The path of a command, or a skip that says how to get it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}: {remedy}")
    return path


def need_kcat() -> str:
    return need_command("kcat", "make system-deps")


def need_java() -> str:
    return need_command("java", "install Java 17")


def need_kafka_jars() -> Path:
    """Apache Kafka's jars, and a Java to run them."""
    need_java()
    if not (KAFKA_JARS / ".done").exists():
        pytest.skip("needs Apache Kafka's jars: make kafka-jars")
    return KAFKA_JARS


def need_spark_jars() -> Path:
    """The four jars of Spark's kafka source, PySpark, and a Java to run them."""
    need_java()
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs pyspark: make .venv/.spark")
    if not (SPARK_JARS / ".done").exists():
        pytest.skip("needs the jars of Spark's kafka source: make spark-jars")
    return SPARK_JARS


def need_kaskade() -> Path:
    """The Python that has the console."""
    if not (KASKADE / ".done").exists():
        pytest.skip("needs kaskade: make kaskade")
    return KASKADE / "bin" / "python"
