"""Broker and transactional clients are killed, or lose power: each input is once in the output, transactions are whole.

Java clients use the second protocol (KIP-890), librdkafka the first, in one group; producer epochs begin a few epochs
before the last one.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic
from compat_tests.faults.campaign import SEED, Fault, fault_name, kill, strike
from compat_tests.faults.late_epochs import FIRST_EPOCH, LateEpochs
from compat_tests.faults.loop_image import LoopImage
from compat_tests.faults.transformation import (
    BROKER_CONFIG,
    INPUT,
    OUTPUT,
    PARTITIONS,
    TOPIC_CONFIG,
    Transformation,
    is_transformed,
    values_of,
)
from compat_tests.features.transactions.readers import wait_for_markers
from compat_tests.harness.target import TARGET, target_broker
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_TRANSACTION_KILLS", "4"))  # of the broker, and as many of transformers
CUTS = int(os.environ.get("KAFKAWIRE_CHAOS_TRANSACTION_CUTS", "1"))
IMAGE_SIZE_MIB = 2048  # sparse
CALM_MAX_S = 0.5
RECORDS_PER_S = 500


class Campaign(Transformation):
    """A transformation with faults of the broker, and transformers that are killed."""

    def __init__(self, broker: Broker, directory: Path, fault: Fault) -> None:
        super().__init__(broker, directory, broker.bootstrap, RECORDS_PER_S)
        self._choice = random.Random(SEED)
        self._fault = fault
        self.killed = 0

    def run(self, faults: int, kills: int) -> None:
        """Each hits once something was committed after the one before."""
        targets = ["broker"] * faults + ["transformer"] * kills
        self._choice.shuffle(targets)
        self.start()
        try:
            for target in targets:
                self.wait_for_progress()
                time.sleep(self._choice.uniform(0, CALM_MAX_S))
                self._strike(target)
        finally:
            self.writer.finish()

    def _strike(self, target: str) -> None:
        if target == "broker":
            strike(self._broker, self._fault)
            self._broker.start()
        else:
            self._choice.choice(self.transformers).kill()
            self.killed += 1


def check(broker: Broker, directory: Path, fault: Fault, faults: int, kills: int) -> None:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    with broker:
        for topic in (INPUT, OUTPUT):
            create_topic(broker, topic, PARTITIONS, TOPIC_CONFIG)
        campaign = Campaign(broker, directory, fault)
        try:
            campaign.run(faults, kills)
            inputs = values_of(broker, INPUT)
            campaign.wait_until(lambda: is_transformed(broker, inputs), "what was written is not transformed")
        finally:
            campaign.leave()
        wait_for_markers(broker, OUTPUT, PARTITIONS)
        anomalies = campaign.anomalies(inputs)
    summary = f"seed {SEED}, {faults} x {fault_name(fault)} of the broker, {campaign.killed} x of transformers, "
    summary += f"{campaign.restarts} fenced or failed, {campaign.count('committed')} transactions committed, "
    summary += f"{campaign.count('aborted')} aborted, {sum(map(len, inputs.values()))} records, "
    summary += f"{len(campaign.watcher.seen)} seen meanwhile, epochs from {FIRST_EPOCH}, {len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {SEED}: {anomalies}"
    assert campaign.count("committed") > 5 * (faults + kills), "too few transactions between the faults"
    assert campaign.watcher.seen, "nobody watched"


def test_kills_leave_every_input_once_in_the_output(tmp_path: Path) -> None:
    is_ours = TARGET == "kafkawire"
    broker = (LateEpochs if is_ours else target_broker)(tmp_path / "broker", BROKER_CONFIG)
    check(broker, tmp_path, kill, KILLS, KILLS)


def test_power_cuts_leave_every_input_once_in_the_output(tmp_path: Path) -> None:
    with LoopImage(tmp_path / "disk", IMAGE_SIZE_MIB) as disk:
        config = {**BROKER_CONFIG, "log.dirs": str(disk.mount_point / "data")}
        check(LateEpochs(tmp_path / "broker", config), tmp_path, disk.cut_power, CUTS, CUTS)
