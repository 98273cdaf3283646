"""Which partition, and what this broker is to it. Others see it through `engine.api`."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from engine.log_config import LogConfig
from engine.waiting_reads import Confirming as Confirming


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


class Others(NamedTuple):
    """The replicas of a partition that this broker leads, itself among them. Who has not had all there was for
    `lag_max_ms` is no longer wanted in sync. `confirming`: None if reads of the leader need not be confirmed."""

    broker_id: int
    committed: Committed
    lag_max_ms: int
    confirming: Confirming | None = None


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
