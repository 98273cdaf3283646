"""Identity of a partition, and the role of this broker in it. Other packages import these through `engine.api`."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from engine.log_config import LogConfig
from engine.waiting_reads import ConfirmationInputs as ConfirmationInputs


class TopicIdPartition(NamedTuple):
    """Identity of a partition; a tuple because it is the key of the most used dict."""

    topic_id: bytes
    topic: str
    partition: int


class CommittedIsr(NamedTuple):
    """The committed ISR and more of a partition, as the metadata show them at `version`.

    A write of the ISR that is based on an older version fails. `in_sync`: the ISR, the leader included; `eligible`: the
    ELR (KIP-966); `broker_epochs`: of the last registrations of all brokers; `serving`: brokers that may join an ISR;
    `marked`: suspect replicas, as of `state_version`, which changes with each write of the partition's state.
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
        """Whether the ISR has min.insync.replicas, so that appends with acks=all may be acknowledged."""
        return len(self.in_sync) >= min(self.min_isr, len(self.replicas))


class ReplicaSet(NamedTuple):
    """The replicas of a partition that this broker leads, itself included.

    `lag_max_ms`: replica.lag.time.max.ms; a follower that has lagged for longer leaves the ISR. `confirming`: None if
    reads of the leader need not be confirmed.
    """

    broker_id: int
    committed: CommittedIsr
    lag_max_ms: int
    confirming: ConfirmationInputs | None = None


class Leadership(NamedTuple):
    """The leader role of a partition, in a leader epoch acquired durably (RULES L3).

    `others`: None if this is the only replica.
    """

    partition: TopicIdPartition
    config: LogConfig
    leader_epoch: int
    others: ReplicaSet | None = None

    @property
    def has_others(self) -> bool:
        """Whether the partition has other replicas, in sync or not."""
        return self.others is not None


class Following(NamedTuple):
    """The follower role of a partition that another broker, or no broker, leads in that epoch.

    `unclean_since`: leader epoch of the partition's last unclean election, or -1.
    """

    partition: TopicIdPartition
    config: LogConfig
    leader_epoch: int
    has_others: bool = True
    unclean_since: int = -1


Role = Leadership | Following
