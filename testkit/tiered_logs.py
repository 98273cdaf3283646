"""A log and its copy in an object store, over restarts of the broker."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from engine.logs.segments.segment import segment_name
from testkit.cold_logs import DIRECTORY, Broker
from tiering.manifest.manifest import Fence, Manifest
from tiering.manifest.manifest_log import Author, ManifestLog
from tiering.names import Place
from tiering.segment_object import read_trailer
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation
from tiering.upload.partition_tier import PartitionTier, TierOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from engine.tier import TierableLog

NONCES = itertools.count()


def now_ms() -> int:
    return int(trio.current_time() * 1000)


class Tiered:
    """A broker that is stopped and started, its bucket, and the tier of one partition in each life."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.store = MemoryStore(now_ms)
        self.log: TierableLog
        self.tier: PartitionTier
        self.place = Place("", "cluster", bytes(16), 0)
        self.options = TierOptions()  # its rate limit keeps a time, and each test begins with a new clock

    @asynccontextmanager
    async def life(self, *, is_clean: bool = True) -> AsyncIterator[PartitionTier]:
        async with self.broker.life(is_clean=is_clean):
            if not self.broker.log.log_end_offset:
                await self.broker.fill()
            await trio.sleep(1)  # finished segments are sealed
            [self.log] = self.broker.store.tierable()
            self.tier = self.tier_of(self.log.leader_epoch)
            yield self.tier

    def tier_of(self, epoch: int) -> PartitionTier:
        author = Author(Fence(0, epoch), f"life {epoch}", lambda: f"{next(NONCES)}", now_ms)
        manifests = ManifestLog(self.store, self.place, author)
        return PartitionTier(self.log, self.store, self.place, manifests, self.options, now_ms)

    async def manifest(self) -> Manifest:
        """The manifest, as a reader without knowledge finds it."""
        fault, self.store.fault = self.store.fault, lambda _operation, _key: HEALTHY
        author = Author(Fence(9, 9), "", lambda: "", now_ms)
        found = await ManifestLog(self.store, self.place, author).load()
        self.store.fault = fault
        return found

    def segments(self) -> list[str]:
        """The keys of segments, without those of manifests and pages."""
        return sorted(key for key in self.store.objects if key.count("/") == self.place.prefix.count("/"))

    async def check(self) -> None:
        """Assert that the bucket has the log's bytes up to its end, and no unknown segments."""
        manifest = await self.manifest()
        known = {self.place.segment(one) for one in manifest.entries} | {
            self.place.doomed(one) for one in manifest.doomed
        }
        if manifest.copying is not None:
            known.add(self.place.segment(manifest.copying))
        assert set(self.segments()) <= known
        for one in manifest.entries:
            data, _ = self.store.objects[self.place.segment(one)]
            assert len(data) == one.object_size_bytes
            assert data[: one.size_bytes] == self.content(one.base)[: one.size_bytes]
            read_trailer(data[one.size_bytes :], "object")
        assert (self.log.tiered_to or 0) <= (manifest.end or 0)

    def content(self, base: int) -> bytes:
        return self.broker.filesystem.content(f"{DIRECTORY}/{segment_name(base)}")


async def copy_all(tier: PartitionTier) -> int:
    """Copy until nothing is left; returns how many segments were copied."""
    count = 0
    while tier.log.tiered_to is None or tier.log.to_copy():
        count += await tier.copy_next() is not None
    return count


def stopping_at(number: int, fault: Fault) -> Callable[[Operation, str], Fault]:
    """Faults of a broker that ends at a request: that request gets `fault`, and all later ones are lost."""
    requests = itertools.count()

    def of(_operation: Operation, _key: str) -> Fault:
        at = next(requests)
        return HEALTHY if at < number else fault if at == number else Fault(is_lost=True)

    return of
