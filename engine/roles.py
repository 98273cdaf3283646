"""Which partition, and what this broker is to it. Others see it through `engine.api`."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from engine.log_config import LogConfig


class TopicPartition(NamedTuple):
    """Identity of a partition; a tuple because it is the key of the hottest dict."""

    topic_id: bytes
    topic: str
    partition: int


class Committed(NamedTuple):
    """What the metadata says, at a version that no write which is based on an older one gets past.

    `in_sync`: the ISR, of which the leader is; `eligible`: the ELR (KIP-966); `broker_epochs`: of all brokers, in the
    lives they registered last; `serving`: those that may join an ISR; `marked`: who has said that it may lack what
    counted, as of `state_version`, which is another one with whatever is written of the partition.
    """

    version: int
    in_sync: frozenset[int]
    replicas: frozenset[int]
    broker_epochs: Mapping[int, int]
    serving: Collection[int]
    min_isr: int = 1
    eligible: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    state_version: int = 0

    @property
    def is_enough(self) -> bool:
        """Whether anything may be acknowledged to producers that ask for all."""
        return len(self.in_sync) >= min(self.min_isr, len(self.replicas))


class Confirming(NamedTuple):
    """By what a leader tells whether it still is one (RULES K24).

    `boot_ms`: a clock that goes on while the machine sleeps; `has_session`: whether the metadata counts on this broker,
    as far as it knows; `accepts_alone`: whether acks=1 asks neither (metadata.loss.acks1); `has_left`: whether this
    broker answers no more from what it alone knows, because the others are told that it stops.
    """

    boot_ms: Callable[[], int]
    has_session: Callable[[], bool]
    accepts_alone: bool
    has_left: Callable[[], bool] = lambda: False


class Others(NamedTuple):
    """The replicas of a partition that this broker leads, itself among them. Who has not had all there was for
    `lag_max_ms` is no longer wanted in sync. `confirming`: None if nobody asks whether it leads still; `waits`: whoever
    led it before may answer for a while."""

    broker_id: int
    committed: Committed
    lag_max_ms: int
    confirming: Confirming | None = None
    waits: bool = True


class Leadership(NamedTuple):
    """Of a partition, in an epoch acquired durably (RULES L3); `others`: None if this is the only replica."""

    partition: TopicPartition
    config: LogConfig
    leader_epoch: int
    others: Others | None = None

    @property
    def has_others(self) -> bool:
        """In sync or not."""
        return self.others is not None


class Following(NamedTuple):
    """Of a partition that another broker leads in that epoch, or nobody does. `unclean_since`: the epoch of its last
    unclean election, or -1."""

    partition: TopicPartition
    config: LogConfig
    leader_epoch: int
    has_others: bool = True
    unclean_since: int = -1


Role = Leadership | Following
