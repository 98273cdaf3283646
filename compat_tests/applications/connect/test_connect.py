"""Kafka Connect, distributed: a file through a topic into another file, with its state in compacted topics of ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.harness.broker import free_port
from compat_tests.harness.rest import RefusedError, RestService
from compat_tests.harness.tools import running_connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

START_TIMEOUT_S = 90.0
FILE = "org.apache.kafka.connect.file.FileStream"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


class Worker(RestService):
    """A Connect worker and its REST interface."""

    def knows(self, connectors: list[str]) -> bool:
        """Whether the worker has exactly these connectors. It has none before it has read its configurations and joined
        its group."""
        try:
            return sorted(self.call("/connectors")) == connectors
        except RefusedError:
            return False

    def is_running(self, connector: str) -> bool:
        try:
            status = self.call(f"/connectors/{connector}/status")
        except RefusedError:
            return False
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        assert "FAILED" not in states, status
        return len(states) > 1 and set(states) == {"RUNNING"}


@contextmanager
def worker(broker: Broker, directory: Path, name: str, *, exactly_once: bool) -> Iterator[Worker]:
    """A worker that creates its three compacted topics itself. With `exactly_once`, it writes in transactions, and so
    do its source connectors."""
    port = free_port()
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": TEXT,
        "value.converter": TEXT,
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "status.storage.topic": f"{name}-status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 3,
        "status.storage.replication.factor": 1,
        "offset.flush.interval.ms": 500,
        "scheduled.rebalance.max.delay.ms": 0,
        "task.shutdown.graceful.timeout.ms": 60_000,
        "exactly.once.source.support": "enabled" if exactly_once else "disabled",
        "consumer.isolation.level": "read_committed",
    }
    properties = directory / "worker.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    distributed = "org.apache.kafka.connect.cli.ConnectDistributed"
    with running_connect(directory / "worker.log", distributed, str(properties)) as process:
        connect = Worker(port)
        wait_until(
            lambda: process.poll() is not None or connect.answers("/connectors"),
            "the worker does not answer",
            START_TIMEOUT_S,
        )
        assert process.poll() is None, "the worker is gone"
        yield connect


def add_lines(path: Path, first: int, count: int) -> None:
    with path.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(first, first + count))


def expected(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_file_goes_through_a_topic_into_a_file_and_on_after_a_restart(
    broker: Broker, tmp_path: Path, *, exactly_once: bool
) -> None:
    name = "connect-in-transactions" if exactly_once else "connect"
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    add_lines(source, 0, 100)

    def arrived(count: int) -> bool:
        return sink.exists() and sink.read_text().splitlines() == expected(count)

    with worker(broker, tmp_path, name, exactly_once=exactly_once) as running:
        reading = {"connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": f"{name}-lines"}
        writing = {"connector.class": f"{FILE}SinkConnector", "file": str(sink), "topics": f"{name}-lines"}
        if exactly_once:
            reading["exactly.once.support"] = "required"
        for one, config in (("source", reading), ("sink", writing)):
            running.call("/connectors", {"name": one, "config": {**config, "tasks.max": "1"}})
            wait_until(lambda one=one: running.is_running(one), f"{one} does not run", 60.0)  # type: ignore[misc]
        wait_until(lambda: arrived(100), "not all lines went through", 60.0)
        add_lines(source, 100, 50)
        wait_until(lambda: arrived(150), "lines added later did not go through", 60.0)
    add_lines(source, 150, 50)
    with worker(broker, tmp_path, name, exactly_once=exactly_once) as running:
        wait_until(lambda: running.knows(["sink", "source"]), "the connectors are not known any more", 60.0)
        wait_until(lambda: arrived(200), "it did not go on where it was, each line once", 60.0)
