"""The leader role: checks appends, recognises duplicates, and stamps the batches that go to the log (RULES L2).

Each leadership has its own object. Appends that were queued under another leadership are refused, so that a producer
gets no acknowledgement from a leadership that it did not send to. All methods run on the loop, between commit batches.
The log changes only when the staged commit batch is written.
"""

from collections.abc import Callable, Sequence

import trio

from engine.api import AppendResult, Marker, Origin, TopicIdPartition
from engine.batches.append_at_offset_checks import check_kept
from engine.batches.batch import BatchHeader, clear_log_append_time, stamp, stamp_log_append_time
from engine.batches.markers import build_marker, parse_marker
from engine.batches.produce_checks import ProduceLimits, check_produced
from engine.batches.record_checks import RecordRules
from engine.commit.appends import Append, Owner, PartitionShare
from engine.errors import EngineError, NotEnoughReplicas, NotLeaderOrFollower
from engine.log_config import FlushPolicy, LogConfig
from engine.logs.log import Log
from engine.logs.producers.state import ProducedBatch, ProducerTable
from engine.logs.segments.roll_policy import RollPolicy
from engine.partitions.append_at_offset import AppendAtOffset
from engine.partitions.confirmed_reads import ConfirmedReads
from engine.partitions.pending_acks import PendingAcks, acked_to
from engine.partitions.txn_verification import UnverifiedAppend
from engine.replication.progress import Progress
from engine.replication.replicas import Replicas


class CoordinatorAppend(Append):
    """An append of a coordinator. Its sequence is not checked, so it is never a duplicate.

    `marker`: the marker that the batch holds, if any, as the transaction coordinator has sent it: it has more than the
    batch, such as the protocol.
    """

    __slots__ = ("marker",)

    def __init__(
        self,
        owner: Owner,
        records: memoryview,
        header: BatchHeader,
        role: object,
        wants_all: bool,
        hurries: bool = False,
        marker: Marker | None = None,
    ) -> None:
        self.marker = parse_marker(header, records) if header.is_control and marker is None else marker
        super().__init__(owner, records, header, role, wants_all, hurries and self.marker is None)

    def check(self, producers: ProducerTable) -> None:
        """Check it against the state of its producer; raises an EngineError."""
        if self.marker is not None:
            producers.check_marker(self.marker)
        elif self.header.has_sequence:
            producers.check_written_for(self.header)

    def note(self, part: PartitionShare, producers: ProducerTable) -> None:
        """Note in the producer state that it goes to the log."""
        if self.marker is not None:
            part.end_transaction(self.header, self.marker, producers)
            self.owner.ended(self.marker)
        elif self.header.has_sequence:
            part.apply(self.header, producers)


class Leader:
    """The leader role of one partition, in one leader epoch."""

    __slots__ = (
        "_is_async",
        "_limits",
        "_now_ms",
        "_partition",
        "_pending",
        "_progress",
        "_record_rules",
        "_rolls",
        "_validates_all",
        "config",
        "epoch",
        "reads",
        "replicas",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        epoch: int,
        config: LogConfig,
        progress: Progress,
        pending: PendingAcks,
        now_ms: Callable[[], int],
        replicas: Replicas | None = None,
    ) -> None:
        """`replicas`: None if this is the only one. `reads`, to be set: None if reads need not be confirmed."""
        self._partition = partition
        self.epoch = epoch
        self._progress = progress
        self._pending = pending
        self._now_ms = now_ms
        self.replicas = replicas
        self.reads: ConfirmedReads | None = None
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Use this configuration from now on."""
        self.config = config
        self._rolls = RollPolicy.of(config)
        self._is_async = config.flush_policy is FlushPolicy.ASYNC
        self._limits = ProduceLimits.of(config)
        self._record_rules = RecordRules.of(self._partition, config)
        self._validates_all = self._record_rules.apply_to_all

    def admit(
        self, owner: Owner, records: memoryview, *, acks: int, allow_zstd: bool, origin: Origin, is_joining: bool
    ) -> Append:
        """Do the checks that need no state, and make the batch an append. Raises NotEnoughReplicas, and the errors of
        the batch."""
        if self.replicas is not None and acks < 0:
            self._check_in_sync(self.replicas)
        now_ms = self._now_ms()
        header = check_produced(records, self._limits, now_ms, allow_zstd=allow_zstd, origin=origin)
        if origin is Origin.CLIENT:
            kind = UnverifiedAppend if is_joining and header.is_transactional else Append
            append = kind(owner, records, header, self, acks < 0, self._is_async)
        else:
            append = CoordinatorAppend(owner, records, header, self, acks < 0, self._is_async)
        if self._validates_all or header.max_timestamp_ms < header.base_timestamp_ms:
            append.validation = self._record_rules.validation(records, header, now_ms, origin)
        return append

    def admit_kept(self, owner: Owner, records: memoryview) -> AppendAtOffset:
        """Do the checks that need no state for a batch that keeps its offsets. Raises the errors of the batch."""
        now_ms = self._now_ms()
        header = check_kept(records, self._limits, now_ms)
        append = AppendAtOffset(owner, records, header, self, self._is_async)
        append.validation = self._record_rules.for_append_at_offset.validation(records, header, now_ms)
        return append

    def admit_marker(self, owner: Owner, marker: Marker) -> Append:
        """Make a marker an append that waits for all replicas, and for the sync. Raises NotEnoughReplicas."""
        if self.replicas is not None:
            self._check_in_sync(self.replicas)
        now_ms = self._now_ms()
        records = memoryview(build_marker(marker, now_ms))
        header = check_produced(records, self._limits, now_ms, allow_zstd=True, origin=Origin.COORDINATOR)
        return CoordinatorAppend(owner, records, header, self, True, marker=marker)

    def _check_in_sync(self, replicas: Replicas) -> None:
        """Raise NotEnoughReplicas if the ISR is too small; min.insync.replicas counts up to the number of replicas
        (KIP-966)."""
        if not replicas.is_enough:
            raise NotEnoughReplicas(f"{self._name} has fewer replicas in sync than min.insync.replicas")

    @property
    def _name(self) -> str:
        return f"{self._partition.topic}-{self._partition.partition}"

    def stage(self, owner: Owner, log: Log, appends: Sequence[Append]) -> PartitionShare | None:
        """Stage the appends that go to the log; the others are refused, or wait for the batch they are duplicates
        of."""
        part = PartitionShare(owner, log)
        batches: list[memoryview] = []  # `list[memoryview]()` is slow
        headers: list[BatchHeader] = []
        now_ms, offset = self._now_ms(), part.before_offset
        for append in appends:
            if append.role is not self:
                log.producers.turn_away(append.header)
                append.settle(NotLeaderOrFollower("it was queued under another leader epoch"))
                continue
            is_produced = append.header.producer_id >= 0
            if (is_produced or isinstance(append, AppendAtOffset)) and not self._is_new(append, log, offset):
                continue
            header = append.header = self._stamp(append, offset, now_ms)
            assert append.records is not None
            part.appends.append(append)
            batches.append(append.records)
            headers.append(header)
            offset = header.next_offset
            if isinstance(append, CoordinatorAppend):
                append.note(part, log.producers)
            elif is_produced:
                part.apply(header, log.producers)
        if not batches:
            return None
        part.stage(log.stage(batches, headers, self._rolls, now_ms), log.producers)
        part.must_sync = part.has_marker or self._must_sync(log, offset)
        return part

    def _is_new(self, append: Append, log: Log, end_offset: int) -> bool:
        """Whether an append of a producer, or one that keeps its offsets, goes to the log; else it is answered."""
        try:
            if isinstance(append, AppendAtOffset):
                is_next = append.is_next(end_offset, log.compacted_to)
                if not is_next:
                    self._answer_duplicate(append, append.result(log.start_offset))
                return is_next
            if isinstance(append, CoordinatorAppend):
                append.check(log.producers)
                return True
            if isinstance(append, UnverifiedAppend):
                append.check(log.producers)
            original = log.producers.check(append.header)
        except EngineError as error:
            self._refuse(append, error, log.producers)
            return False
        if original is None:
            return True
        self._answer_duplicate(append, _result_of_duplicate(original, log.start_offset))
        return False

    def _refuse(self, append: Append, error: EngineError, producers: ProducerTable) -> None:
        """Refuse an append, after it is confirmed that this broker still leads (RULES K24).

        In the log of a successor the transaction may be another one, and missing batches may be there. A client gives
        the batch up when it gets such an error.
        """
        if self.reads is None:
            append.settle(error)
            return
        append.release()
        producers.turn_away(append.header)  # the producer sends it again, unless the refusal is confirmed

        def on_confirmed(is_confirmed: bool) -> None:
            if is_confirmed:
                producers.forget_turned_away(append.header)
                append.settle(error)
            else:
                append.settle(NotLeaderOrFollower(f"another broker may lead {self._name} by now; here {error}"))

        append.owner.confirm(on_confirmed)

    def _answer_duplicate(self, append: Append, result: AppendResult) -> None:
        """Answer a duplicate when the batch in the log has the requested acks."""
        if result.last_offset < acked_to(self._progress, append):
            append.settle(result)
        else:
            self._pending.add_duplicate(append, result, trio.current_time())

    def _stamp(self, append: Append, base_offset: int, now_ms: int) -> BatchHeader:
        assert append.records is not None
        header = append.header
        if isinstance(append, AppendAtOffset):
            base_offset = header.base_offset
        elif self._limits.is_log_append_time:
            header = stamp_log_append_time(append.records, header, now_ms)
        elif header.is_log_append_time:
            header = clear_log_append_time(append.records, header)
        stamp(append.records, base_offset, self.epoch)
        return header.placed(base_offset, self.epoch)

    def _must_sync(self, log: Log, end_offset: int) -> bool:
        """Whether a commit batch that moves the log end to `end_offset` is durable only after a sync (as
        UnifiedLog.append)."""
        if not self._is_async:
            return True
        messages = self.config.flush_messages
        return end_offset >= messages and end_offset - log.durable_offset >= messages


def _result_of_duplicate(original: ProducedBatch, log_start_offset: int) -> AppendResult:
    """The result of a duplicate. As in Kafka, its log append time is the timestamp of the original in any topic."""
    return AppendResult(original.first_offset, original.last_offset, original.timestamp_ms, log_start_offset)
