"""Interfaces that the control plane needs, as Protocols; `broker.py` supplies their implementations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from coordinator.api import BrokerInfo, ClusterImage, PartitionState, TopicInfo


@dataclass(frozen=True, slots=True)
class HostedPartition:
    """A partition that this broker is to host, or to drop: its identity, state and the topic's configs."""

    topic: str
    topic_id: bytes
    partition: int
    state: PartitionState
    configs: Mapping[str, str]


class HostChanges(NamedTuple):
    """The changes that a host is to apply, to be as `image` says. A led or followed partition may be open already, in
    another role or epoch or with other configs. A follower takes the log of its leader, if there is one. A dropped
    partition is deleted: its topic is, or its replica has moved elsewhere. A `vanished` one is kept as a stray: its
    topic is not in the metadata any more, and no change has deleted it (RULES D3)."""

    led: list[HostedPartition]
    followed: list[HostedPartition]
    dropped: list[HostedPartition]
    image: ClusterImage
    vanished: list[HostedPartition]

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.led or self.followed or self.dropped or self.vanished)


class LogCondition(Enum):
    """Condition of the log of a replica, as its broker finds it."""

    WHOLE = "whole"
    UNSURE = "unsure"  # its end was not synced, and the process before did not end in order
    SHORT = "short"  # it ends before records that had counted: the disk has not kept its acknowledged writes
    DAMAGED = "damaged"  # or cannot be read
    MISSING = "missing"  # nothing is there, in no log dir: it was lost with one, or is still to be made
    AWAY = "away"  # it may be in a log dir that is offline
    CLOSED = "closed"  # it is there, or is to be made, and is not open: it may be whole
    STAYED_OPEN = "kept"  # it was open all the time, and did not serve because its log dir did not answer
    LOST = "lost"  # nothing is there, in no log dir, and the checkpoint of a log dir names it


class FoundLog(NamedTuple):
    """The condition of a replica's log. `end`: the epoch of its last record and the offset behind it, or -1 and -1."""

    hosted: HostedPartition
    condition: LogCondition
    end: tuple[int, int]


class ReplicaEnd(NamedTuple):
    """The end of a replica's log, as its broker reads it, and the high watermark that the replica knows."""

    last_epoch: int
    end_offset: int
    high_watermark: int

    @property
    def log_end(self) -> tuple[int, int]:
        """The end by which logs are compared: the last epoch first."""
        return self.last_epoch, self.end_offset


class LogEndRequest(NamedTuple):
    """A question about one log, which its broker follows in that leader epoch."""

    topic_id: bytes
    topic: str
    partition: int
    leader_epoch: int


class ReplicaEnds(Protocol):
    """Asks the brokers where logs end; `broker.py` supplies it."""

    async def ask(self, broker: BrokerInfo, asked: Sequence[LogEndRequest]) -> Mapping[LogEndRequest, ReplicaEnd]:
        """The ends that the broker tells, in this registration; none for logs that are not open, or not followed in the
        epoch. A broker that does not answer tells none."""
        ...


class PartitionHost(Protocol):
    """The host of this broker's partitions. `broker.py` supplies it on top of the engine.

    No method raises for a single bad partition or config: the host keeps it as offline, or as it was, and goes on. The
    calls of one control plane never overlap.
    """

    async def start(self, image: ClusterImage, deleted: Collection[bytes]) -> Sequence[str]:
        """Locks the log dirs, recovers them, and returns their ids; called once, at start, before anything else.

        Logs of topics whose ids are in `deleted` are removed: a change has deleted them. Logs of other topics that are
        not in `image` are kept as strays: the metadata may be older than they are (RULES D3). The host has checked
        before that its log dirs carry `image.cluster_id`.
        """
        ...

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[FoundLog]:
        """Opens the logs of these partitions, all that `image` says this broker has, and returns their conditions;
        called once, after `start`."""
        ...

    def take_unserved(self) -> Sequence[FoundLog]:
        """The logs that are not served. A log that is served again is in the next answer, once."""
        ...

    @property
    def has_unserved_changes(self) -> bool:
        """Whether the answer of `take_unserved` has changed since the last call."""
        ...

    @property
    def has_unserved(self) -> bool:
        """Whether a log is not open that may be opened again."""
        ...

    async def open_again(self, image: ClusterImage) -> None:
        """Begin to open logs that are not open, whose time has come, and of which `image` says that they do not
        serve."""
        ...

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over the configs that brokers have at run time; called when they have changed, before `apply`, and with
        the same bound on its time.

        Open partitions change with it, as far as their topics leave a config to the broker.
        """
        ...

    async def apply(self, changes: HostChanges) -> None:
        """Leads, follows, drops and sets aside partitions. Returns within seconds, also if a log dir does not answer:
        partitions that do not have their new role by then serve nothing until they have it (decision 44)."""
        ...


class ConfigValidator(Protocol):
    """Knows which configs exist and which values they take; `broker.py` supplies it."""

    def validate(self, topic: str, configs: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig, naming the key, for an unknown key of topics or a value that is not enforced, and when
        they cannot follow those of `before`; None: there is no such topic yet."""
        ...

    def validate_broker(self, configs: Mapping[str, str], *, is_default: bool) -> None:
        """Raises InvalidConfig or, where Kafka does, InvalidTopicRequest for a config that a broker cannot change at
        run time.

        With `is_default` the configs are those of all brokers without configs of their own.
        """
        ...

    def is_synced(self, topic: TopicInfo) -> bool:
        """Whether acknowledged records of the topic outlive a power cut (flush.policy)."""
        ...

    def may_leave_in_tier(self, topic: TopicInfo) -> bool:
        """Whether the remote tier may have segments of the topic, which have to be deleted with it."""
        ...

    def list_value(self, key: str) -> str | None:
        """The default of a list, with commas between its elements; None for a key that is no list."""
        ...
