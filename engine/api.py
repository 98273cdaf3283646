"""The engine's public face: value types and Protocols. Other packages import this module and `engine.errors` only.

It holds no behaviour. All methods are called on the trio thread; a method that is not `async` never blocks on a
disk write and may be called from any task. `engine.store.SegmentStore` implements `PartitionStore`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from engine.compaction_horizon import NOT_COMPACTED as NOT_COMPACTED
from engine.compaction_horizon import Compacted as Compacted
from engine.errors import EngineError
from engine.pending import AnyFuture as AnyFuture
from engine.pending import AppendResult as AppendResult
from engine.pending import PendingAppend as PendingAppend
from engine.pending import WaitingAppends as WaitingAppends
from engine.roles import Following as Following
from engine.roles import Leadership as Leadership
from engine.roles import Role as Role
from engine.roles import TopicIdPartition as TopicIdPartition

NO_TIMESTAMP_MS = NO_OFFSET = NO_EPOCH = -1
HEADER_OVERHEAD_BYTES = 32
FIRST_PROTOCOL, SECOND_PROTOCOL = 0, 2  # of transactions, as Kafka's transaction.version numbers them


class Isolation(IntEnum):
    """The isolation level of a reader, with the values of Kafka's `isolation_level`."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Origin(Enum):
    """Sender of an append (Kafka's AppendOrigin). Replication does not pass here.

    The batches of a coordinator may be control batches, and each of their records has a key. The sequences of the
    producers that a coordinator writes for are not checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class OffsetSpec(IntEnum):
    """Timestamps below zero with a meaning, as in Kafka's ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ReadableFile(Protocol):
    """An open segment file. It can be read even after the segment was deleted.

    `fileno` is None in memory; `read_at` returns fewer bytes only at the end of the file.
    """

    def fileno(self) -> int | None: ...
    def read_at(self, position: int, size_bytes: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class FileRange:
    """Record bytes that stay in their file until the socket takes them. Holds the descriptor open while it lives."""

    file: ReadableFile
    position: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class Outcome(IntEnum):
    """The end of a transaction, with the values of the control record's type."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a producer's transaction. `coordinator_epoch`: of the transaction coordinator that writes it.

    `protocol`: of the transaction. In SECOND_PROTOCOL (KIP-890) no record of the transaction has the epoch of the
    marker. The log does not store the protocol."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    outcome: Outcome
    protocol: int = FIRST_PROTOCOL


class AbortedTransaction(NamedTuple):
    """An aborted transaction: the range of a producer's offsets that a read_committed reader must skip.

    `first_offset`: of its first batch; `last_offset`: of its abort marker. `last_stable_offset`: the LSO after that
    marker. No transaction that ended later begins below it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ReadResult(NamedTuple):
    """Result of a read of one partition. `records` ends at a number of bytes, as in Kafka: the last batch may be
    incomplete, the first batch never is."""

    records: list[FileRange]
    size_bytes: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None = None  # that may touch these records; None: for READ_UNCOMMITTED
    begins_segment: bool = False  # whether the first of these records is the first of a segment
    compacted: Compacted = NOT_COMPACTED  # for a follower: the records alone do not show it
    diverging: "EpochEnd | None" = None  # where the reader's log diverges, if this log lacks the reader's last record


class OffsetAtTimestamp(NamedTuple):
    """Result of a search by timestamp; all three are -1 if no record qualifies."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class RecordFilter(NamedTuple):
    """Filter of a search: records with this key (None: any key) and a timestamp in [from_ms, to_ms)."""

    key: bytes | None = None
    from_ms: int = NO_TIMESTAMP_MS
    to_ms: int = 2**63 - 1

    def fits(self, record: "FoundRecord") -> bool:
        return self.from_ms <= record.timestamp_ms < self.to_ms and self.key in (None, record.key)


class FoundRecord(NamedTuple):
    """A record as it was produced, and its offset; header keys may repeat."""

    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]]

    @property
    def size_bytes(self) -> int:
        """Approximate size of the record in a response; an empty header counts, too."""
        headers = sum(HEADER_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class FoundRecords(NamedTuple):
    """Result of one step of a search: records in ascending order, and the offset of the next step. The search is over
    when `next_offset` is the last stable offset."""

    records: list[FoundRecord]
    next_offset: int


class EpochEnd(NamedTuple):
    """The greatest leader epoch up to the requested one, and the end of its records; both -1 if it is not known."""

    leader_epoch: int
    end_offset: int


class ActiveProducer(NamedTuple):
    """An idempotent producer that a partition knows, and its last append; a field is -1 if there is no value."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int = NO_EPOCH  # of its last marker
    transaction_from: int = NO_OFFSET  # the first offset of its open transaction


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """State of a log dir: space of its filesystem, and bytes of segments of each partition. Offline: neither.

    `lags`: number of records below the leader's high watermark that a follower lacks; without followers that lack none.
    """

    path: str
    is_online: bool
    total_bytes: int = -1
    usable_bytes: int = -1
    partition_size_bytes: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    lags: Mapping[TopicIdPartition, int] = field(default_factory=dict)


class VerificationFuture(AnyFuture, Protocol):
    """A future of a transaction verification.

    After it is settled, `refusal` is the error, or None: append the batch."""

    @property
    def refusal(self) -> EngineError | None: ...


class Joining(Protocol):
    """Verification that the transaction of a batch includes the partition, asked before its first batch there.

    With FIRST_PROTOCOL the transaction coordinator only answers whether it does. With SECOND_PROTOCOL the coordinator
    adds the partition. Without `is_enforced`, batches of FIRST_PROTOCOL are not verified."""

    @property
    def protocol(self) -> int: ...
    @property
    def is_enforced(self) -> bool: ...
    def ask(self, partition: TopicIdPartition) -> VerificationFuture: ...


class PartitionLog(Protocol):
    """A partition that this broker leads."""

    @property
    def partition(self) -> TopicIdPartition: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int:
        """The offset up to which consumers may read; on a single broker the durable end (see FlushPolicy)."""

    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def has_cold(self) -> bool: ...  # some of its segments are only in the remote tier
    @property
    def batch_size_max_bytes(self) -> int:
        """Greatest size of a batch (max.message.bytes); larger ones are refused."""

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether the ISR has min.insync.replicas, so that appends with acks=-1 are accepted."""

    @property
    def is_current(self) -> bool:
        """Whether reads that may be stale are answered: a newer leader may have acknowledged more (RULES K24)."""

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        """Call `on_confirmed(True)` when it is confirmed that this broker led the partition at the time of this call.

        Then a read made before this call has seen all acknowledged writes. `on_confirmed(False)`: no confirmation in
        time."""

    @property
    def has_key_index(self) -> bool:
        """Whether `find_records` finds a key without reading the whole log."""

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FencedLeaderEpoch or UnknownLeaderEpoch unless it is this leader's epoch; -1: not checked."""

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        allow_zstd: bool = True,
        origin: Origin = Origin.CLIENT,
        joining: Joining | None = None,
    ) -> PendingAppend:
        """Do the checks that need no state (errors raise at once) and queue the batch, in the order of the calls.

        With `joining`, a batch of a transaction may wait for the verification. If the transaction ends meanwhile, the
        append fails with InvalidTxnState.

        `records` must be writable and hold exactly one v2 batch. It belongs to the engine until `wait` returns or
        raises: base offset and leader epoch are patched in place and the bytes are written from it. acks=1 and 0
        resolve when the durable end here passed the batch, acks=-1 when the high watermark did.
        `allow_zstd` is False for Produce below version 7 (KIP-110).
        """

    def end_transaction(self, marker: Marker) -> PendingAppend:
        """Append a marker, for a coordinator; it is durable, and on all replicas in sync, when `wait` returns.

        This or `wait` raises as `append` does, and InvalidProducerEpoch for an older epoch of the producer,
        TransactionCoordinatorFenced for an older epoch of the coordinator."""

    def read(
        self,
        offset: int,
        max_size_bytes: int,
        isolation: Isolation,
        *,
        at_least_one: bool,
        is_loaded: bool = False,
    ) -> ReadResult:
        """Records from the batch that holds `offset`, never beyond the high watermark (LSO for READ_COMMITTED).

        With `at_least_one` the first batch comes whole even if larger than `max_size_bytes`; without, a first batch
        that does not fit gives an empty result. At the end of the log the result is empty. Raises OffsetOutOfRange,
        CorruptMessage, NotLeaderOrFollower, StorageError; and NotLoaded or ColdNotLoaded, unless neither the size nor
        `at_least_one` allows for any records: then await `load`, and read again with `is_loaded`. Such a read returns
        what is in memory, if that is one batch at least: a load need not bring all that fits.
        """

    async def load(self, offset: int, max_size_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> object:
        """Load and check the bytes and indexes that `read` needs. Bytes of the remote tier stay loaded for as long as
        the result lives. Raises as `read` does."""

    def offset_of(self, spec: int, isolation: Isolation) -> OffsetAtTimestamp:
        """The offset of an OffsetSpec, except MAX_TIMESTAMP, which needs `offset_for_timestamp`."""

    async def offset_for_timestamp(self, timestamp_ms: int, isolation: Isolation) -> OffsetAtTimestamp:
        """First record with a timestamp >= `timestamp_ms`, exact to the record; negative values are OffsetSpec.
        Records above the high watermark (LSO for READ_COMMITTED) are not found. Runs on a worker."""

    def check_divergence(self, offset: int, last_epoch: int, isolation: Isolation) -> ReadResult | None:
        """Check a reader that has read up to `offset`, the last record in `last_epoch`, for log divergence (KIP-595).

        None: no divergence. Otherwise a result without records, with `diverging`. Raises OffsetOutOfRange if this log
        knows nothing of that epoch."""

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        """The end offset of the records of that epoch, or of the greatest one below it (KIP-101)."""

    async def delete_records(self, before_offset: int) -> int:
        """Move the log start to that offset, durably; -1: to the high watermark. Returns the log start offset.

        Segments wholly below it are removed. Raises OffsetOutOfRange above the high watermark."""

    async def find_records(self, wanted: RecordFilter, offset: int, count_max: int) -> FoundRecords:
        """Do one step of a search, from `offset` or the log start on: at most `count_max` records, reading a few MiB.

        Only committed records, in the order of offsets. The result is that of a scan, with any index. A search by key
        is fast only with the topic's `index.keys`. Raises CorruptMessage, NotLeaderOrFollower, StorageError."""


class ReadyWaiter(Protocol):
    """Waiter of a long poll or a fetch session, over any number of partitions. Close it when done.

    A change of a watched partition: its high watermark moved, its log went offline, it was deleted or changed
    leadership. `take_changed` reports a changed partition once, however often it changed, and does not tell the kind of
    change. The cost of a change is proportional to the waiters that have taken the change before; the cost of
    `take_changed` to the number of changed partitions.
    Watch first and read then, or do both without an await between: then no change is missed.
    """

    def watch(self, log: PartitionLog) -> None: ...
    def unwatch(self, log: PartitionLog) -> None: ...
    def take_changed(self) -> list[PartitionLog]:
        """The watched partitions that changed since the last call, in the order of their first change."""

    async def wait(self) -> None:
        """Return when `take_changed` has at least one change. One task at a time; the deadline is the caller's."""

    def close(self) -> None: ...


class PartitionStore(Protocol):
    """All partitions of this broker, over one log dir or several."""

    def get(self, partition: TopicIdPartition) -> PartitionLog:
        """A partition that this broker leads. Raises UnknownPartition, NotLeaderOrFollower or StorageError (log dir
        offline)."""

    def replica_end(self, partition: TopicIdPartition, leader_epoch: int) -> tuple[int, int, int]:
        """The end of a replica that follows in `leader_epoch`: leader epoch of its last record, log end offset, and the
        high watermark that it knows. Raises as `get` does."""

    def new_waiter(self) -> ReadyWaiter: ...
    def find_producer(self, partition: TopicIdPartition, producer_id: int) -> ActiveProducer | None:
        """The state of the producer in the partition, None if it has none. Raises UnknownPartition, StorageError."""

    def active_producers(self, partition: TopicIdPartition) -> Sequence[ActiveProducer]:
        """The producers whose sequences the partition remembers. Raises as `get` does."""

    async def describe_log_dirs(self) -> Sequence[LogDirDescription]:
        """The state of all log dirs, in the order of `log.dirs`."""

    async def open_partitions(self, wanted: Sequence[Role]) -> Sequence[PartitionLog | EngineError]:
        """Open or create the partitions of these roles, each named once, and lead or follow them.

        An open partition takes over the new role, epoch and configuration. Returns the partitions in the order of
        `wanted`, with the error in the place of each that fails.
        """

    async def delete_partitions(self, partitions: Sequence[TopicIdPartition]) -> Sequence[EngineError | None]:
        """Remove these from disk; reads in flight keep their descriptors. Returns None or the error for each,
        UnknownPartition if it is not on this broker."""

    @property
    def has_room(self) -> bool: ...
    async def wait_for_room(self) -> None:
        """Return when the append queues have room, at once if they have it now. Call it before accepting the next
        Produce request; an append to a full queue raises Overloaded."""

    async def close(self) -> None:
        """Refuse further appends, finish the queued ones, sync, and write the clean-shutdown marker."""
