"""Cost of an export of a topic to a Parquet table: by `kafkawire-spark export`, and by a Spark job.

All rows with all their columns, and files in zstd. Spark's jobs read by its own connector for Kafka, as shipped and
tuned, and by kafkawire's, in a warm session: its JVM and Python workers are counted. Of an export all processes are
counted, with their start: each run is a command line. The figure is rows per second of CPU, because both keep all cores
at work, which they share with the broker. The table is checked afterwards.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.dataset as ds

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, MIB
from benchmarks.spark.spark import MEMORY, PARTITIONS, READERS, Connector, Reading, Site, Topic, filled
from benchmarks.spark.spark_decode import SMALL, Case
from compat_tests.applications.spark.queries import sealed_files
from compat_tests.applications.spark.session import local_session
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_spark_jars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.lib.bench import Options

COMPARED: Final = "k rows/CPU s"
BOUND: Final = "at least 2.5 x stock, files of half to one and a half the size"
FILE_BYTES: Final = 32 * MIB
TOY_FILE_BYTES: Final = 64 * KIB
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True)
class Exporter:
    """The export job, and options of its reads."""

    name: str
    options: Mapping[str, str]


READINGS: Final = (
    Reading(Case("100 B", 100, SMALL, bound=BOUND), 5_000_000),
    Reading(Case("1 KiB", KIB, SMALL), 1_000_000),
)


def contenders(broker: Kafkawire) -> list[Connector | Exporter]:
    return [
        *READERS,
        Exporter("export", COMMITTED),
        Exporter("export, sealed files", {**COMMITTED, **sealed_files(broker)}),
    ]


def table(site: Site) -> Path:
    return site.directory / "table"


def children_cpu_s() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_spark(site: Site, topic: Topic, connector: Connector) -> float:
    """CPU seconds of an export by a Spark job."""
    begun_s = machine.tree_cpu_s(site.jvm_pid)
    writer = site.frame(connector, topic.name).write.option("compression", "zstd")
    writer.parquet(str(table(site)))
    return machine.tree_cpu_s(site.jvm_pid) - begun_s


def as_installed(directory: Path) -> dict[str, str]:
    """The environment of an installed program: modules are compiled once, although this process may not write
    bytecode."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}


def by_export(site: Site, topic: Topic, exporter: Exporter, file_bytes: int) -> float:
    """CPU seconds of an export, with all its processes."""
    options = [word for name, value in exporter.options.items() for word in ("--option", f"{name}={value}")]
    command = [sys.executable, "-m", "spark_connectors.jobs", "export", "-b", site.broker.bootstrap]
    command += ["--topic", topic.name, "--to", f"parquet:{table(site)}", "--file-size", str(file_bytes), *options]
    begun_s = children_cpu_s()
    command += ["--quiet", "--report", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=as_installed(site.directory))
    assert json.loads(done.stdout)["counts"]["rows"] == topic.rows
    return children_cpu_s() - begun_s


def once(site: Site, topic: Topic, file_bytes: int, contender: Connector | Exporter) -> report.Figures:
    """Export to a new table, and check the number of its rows."""
    shutil.rmtree(table(site), ignore_errors=True)
    broker_s, begun_s = machine.cpu_s(site.broker.pid), time.perf_counter()
    if isinstance(contender, Exporter):
        cpu_s = by_export(site, topic, contender, file_bytes)
    else:
        cpu_s = by_spark(site, topic, contender)
    seconds = time.perf_counter() - begun_s
    broker_s = machine.cpu_s(site.broker.pid) - broker_s
    found = ds.dataset(table(site), format="parquet").count_rows()
    assert found == topic.rows, f"{contender.name} has written {found} rows of {topic.rows}"
    sizes = [path.stat().st_size for path in table(site).glob("*.parquet")]
    return {
        COMPARED: topic.rows / 1e3 / cpu_s,
        "k rows/s": topic.rows / 1e3 / seconds,
        "broker CPU s/GB": broker_s / (topic.size_bytes / 1e9),
        "files": len(sizes),
        "smallest MiB": min(sizes) / MIB,
        "largest MiB": max(sizes) / MIB,
    }


def run_case(site: Site, reading: Reading, options: Options) -> report.Result:
    """Measure a case. The first run of each is not counted: Spark gets warm, and modules are compiled."""
    assert isinstance(site.broker, Kafkawire), "other brokers do not list sealed segments"
    topic = filled(site, reading, options)
    file_bytes = TOY_FILE_BYTES if options.toy else FILE_BYTES
    field = contenders(site.broker)
    for contender in field:
        once(site, topic, file_bytes, contender)
    case = f"{topic.rows:,} rows of {reading.log.name} in {PARTITIONS} partitions, files of {file_bytes / MIB:g} MiB"
    result = bench.alternate(case, COMPARED, field, partial(once, site, topic, file_bytes), options, reading.log.bound)
    bench.delete_topic(site.contender, topic.name)
    return result


def compare(directory: Path, options: Options) -> report.Report:
    """A toy run has one case."""
    with (
        local_session(need_spark_jars(), directory / "spark", MEMORY) as spark,
        Kafkawire(directory / "kafkawire") as broker,
    ):
        jvm_pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        site = Site(spark, jvm_pid, broker, directory)
        results = [run_case(site, reading, options) for reading in READINGS[: 1 if options.toy else None]]
    return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("export", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
