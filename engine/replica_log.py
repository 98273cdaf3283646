"""Interface of a partition for the brokers that follow it."""

from typing import NamedTuple, Protocol

from engine.api import EpochEnd, PartitionLog, ReadResult
from engine.log_config import LogConfig
from engine.waiting_reads import NEVER as NEVER
from engine.waiting_reads import NEVER_MS as NEVER_MS
from engine.waiting_reads import AsOf as AsOf


class FollowerFetchResult(NamedTuple):
    """Result of noting a follower's Fetch: where its log diverges from the leader's, or which offsets have moved."""

    diverging: EpochEnd | None = None
    has_moved: bool = False  # the high watermark has moved
    has_deleted: bool = False  # the follower's log start has moved
    is_outside: bool = False  # the follower is not in the ISR


class SessionFetch:
    """Last Fetch of a follower's fetch session (KIP-227), for all partitions that the request did not repeat.

    `at_ms`, `as_of`: see `Followers.fetched`. `hurried_to`: a Fetch whose `as_of.order` is at most this does not wait
    for records, because a read waits to be confirmed.
    """

    __slots__ = ("as_of", "at_ms", "hurried_to")

    def __init__(self) -> None:
        self.at_ms = NEVER_MS
        self.as_of = NEVER
        self.hurried_to = NEVER.order

    def asked(self, at_ms: int, as_of: AsOf) -> None:
        """Note a Fetch of the session, which repeats the requests for all its partitions."""
        self.at_ms, self.as_of = at_ms, as_of


class Followers(Protocol):
    """The followers of a partition that this broker leads."""

    def fetched(
        self,
        replica: int,
        broker_epoch: int,
        *,
        leader_epoch: int,
        offset: int,
        last_epoch: int,
        log_start_offset: int,
        as_of: AsOf,
        session_fetch: SessionFetch | None = None,
    ) -> FollowerFetchResult:
        """Note the Fetch of a follower with that broker epoch: it has all records below `offset` durably.

        `last_epoch`: leader epoch of its last record; -1: none. `log_start_offset`: of its log. `as_of`: a moment
        before the follower made the Fetch, see `engine.replication.confirmations`. Until `stopped_fetching`, each Fetch
        that `session_fetch` notes counts as the same request.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch, StaleBrokerEpoch, OffsetOutOfRange, and as `PartitionLog.read`
        does."""

    @property
    def low_watermark(self) -> int:
        """The smallest log start of the replicas whose brokers serve, this one included; -1: not known of all. Raises
        as `PartitionLog.read` does."""

    def stopped_fetching(self, replica: int, session_fetch: SessionFetch | None = None) -> None:
        """Note that a follower no longer repeats its request for this partition.

        `session_fetch`: only in that session; another session may request the partition by now. Does nothing if this
        broker does not lead the partition.
        """

    def check_fetch_counts(self, replica: int) -> None:
        """Check a follower's Fetch after it has waited. Raises UnknownLeaderEpoch if its positions no longer count,
        which ends the Fetch (see `stopped_fetching`), and as `PartitionLog.read` does."""

    def read(self, offset: int, max_size_bytes: int, *, at_least_one: bool, is_loaded: bool = False) -> ReadResult:
        """Read as `PartitionLog.read` does, within one segment, up to the written end: leader and follower may sync at
        the same time (RULES K16).

        Where the log may have gaps, `compacted` tells the leader epochs of that range, and up to which offsets
        tombstones and markers may be missing (RULES K19).
        """

    async def load(self, offset: int, max_size_bytes: int) -> object:
        """Load the bytes and indexes that `read` needs. Raises as it does."""


class ReplicaLog(PartitionLog, Protocol):
    """A partition that this broker leads, with its followers."""

    @property
    def config(self) -> LogConfig: ...
    @property
    def followers(self) -> Followers: ...
