"""Appends of a partition on their way through a commit batch: staged, written, durable, answered."""

from collections.abc import Callable

import trio

from engine.api import Joining, Marker, PendingAppend
from engine.commit.appends import Append, PartitionShare
from engine.commit.flusher import FLUSH_BEHIND_BYTES
from engine.errors import StorageError
from engine.log_dirs.log_dir import index_key
from engine.logs.segments.roll_policy import RollPolicy
from engine.logs.staging import empty_chunk
from engine.partitions.append_queue import AppendQueue
from engine.partitions.state import PartitionState
from engine.partitions.txn_verification import UnverifiedAppend
from engine.reading.key_indexer import outgrows_tail

NEVER_MS = 2**63 - 1  # Kafka's default of flush.ms


class PartitionCommits:
    """Implements `engine.commit.appends.Owner` of one partition."""

    __slots__ = ("_append_queue", "_state", "partition")

    def __init__(self, state: PartitionState) -> None:
        self.partition = state.partition
        self._state = state
        self._append_queue = AppendQueue(self, state)

    def queue(self, append: Append, joining: Joining | None = None) -> PendingAppend:
        """Queue an append that a role has admitted. With `joining`, a batch of a transaction may wait for the
        verification. Raises InvalidProducerEpoch, StorageError, Overloaded."""
        if joining is not None and isinstance(append, UnverifiedAppend):
            return self._append_queue.join(append, joining)
        return self._append_queue.queue(append)

    def ended(self, marker: Marker) -> None:
        self._append_queue.ended(marker)

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        self._state.confirm(on_confirmed)

    def stopped_waiting(self) -> None:
        self._state.pending.stopped_waiting(self._state.progress)

    def stage(self, appends: list[Append]) -> PartitionShare | None:
        state = self._state
        if state.closed is not None or state.role is None or state.is_being_truncated:
            for append in appends:
                state.log.producers.turn_away(append.header)
                append.settle(state.why_closed())
            return None
        part = state.role.stage(self, state.log, appends)
        if part is not None and state.progress.durable.offset < part.before_offset:
            part.must_sync = True  # it follows batches that wait for a sync
        return part

    def written(self, part: PartitionShare) -> None:
        self._commit(part)
        if part.undo:
            self._state.log.producers.trim()
        if not part.must_sync:
            self.durable(part)
            self._flush_later()

    def _commit(self, part: PartitionShare) -> None:
        log, progress = self._state.log, self._state.progress
        if part.started or part.ended:
            log.aborted.active += part.aborted
            started = [at for at in part.places() if at.offset in part.started]
            progress.note_transactions(started, [(one.first_offset, one.last_offset) for one in part.ended])
        log.commit(part.chunks)
        part.end = log.end
        if progress.has_others:
            progress.note_written(part.end, part.batch_ends(progress.written.max_timestamp_ms))
            self._state.changes.announce()  # followers may have it before it is durable here (RULES K16)
        else:
            progress.note_written(part.end)

    def durable(self, part: PartitionShare) -> None:
        """Advance the high watermark, then answer the appends: a client that gets its reply may read at once."""
        self._advance(part)
        self._answer(part)

    def _advance(self, part: PartitionShare) -> None:
        """Note that `part` is durable; the high watermark may move."""
        state = self._state
        progress, log_dir = state.progress, state.log_dir
        before, stable_in = progress.high_watermark, progress.last_stable.segment_base_offset
        has_moved = progress.note_durable(part.end)
        if state.config.index_keys and outgrows_tail(before, progress.high_watermark):
            state.index_keys()
        if part.rolls:
            log_dir.note_unallocated(part.chunks[-1].unallocated)
            log_dir.commit_log.want_checkpoint()
        if part.rolls or progress.last_stable.segment_base_offset != stable_in:
            state.want_seal()
        if state.log.unindexed:
            log_dir.index.note(index_key(self.partition), state.log, part.end.offset)
        state.reader.appended(part.chunks)
        if has_moved and state.changes:
            state.changes.announce()

    def stage_roll(self) -> PartitionShare:
        """Stage a commit batch without appends that begins a segment, between commit batches."""
        log = self._state.log
        part = PartitionShare(self, log)
        part.stage([empty_chunk(log.end.offset, RollPolicy.of(self._state.config))], log.producers)
        return part

    def rolled(self, part: PartitionShare) -> None:
        """Note that the staged roll is written."""
        self._commit(part)
        self._advance(part)

    def _flush_later(self) -> None:
        log, config = self._state.log, self._state.config
        interval_ms = 0 if log.unflushed_bytes >= FLUSH_BEHIND_BYTES else config.flush_interval_ms
        if interval_ms < NEVER_MS:
            flusher = self._state.log_dir.commit_log.flusher
            flusher.flush_by(log, trio.current_time() + interval_ms / 1000)

    def _answer(self, part: PartitionShare) -> None:
        state = self._state
        if state.closed is not None:
            for append in part.appends:
                append.settle(state.closed())
            return
        start_offset, high_watermark = state.log.start_offset, state.progress.high_watermark.offset
        for append in part.appends:
            result = append.result(start_offset)
            if append.wants_all and result.last_offset >= high_watermark:
                state.pending.add(append, result, trio.current_time())
            else:
                append.settle(result)
        if state.pending:
            state.pending.settle_reached(state.progress)

    def failed(self, part: PartitionShare, error: str) -> None:
        producers = self._state.log.producers
        for _, producer_id, before in reversed(part.undo):
            producers.restore(producer_id, before)
        for append in part.appends:
            producers.turn_away(append.header)
            append.settle(StorageError(error))
        self._state.pending.fail(StorageError(error), part.base_offset)
