"""A stream of Spark's that copies a topic while something happens to the brokers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from compat_tests.applications.spark.copier import FAILED, Task
from compat_tests.applications.spark.drivers import Driver
from compat_tests.clients.confluent.clients import wait_until
from compat_tests.faults.transformation import values_of
from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.requirements import SPARK_JARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from compat_tests.harness.broker import Broker

OUTPUT: Final = "spark-output"
OURS, STOCK = "kafkawire", "kafka"
EVERY: Final = "2 seconds"  # so that the cores are there for others as well
ENDS_WITHIN_S: Final = 240.0


class SparkCopy:
    """A query that copies each partition of `topic` to the same one of `OUTPUT`. Its driver starts it again if it
    fails."""

    def __init__(self, broker: Broker, directory: Path, topic: str, connector: str) -> None:
        self._broker = broker
        self._topic = topic
        self._connector = connector
        self._checkpoint = directory / "checkpoint"
        directory.mkdir()
        self._driver = Driver(directory)

    def start(self) -> None:
        self._begin(has_end=False)

    def end(self) -> None:
        """Kill the driver, whatever it does."""
        self._driver.kill()

    def copied(self) -> dict[int, list[str]]:
        """The copied values so far, by partition."""
        return values_of(self._broker, OUTPUT)

    def failures(self) -> list[str]:
        """The errors of failed queries."""
        return re.findall(rf"^{FAILED} .*$", self._driver.log_text(), re.MULTILINE)

    def wait_for_all(self, inputs: Mapping[int, Sequence[str]]) -> None:
        """Wait until all these inputs are copied."""
        wanted = {number: len(values) for number, values in inputs.items()}
        wait_until(
            lambda: {number: len(values) for number, values in self.copied().items()} == wanted,
            f"Spark does not copy all there is\n{self._driver.log_tail()}",
            ENDS_WITHIN_S,
        )

    def begin_again(self) -> None:
        """Kill the driver and copy the rest with another one, from the checkpoint on."""
        assert self._driver.is_running, f"the driver has left:\n{self._driver.log_tail()}"
        assert any(self.copied().values()), f"nothing is copied:\n{self._driver.log_tail()}"
        self._driver.kill()
        self._begin(has_end=True)
        code = self._driver.wait(ENDS_WITHIN_S)
        assert code == 0, f"the last driver has left with {code}:\n{self._driver.log_tail()}"

    def _begin(self, *, has_end: bool) -> None:
        self._driver.prepare(self._task(has_end=has_end))
        self._driver.start()

    def _task(self, *, has_end: bool) -> Task:
        to = {"kafka.bootstrap.servers": self._broker.bootstrap}
        source = {
            **to, "subscribe": self._topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed",
        }  # fmt: skip
        sink = {**to, "topic": OUTPUT, "checkpointLocation": str(self._checkpoint)}
        columns = ("key", "value", "partition")
        return Task("local[1,3]", self._settings(), source, sink, has_end, columns, EVERY, self._connector)

    def _settings(self) -> dict[str, str]:
        needed = {"spark.driver.extraClassPath": f"{SPARK_JARS}/*"} if self._connector == STOCK else {}
        return {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(QUICK_JVM),
            **needed,
        }
