"""The Spark connectors alone: from a wheel, from a zip, and found by PySpark without being registered.

The environments have PySpark, pyarrow, numpy and crc32c, and nothing of this project but the installed connectors. The
cluster has two executors, which are processes of their own. The packages are linked to, not installed again: PySpark is
460 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.applications.spark.queries import fill
from compat_tests.clients.confluent.clients import create_topic
from compat_tests.features.install.conftest import WITHIN_S
from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.requirements import IS_NEWEST_SPARK, need_java, need_newest_spark, need_pyspark
from compat_tests.harness.tools import run
from tools.spark_zip import write

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

JOB = Path(__file__).with_name("spark_job.py")
EXECUTOR_MIB = 600
ENDS_WITHIN_S = 360  # a minute on two slow cores, and three when those have other tests, too
NEEDED = ("pyspark", "py4j", "pyarrow", "numpy", "crc32c")
MASTER = f"local-cluster[2,1,{EXECUTOR_MIB}]"  # as many executors, with a core each


class Environment:
    """A Python environment in a directory, with the packages that the connectors need."""

    def __init__(self, directory: Path) -> None:
        need_java()
        self._directory = directory
        self.output = ""  # of the last job
        run([sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")])
        self._python = directory / "venv" / "bin" / "python"
        self.site = Path(
            run([str(self._python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        )
        for name in NEEDED:
            is_newest = IS_NEWEST_SPARK and (need_newest_spark() / name).exists()
            place = need_newest_spark() if is_newest else Path(sysconfig.get_path("purelib"))
            for one in (place / name, *place.glob(f"{name}.libs"), *place.glob(f"{name}-*.dist-info")):
                (self.site / one.name).symlink_to(one)

    def install(self, wheel: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        run([*pip, "--target", str(self.site), str(wheel)], timeout_s=WITHIN_S)

    def has(self, module: str) -> bool:
        find = f"import importlib.util as it; print(it.find_spec({module!r}) is not None)"
        return run([str(self._python), "-I", "-c", find]).strip() == "True"

    def submit(self, broker: Broker, topic: str, way: str, *options: str) -> dict[str, Any]:
        """Submit the job and return its result. Workers make their directories in Spark's home, so the job has its own
        home."""
        home = self._directory / "spark"
        home.mkdir()
        for one in (need_newest_spark() / "pyspark" if IS_NEWEST_SPARK else need_pyspark()).iterdir():
            (home / one.name).symlink_to(one)
        settings = ["--master", MASTER, "--conf", f"spark.executor.memory={EXECUTOR_MIB}m"]
        settings += ["--driver-java-options", " ".join([f"-Dspark.test.home={home}", *QUICK_JVM])]
        settings += ["--conf", f"spark.executor.extraJavaOptions={' '.join(QUICK_JVM)}"]
        settings += ["--conf", "spark.ui.enabled=false"]
        job = [str(JOB), broker.bootstrap, topic, str(self._directory), way]
        environment = {
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._directory / "local"), "PYSPARK_PYTHON": str(self._python),
        }  # fmt: skip
        done = subprocess.run(
            [str(home / "bin" / "spark-submit"), *settings, *options, *job],
            cwd=self._directory, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False,
        )  # fmt: skip
        self.output = done.stdout + done.stderr
        assert done.returncode == 0, self.output
        found: dict[str, Any] = json.loads((self._directory / "found.json").read_text())
        return found


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    create_topic(broker, topic, partitions=3)
    for partition in range(3):
        fill(broker, topic, 10 * partition, 10, partition)
    return topic


def check(found: dict[str, Any]) -> None:
    assert found["version"].startswith("4.3." if IS_NEWEST_SPARK else "4.2.")
    assert (found["batch"], found["stream"]) == (list(range(20)), 30)
    assert found["copies"] == sorted([*range(20), *range(30)])


def test_from_a_wheel(environment: Environment, wheel: Path, broker: Broker, filled: str) -> None:
    environment.install(wheel)
    found = environment.submit(broker, filled, "register")
    check(found)
    assert Path(found["source"]).is_relative_to(environment.site)
    assert "replaced a statically registered data source" not in environment.output


def test_from_a_zip(environment: Environment, broker: Broker, filled: str, tmp_path: Path) -> None:
    """A zip also works for a stream, which is planned by processes that do not import from zips."""
    assert not environment.has("spark_connectors")
    archive = write(tmp_path / "dist")
    found = environment.submit(broker, filled, "register", "--py-files", str(archive))
    check(found)
    assert f"{archive.name}/" in found["source"]


def test_without_being_registered(environment: Environment, wheel: Path, broker: Broker, filled: str) -> None:
    environment.install(wheel)
    check(environment.submit(broker, filled, "find"))
