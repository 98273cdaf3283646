"""The load of one partition of an internal topic into a table: the cache of coordinator state, then the rest of the
log.

Of records that follow each other the newest of each key is enough: compaction leaves no more, either. Deletions,
records in transactions, and their markers keep the log's order among them (RULES C4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from coordinator.api import NO_EPOCH
from coordinator.state.cache import Checkpoint
from coordinator.state.log import StateBatch, StateMarker, StateRecord
from coordinator.state.record_fields import UnknownRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from coordinator.shards.table import StateTable
    from coordinator.state.cache import StateCache
    from coordinator.state.log import StateLog

log = structlog.get_logger(__name__)

APPLIED_PER_TURN: Final = 1_000  # records, before others get their turn

Changes = dict[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The load of one partition into an empty table. `advance` is called with the position so far, and the changes
    since the call before that the cache does not have."""

    topic_id: bytes
    name: str
    partition: int
    cache: StateCache
    table: StateTable[Any]
    advance: Callable[[Checkpoint, Collection[tuple[bytes, bytes | None]]], None]

    async def read(self, state_log: StateLog) -> None:
        """Read all durable records, and those beyond if the log is read to its end (RULES K26). Raises
        StateLogFailed."""
        first_offset = offset = await self._read_cache(state_log)
        while offset < state_log.load_end_offset:
            read = await state_log.read(offset)
            changes = await self._apply_all(read.batches)
            offset = read.next_offset
            # A transaction that was open there may have ended since: then the log does not tell where it began.
            is_read = offset >= state_log.load_end_offset
            replay_offset = min(offset, state_log.stable_offset) if is_read else first_offset
            self.advance(Checkpoint(self.topic_id, read.leader_epoch, offset, replay_offset), changes.items())

    async def _read_cache(self, state_log: StateLog) -> int:
        """Load the cache; return the offset to read on from. The cache of another log is discarded (RULES C2)."""
        found = await self.cache.load(self.partition)
        if found is not None:
            checkpoint, records = found
            if self._is_of(checkpoint, state_log):
                await self._apply(records, self.table.apply)
                self.advance(checkpoint, ())
                return checkpoint.replay_offset
            await self.cache.discard(self.partition)
        start_offset = state_log.start_offset
        self.advance(Checkpoint(self.topic_id, NO_EPOCH, start_offset, start_offset), ())
        return start_offset

    def _is_of(self, checkpoint: Checkpoint, state_log: StateLog) -> bool:
        return (
            checkpoint.topic_id == self.topic_id
            and checkpoint.replay_offset >= state_log.start_offset
            and state_log.holds(checkpoint.leader_epoch, checkpoint.next_offset)
        )

    async def _apply_all(self, batches: Iterable[StateBatch | StateMarker]) -> Changes:
        """Apply batches; return the records that count from now on."""
        changes: Changes = {}
        newest: Changes = {}  # of records in no transaction that are not applied yet
        for batch in batches:
            if isinstance(batch, StateBatch) and _only_sets(batch):
                newest.update(batch.records)
                continue
            await self._take(newest, changes)
            if isinstance(batch, StateMarker):
                changes.update(self.table.apply_marker(batch))
            elif batch.producer is None:
                await self._apply(batch.records, self.table.apply)
                changes.update(batch.records)
            else:
                await self._apply(batch.records, partial(self.table.apply_in_transaction, batch.producer))
        await self._take(newest, changes)
        return changes

    async def _take(self, newest: Changes, changes: Changes) -> None:
        await self._apply(map(StateRecord._make, newest.items()), self.table.apply)
        changes.update(newest)
        newest.clear()

    async def _apply(self, records: Iterable[StateRecord], apply: Callable[[StateRecord], None]) -> None:
        for number, record in enumerate(records, 1):
            try:
                apply(record)
            except UnknownRecord as error:
                log.warning("coordinator record skipped", partition=self.name, reason=str(error))
            if number % APPLIED_PER_TURN == 0:
                await trio.lowlevel.checkpoint()


def _only_sets(batch: StateBatch) -> bool:
    return batch.producer is None and all(record.value is not None for record in batch.records)
