"""A cluster under load, with slow disks, frozen processes, and damaged metadata: soon after, it is as before."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from compat_tests.faults import strain
from compat_tests.faults.campaign import SEED
from compat_tests.harness.requirements import need_zookeeper_jars
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = float(os.environ.get("KAFKAWIRE_CHAOS_STRAIN_S", "0"))
PRODUCERS = int(os.environ.get("KAFKAWIRE_CHAOS_PRODUCERS", "32"))


def test_a_saturated_cluster_recovers_when_slow_disks_freezes_and_damage_end(tmp_path: Path) -> None:
    if not SECONDS:
        pytest.skip("takes 15 minutes or more: set KAFKAWIRE_CHAOS_STRAIN_S")
    need_zookeeper_jars()
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    outcome = strain.run(tmp_path, Random(SEED), SECONDS, PRODUCERS)
    summary = f"seed {SEED}, {PRODUCERS} producers, {outcome}"
    print(summary)
    note_for_ledger(summary)
    assert not outcome.anomalies, f"seed {SEED}, {tmp_path}: {outcome.anomalies}"
