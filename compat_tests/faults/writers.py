"""Stock producers that write numbered values for as long as a campaign lasts, and note every acknowledgement.

Both are idempotent and retry without end, so that the expected log is exact: each value once, in order.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from compat_tests.clients.confluent.clients import producer
from compat_tests.faults.history import NO_OFFSET
from compat_tests.harness.apache_kafka import CLASSPATH, LOGGING, QUICK_JVM
from compat_tests.harness.host import Host
from compat_tests.harness.sources import go_program

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from compat_tests.faults.history import History
    from compat_tests.harness.broker import Broker

UNDER_WAY_MAX = 500
START_TIMEOUT_S = 60
FINISH_TIMEOUT_S = 60
JAVA_RECORDS_PER_S = 1_000
PADDING = "=" * 200  # values of a size at which segments roll now and then


class Writer(Protocol):
    def start(self) -> None:
        """Start, and return when it sends: a producer that is stopped before its first metadata came drops its
        records."""

    def finish(self) -> None:
        """Stop sending and wait for the records in flight. Raises AssertionError if a record failed or is still in
        flight."""


def padded(value: str) -> str:
    """The value as librdkafka's writer sends it; `unpadded` is the inverse, for the values of all writers."""
    return PADDING + value


def unpadded(value: str) -> str:
    return value.lstrip("=")


class ConfluentWriter:
    """A librdkafka producer in a thread, to so many partitions in turn."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        topic: str,
        partitions: int,
        history: History,
        pause_s: float = 0.001,
        *,
        first: int = 0,
        at_once: int = 10,
    ) -> None:
        """Pauses for `pause_s` after every `at_once` records. `first`: the first of its partitions."""
        self._name = name
        self._topic = topic
        self._partitions = range(first, first + partitions)
        self._pause_s = pause_s
        self._at_once = at_once
        self._history = history
        self._stopping = threading.Event()
        self._at_work = threading.Event()
        self._failed: list[str] = []
        self._unsent = 0
        self._client = producer(
            broker,
            enable_idempotence=True,
            message_timeout_ms=0,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=20,
            metadata_recovery_strategy="none",  # else it may hang after all brokers were away: docs/compatibility.md
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._at_work.wait(START_TIMEOUT_S), f"{self._name}: nothing acknowledged"

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            full = len(self._client) >= UNDER_WAY_MAX
            self._client.poll(0.02 if full else 0)
            for _ in range(0 if full else self._at_once):
                value = padded(f"{self._name}.{number}")
                partition = self._partitions[number % len(self._partitions)]
                self._client.produce(self._topic, value, partition=partition, on_delivery=self._on_ack)
                number += 1
            self._stopping.wait(self._pause_s)  # a poll would end with the first acknowledgement
        self._unsent = self._client.flush(FINISH_TIMEOUT_S)

    def _on_ack(self, error: object, message: Message) -> None:
        """Note an acknowledgement. It has no offset if librdkafka concludes it from the acknowledgement of a later
        batch."""
        if error is not None:
            self._failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert isinstance(value, bytes)
        self._history.ack(partition, NO_OFFSET if offset is None else offset, unpadded(value.decode()))
        self._at_work.set()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert not self._failed, f"{self._name}: {len(self._failed)} records failed: {self._failed[:3]}"
        assert not self._unsent, f"{self._name}: {self._unsent} records are still under way"


class WriterProcess:
    """A program whose output is as `told` describes. `acked_at_s` is complete after `finish`, if the program tells the
    times."""

    def __init__(self, name: str, command: list[str], history: History) -> None:
        self._name = name
        self._history = history
        self.acked_at_s: list[float] = []  # by the clock of `time.monotonic`
        self._host = Host(command)

    def start(self) -> None:
        self._host.wait(lambda: bool(self._host.events("")), self._host.complaints, START_TIMEOUT_S)

    def end(self) -> None:
        """Kill the program, whatever it does."""
        self._host.kill()

    def finish(self) -> None:
        self._host.leave(2 * FINISH_TIMEOUT_S)  # it waits itself for the records in flight
        events = self._host.events("")
        for event in events:
            if "acked" in event:
                self._history.ack(*event["acked"])
                self.acked_at_s += [event["at_s"]] if "at_s" in event else []
        failed = [event["failed"] for event in events if "failed" in event]
        assert not failed, f"{self._name}: {len(failed)} records failed: {failed[:3]}"
        assert "ended" in events[-1], f"{self._name} has not ended: {self._host.complaints()}"


def confluent(
    broker: Broker, topic: str, partition: int, name: str, history: History, records_per_s: int
) -> WriterProcess:
    """A librdkafka producer in a process, to one partition."""
    command = [sys.executable, "-m", "compat_tests.faults.confluent_writer", broker.bootstrap, topic]
    return WriterProcess(name, [*command, str(partition), name, str(records_per_s)], history)


def stock(
    client: str, broker: Broker, topic: str, partitions: int, history: History, records_per_s: int
) -> WriterProcess:
    """A producer of kafka_python, aiokafka or franz-go in a process, to so many partitions in turn."""
    written_for_python = [sys.executable, "-m", f"compat_tests.faults.{client}_writer"]
    command = [go_program("stream"), "write"] if client == "franz-go" else written_for_python
    settings = [broker.bootstrap, topic, str(partitions), client, str(records_per_s)]
    return WriterProcess(client, [*command, *settings], history)


CLOSED_MEANWHILE = "Producer closed while send in progress"


class JavaWriter:
    """Kafka's own VerifiableProducer, which prints the offset of each acknowledgement as a line of JSON."""

    def __init__(
        self,
        prefix: int,
        broker: Broker,
        topic: str,
        directory: Path,
        history: History,
        records_per_s: int = JAVA_RECORDS_PER_S,
    ) -> None:
        self._history = history
        self._at_work = threading.Event()
        self._failed: list[str] = []
        self._unsent = 0  # the record that it was about to send when it was told to stop
        self._total = (0, 0)  # sent and acknowledged, which it tells at its end
        config = directory / f"producer-{prefix}.properties"
        config.write_text(
            "enable.idempotence=true\nretries=2147483647\nmax.in.flight.requests.per.connection=5\n"
            "delivery.timeout.ms=600000\nrequest.timeout.ms=5000\nlinger.ms=5\n"
            "reconnect.backoff.max.ms=200\nretry.backoff.ms=20\nretry.backoff.max.ms=100\n"
        )
        self._command = ["java", "-Xmx256m", *QUICK_JVM, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", CLASSPATH]
        self._command += ["org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", broker.bootstrap]
        self._command += ["--topic", topic, "--throughput", str(records_per_s), "--value-prefix", str(prefix)]
        self._command += ["--command-config", str(config)]
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
        )
        self._thread.start()
        assert self._at_work.wait(START_TIMEOUT_S), "VerifiableProducer: nothing acknowledged"

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["name"] == "producer_send_success":
            self._history.ack(event["partition"], event["offset"], event["value"])
            self._at_work.set()
        elif event["name"] == "producer_send_error" and CLOSED_MEANWHILE in event["message"]:
            self._unsent += 1
        elif event["name"] == "producer_send_error":
            self._failed.append(str(event))
        elif event["name"] == "tool_data":
            self._total = (event["sent"], event["acked"])

    def end(self) -> None:
        """Kill the program, whatever it does."""
        if self._process is not None:
            self._process.kill()

    def finish(self) -> None:
        """Stop the program by SIGTERM: it closes its producer, which waits for the records in flight."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"VerifiableProducer ended by itself, with {code}"
        self._process.terminate()
        try:
            self._process.wait(FINISH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("VerifiableProducer does not end: records are still under way") from None
        finally:
            self._process.kill()
            self._thread.join()
        assert not self._failed, f"{len(self._failed)} records failed: {self._failed[:3]}"
        sent, acked = self._total
        assert self._unsent <= 1, f"{self._unsent} records met a closed producer"
        assert sent - self._unsent == acked > 0, f"VerifiableProducer: {acked} acknowledged of {sent}"
