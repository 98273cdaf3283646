"""Kills of the processes of a stream from topic to topic: each committed record is copied once, in order of its key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark import kill_campaign
from compat_tests.faults.campaign import SEED
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_SPARK_KILLS", "2"))


@pytest.mark.one_broker("one proxy stands before one broker")
def test_kills_leave_every_record_once_in_the_copy(tmp_path: Path) -> None:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    kill_campaign.run(target_broker(tmp_path / "broker", kill_campaign.BROKER_CONFIG), tmp_path, SEED, KILLS)
