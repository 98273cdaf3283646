"""`kill -9` of the broker under idempotent librdkafka and Java producers: nothing lost, doubled or reordered."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.faults import campaign
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_KILLS", "5"))


def test_kills_lose_nothing(tmp_path: Path) -> None:
    campaign.run(Kafkawire(tmp_path / "broker"), tmp_path, campaign.kill, KILLS)
