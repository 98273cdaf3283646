"""Power cuts under idempotent producers, by ext4's shutdown ioctl: nothing acknowledged is lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.chaos import campaign
from compat_tests.chaos.loop_image import LoopImage
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path

CUTS = int(os.environ.get("KAFKAWIRE_CHAOS_CUTS", "1"))
IMAGE_SIZE_MIB = 2048  # sparse


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    with LoopImage(tmp_path / "disk", IMAGE_SIZE_MIB) as disk:
        broker = Kafkawire(tmp_path / "broker", {"log.dirs": str(disk.mount_point / "data")})
        campaign.run(broker, tmp_path, disk.cut_power, CUTS)
