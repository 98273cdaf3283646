"""State of a partition that its parts share: its log, its role, and whether it is served and takes appends.

Every method runs on the loop, in one step.
"""

from collections.abc import Callable

from engine.errors import EngineError, NotLeaderOrFollower, StorageError
from engine.log_config import LogConfig
from engine.log_dirs.log_dir import LogDir
from engine.log_dirs.truncation import is_unused
from engine.logs.log import Log
from engine.logs.segments.position import LogPosition
from engine.partitions.follower import Follower
from engine.partitions.leader import Leader
from engine.partitions.pending_acks import PendingAcks
from engine.partitions.waiters import Changes
from engine.reading.key_indexer import outgrows_tail
from engine.reading.reader import LogReader
from engine.replication.exchange import LogState
from engine.replication.progress import Progress
from engine.roles import TopicIdPartition


class PartitionState:
    """State of one open partition.

    `want_seal`: called when more segments may be finished and without open transactions.
    """

    __slots__ = (
        "changes",
        "closed",
        "config",
        "is_being_truncated",
        "is_suspended",
        "lag_clock_ms",
        "log",
        "log_dir",
        "now_ms",
        "partition",
        "pending",
        "progress",
        "reader",
        "role",
        "want_seal",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        log: Log,
        log_dir: LogDir,
        now_ms: Callable[[], int],
        want_seal: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.log = log
        self.log_dir = log_dir
        self.now_ms = now_ms
        self.lag_clock_ms = now_ms  # a leader with confirmed reads has a monotonic clock
        self.want_seal = want_seal
        self.config = LogConfig()
        confirmed, *ends = log.unconfirmed or [log.end]
        self.progress = Progress(
            log.end,
            confirmed,
            ends,
            has_others=bool(log.unconfirmed),
            unstable=log.unstable,
            ended=log.unreplicated,
        )
        log.unconfirmed, log.unstable, log.unreplicated = [], {}, []
        self.pending = PendingAcks()
        self.reader = LogReader(partition, log, log_dir.reading)
        self.changes = Changes()
        self.role: Leader | Follower | None = None
        self.closed: Callable[[], EngineError] | None = None
        self.is_being_truncated = False
        self.is_suspended = False  # closed, but only until it has its newest role

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    # Availability

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed()

    def check_led(self) -> None:
        """Raise NotLeaderOrFollower unless this broker leads it, and as `check_open` does."""
        self.check_open()
        if not isinstance(self.role, Leader):
            raise NotLeaderOrFollower(f"{self.name} is not led here")

    def leading(self) -> Leader:
        """Return the leader role; raises the error of an append that is refused now."""
        if not isinstance(self.role, Leader) or self.takes_no_appends:
            raise self.why_closed()
        return self.role

    @property
    def is_shut(self) -> bool:
        return self.closed is not None or self.log_dir.is_closing or self.is_being_truncated

    @property
    def takes_no_appends(self) -> bool:
        return self.is_shut or self.log.damaged_from is not None

    def refusal(self) -> EngineError | None:
        """The error of an append that is refused now; None: appends are taken."""
        return self.why_closed() if self.takes_no_appends else None

    def why_closed(self) -> EngineError:
        """The error of an append that is refused now."""
        if self.closed is not None:
            return self.closed()
        if self.log_dir.is_closing:
            return NotLeaderOrFollower("the broker is shutting down")
        if self.is_being_truncated:
            return NotLeaderOrFollower("the log is being truncated")
        if self.log.damaged_from is None:
            return NotLeaderOrFollower(f"{self.name} is not led here")
        return StorageError(f"the log is damaged from offset {self.log.damaged_from} on and takes no appends")

    # Changes

    def take_role(self, role: Leader | Follower) -> None:
        """Take a role; the appends and reads that wait in the earlier one fail."""
        self.pending.fail(NotLeaderOrFollower("another leader epoch began before all replicas had it"))
        self._end_reads()
        self.role = role
        self._note_role_change()

    def shut(self, error: Callable[[], EngineError]) -> None:
        """Refuse everything with the error; the appends and reads that wait get it, too."""
        self.closed = error
        self.pending.fail(error())
        self._end_reads()
        self._note_role_change()

    def end_suspension(self) -> bool:
        """End a suspension; returns whether there was one. A follower loses its role, so that it asks its leader
        anew."""
        was_suspended, self.is_suspended = self.is_suspended, False
        if was_suspended:
            self.closed = None
            self.role = None if isinstance(self.role, Follower) else self.role
            self._note_role_change()
        return was_suspended

    def _note_role_change(self) -> None:
        self.log_dir.role_changes += 1
        self.changes.announce()

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        """Confirm a read, see `engine.api.PartitionLog.confirm`."""
        role = self.role
        if not isinstance(role, Leader) or self.closed is not None:
            on_confirmed(False)
        elif role.reads is None:
            on_confirmed(True)
        else:
            role.reads.wait(on_confirmed)
            self.changes.announce()  # a Fetch that waits for records is answered: the next one confirms the read

    def _end_reads(self) -> None:
        if isinstance(self.role, Leader) and self.role.reads is not None:
            self.role.reads.end()

    def high_watermark_moved(self, before: LogPosition, stable: LogPosition) -> None:
        """Act upon a high watermark that other replicas have moved. `before`, `stable`: HW and LSO before that."""
        progress = self.progress
        if outgrows_tail(before, progress.high_watermark):
            self.index_keys()
        if progress.last_stable.segment_base_offset != stable.segment_base_offset:
            self.want_seal()
        if self.pending:
            self.pending.settle_reached(progress)
        self.changes.announce()

    def index_keys(self) -> None:
        """Index the keys up to the high watermark, if the topic wants it."""
        if self.config.index_keys:
            self.log_dir.keys.want(self.reader, self.progress.high_watermark)

    @property
    def log_state(self) -> LogState:
        """The state of the log for the state machines of replication."""
        log, progress = self.log, self.progress
        sealed_to = next((one.end_offset for one in reversed(log.segments) if one.is_sealed), 0)
        return LogState(
            log.epochs,
            log.start_offset,
            log.end.offset,
            progress.durable.offset,
            progress.high_watermark.offset,
            sealed_to,
            log.local_start_offset,
            replaced_to=max(log.compacted_to, log.dropped.replaced_to),
            replaced_in=log.dropped.replaced_in,
            has_open_transactions=bool(log.producers.open_transactions),
            is_unused=is_unused(log),
            is_damaged=log.damaged_from is not None,
        )
