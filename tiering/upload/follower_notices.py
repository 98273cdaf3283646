"""Notices to followers about the tier, so that they too keep only the files that local retention wants.

A follower only reads the manifests. A copied segment counts if this log has the same batches, segment by segment. A
segment that the follower lacks, or has with other batches, keeps its file (decision 0037).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from engine.errors import EngineError
from tiering.errors import TierError
from tiering.object_store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.api import TopicIdPartition
    from engine.tier import TierableLog
    from tiering.manifest.manifest_log import ManifestLog

LEADER_INTERVALS: Final = 10  # the interval in those of the leader: nothing waits for it, and each look costs requests
TURN: Final = 64  # partitions between two checkpoints of the event loop


class FollowerNotices:
    """The notices for all follower logs of a broker. `catalogue` gives read access to the manifests of a partition."""

    def __init__(
        self,
        logs: Callable[[], Iterable[TierableLog]],
        catalogue: Callable[[TopicIdPartition], ManifestLog],
        interval_ms: int,
    ) -> None:
        self._logs = logs
        self._catalogue = catalogue
        self._interval_ms = interval_ms
        self._read: dict[TopicIdPartition, ManifestLog] = {}  # the next look reads only newer versions

    async def serve(self) -> None:
        """Look at all partitions at intervals, until cancelled."""
        while True:
            await trio.sleep(LEADER_INTERVALS * self._interval_ms / 1000)
            await self.check_all()

    async def check_all(self) -> None:
        """Look at all partitions once. An error is ignored until the next look; the leader reports it."""
        seen = set()
        for number, log in enumerate(self._logs()):
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            seen.add(log.partition)
            try:
                if not log.config.remote_storage:
                    await _leave(log)
                elif log.to_copy() or not log.is_tier_confirmed:
                    await self._note_copied(log)
            except (StoreError, TierError, EngineError):
                self._read.pop(log.partition, None)
        for gone in self._read.keys() - seen:
            del self._read[gone]

    async def _note_copied(self, log: TierableLog) -> None:
        """Note how far the tier has this log, from the log start on. Raises StoreError, TierError, EngineError."""
        epoch, covered = log.leader_epoch, log.log_start_offset if log.tiered_to is None else log.tiered_to
        manifests = self._read.setdefault(log.partition, self._catalogue(log.partition))
        manifest = await manifests.load()
        first, end = manifest.first_offset, manifest.end
        if first is None or end is None or first > log.log_start_offset or end < covered:
            return
        entries = {one.base: one for one in await manifests.entries(manifest, behind=covered)}
        for base, segment_end in log.to_copy():
            entry = entries.get(base)
            if entry is None or not entry.is_of(base, segment_end, (await log.facts_of(base)).digest):
                break
            covered = segment_end
        if log.leader_epoch == epoch and covered >= (log.tiered_to or 0):
            log.note_tiered(covered)


async def _leave(log: TierableLog) -> None:
    """Note that the topic has no tier any more: the log begins where its files begin, as the leader's does."""
    if log.tiered_to is not None:
        await log.give_up_cold()
        log.note_untiered()
