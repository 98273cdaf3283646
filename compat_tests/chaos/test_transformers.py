"""`kill -9` of the broker and of those who read, write and commit in transactions: every input once in the output."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

from compat_tests.chaos.campaign import SEED, kill, strike
from compat_tests.chaos.copies import check_copies
from compat_tests.chaos.history import History
from compat_tests.chaos.transformers import TransformerProcess, confluent, java
from compat_tests.chaos.writers import ConfluentWriter
from compat_tests.confluent.clients import create_topic, wait_until
from compat_tests.harness.target import target_broker
from compat_tests.transactions.readers import committed, is_decided, read
from engine.tests.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat_tests.harness.broker import Broker

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_TRANSACTION_KILLS", "4"))  # of the broker, and as many of transformers
INPUT, OUTPUT, GROUP = "input", "output", "transformers"
PARTITIONS = 4
BROKER_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
TOPIC_CONFIG = {"segment.bytes": str(1 << 20)}
CALM_MAX_S = 0.5
PROGRESS_WITHIN_S = 90.0
WRITER_PAUSE_S = 0.02  # about 500 records a second


class Campaign:
    """A broker, a writer, and three transformers of two clients in one group."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._choice = random.Random(SEED)
        self._writer = ConfluentWriter("a", broker, INPUT, PARTITIONS, History(), WRITER_PAUSE_S)
        commands = {"librdkafka-1": confluent(), "librdkafka-2": confluent(), "java": java(directory)}
        asked = (broker.bootstrap, INPUT, OUTPUT, GROUP)
        self._transformers = [TransformerProcess(command, *asked, name) for name, command in commands.items()]
        self.killed = 0

    def run(self, kills: int) -> None:
        """Each fault hits once something was committed after the one before."""
        targets = ["broker", "transformer"] * kills
        self._choice.shuffle(targets)
        self._writer.start()
        try:
            for target in targets:
                self._wait_for_progress()
                time.sleep(self._choice.uniform(0, CALM_MAX_S))
                self._strike(target)
        finally:
            self._writer.finish()

    def _strike(self, target: str) -> None:
        if target == "broker":
            strike(self._broker, kill)
            self._broker.start()
        else:
            self._choice.choice(self._transformers).kill()
            self.killed += 1

    def count(self, event: str) -> int:
        return sum(one.count(event) for one in self._transformers)

    @property
    def restarts(self) -> int:
        return sum(one.restarts for one in self._transformers)

    def _wait_for_progress(self) -> None:
        before = self.count("committed")
        self.wait_until(lambda: self.count("committed") > before, "nobody commits anything")

    def wait_until(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + PROGRESS_WITHIN_S
        while not condition():
            assert time.monotonic() < deadline_s, f"seed {SEED}: {complaint}\n{self._broker.log_tail()}"
            for one in self._transformers:
                one.revive()
            time.sleep(0.05)

    def leave(self) -> None:
        for one in self._transformers:
            one.leave()


def values_of(broker: Broker, topic: str) -> dict[int, list[str]]:
    return {partition: read(broker, topic, partition=partition) for partition in range(PARTITIONS)}


def is_transformed(broker: Broker, inputs: dict[int, list[str]]) -> bool:
    return all(committed(broker, GROUP, INPUT, number) == len(values) for number, values in inputs.items())


def test_kills_leave_every_input_once_in_the_output(tmp_path: Path) -> None:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    with target_broker(tmp_path / "broker", BROKER_CONFIG) as broker:
        for topic in (INPUT, OUTPUT):
            create_topic(broker, topic, PARTITIONS, TOPIC_CONFIG)
        campaign = Campaign(broker, tmp_path)
        try:
            campaign.run(KILLS)
            inputs = values_of(broker, INPUT)
            campaign.wait_until(lambda: is_transformed(broker, inputs), "what was written is not transformed")
        finally:
            campaign.leave()
        wait_until(lambda: all(is_decided(broker, OUTPUT, number) for number in range(PARTITIONS)), "it stays open")
        anomalies = check_copies(inputs, values_of(broker, OUTPUT))
    summary = f"seed {SEED}, {KILLS} x kill -9 of the broker, {campaign.killed} of transformers, "
    summary += f"{campaign.restarts} fenced or failed, {campaign.count('committed')} transactions committed, "
    summary += f"{campaign.count('aborted')} aborted, {sum(map(len, inputs.values()))} records, "
    summary += f"{len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {SEED}: {anomalies}"
    assert campaign.count("committed") > 10 * KILLS, "too few transactions between the faults to mean anything"
