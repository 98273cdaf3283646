"""A Kafka Streams word count: repartition and changelog topics of its own making, and a store restored from them."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from compat_tests.clients.confluent.clients import Admin, create_topic, new_consumer, producer, subscribe
from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.requirements import need_command, need_kafka_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker

TIMEOUT_S = 90.0
SENTENCES = ("the log is the truth", "the log has an end", "an end is not the end")


class Application(NamedTuple):
    process: subprocess.Popen[bytes]
    log_path: Path

    def wait_for(self, counts: Counts, expected: Counter[str]) -> None:
        """Wait until the counts are as expected. Raises AssertionError with the application's output if it ends or is
        too slow."""
        deadline = time.monotonic() + TIMEOUT_S
        while not counts.equal(expected):
            said = self.log_path.read_text()[-3000:]
            assert self.process.poll() is None, f"the application ended:\n{said}"
            assert time.monotonic() < deadline, f"counts are {counts.newest}:\n{said}"


@contextmanager
def word_count(broker: Broker, directory: Path, guarantee: str, name: str) -> Iterator[Application]:
    """The application, running; it ends in order."""
    source = Path(__file__).with_name("WordCount.java")
    command = [
        "java",
        "-Xmx512m",
        *QUICK_JVM,
        "-cp",
        CLASSPATH,
        str(source),
        broker.bootstrap,
        str(directory / "state"),
        guarantee,
        name,
    ]
    log_path = directory / "streams.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            yield Application(process, log_path)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    assert process.returncode == 0, log_path.read_text()[-3000:]


class Counts:
    """The newest count of each word, as a reader of the output topic sees it."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._consumer = new_consumer(broker, group_id=f"reader of {name}", auto_offset_reset="earliest")
        subscribe(self._consumer, f"{name}-results")
        self.newest: Counter[str] = Counter()

    def equal(self, expected: Counter[str]) -> bool:
        for message in self._consumer.consume(100, 0.5):
            assert message.error() is None
            self.newest[message.key().decode()] = int.from_bytes(message.value(), "big")
        return self.newest == expected

    def close(self) -> None:
        self._consumer.close()


def write(broker: Broker, name: str, times: int) -> Counter[str]:
    """Write sentences with an idempotent producer that retries for long. Returns the counts of their words."""
    client = producer(broker, enable_idempotence=True)
    for sentence in SENTENCES * times:
        client.produce(f"{name}-sentences", sentence)
    assert client.flush(TIMEOUT_S) == 0, "sentences are still under way"
    return Counter({word: count * times for word, count in Counter(" ".join(SENTENCES).split()).items()})


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted_and_counts_outlive_the_application(broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Counts survive the application. With exactly_once_v2, the application writes in transactions."""
    need_kafka_jars()
    need_command("javac", "install a JDK, 17 or newer")
    name = f"word-count-{guarantee}"
    for topic in ("sentences", "results"):
        create_topic(broker, f"{name}-{topic}", 2)
    with closing(Counts(broker, name)) as counts:
        expected = write(broker, name, 20)
        with word_count(broker, tmp_path, guarantee, name) as application:
            application.wait_for(counts, expected)
        made = Admin(broker).topics()
        assert {f"{name}-counts-changelog", f"{name}-counts-repartition"} <= set(made)
        shutil.rmtree(tmp_path / "state")  # the counts are only in the changelog now
        expected += write(broker, name, 10)
        with word_count(broker, tmp_path, guarantee, name) as application:
            application.wait_for(counts, expected)
