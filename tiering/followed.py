"""Tells logs that follow what the tier has of them, so that they, too, keep no more files than is wanted.

A follower only reads there. What its leader has copied counts as far as this log has the same batches, segment by
segment: what a follower never had, or has otherwise, keeps its files (decision 0037).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from engine.errors import EngineError
from tiering.errors import TierError
from tiering.object_store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.api import TopicPartition
    from engine.tier import TierableLog
    from tiering.manifest_log import ManifestLog

LEADERS_LOOKS: Final = 10  # that lie between two here: nothing waits for this, and each asks the store
TURN: Final = 64  # partitions looked at before somebody else has a turn


class FollowedLogs:
    """Of one broker. `catalogue`: what the tier has of a partition, to be read."""

    def __init__(
        self,
        logs: Callable[[], Iterable[TierableLog]],
        catalogue: Callable[[TopicPartition], ManifestLog],
        interval_ms: int,
    ) -> None:
        self._logs = logs
        self._catalogue = catalogue
        self._interval_ms = interval_ms
        self._read: dict[TopicPartition, ManifestLog] = {}  # so far; what comes behind is read the next time

    async def serve(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LEADERS_LOOKS * self._interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """At all partitions, once. What fails is looked at again the next time: a leader tells of what is wrong."""
        seen = set()
        for number, log in enumerate(self._logs()):
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            seen.add(log.partition)
            try:
                if not log.config.remote_storage:
                    await _leave(log)
                elif log.to_copy() or not log.is_tier_confirmed:
                    await self._learn(log)
            except (StoreError, TierError, EngineError):
                self._read.pop(log.partition, None)
        for gone in self._read.keys() - seen:
            del self._read[gone]

    async def _learn(self, log: TierableLog) -> None:
        """How far the tier has it, all from the log start on. Raises StoreError, TierError, EngineError."""
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
    """The tier is to have nothing of it any more, and its leader begins where its own files do."""
    if log.tiered_to is not None:
        await log.give_up_cold()
        log.note_untiered()
