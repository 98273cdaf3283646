"""Requirements of tests on the machine: a test is skipped, with a reason, if one is missing.

Every reason begins with `needs `: tools/suite.py counts such a skip as a failure in CI.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "jars"
KAFKA_JARS = JARS / "kafka"
CONNECT_JARS = JARS / "connect"
KAFKA_TIER_JARS = JARS / "kafka-tier"
SPARK_JARS = JARS / "spark"
REGISTRY_JARS = JARS / "registry"
ZOOKEEPER_JARS = JARS / "zookeeper"
OLDEST_KAFKA_JARS = JARS / "oldest-kafka"
KASKADE = ROOT / ".cache" / "kaskade"
QUARKUS = ROOT / ".cache" / "quarkus"
QUIX = ROOT / ".cache" / "quix"
PROMTOOL = ROOT / ".cache" / "promtool" / "promtool"
COMPILED = ROOT / ".cache" / "compiled"
S3_SERVERS = ROOT / ".cache" / "s3"
NEWEST_SPARK = ROOT / ".cache" / "newest-spark"
OLDEST_PYTHON = ROOT / ".cache" / "oldest-python"
IS_NEWEST_SPARK = os.environ.get("KAFKAWIRE_PYSPARK") == "newest"


def need_command(name: str, remedy: str) -> str:
    """The path of a command. Skips the test without it, with advice."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}: {remedy}")
    return path


def need_file(path: Path, what: str, remedy: str) -> None:
    """Skip the test unless the file exists; `remedy` says how to fetch or make it."""
    if not path.exists():
        pytest.skip(f"needs {what}: {remedy}")


def need_compiled() -> Path:
    """A copy of the packages with compiled modules in it."""
    need_command("cc", "install a C compiler")
    need_file(COMPILED / ".done", "compiled modules", "make compiled")
    return COMPILED


def need_kcat() -> str:
    return need_command("kcat", "make system-deps")


def need_java() -> str:
    return need_command("java", "install Java 17")


def need_kafka_jars() -> Path:
    """Apache Kafka's jars, and a Java to run them."""
    need_java()
    need_file(KAFKA_JARS / ".done", "Apache Kafka's jars", "make kafka-jars")
    return KAFKA_JARS


def need_connect_jars() -> Path:
    """Kafka Connect's jars with MirrorMaker 2, and a Java to run them."""
    need_java()
    need_file(CONNECT_JARS / ".done", "Kafka Connect's jars", "make connect-jars")
    return CONNECT_JARS


def need_kafka_tier_jars() -> Path:
    """Apache Kafka with its store in a directory for the remote tier, and all that `need_kafka_jars` says."""
    need_kafka_jars()
    need_file(KAFKA_TIER_JARS / ".done", "LocalTieredStorage", "make kafka-tier-jars")
    return KAFKA_TIER_JARS


def need_spark_jars() -> Path:
    """The four jars of Spark's kafka source, PySpark, and a Java to run them."""
    need_pyspark()
    need_file(SPARK_JARS / ".done", "the jars of Spark's kafka source", "make spark-jars")
    return SPARK_JARS


def need_pyspark() -> Path:
    """PySpark's directory. Skips the test without PySpark or Java."""
    need_java()
    if IS_NEWEST_SPARK:
        need_newest_spark()
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("needs pyspark: make .venv/.spark")
    return Path(spec.origin).parent


def need_newest_spark() -> Path:
    """The directory of packages with the newest PySpark. Skips the test without it or without Java."""
    need_java()
    need_file(NEWEST_SPARK / ".done", "the newest PySpark", "make newest-spark")
    return NEWEST_SPARK


def need_jars(name: str) -> Path:
    """The jars of a framework, and a Java to run them."""
    need_java()
    need_file(JARS / name / ".done", f"the jars of {name}", "make framework-jars")
    return JARS / name


def need_quarkus() -> Path:
    """The built application for Quarkus, and a Java to run it."""
    need_java()
    need_file(QUARKUS / ".done", "the application for Quarkus", "make quarkus")
    return QUARKUS / "quarkus-app" / "quarkus-run.jar"


def need_quix() -> Path:
    """The Python that has Quix Streams."""
    need_file(QUIX / ".done", "Quix Streams", "make quix")
    return QUIX / "bin" / "python"


def need_registry_jars() -> Path:
    """Apicurio Registry, and a Java to run it."""
    need_java()
    need_file(REGISTRY_JARS / ".done", "Apicurio Registry", "make registry-jars")
    return REGISTRY_JARS


def need_zookeeper_jars() -> Path:
    """ZooKeeper's jars, and a Java to run them."""
    need_java()
    need_file(ZOOKEEPER_JARS / ".done", "ZooKeeper's jars", "make zookeeper-jars")
    return ZOOKEEPER_JARS


def need_kaskade() -> Path:
    """The Python that has the console."""
    need_file(KASKADE / ".done", "kaskade", "make kaskade")
    return KASKADE / "bin" / "python"


def need_promtool() -> Path:
    """Prometheus' checker of rules."""
    need_file(PROMTOOL, "promtool", "make system-deps")
    return PROMTOOL


def need_s3_server(name: str) -> Path:
    """The program of a real S3 server: `versitygw` or `minio`."""
    need_file(S3_SERVERS / name, name, "make minio-server" if name == "minio" else "make s3-server")
    return S3_SERVERS / name


def need_oldest_python() -> Path:
    """A Python that has the oldest versions of the clients written for it."""
    need_file(OLDEST_PYTHON / ".done", "the oldest clients", "make oldest-clients")
    return OLDEST_PYTHON / "bin" / "python"


def need_oldest_kafka_jars() -> Path:
    """The oldest version of Java's client, and a Java to run it."""
    need_java()
    need_file(OLDEST_KAFKA_JARS / ".done", "the oldest clients", "make oldest-clients")
    return OLDEST_KAFKA_JARS
