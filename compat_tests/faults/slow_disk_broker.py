"""`kafkawire` on a disk whose syncs take as long as a file says: for `strain.py` alone, no part of the product."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from compat_tests.harness.kafkawire_broker import Kafkawire, program_of
from engine.files.kernel_sync import KernelSync
from kafkawire.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROL = "KAFKAWIRE_SYNC_SECONDS"  # the file with the seconds that each sync takes longer
ROOT = Path(__file__).resolve().parents[2]

_sync = KernelSync.sync


class SlowDiskKafkawire(Kafkawire):
    """A broker of a cluster. `sync_takes` may be called at any time."""

    @property
    def control_path(self) -> Path:
        return self.directory / "sync-seconds"

    def command(self) -> list[str]:
        self.sync_takes(0)
        self.program = program_of("compat_tests.faults.slow_disk_broker", **{CONTROL: str(self.control_path)})
        return super().command()

    def sync_takes(self, seconds: float) -> None:
        """Delay each sync by so many seconds from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.control_path.write_text(str(seconds))


def _longer_s() -> float:
    return float(Path(os.environ[CONTROL]).read_text() or 0)


async def _slow_sync(self: KernelSync, descriptors: Sequence[int], *, is_urgent: bool = False) -> None:
    await trio.sleep(_longer_s())
    await _sync(self, descriptors, is_urgent=is_urgent)


if __name__ == "__main__":
    KernelSync.sync = _slow_sync  # type: ignore[method-assign]
    sys.exit(main())
