"""What a partition is to the brokers that follow it."""

from typing import NamedTuple, Protocol

from engine.api import EpochEnd, PartitionLog, ReadResult
from engine.log_config import LogConfig
from engine.waiting_reads import NEVER as NEVER
from engine.waiting_reads import NEVER_MS as NEVER_MS
from engine.waiting_reads import AsOf as AsOf


class Heard(NamedTuple):
    """What a follower's Fetch comes to: where its log parts from the leader's, or how much further both are."""

    diverging: EpochEnd | None = None
    has_moved: bool = False  # the high watermark
    has_deleted: bool = False  # its log begins later than it was known to
    is_outside: bool = False  # of the ISR


class Standing:
    """When a follower last asked for what it asks for as before, and so did not say again (KIP-227); see `fetched_by`
    for `as_of`. What holds for all of a session is noted once. `hurried_to`: a Fetch as of a moment up to this order
    waits for no records, as a read waits to be confirmed."""

    __slots__ = ("as_of", "at_ms", "hurried_to")

    def __init__(self) -> None:
        self.at_ms = NEVER_MS
        self.as_of = NEVER
        self.hurried_to = NEVER.order

    def asked(self, at_ms: int, as_of: AsOf) -> None:
        """It has, all of it."""
        self.at_ms, self.as_of = at_ms, as_of


class ReplicaLog(PartitionLog, Protocol):
    """One partition as its other replicas see it, which follow this broker."""

    config: LogConfig

    def fetched_by(
        self,
        replica: int,
        broker_epoch: int,
        *,
        leader_epoch: int,
        offset: int,
        last_epoch: int,
        log_start_offset: int,
        as_of: AsOf,
        standing: Standing | None = None,
    ) -> Heard:
        """A follower in that life has all below `offset`, durably, the last of it from `last_epoch`; -1: none. What it
        has begins at `log_start_offset`. It has made its Fetch after `as_of`, see
        `engine.replication.confirmations`. From now on, until `left_by`, it asks for the same whenever `standing` says
        so.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch, StaleBrokerEpoch, OffsetOutOfRange, and as `read` does."""

    @property
    def low_watermark(self) -> int:
        """Below it no replica has anything whose broker serves, this one among them; -1: one has not said so. Raises
        as `read` does."""

    def left_by(self, replica: int, standing: Standing | None = None) -> None:
        """It asks for that no longer, or for something else; in the session of `standing`, if that is told, while
        another session may ask for it by now. Of what is not led here nothing is known."""

    def check_heard(self, replica: int) -> None:
        """Of a Fetch that has waited. Raises UnknownLeaderEpoch if what it said counts no more, by which it ends (see
        `left_by`), and as `read` does."""

    def read_for_replica(self, offset: int, max_size_bytes: int, *, at_least_one: bool) -> ReadResult:
        """As `read`, up to the end of what is written: both may sync at a time (RULES K16). Of one segment. Where there
        may be gaps it tells which epochs began there, or at `offset` had begun before, and where what decides about
        others may be missing behind it, up to where (RULES K19)."""

    async def load_for_replica(self, offset: int, max_size_bytes: int) -> object:
        """What `read_for_replica` needs. Raises as it does."""
