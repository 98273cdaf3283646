"""Faults of brokers and ZooKeeper servers lose no acknowledged change of the metadata, and no change is made twice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.faults import metadata_campaign
from compat_tests.harness.requirements import need_zookeeper_jars
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = int(os.environ.get("KAFKAWIRE_METADATA_CHANGES", "400"))
SEED = int(os.environ.get("KAFKAWIRE_METADATA_SEED", "1"))


def test_acknowledged_metadata_changes_survive_faults_of_brokers_and_zookeeper(tmp_path: Path) -> None:
    need_zookeeper_jars()
    campaign = metadata_campaign.run(tmp_path, SEED, CHANGES)
    changes, faults = campaign.client_changes, campaign.faults.counts
    summary = f"{changes.changes} changes acknowledged, {changes.unanswered} connections given up"
    print(f"\n{summary}, errors {dict(changes.errors)}; {dict(faults)}")
    note_for_ledger(
        f"{changes.changes} changes acknowledged under {faults.total()} blows to brokers and ZooKeeper, 0 anomalies"
    )
