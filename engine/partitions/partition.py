"""One partition led by this broker: the state that decides, on top of a log that stores.

Owned by the loop: every method runs there, so offset assignment, epochs and the high watermark need no lock (RULES
L2). `append` does what needs no state and queues; `stage`, called by the lane at the start of a round, does the rest
in one step. On a single broker the high watermark is the durable end (L1).
"""

from collections.abc import Callable

import trio

from engine.api import (
    NO_EPOCH,
    NO_TIMESTAMP_MS,
    AppendResult,
    EpochEnd,
    FlushPolicy,
    FoundRecords,
    Isolation,
    LogConfig,
    OffsetAtTimestamp,
    PendingAppend,
    ReadResult,
    RecordFilter,
    TimestampType,
    TopicPartition,
)
from engine.batches.batch import BatchHeader, clear_log_append_time, stamp, stamp_log_append_time
from engine.batches.produce_checks import ProduceLimits, check_produced
from engine.batches.record_checks import RecordRules
from engine.commit.appends import Append, PartitionRound, Undo
from engine.commit.flusher import FLUSH_BEHIND_BYTES
from engine.errors import (
    CorruptMessage,
    EngineError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageError,
    UnknownLeaderEpoch,
)
from engine.log_dirs.log_dir import LogDir, index_key
from engine.log_dirs.log_starts import Move, move_log_starts
from engine.logs.log import Log, LogPosition, RollPolicy
from engine.logs.producer_state import ProducedBatch
from engine.logs.segment import Segment
from engine.partitions.waiters import Watched
from engine.reading.key_indexer import outgrows_tail
from engine.reading.reader import LogReader
from engine.reading.search import find_records

UP_TO_HIGH_WATERMARK = -1  # of DeleteRecords
NEVER_MS = 2**63 - 1  # flush.ms as Kafka defaults it


class Partition(Watched):
    """Implements `engine.api.PartitionLog` for callers and `engine.commit.group_committer.Owner` for its lane."""

    __slots__ = (
        "_closed",
        "_limits",
        "_now_ms",
        "_reader",
        "_record_rules",
        "_rolls",
        "config",
        "leader_epoch",
        "log",
        "log_dir",
        "partition",
        "visible_end",
    )

    def __init__(self, partition: TopicPartition, log: Log, log_dir: LogDir, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self.partition = partition
        self.log = log
        self.log_dir = log_dir
        self.leader_epoch = NO_EPOCH
        self._now_ms = now_ms
        self.visible_end = log.end  # the high watermark, and where it lies
        self._reader = LogReader(log, log_dir.reading, index_key(partition))
        self._closed: Callable[[], EngineError] | None = None
        self._set_config(LogConfig())

    def _set_config(self, config: LogConfig) -> None:
        self.config = config
        self._rolls = RollPolicy.of(config)
        sizes = config.max_message_size_bytes, config.segment_size_bytes
        times = config.timestamp_before_max_ms, config.timestamp_after_max_ms
        self._limits = ProduceLimits(*sizes, *times, config.timestamp_type is TimestampType.LOG_APPEND_TIME)
        self._record_rules = RecordRules.of(self.partition, config)

    # Life

    def lead(self, config: LogConfig, leader_epoch: int) -> None:
        """Take over in an epoch acquired durably; appends staged from now on carry it."""
        known = self.log.epochs.latest
        if leader_epoch < known or (leader_epoch == known != self.leader_epoch):  # an earlier incarnation had it (L3)
            raise FencedLeaderEpoch(f"epoch {leader_epoch} of {self.partition.topic} is not newer than {known}")
        self._set_config(config)
        self._index_keys()
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.log.epochs.note(leader_epoch, self.log.end.offset)
            self.announce_change()

    def close(self, error: Callable[[], EngineError]) -> None:
        """Serve nothing from now on: every call, and every append not yet answered, gets the error."""
        if self._closed is None:
            self._closed = error
            self.announce_change()

    def retreat(self, end: LogPosition) -> None:
        self.log_dir.keys.abandon(self._reader)
        self.visible_end = min(self.visible_end, end)
        self.announce_change()

    def resume(self, log: Log) -> None:
        log.has_spare = self.log.has_spare
        self.log = log
        self._reader = LogReader(log, self.log_dir.reading, index_key(self.partition))
        self._index_keys()
        self.visible_end = log.end
        log.epochs.note(self.leader_epoch, log.end.offset)
        self.announce_change()

    def segment_replaced(self, fresh: Segment) -> None:
        """It took the place of others in the log."""
        self._reader.segment_replaced(fresh)
        self._index_keys()

    def expire_producers(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since."""
        self.log.producers.expire(before_ms)

    # What callers see

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.end.offset

    @property
    def high_watermark(self) -> int:
        return self.visible_end.offset

    @property
    def last_stable_offset(self) -> int:
        return self.visible_end.offset  # no transaction can be open yet

    @property
    def has_key_index(self) -> bool:
        return self.config.index_keys

    @property
    def batch_size_max_bytes(self) -> int:
        return min(self.config.max_message_size_bytes, self.config.segment_size_bytes)

    @property
    def is_sound(self) -> bool:
        return self._closed is None and self.log.damaged_from is None

    def check_open(self) -> None:
        """Raise what `close` was given."""
        if self._closed is not None:
            raise self._closed()

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch == self.leader_epoch or current_leader_epoch == NO_EPOCH:
            return
        message = f"leader epoch is {self.leader_epoch}, not {current_leader_epoch}"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(message)
        raise UnknownLeaderEpoch(message)

    def append(self, records: memoryview, *, acks: int, allow_zstd: bool = True, keyed: bool = False) -> PendingAppend:
        if self._closed is not None or self.log_dir.is_closing or self.log.damaged_from is not None:
            raise self._why_closed()
        # min.insync.replicas counts up to the number of replicas (KIP-966): with one there is nothing to check.
        header = check_produced(records, self._limits, self._now_ms(), allow_zstd=allow_zstd)
        append = Append(self, records, header)
        if self._record_rules is not None:
            append.examination = self._record_rules.examination(records, header, keyed=keyed)
        try:
            if self.log_dir.is_nearly_full:
                raise StorageError(f"{self.log_dir.disk.path} is nearly full (disk.reject.ratio)")
            if append.examination is None and self not in self.log_dir.examiner.held:
                self.log_dir.commit_log.committer.submit(append)
            else:
                self.log_dir.examiner.submit(append)
        except EngineError:
            self.log.producers.turn_away(header)
            raise
        return append

    def _why_closed(self) -> EngineError:
        if self._closed is not None:
            return self._closed()
        if self.log_dir.is_closing:
            return NotLeaderOrFollower("the broker is shutting down")
        return StorageError(f"the log is damaged from offset {self.log.damaged_from} on and takes no appends")

    def read(self, offset: int, max_size_bytes: int, isolation: Isolation, *, at_least_one: bool) -> ReadResult:
        self._check_readable(offset)
        try:
            found = self.log.read(offset, max_size_bytes, self.visible_end, at_least_one=at_least_one)
        except OSError as error:
            self.log_dir.disk.fail(error)
            raise StorageError(f"the log dir is offline: {error}") from error
        return ReadResult(
            records=[] if found is None else [found],
            size_bytes=0 if found is None else found.size_bytes,
            high_watermark=self.visible_end.offset,
            last_stable_offset=self.visible_end.offset,
            log_start_offset=self.log.start_offset,
            aborted=[] if isolation == Isolation.READ_COMMITTED else None,
        )

    def _check_readable(self, offset: int) -> None:
        self.check_open()
        start_offset, damaged_from = self.log.start_offset, self.log.damaged_from
        if damaged_from is not None and offset >= damaged_from:
            raise CorruptMessage(f"the log is damaged from offset {damaged_from} on")
        if not start_offset <= offset <= self.visible_end.offset:
            raise OffsetOutOfRange(f"offset {offset} is not within [{start_offset}, {self.visible_end.offset}]")

    async def load(self, offset: int, max_size_bytes: int) -> None:
        self._check_readable(offset)
        if offset < self.visible_end.offset:
            await self._reader.load(offset, max_size_bytes, self.visible_end)

    async def offset_for_timestamp(self, timestamp_ms: int, isolation: Isolation) -> OffsetAtTimestamp:
        self.check_open()
        return await self._reader.offset_for_timestamp(timestamp_ms, self.visible_end)

    def read_behind(self, offset: int, last_epoch: int, isolation: Isolation) -> ReadResult | None:
        end = self.end_offset_for_epoch(last_epoch)
        start = self.log.start_offset
        if end.leader_epoch == NO_EPOCH or offset < start:
            raise OffsetOutOfRange(f"offset {offset} of epoch {last_epoch} is below {start}, or of no epoch known here")
        if end.leader_epoch == last_epoch and end.end_offset >= offset:
            return None
        return self.read(start, 0, isolation, at_least_one=False)._replace(diverging=end)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        self.check_open()
        log = self.log
        return log.epochs.end_of(leader_epoch, log.end.offset, log.start_offset)

    async def delete_records(self, before_offset: int) -> int:
        self.check_open()
        if before_offset == UP_TO_HIGH_WATERMARK:
            before_offset = self.visible_end.offset
        if not 0 <= before_offset <= self.visible_end.offset:
            raise OffsetOutOfRange(f"offset {before_offset} is not within [0, {self.visible_end.offset}]")
        await move_log_starts(self.log_dir, [Move(self, before_offset)])
        self.check_open()
        return self.log.start_offset

    async def find_records(self, wanted: RecordFilter, offset: int, count_max: int) -> FoundRecords:
        self.check_open()
        return await find_records(self.log_dir.index, self._reader, wanted, offset, count_max, self.visible_end)

    # What the lane calls

    def stage(self, appends: list[Append]) -> PartitionRound | None:
        if self._closed is not None:
            for append in appends:
                append.settle(self._closed())
            return None
        part, batches, headers = PartitionRound(self, self.log), [], []
        now_ms, offset = self._now_ms(), self.log.end.offset
        for append in appends:
            if self._is_new(append, part):
                header = append.header = self._stamp(append, offset, now_ms)
                assert append.records is not None
                batches.append(append.records)
                headers.append(header)
                offset = header.next_offset
                if header.producer_id >= 0:
                    part.undo.append(Undo(header.base_offset, header.producer_id, self.log.producers.apply(header)))
        if not batches:
            return None
        part.stage(self.log.stage(batches, headers, self._rolls, now_ms), self.log.producers)
        part.must_sync = self._must_sync(offset)
        return part

    def _is_new(self, append: Append, part: PartitionRound) -> bool:
        """Whether it goes to the log. If not it is refused, or a duplicate: answered once its original is durable."""
        if append.header.producer_id >= 0:
            try:
                original = self.log.producers.check(append.header)
            except EngineError as error:
                append.settle(error)
                return False
            if original is not None:
                if original.last_offset < self.visible_end.offset:
                    append.settle(self._result_of_duplicate(original))
                else:  # it came in the same round
                    part.duplicates.append((append, original))
                return False
        part.appends.append(append)
        return True

    def _must_sync(self, end_offset: int) -> bool:
        """Whether a round that takes the log to `end_offset` counts only once it is synced (as UnifiedLog.append)."""
        if self.config.flush_policy is FlushPolicy.SYNC:
            return True
        messages = self.config.flush_messages
        return end_offset >= messages and end_offset - self.log.durable_offset >= messages

    def _stamp(self, append: Append, base_offset: int, now_ms: int) -> BatchHeader:
        assert append.records is not None
        header = append.header
        if self._limits.is_log_append_time:
            header = stamp_log_append_time(append.records, header, now_ms)
        elif header.is_log_append_time:
            header = clear_log_append_time(append.records, header)
        stamp(append.records, base_offset, self.leader_epoch)
        return header.placed(base_offset, self.leader_epoch)

    def written(self, part: PartitionRound) -> None:
        self.log.commit(part.chunks)
        if part.undo:
            self.log.producers.trim()
        if not part.must_sync:
            self.durable(part)
            self._flush_later()

    def durable(self, part: PartitionRound) -> None:
        """Whoever is answered may look at once: the high watermark goes first."""
        self._advance(part)
        self._answer(part)

    def _advance(self, part: PartitionRound) -> None:
        """The high watermark goes to the durable end, which `part` has moved."""
        before, end = self.visible_end, self.log.end
        assert end.offset >= before.offset, "the high watermark never goes back"
        self.visible_end = end
        if self.config.index_keys and outgrows_tail(before, end):
            self._index_keys()
        if part.rolls:
            self.log_dir.note_unallocated(part.chunks[-1].unallocated)
            self.log_dir.commit_log.want_checkpoint()
            self.log_dir.want_seal(self)
        if self.log.unindexed:
            self.log_dir.index_later(self)
        self._reader.appended(part.chunks)
        if self._waiters:
            self.announce_change()

    def stage_roll(self) -> PartitionRound:
        part = PartitionRound(self, self.log)
        part.stage([self.log.stage_roll(self._rolls)], self.log.producers)
        return part

    def rolled(self, part: PartitionRound) -> None:
        self.log.commit(part.chunks)
        self._advance(part)

    def _index_keys(self) -> None:
        if self.config.index_keys:
            self.log_dir.keys.want(self._reader, self.visible_end)

    def _flush_later(self) -> None:
        if self.log.unflushed_bytes >= FLUSH_BEHIND_BYTES:
            self.log_dir.commit_log.flusher.flush_by(self.log, trio.current_time())
        elif self.config.flush_interval_ms < NEVER_MS:
            self.log_dir.commit_log.flusher.flush_by(
                self.log, trio.current_time() + self.config.flush_interval_ms / 1000
            )

    def _answer(self, part: PartitionRound) -> None:
        if self._closed is not None:
            for append in part.asked:
                append.settle(self._closed())
            return
        start_offset = self.log.start_offset
        for append in part.appends:
            header = append.header
            log_append_time_ms = header.max_timestamp_ms if header.is_log_append_time else NO_TIMESTAMP_MS
            append.settle(AppendResult(header.base_offset, header.next_offset - 1, log_append_time_ms, start_offset))
        for append, original in part.duplicates:
            append.settle(self._result_of_duplicate(original))

    def _result_of_duplicate(self, original: ProducedBatch) -> AppendResult:
        """Kafka tells the original's timestamp as its log append time, whatever the topic uses."""
        return AppendResult(original.first_offset, original.last_offset, original.timestamp_ms, self.log.start_offset)

    def failed(self, part: PartitionRound, error: str) -> None:
        for _, producer_id, before in reversed(part.undo):
            self.log.producers.restore(producer_id, before)
        for append in part.asked:
            self.log.producers.turn_away(append.header)
            append.settle(StorageError(error))
