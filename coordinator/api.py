"""What other packages see of the control plane: frozen values and Protocols.

Readers hold a `ClusterImage`, an immutable snapshot, and never ask the metadata store; changes go through
`ClusterService`. What the control plane needs from the others it asks through `PartitionHost` and
`ConfigValidator`, which `broker.py` supplies. Nothing here knows a wire message, a log or a store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T_co = TypeVar("T_co", covariant=True)

NO_LEADER = -1
NO_EPOCH = -1
NO_CONTROLLER = -1
DEFAULT = -1  # of a partition count or a replication factor: what the broker is configured for (KIP-464)
CLUSTER_DEFAULT = ""  # in place of a broker's id: the configs of all brokers that have none of their own (KIP-226)

TRANSACTION_VERSION = "transaction.version"  # a feature (KIP-890): the levels of Kafka's TransactionVersion

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class ConfigOperation(IntEnum):
    """What is done to one key (KIP-339); the values are those of Kafka's AlterConfigOp."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One step of an alteration. APPEND and SUBTRACT are for lists, with elements between commas as the value."""

    operation: ConfigOperation
    key: str
    value: str = ""


class UpgradeType(IntEnum):
    """Which way a feature may go (KIP-584); the values are those of Kafka's FeatureUpdate.UpgradeType."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature of the cluster is to have."""

    feature: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that a broker has."""

    lowest: int
    highest: int

    def __contains__(self, level: int) -> bool:
        return self.lowest <= level <= self.highest

    def __str__(self) -> str:
        """As Kafka's VersionRange."""
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where clients of one listener reach a broker: what it advertises, not what it binds."""

    listener: str
    host: str
    port: int


class BrokerState(Enum):
    """What a broker is to the others: only one that serves is given something to lead."""

    RECOVERING = "recovering"  # registered, and still finding out what its logs have
    SERVING = "serving"
    LEAVING = "leaving"  # it is about to stop in order, and leads on what nobody else can
    FENCED = "fenced"  # it is away, or cut off


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as it registered last. `epoch` counts its registrations, `incarnation` names this one among all."""

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    incarnation: bytes = bytes(16)
    epoch: int = 0
    state: BrokerState = BrokerState.SERVING
    log_dirs: tuple[str, ...] = ()  # their ids

    @property
    def is_up(self) -> bool:
        """Whether clients are told of it, and it leads."""
        return self.state in (BrokerState.SERVING, BrokerState.LEAVING)

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

    `incarnation` is the leader's registration that was given `leader_epoch`: it appends only when that is its own.
    `elr`: who left the ISR when it became smaller than min.insync.replicas, and has all that was acknowledged
    (KIP-966). `marks`: who may lack some of it, and up to where its log goes: (broker id, epoch, end).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    active_base_offset: int = 0
    log_start_offset: int = 0
    extents: tuple[Extent, ...] = ()
    incarnation: bytes = bytes(16)
    elr: tuple[int, ...] = ()
    marks: tuple[tuple[int, int, int], ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    unclean_since: int = NO_EPOCH


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
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by broker id or CLUSTER_DEFAULT
    features: Mapping[str, int] = field(default_factory=dict)  # their levels
    features_epoch: int = 0  # of those levels, in the life of the cluster

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The state of one partition, or None when there is no such topic or partition."""
        info = self.topics.get(topic)
        return info.partitions[partition] if info and 0 <= partition < len(info.partitions) else None

    def feature_level(self, feature: str) -> int:
        """What the cluster has set the feature to; 0 when it has none of it."""
        return self.features.get(feature, 0)


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

    async def create_partitions(
        self,
        topic: str,
        partition_count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Gives a topic more partitions, `partition_count` in all; returns it as it is then.

        `assignments` are the replicas of the new ones, in order. When it returns, the new partitions are in `image`
        and those of this broker can be written to.

        Raises: UnknownTopic, InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor,
        InvalidTopicRequest, TooManyPartitions, NotController, MetadataUnavailable.
        """
        ...

    async def alter_topic_configs(
        self, topic: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> TopicInfo:
        """Changes what is set for a topic; returns it as it is then. With `replace` nothing stays that is not named.

        All changes or none, on what is set at that moment: of two that append at once both count. When it returns,
        the change is in `image` and the topic's partitions here obey it.

        Raises: InvalidConfig, InvalidTopicName, InvalidTopicRequest, UnknownTopic, NotController, MetadataUnavailable.
        """
        ...

    async def alter_broker_configs(
        self, broker: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """The same for what brokers are configured for at run time: one, by its id, or CLUSTER_DEFAULT (KIP-226).

        That there is such a broker is the caller's to see. Raises: InvalidConfig, InvalidTopicRequest, NotController,
        MetadataUnavailable.
        """
        ...

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """What this broker has of the features that a cluster can have (KIP-584)."""
        ...

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Sets levels of features: all or none. Of a feature that is named twice the last update counts.

        When it returns, the levels are in `image`. Raises: InvalidFeatureUpdate, NotController, MetadataUnavailable.
        """
        ...

    async def new_producer_id(self) -> int:
        """An id no producer of this cluster ever had. Raises MetadataUnavailable."""
        ...

    async def wait_for_image_after(self, version: int) -> ClusterImage:
        """The first snapshot newer than `version`; returns at once when `image` already is."""
        ...


@dataclass(frozen=True, slots=True)
class TierDeletion:
    """A topic that was deleted while it had segments in the remote tier: they are to be deleted there, too."""

    topic_id: bytes
    topic: str
    partition_count: int


class TierRegister(Protocol):
    """What the cluster's metadata says of its remote tier."""

    async def claim(self, url: str, *, is_used: bool) -> int:
        """Says where the tier is, and returns how often the cluster was restored from it: its owner generation.

        `is_used`: topics are in it, so that it cannot be anywhere else. Raises CannotStart.
        """
        ...

    async def pending(self) -> list[TierDeletion]:
        """What is to be deleted. Raises MetadataUnavailable."""
        ...

    async def done(self, deletion: TierDeletion) -> None:
        """It is deleted. Raises MetadataUnavailable."""
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

    No method raises for a single bad partition or config: the host keeps it as offline, or as it was, and goes on. The
    calls of one control plane never overlap.
    """

    async def remove_strays(self, image: ClusterImage) -> None:
        """Removes the log directories whose topic id is not in `image`; called once, at start, before any `apply`.

        A topic's metadata goes before its files, so a crash between the two leaves files that nobody may ever serve
        again. The host has checked before that its log dirs carry `image.cluster_id`: an empty or foreign metadata
        store must not look like "everything was deleted".
        """
        ...

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over what brokers are configured for at run time; called when it has changed, before `apply`.

        What partitions go by that are open already changes with it, as far as their topics leave it to the broker.
        """
        ...

    async def apply(self, opened: Sequence[HostedPartition], deleted: Sequence[HostedPartition]) -> None:
        """Opens partitions that this broker leads from now on in the epoch given, and drops deleted ones.

        An `opened` partition may be open already: then its leader epoch or configs have changed.
        """
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

    def may_leave_in_tier(self, topic: TopicInfo) -> bool:
        """Whether the remote tier may have something of it that has to be deleted with it."""
        ...

    def list_value(self, key: str) -> str | None:
        """What a list that was not set has, between commas; None for a key that is no list."""
        ...


class Pending(Protocol[T_co]):
    """An answer on its way."""

    @property
    def is_settled(self) -> bool:
        """Whether there is a result."""

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when an answer that is not settled is; there can be one callback."""

    def result(self) -> T_co:
        """Of a settled answer. Raises CoordinatorError."""
