"""What the control plane asks of the others, as Protocols: `broker.py` supplies what implements them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.api import ClusterImage, PartitionState, TopicInfo


@dataclass(frozen=True, slots=True)
class HostedPartition:
    """A partition that this broker is to host, or to drop: its identity, state and the topic's configs."""

    topic: str
    topic_id: bytes
    partition: int
    state: PartitionState
    configs: Mapping[str, str]


class HostChanges(NamedTuple):
    """What a host is to do. A partition that is led, or followed, may be open already, in another role or epoch or
    with other configs. Whoever follows takes what the leader has, if there is one. What is dropped is deleted: its
    topic is, or its replica has moved elsewhere. All that is so in `image`."""

    led: list[HostedPartition]
    followed: list[HostedPartition]
    dropped: list[HostedPartition]
    image: ClusterImage

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.led or self.followed or self.dropped)


class Holding(Enum):
    """What a broker has of a partition that it is a replica of."""

    WHOLE = "whole"
    UNSURE = "unsure"  # its end was not synced, and the process before did not end in order
    SHORT = "short"  # it ends before what had counted: the disk has not kept what it had acknowledged
    DAMAGED = "damaged"  # or cannot be read
    MISSING = "missing"  # nothing is there, in no log dir: it was lost with one, or is still to be made
    LOST = "lost"  # it may be in a log dir that is offline


class Held(NamedTuple):
    """With the epoch of the log's last record and the offset behind it, or -1 and -1."""

    hosted: HostedPartition
    holding: Holding
    end: tuple[int, int]


class PartitionHost(Protocol):
    """Where this broker's partitions live. `broker.py` supplies it on top of the engine.

    No method raises for a single bad partition or config: the host keeps it as offline, or as it was, and goes on. The
    calls of one control plane never overlap.
    """

    async def start(self, image: ClusterImage) -> Sequence[str]:
        """Locks the log dirs, recovers them, and returns their ids; called once, at start, before anything else.

        Log directories whose topic id is not in `image` are removed: a topic's metadata goes before its files, so a
        crash between the two leaves files that nobody may ever serve again. The host has checked before that its log
        dirs carry `image.cluster_id`: an empty or foreign metadata store must not look like "everything was deleted".
        """
        ...

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[Held]:
        """Opens what there is of these, all that `image` says this broker has, and tells what that is; called once,
        after `start`."""
        ...

    @property
    def outwaits_in_ms(self) -> int:
        """Until then somebody may still answer who led before what this broker leads now (RULES K24)."""
        ...

    def lost(self) -> Sequence[Held]:
        """What lies on log dirs that have failed since."""
        ...

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over what brokers are configured for at run time; called when it has changed, before `apply`.

        What partitions go by that are open already changes with it, as far as their topics leave it to the broker.
        """
        ...

    async def apply(self, changes: HostChanges) -> None:
        """Leads, follows and drops partitions."""
        ...


class ConfigValidator(Protocol):
    """Knows which configs exist and what values they take; `broker.py` supplies it."""

    def validate(self, topic: str, configs: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig, naming the key, for an unknown key of topics or a value that is not enforced, and when
        they cannot follow those of `before`; None: there is no such topic yet."""
        ...

    def validate_broker(self, configs: Mapping[str, str], *, is_default: bool) -> None:
        """Raises InvalidConfig or, where Kafka does, InvalidTopicRequest for what a broker cannot be told at run time.

        With `is_default` the configs are those of all brokers that have none of their own.
        """
        ...

    def is_synced(self, topic: TopicInfo) -> bool:
        """Whether what is acknowledged of it outlives a power cut (flush.policy)."""
        ...

    def may_leave_in_tier(self, topic: TopicInfo) -> bool:
        """Whether the remote tier may have something of it that has to be deleted with it."""
        ...

    def list_value(self, key: str) -> str | None:
        """What a list that was not set has, between commas; None for a key that is no list."""
        ...
