"""What other packages see of the control plane: frozen values and Protocols.

Readers hold a `ClusterImage`, an immutable snapshot, and never ask the metadata store; changes go through
`ClusterService`. What the control plane needs from the others it asks through `PartitionHost` and
`TopicConfigValidator`, which `broker.py` supplies. Nothing here knows a wire message, a log or a store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_LEADER = -1
NO_CONTROLLER = -1
DEFAULT = -1  # of a partition count or a replication factor: what the broker is configured for (KIP-464)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where clients of one listener reach a broker: what it advertises, not what it binds."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered, live broker."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    incarnation: bytes = bytes(16)

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """The endpoint of the named listener, if the broker has one."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of segments from `base_offset` on that lies on the same replicas."""

    base_offset: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the metadata store knows of one partition. `replicas` are those of the active, i.e. the last, extent.

    `incarnation` names the process that acquired `leader_epoch`: the leader appends only when it is its own.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    active_base_offset: int = 0
    log_start_offset: int = 0
    extents: tuple[Extent, ...] = ()
    incarnation: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; `configs` holds only what was set for this topic, defaults are the broker's."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        """Whether the broker itself writes it (Kafka's Topic.isInternal)."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster as this broker knows it. `version` grows with every published change and is local to the process."""

    version: int
    cluster_id: str
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicInfo] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The state of one partition, or None when there is no such topic or partition."""
        info = self.topics.get(topic)
        return info.partitions[partition] if info and 0 <= partition < len(info.partitions) else None


class ClusterService(Protocol):
    """The control plane as the handlers use it."""

    @property
    def image(self) -> ClusterImage:
        """The newest snapshot; swapped as a whole, so a caller keeps the one it took for the time of a request."""
        ...

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Creates a topic, or with `validate_only` says what would be created.

        `assignments` maps partitions to replicas in the order of the request; that none is named twice is the caller's
        to see. The limit on partitions is per topic here; Kafka's, of 10,000 a request, is the caller's to see as well.

        When it returns, the topic is in `image` and this broker's partitions of it can be written to. Of callers that
        race for one name one wins and the others get TopicExists: for automatic creation that is a success too.

        Raises: InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidTopicRequest, InvalidConfig, TooManyPartitions, NotController, MetadataUnavailable.
        """
        ...

    async def delete_topic(self, topic: str | bytes) -> TopicInfo:
        """Deletes the topic of this name or id and returns what it was.

        When it returns, the topic is gone from `image` and this broker's files of it are closed and marked deleted.

        Raises: UnknownTopic, UnknownTopicId, NotController, MetadataUnavailable.
        """
        ...

    async def new_producer_id(self) -> int:
        """An id no producer of this cluster ever had. Raises MetadataUnavailable."""
        ...

    async def wait_for_image_after(self, version: int) -> ClusterImage:
        """The first snapshot newer than `version`; returns at once when `image` already is."""
        ...


@dataclass(frozen=True, slots=True)
class HostedPartition:
    """A partition that this broker is to host, or to drop: its identity, state and the topic's configs."""

    topic: str
    topic_id: bytes
    partition: int
    state: PartitionState
    configs: Mapping[str, str]


class PartitionHost(Protocol):
    """Where this broker's partitions live. `broker.py` supplies it on top of the engine.

    Neither method raises for a single bad partition: the host keeps it as offline and goes on. The calls of one
    control plane never overlap.
    """

    async def remove_strays(self, image: ClusterImage) -> None:
        """Removes the log directories whose topic id is not in `image`; called once, at start, before any `apply`.

        A topic's metadata goes before its files, so a crash between the two leaves files that nobody may ever serve
        again. The host has checked before that its log dirs carry `image.cluster_id`: an empty or foreign metadata
        store must not look like "everything was deleted".
        """
        ...

    async def apply(self, opened: Sequence[HostedPartition], deleted: Sequence[HostedPartition]) -> None:
        """Opens partitions that this broker leads from now on in the epoch given, and drops deleted ones.

        An `opened` partition may be open already: then its leader epoch or configs have changed.
        """
        ...


class TopicConfigValidator(Protocol):
    """Knows which topic configs exist and what values they take; `broker.py` supplies it."""

    def validate(self, topic: str, configs: Mapping[str, str]) -> None:
        """Raises InvalidConfig, naming the key, for an unknown key or a value that is not enforced."""
        ...
