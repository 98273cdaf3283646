"""Apache Kafka from its jars: one or several KRaft nodes that are brokers too, for comparison and as a peer."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness.broker import IN_ORDER, Broker, BrokerFailedError, free_port
from compat_tests.harness.requirements import KAFKA_JARS
from compat_tests.harness.several import SeveralBrokers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CLASSPATH = f"{KAFKA_JARS}/*"
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # about a second less per start, slower once warm
# Options of kafka-run-class.sh (for tools too) and of kafka-server-start.sh (for a broker): for measurements, in which
# the JVM must be as fast as it can.
RUN_CLASS_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
STOCK_JVM = ("-Xms1g", *RUN_CLASS_JVM)
LOGGING = Path(__file__).with_name("log4j2.yaml")


class ApacheKafka(Broker):
    """A fresh single-node cluster, or one node of several; `overrides` go into its server.properties."""

    name = "Apache Kafka"
    ready_line = re.compile(r"Kafka Server started")
    in_order = IN_ORDER
    classpath = CLASSPATH

    def __init__(
        self, directory: Path, overrides: Mapping[str, str] | None = None, *, jvm: Sequence[str] = QUICK_JVM
    ) -> None:
        super().__init__(directory, overrides)
        self.node_id = 1
        self.controller_port = free_port()
        self.voters = {1: self.controller_port}
        self._jvm = jvm

    def command(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={LOGGING}"
        return ["java", "-Xmx1g", *self._jvm, logging, "-cp", self.classpath, "kafka.Kafka", str(self._properties_path)]

    @property
    def _properties_path(self) -> Path:
        return self.directory / "server.properties"

    def prepare(self) -> None:
        """Writes server.properties and formats the data directory."""
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{port}" for one, port in self.voters.items()),
            **self.listeners(CONTROLLER=self.controller_port),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Tests write timestamps that are years old: retention, first looked at 30 s after the start, must not run.
            "log.initial.task.delay.ms": "86400000",
            **self.overrides,
        }
        self._properties_path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties_path)]
        done = subprocess.run(
            ["java", *QUICK_JVM, "-cp", self.classpath, *tool], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            raise BrokerFailedError(f"cannot format {self.data_dir}:\n{done.stdout}{done.stderr}")


class ApacheKafkaCluster(SeveralBrokers[ApacheKafka]):
    """Nodes each of which is broker and controller; internal topics have a replica on each."""

    name = "Apache Kafka cluster"

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        jvm: Sequence[str] = QUICK_JVM,
        size: int = 3,
    ) -> None:
        super().__init__(directory, overrides)
        replicas = str(size)
        replicated = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
        }
        self.brokers = {
            node_id: ApacheKafka(directory / str(node_id), replicated | dict(overrides or {}), jvm=jvm)
            for node_id in range(1, size + 1)
        }
        for node_id, one in self.brokers.items():
            one.node_id = node_id
            one.voters = {other: each.controller_port for other, each in self.brokers.items()}
