"""Faults of three brokers that replicate: no acknowledged record is lost, doubled or changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.faults import replication_campaign
from compat_tests.faults.campaign import SEED
from compat_tests.harness.requirements import need_kafka_jars, need_zookeeper_jars
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = replication_campaign.CampaignSettings(
    seconds=float(os.environ.get("KAFKAWIRE_CHAOS_REPLICATION_S", "25")),
    faults=frozenset(filter(None, os.environ.get("KAFKAWIRE_CHAOS_BLOWS", "").split(","))),
    has_tier=os.environ.get("KAFKAWIRE_CHAOS_TIER") == "1",
)


def test_acknowledged_records_survive_faults_of_brokers_and_their_disks(tmp_path: Path) -> None:
    need_kafka_jars()
    need_zookeeper_jars()
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    outcome = replication_campaign.run(tmp_path, SEED, SETTINGS)
    summary = f"seed {SEED}, {outcome}"
    print(summary)
    note_for_ledger(summary)
    assert not outcome.anomalies, f"seed {SEED}, {tmp_path}: {outcome.anomalies}"
    assert outcome.acked > 10 * SETTINGS.seconds, "too few acknowledgements for blows to mean anything"
    assert bool(outcome.tiered) == SETTINGS.has_tier
