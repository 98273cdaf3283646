"""Seconds to the first record read back, by the steps of the quick starts: kafkawire's README, and Apache Kafka's own.

On a clean machine everything is fetched: kafkawire's packages by `make install` in a new clone, without pip's cache;
the jars of Apache Kafka by Maven into an empty repository, which stands for its archive with the same jars. Then
kafkawire's steps are `make run` and `kafkawire demo`; Apache Kafka's are to format the storage, to start, to create a
topic, and its console's producer and consumer. Java is there, as are Python and Maven.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import Contender
from compat_tests.harness.apache_kafka import CLASSPATH, RUN_CLASS_JVM, STOCK_JVM, ApacheKafka
from compat_tests.harness.broker import Broker, free_port
from compat_tests.harness.requirements import ROOT
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

WITHIN_S = 600.0
TOPIC = "quickstart-events"
EVENT = "This is my first event"
# The options that kafka-run-class.sh gives to tools.
TOOL_JVM = ("-Xmx256M", *RUN_CLASS_JVM)


class MadeKafkawire(Broker):
    """kafkawire as `make run` starts it, on ports of its own."""

    name = "kafkawire"
    ready_line = re.compile(r"^kafkawire ready", re.MULTILINE)

    def __init__(self, directory: Path, tree: Path) -> None:
        super().__init__(directory)
        self._tree = tree

    def prepare(self) -> None:
        """Prepare nothing."""

    def command(self) -> list[str]:
        settings = {
            "KAFKA_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
            "KAFKA_HTTP_LISTENERS": f"http://127.0.0.1:{free_port()}",
            "KAFKA_LOG_DIRS": str(self.data_dir),
        }
        return ["env", *(f"{key}={value}" for key, value in settings.items()), "make", "-C", str(self._tree), "run"]


@dataclass(frozen=True)
class Steps:
    """The steps of a beginner, from nothing, or without `fetch` if the files are there."""

    fetch: Callable[[], None]
    broker: Broker
    first_record: Callable[[], None]


def nothing() -> None:
    pass


def clone(tree: Path) -> None:
    run(["git", "clone", "--quiet", str(ROOT), str(tree)])
    environment = {**os.environ, "PIP_NO_CACHE_DIR": "1"}
    subprocess.run(["make", "--silent", "-C", str(tree), "install"], env=environment, timeout=WITHIN_S, check=True)


def ours(directory: Path, is_clean: bool) -> Steps:
    tree = directory / "clone" if is_clean else ROOT
    broker = MadeKafkawire(directory / "broker", tree)

    def first_record() -> None:
        run([str(tree / ".venv/bin/kafkawire"), "demo", "-b", broker.bootstrap])

    return Steps(partial(clone, tree) if is_clean else nothing, broker, first_record)


def fetch_jars(directory: Path) -> None:
    pom = str(ROOT / "tools" / "jars" / "kafka.xml")
    settings = [f"-Dmaven.repo.local={directory / 'repository'}", f"-DoutputDirectory={directory / 'jars'}"]
    run(["mvn", "--batch-mode", "--quiet", "-f", pom, "dependency:copy-dependencies", *settings], timeout_s=WITHIN_S)


def theirs(directory: Path, is_clean: bool) -> Steps:
    broker = ApacheKafka(directory / "broker", jvm=STOCK_JVM)

    def tool(class_name: str, *arguments: str, stdin: str = "") -> str:
        where = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC]
        return run(["java", *TOOL_JVM, "-cp", CLASSPATH, class_name, *where, *arguments], stdin=stdin)

    def first_record() -> None:
        tool("org.apache.kafka.tools.TopicCommand", "--create")
        tool("org.apache.kafka.tools.ConsoleProducer", stdin=f"{EVENT}\n")
        reader = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        assert tool(reader, "--from-beginning", "--max-messages", "1") == f"{EVENT}\n"

    return Steps(partial(fetch_jars, directory) if is_clean else nothing, broker, first_record)


def once(makers: Mapping[str, Callable[[], Steps]], contender: Contender) -> report.Figures:
    steps = makers[contender.name]()
    begun_s = time.perf_counter()
    steps.fetch()
    fetched_s = time.perf_counter()
    steps.broker.start(WITHIN_S)
    with steps.broker:
        ready_s = time.perf_counter()
        steps.first_record()
        done_s = time.perf_counter()
    return {
        "fetched s": fetched_s - begun_s,
        "ready s": ready_s - fetched_s,
        "first record s": done_s - ready_s,
        "seconds": done_s - begun_s,
    }


def compare(directory: Path, options: Options) -> report.Report:
    """A toy run is of kafkawire where it is installed: anything else takes too long."""
    numbers = itertools.count()

    def begin(kind: Callable[[Path, bool], Steps], is_clean: bool) -> Steps:
        place = directory / f"{next(numbers)}"
        place.mkdir()
        return kind(place, is_clean)

    results = []
    for where, is_clean in (("on a clean machine", True), ("where it is installed", False)):
        if options.toy and is_clean:
            continue
        makers = {"kafkawire": partial(begin, ours, is_clean)}
        if not options.toy:
            makers["Kafka"] = partial(begin, theirs, is_clean)
        field = [Contender(name, maker().broker, {}) for name, maker in makers.items()]
        case = f"to the first record read back, {where}"
        results.append(bench.alternate(case, "seconds", field, partial(once, makers), options))
    return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("quickstart", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
