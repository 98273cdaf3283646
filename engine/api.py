"""The engine's public face: value types and Protocols. Other packages import this module and `engine.errors` only.

It holds no behaviour. All methods are called on the trio thread; a method that is not `async` never blocks on a
disk write and may be called from any task. `engine.store.SegmentStore` implements `PartitionStore`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from engine.compacted import NOT_COMPACTED as NOT_COMPACTED
from engine.compacted import Compacted as Compacted
from engine.errors import EngineError
from engine.pending import AppendResult as AppendResult
from engine.pending import PendingAppend as PendingAppend
from engine.pending import Settleable as Settleable
from engine.pending import WaitingAppends as WaitingAppends
from engine.roles import Following as Following
from engine.roles import Leadership as Leadership
from engine.roles import Role as Role
from engine.roles import TopicPartition as TopicPartition

NO_TIMESTAMP_MS = NO_OFFSET = NO_EPOCH = -1
HEADER_OVERHEAD_BYTES = 32
FIRST_PROTOCOL, SECOND_PROTOCOL = 0, 2  # of transactions, as Kafka's transaction.version numbers them


class Isolation(IntEnum):
    """What a reader may see; the values are those of Kafka's `isolation_level`."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Origin(Enum):
    """Who made a batch (Kafka's AppendOrigin). What a coordinator writes has a key in every record, and may be a
    control batch; the sequences of producers it writes for mean nothing. What replicas have comes in another way."""

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
    """An open segment file. Whoever holds it may read, even after the segment was deleted.

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
    """How a transaction ended, as the type of its control record."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a producer's transaction; `coordinator_epoch` is that of who said so. `protocol`: of the transaction;
    in the second one (KIP-890) none of its records has the marker's epoch. A log does not tell it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    outcome: Outcome
    protocol: int = FIRST_PROTOCOL


class AbortedTransaction(NamedTuple):
    """From the first batch of a producer's transaction to the marker that aborts it, which is at `last_offset`: what a
    read_committed reader must skip.

    `last_stable_offset`: how far the log was stable behind it. No transaction that ended later begins below that.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ReadResult(NamedTuple):
    """One partition's part of a fetch. As Kafka does, `records` is cut by bytes: the last batch may be incomplete, the
    first never is."""

    records: list[FileRange]
    size_bytes: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None = None  # that may touch these records; None: for READ_UNCOMMITTED
    begins_segment: bool = False  # whether the first of these records is the first of a segment
    compacted: Compacted = NOT_COMPACTED  # for a replica, which could not know it by these records
    diverging: "EpochEnd | None" = None  # where the reader's log and this one part, if what it read last is not here


class OffsetAtTimestamp(NamedTuple):
    """Answer to a search; all three are -1 when no record qualifies."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class RecordFilter(NamedTuple):
    """Which records: those with this key, if one is given, and a timestamp in [from_ms, to_ms)."""

    key: bytes | None = None
    from_ms: int = NO_TIMESTAMP_MS
    to_ms: int = 2**63 - 1

    def fits(self, record: "FoundRecord") -> bool:
        return self.from_ms <= record.timestamp_ms < self.to_ms and self.key in (None, record.key)


class FoundRecord(NamedTuple):
    """A record as it was produced, and where it lies; header keys may repeat."""

    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]]

    @property
    def size_bytes(self) -> int:
        """About what it takes to tell; a header takes something even if it is empty."""
        headers = sum(HEADER_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class FoundRecords(NamedTuple):
    """What one step of a search found, ascending, and the offset to go on from: the last stable one when it is over."""

    records: list[FoundRecord]
    next_offset: int


class EpochEnd(NamedTuple):
    """The greatest leader epoch up to the one asked for, and where its records end; both -1 when it is not known."""

    leader_epoch: int
    end_offset: int


class ActiveProducer(NamedTuple):
    """An idempotent producer that a partition knows, by what came from it last; each -1 if there is none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int = NO_EPOCH  # of its last marker
    transaction_from: int = NO_OFFSET  # the first offset of its open transaction


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log dir: the space of its filesystem, and the size of the segments of each partition; offline, neither.
    `lags`: how many records a follower lacks of what its leader said that all in sync have; of those that lack any."""

    path: str
    is_online: bool
    total_bytes: int = -1
    usable_bytes: int = -1
    partition_size_bytes: Mapping[TopicPartition, int] = field(default_factory=dict)
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)


class Permission(Settleable, Protocol):
    """Whether a batch may be appended; once it is settled `refusal` says why it may not."""

    @property
    def refusal(self) -> EngineError | None: ...


class Joining(Protocol):
    """How a partition becomes a part of a batch's transaction: by `protocol` 0 its coordinator says whether it is, by 2
    it makes it so. It is asked about the first batch of one. Not `is_enforced`: whoever asks is believed."""

    @property
    def protocol(self) -> int: ...
    @property
    def is_enforced(self) -> bool: ...
    def ask(self, partition: TopicPartition) -> Permission: ...


class PartitionLog(Protocol):
    """One partition, led by this broker."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int:
        """End of what consumers may read; on a single broker the durable end, as the flush policy defines it."""

    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def has_cold(self) -> bool: ...  # a remote tier alone has some of it
    @property
    def batch_size_max_bytes(self) -> int:
        """Larger ones are refused."""

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether appends with acks=-1 are taken, as far as min.insync.replicas goes."""

    @property
    def is_current(self) -> bool:
        """Whether a read may be answered that may be older than what a successor has acknowledged (RULES K24)."""

    def confirm(self, told: Callable[[bool], None]) -> None:
        """Call `told` with True once it is known that this broker led the partition when this was called: what was
        looked up before is what all acknowledged writes have led to. With False if that is not known in time."""

    @property
    def has_key_index(self) -> bool:
        """Whether `find_records` finds keys without reading everything."""

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FencedLeaderEpoch or UnknownLeaderEpoch unless it is ours; -1 means the caller does not say."""

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        allow_zstd: bool = True,
        origin: Origin = Origin.CLIENT,
        joining: Joining | None = None,
    ) -> PendingAppend:
        """Check what needs no state (raises at once) and queue the batch; appends keep the order of the calls.
        With `joining` a batch of a transaction may have to wait, and is InvalidTxnState if that has ended meanwhile.

        `records` must be writable and hold exactly one v2 batch. It belongs to the engine until `wait` returns or
        raises: base offset and leader epoch are patched in place and the bytes are written from it. acks=1 and 0
        resolve when the durable end here passed the batch, acks=-1 when the high watermark did.
        `allow_zstd` is False for Produce below version 7 (KIP-110).
        """

    def end_transaction(self, marker: Marker) -> PendingAppend:
        """Append a marker, for a coordinator; it is durable, and on all replicas in sync, when `wait` returns.

        Raises as `append` does, then or now: InvalidProducerEpoch for an older epoch of the producer,
        TransactionCoordinatorFenced for one of the coordinator."""

    def read(self, offset: int, max_size_bytes: int, isolation: Isolation, *, at_least_one: bool) -> ReadResult:
        """Records from the batch that holds `offset`, never beyond the high watermark (LSO for READ_COMMITTED).

        With `at_least_one` the first batch comes whole even if larger than `max_size_bytes`; without, a first batch
        that does not fit gives an empty result. At the end of the log the result is empty. Raises OffsetOutOfRange,
        CorruptMessage, NotLeaderOrFollower, StorageError; and NotLoaded or ColdNotLoaded, unless neither the size nor
        `at_least_one` allows for any records: then await `load` and read again.
        """

    async def load(self, offset: int, max_size_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> object:
        """Bring what `read` needs here, checked; from a tier for as long as the result lives. Raises as `read` does."""

    def offset_of(self, spec: int, isolation: Isolation) -> OffsetAtTimestamp:
        """That of an OffsetSpec, of any but MAX_TIMESTAMP: that one has to be looked for."""

    async def offset_for_timestamp(self, timestamp_ms: int, isolation: Isolation) -> OffsetAtTimestamp:
        """First record with a timestamp >= `timestamp_ms`, exact to the record; negative values are OffsetSpec.
        Records above the high watermark (LSO for READ_COMMITTED) are not found. Runs on a worker."""

    def read_behind(self, offset: int, last_epoch: int, isolation: Isolation) -> ReadResult | None:
        """For a reader that read up to `offset` in `last_epoch`: None, or no records and where its log parts from ours.

        Raises OffsetOutOfRange where nothing is known of that epoch.
        """

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEnd:
        """Where the records of that epoch end (KIP-101)."""

    async def delete_records(self, before_offset: int) -> int:
        """Serve nothing below that offset from now on, durably; -1 is the high watermark. Returns the log start.
        Segments wholly below it are removed. Raises OffsetOutOfRange above the high watermark."""

    async def find_records(self, wanted: RecordFilter, offset: int, count_max: int) -> FoundRecords:
        """One step of a search, from `offset` or the log start on: at most so many records, of a few MiB read.

        Committed ones only. Exact, whatever is indexed: what a scan would find, in the order of offsets. Found by key
        quickly only with the topic's `index.keys`. Raises CorruptMessage, NotLeaderOrFollower, StorageError."""


class ReadyWaiter(Protocol):
    """One long poll, or one fetch session, over any number of partitions. Close it when done.

    A watched partition is reported once per drain, however often it changed: its high watermark moved, its log went
    offline, it was deleted or changed leadership. The report says "look again", not what happened. A change costs what
    the waiters of that partition do that have drained since the one before, a drain what has changed.
    Watch first and read then, or do both without an await between: nothing is missed.
    """

    def watch(self, log: PartitionLog) -> None: ...
    def unwatch(self, log: PartitionLog) -> None: ...
    def take_changed(self) -> list[PartitionLog]:
        """The watched partitions that changed since the last call, in the order of their first change."""

    async def wait(self) -> None:
        """Return when at least one change is waiting to be taken. One task at a time; the deadline is the caller's."""

    def close(self) -> None: ...


class PartitionStore(Protocol):
    """All partitions of this broker, over one log dir or several."""

    def get(self, partition: TopicPartition) -> PartitionLog:
        """One that is led here. Raises UnknownPartition, NotLeaderOrFollower or StorageError (log dir offline)."""

    def replica_end(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int, int]:
        """Of a replica that follows in that epoch: the epoch of its last record, the end of its log, and the high
        watermark that it knows. Raises as `get` does."""

    def new_waiter(self) -> ReadyWaiter: ...
    def find_producer(self, partition: TopicPartition, producer_id: int) -> ActiveProducer | None:
        """What the partition knows of it, by what was appended. Raises UnknownPartition, StorageError."""

    def active_producers(self, partition: TopicPartition) -> Sequence[ActiveProducer]:
        """The producers it remembers the sequences of. Raises as `get` does."""

    async def describe_log_dirs(self) -> Sequence[LogDirDescription]:
        """All of them, in the order they were configured."""

    async def open_partitions(self, wanted: Sequence[Role]) -> Sequence[PartitionLog | EngineError]:
        """Open or create these, each named once, and lead or follow; in this order, with the error of each that fails.

        One that is open already takes over the new role, epoch and configuration.
        """

    async def delete_partitions(self, partitions: Sequence[TopicPartition]) -> Sequence[EngineError | None]:
        """Remove these from disk; reads in flight keep their descriptors. UnknownPartition: there was none."""

    @property
    def has_room(self) -> bool: ...
    async def wait_for_room(self) -> None:
        """Return when the append queues take more, at once if they have room. Call it before accepting the next Produce
        request; an append to a queue that is full raises Overloaded."""

    async def close(self) -> None:
        """Refuse further appends, finish what is queued, sync, write the clean-shutdown marker."""
