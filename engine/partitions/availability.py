"""Availability of a partition: whether it is served and takes appends, or the error of a refusal."""

from collections.abc import Callable

from engine.errors import EngineError, NotLeaderOrFollower, StorageError
from engine.log_dirs.log_dir import LogDir
from engine.logs.log import Log
from engine.partitions.follower import Follower
from engine.partitions.leader import Leader
from engine.partitions.opening import Opening
from engine.partitions.waiters import Watched
from engine.roles import TopicIdPartition


class Availability(Watched):
    """The part of `Partition` that knows whether it is open, its role, and whether its log is damaged."""

    __slots__ = ("_closed", "_is_being_truncated", "_is_suspended", "_role", "log", "log_dir", "opening", "partition")

    def __init__(self, partition: TopicIdPartition, log: Log, log_dir: LogDir) -> None:
        super().__init__()
        self.partition = partition
        self.log = log
        self.log_dir = log_dir
        self.opening: Opening | None = None  # findings of the opening of its log
        self._role: Leader | Follower | None = None
        self._closed: Callable[[], EngineError] | None = None
        self._is_being_truncated = False
        self._is_suspended = False  # closed, but only until it has its newest role

    @property
    def is_sound(self) -> bool:
        return self._closed is None and self.log.damaged_from is None

    @property
    def is_led(self) -> bool:
        """Whether this broker leads it. False if it is suspended: it may have another leader by now."""
        return isinstance(self._role, Leader) and not self._is_suspended

    def check_led(self) -> None:
        """Raise NotLeaderOrFollower unless this broker leads it, and as `check_open` does."""
        if self._closed is not None:
            raise self._closed()
        if not isinstance(self._role, Leader):
            raise NotLeaderOrFollower(f"{self.partition.topic}-{self.partition.partition} is not led here")

    def check_follows(self, leader_epoch: int) -> None:
        """Raise NotLeaderOrFollower unless it follows in that leader epoch."""
        if not isinstance(self._role, Follower) or self._role.epoch != leader_epoch:
            name = f"{self.partition.topic}-{self.partition.partition}"
            raise NotLeaderOrFollower(f"{name} does not follow in epoch {leader_epoch}")

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good: its log has to be opened again."""
        return self._closed is not None and not self._is_suspended

    @property
    def is_suspended(self) -> bool:
        return self._is_suspended

    def check_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    def leading(self) -> Leader:
        """Return the leader role; raises the error of an append that is refused now."""
        if not isinstance(self._role, Leader) or self._takes_no_appends:
            raise self._why_closed()
        return self._role

    @property
    def _is_shut(self) -> bool:
        return self._closed is not None or self.log_dir.is_closing or self._is_being_truncated

    @property
    def _takes_no_appends(self) -> bool:
        return self._is_shut or self.log.damaged_from is not None

    def refusal(self) -> EngineError | None:
        return self._why_closed() if self._takes_no_appends else None

    def _why_closed(self) -> EngineError:
        if self._closed is not None:
            return self._closed()
        if self.log_dir.is_closing:
            return NotLeaderOrFollower("the broker is shutting down")
        if self._is_being_truncated:
            return NotLeaderOrFollower("the log is being truncated")
        if self.log.damaged_from is None:
            return NotLeaderOrFollower(f"{self.partition.topic}-{self.partition.partition} is not led here")
        return StorageError(f"the log is damaged from offset {self.log.damaged_from} on and takes no appends")
