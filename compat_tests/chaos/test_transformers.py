"""`kill -9` of the broker and of those who read, write and commit in transactions: every input once in the output."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

from compat_tests.chaos.campaign import SEED, kill, strike
from compat_tests.chaos.copies import check_copies
from compat_tests.chaos.transformation import (
    BROKER_CONFIG,
    INPUT,
    OUTPUT,
    PARTITIONS,
    TOPIC_CONFIG,
    Transformation,
    is_transformed,
    values_of,
)
from compat_tests.confluent.clients import create_topic, wait_until
from compat_tests.harness.target import target_broker
from compat_tests.transactions.readers import undecided
from engine.tests.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_TRANSACTION_KILLS", "4"))  # of the broker, and as many of transformers
CALM_MAX_S = 0.5
RECORDS_PER_S = 500


class Campaign(Transformation):
    """With kills."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        super().__init__(broker, directory, broker.bootstrap, RECORDS_PER_S)
        self._choice = random.Random(SEED)
        self.killed = 0

    def run(self, kills: int) -> None:
        """Each fault hits once something was committed after the one before."""
        targets = ["broker", "transformer"] * kills
        self._choice.shuffle(targets)
        self.writer.start()
        try:
            for target in targets:
                self.wait_for_progress()
                time.sleep(self._choice.uniform(0, CALM_MAX_S))
                self._strike(target)
        finally:
            self.writer.finish()

    def _strike(self, target: str) -> None:
        if target == "broker":
            strike(self._broker, kill)
            self._broker.start()
        else:
            self._choice.choice(self.transformers).kill()
            self.killed += 1


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
        wait_until(lambda: not undecided(broker, OUTPUT, PARTITIONS), "it stays open")
        anomalies = check_copies(inputs, values_of(broker, OUTPUT))
    summary = f"seed {SEED}, {KILLS} x kill -9 of the broker, {campaign.killed} of transformers, "
    summary += f"{campaign.restarts} fenced or failed, {campaign.count('committed')} transactions committed, "
    summary += f"{campaign.count('aborted')} aborted, {sum(map(len, inputs.values()))} records, "
    summary += f"{len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {SEED}: {anomalies}"
    assert campaign.count("committed") > 10 * KILLS, "too few transactions between the faults to mean anything"
