"""A writer, and transformers of two clients in one group that copy its records in transactions; checks of the copy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from compat_tests.faults.atomicity import check_atomicity
from compat_tests.faults.campaign import SEED
from compat_tests.faults.copies import check_copies
from compat_tests.faults.history import History
from compat_tests.faults.transformers import TransformerProcess, confluent, java
from compat_tests.faults.watcher import Watcher, output_of
from compat_tests.faults.writers import ConfluentWriter, unpadded
from compat_tests.features.transactions.readers import committed, messages_of, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from confluent_kafka import Message

    from compat_tests.harness.broker import Broker

INPUT, OUTPUT, GROUP = "input", "output", "transformers"
PARTITIONS = 4
BROKER_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
TOPIC_CONFIG = {"segment.bytes": str(1 << 20)}
PROGRESS_WITHIN_S = 90.0


class Transformation:
    """The transformers connect to `bootstrap`, the writer to the broker itself; it sends so many records each
    second."""

    def __init__(self, broker: Broker, directory: Path, bootstrap: str, records_per_s: int) -> None:
        self._broker = broker
        self.history = History()
        self.writer = ConfluentWriter("a", broker, INPUT, PARTITIONS, self.history, 10 / records_per_s)
        commands = {"librdkafka-1": confluent(), "librdkafka-2": confluent(), "java": java(directory)}
        asked = (bootstrap, INPUT, OUTPUT, GROUP)
        self.watcher = Watcher(broker, OUTPUT, PARTITIONS)
        self.transformers = [TransformerProcess(command, *asked, name) for name, command in commands.items()]

    def count(self, event: str) -> int:
        return sum(one.count(event) for one in self.transformers)

    @property
    def restarts(self) -> int:
        return sum(one.restarts for one in self.transformers)

    def wait_for_progress(self) -> None:
        before = self.count("committed")
        self.wait_until(lambda: self.count("committed") > before, "nobody commits anything")

    def wait_until(self, condition: Callable[[], bool], complaint: str) -> None:
        """Wait for a condition, and restart transformers that have left meanwhile. Raises AssertionError if no
        transaction was committed for `PROGRESS_WITHIN_S`."""
        known, deadline_s = -1, 0.0
        while not condition():
            if (by_now := self.count("committed")) > known:
                known, deadline_s = by_now, time.monotonic() + PROGRESS_WITHIN_S
            assert time.monotonic() < deadline_s, f"seed {SEED}: {complaint}\n{self._broker.log_tail()}"
            for one in self.transformers:
                one.revive()
            time.sleep(0.05)

    def start(self) -> None:
        """Start the writer and the watcher; the transformers run already."""
        self.writer.start()
        self.watcher.start()

    def leave(self) -> None:
        for one in self.transformers:
            one.leave()

    def anomalies(self, inputs: Mapping[int, Sequence[str]]) -> list[str]:
        """Stop the watcher and return the anomalies, once no transaction is open any more."""
        self.watcher.stop()
        outputs = [output_of(each) for number in range(PARTITIONS) for each in read_messages(self._broker, number)]
        values = {number: [one.value for one in outputs if one.partition == number] for number in range(PARTITIONS)}
        return check_copies(inputs, values) + check_atomicity(outputs, self.watcher.seen)


def read_messages(broker: Broker, partition: int) -> list[Message]:
    """All that is committed of a partition of the output."""
    return messages_of(broker, OUTPUT, partition=partition)


def values_of(broker: Broker, topic: str) -> dict[int, list[str]]:
    """The values that a reader of committed records sees, by partition."""
    return {
        number: [unpadded(value) for value in read(broker, topic, partition=number)] for number in range(PARTITIONS)
    }


def is_transformed(broker: Broker, inputs: dict[int, list[str]]) -> bool:
    return all(committed(broker, GROUP, INPUT, number) == len(values) for number, values in inputs.items())
