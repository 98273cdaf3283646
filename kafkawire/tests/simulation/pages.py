"""Memory pressure: parts of files leave the page cache at random times, those of the tier's cache among them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import trio

from engine.testing.simulated_disk import SimulatedFileSystem
from kafkawire.tests.simulation.shared import Shared

SHARE_OF_SEEDS = 0.5
PAUSES_S = (0.02, 0.2, 2.0)


@dataclass
class MemoryPressure:
    """The task that drops pages until the load ends."""

    shared: Shared
    disk: SimulatedFileSystem

    async def run(self) -> None:
        draw = self.shared.rng("pages")
        pause_s = draw.choice(PAUSES_S)
        while not self.shared.is_over:
            await trio.sleep(draw.expovariate(1 / pause_s))
            self.disk.evict_some(draw)


def has_memory_pressure(seed: int) -> bool:
    return Random(f"{seed}/pages").random() < SHARE_OF_SEEDS
