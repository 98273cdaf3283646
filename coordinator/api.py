"""Interface of the control plane for other packages: frozen values and Protocols.

Readers hold a `ClusterImage`, an immutable snapshot; changes go through `ClusterService`. See `ports` as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from coordinator.metadata.history import FIRST, History

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coordinator.errors import CoordinatorError

    Refusals = list[CoordinatorError | None]  # the error of each request; None: it was not refused

T_co = TypeVar("T_co", covariant=True)

NO_LEADER = -1
NO_EPOCH = -1
NO_CONTROLLER = -1
DEFAULT = -1  # of a partition count or a replication factor: as the broker is configured (KIP-464)
CLUSTER_DEFAULT = ""  # in place of a broker's id: the configs of all brokers that have none of their own (KIP-226)

TRANSACTION_VERSION = "transaction.version"  # a feature (KIP-890): the levels of Kafka's TransactionVersion
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class ConfigOperation(IntEnum):
    """Operation on one config key (KIP-339); the values are those of Kafka's AlterConfigOp."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A step of an alteration. APPEND and SUBTRACT are for lists, with elements between commas as the value."""

    operation: ConfigOperation
    key: str
    value: str = ""


class UpgradeType(IntEnum):
    """Direction in which a feature may go (KIP-584); the values are those of Kafka's FeatureUpdate.UpgradeType."""

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
        """The text of Kafka's VersionRange: `1-2`, or `1` for a single level."""
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address of a listener that a broker advertises to clients, not the one to which it binds."""

    listener: str
    host: str
    port: int


class BrokerState(Enum):
    """State of a broker in the cluster; only a serving broker is given leaderships."""

    RECOVERING = "recovering"  # registered, and still reading its logs
    SERVING = "serving"
    LEAVING = "leaving"  # it is about to stop in order, and leads on only partitions that no other broker can lead
    FENCED = "fenced"
    UNREGISTERED = "unregistered"  # an administrator has unregistered it for good: it is no member any more


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as it registered last. `epoch` counts its registrations, `incarnation` is the random id of this one.

    `lost_log_dirs`: log dirs that it had before and lacks now, until it has written which replicas lack data (RULES
    K8).
    """

    broker_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    incarnation: bytes = bytes(16)
    epoch: int = 0
    state: BrokerState = BrokerState.SERVING
    log_dirs: tuple[str, ...] = ()  # their ids
    lost_log_dirs: tuple[str, ...] = ()
    process_epoch: int = NO_EPOCH  # the first epoch of its process, which may register again
    version: int = 0  # of its metadata node
    extra: bytes = b""  # fields of the node that this version does not know

    @property
    def is_up(self) -> bool:
        """Whether clients are told of the broker, and it may lead."""
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
    """State of one partition in the metadata. `replicas` are those of the active, i.e. the last, extent.

    `incarnation` is the leader's registration that was given `leader_epoch`: the leader appends only when that is its
    own. `elr`: brokers that left the ISR, with all acknowledged records, when it became smaller than
    min.insync.replicas (KIP-966). `suspect_replicas`: each with the end of its log. `adding`, `removing`: see
    `controller.reassignments`.
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
    suspect_replicas: tuple[tuple[int, int, int], ...] = ()  # broker id, epoch, end
    offline: tuple[int, ...] = ()  # replicas that do not serve
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    unclean_since: int = NO_EPOCH
    processes: tuple[tuple[int, int], ...] = ()  # broker id, and its `process_epoch` when it entered the ISR (K33)
    recount: bool = False  # an accepted rollback: see `cluster.elections.recounted`
    version: int = 0  # of its metadata node
    extra: bytes = b""  # fields of the node that this version does not know


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; `configs` holds only the configs that were set for this topic, defaults are the broker's."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = 0  # of its metadata node
    extra: bytes = b""  # fields of the node that this version does not know

    @property
    def internal(self) -> bool:
        """Whether the broker itself writes it (Kafka's Topic.isInternal)."""
        return self.name in INTERNAL_TOPICS


class ElectionType(IntEnum):
    """Candidates of an election that is ordered (KIP-460); the values are those of Kafka's ElectionType."""

    PREFERRED = 0  # the first replica, if it is in sync
    UNCLEAN = 1  # any replica that serves, if there is no leader: acknowledged records may be lost


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that a partition is to have, in order; None: those from before the present reassignment
    (KIP-455)."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class SingleNode:
    """Version of a metadata node whose value is in the image, and the fields of it that this version does not know."""

    version: int
    extra: bytes = b""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster as this broker knows it, up to the change `version` (RULES K1). `members`: all registered brokers;
    `brokers`: those that are up; `former`: the unregistered ones."""

    version: int
    cluster_id: str
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = NO_EPOCH
    members: Mapping[int, BrokerInfo] = field(default_factory=dict)
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    former: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicInfo] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by broker id or CLUSTER_DEFAULT
    features: Mapping[str, int] = field(default_factory=dict)  # their levels
    features_epoch: int = 0  # of those levels, in the life of the cluster
    singles: Mapping[str, SingleNode] = field(default_factory=dict)  # by path
    aside: Mapping[bytes, Mapping[int, PartitionState]] = field(default_factory=dict)  # of no topic, by topic id
    history: History = FIRST  # that the changes belong to

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The state of one partition, or None when there is no such topic or partition."""
        info = self.topics.get(topic)
        return info.partitions[partition] if info and 0 <= partition < len(info.partitions) else None

    def extra_of(self, path: str) -> bytes:
        """The fields of the single node at this path that this version does not know, as JSON; empty if there are
        none."""
        single = self.singles.get(path)
        return single.extra if single is not None else b""

    def feature_level(self, feature: str) -> int:
        """The level that the cluster has set the feature to; 0 if it has set none."""
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
        """Creates a topic; with `validate_only`, returns the topic that would be created.

        `assignments` maps partitions to replicas in the order of the request. The caller checks that no partition is
        named twice, and Kafka's limit of 10,000 partitions a request; the limit here is per topic.

        When it returns, the topic is in `image` and this broker's partitions of it can be written to. If callers race
        for one name, one wins and the others get TopicExists: for automatic creation that is a success too. Raises:
        InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidTopicRequest, InvalidConfig, TooManyPartitions, MetadataUnavailable.
        """
        ...

    async def delete_topic(self, topic: str | bytes) -> TopicInfo:
        """Deletes the topic of this name or id and returns its last state.

        When it returns, the topic is gone from `image` and this broker's files of it are closed and marked deleted.
        Raises: UnknownTopic, UnknownTopicId, MetadataUnavailable.
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
        InvalidTopicRequest, TooManyPartitions, MetadataUnavailable.
        """
        ...

    async def alter_topic_configs(
        self, topic: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> TopicInfo:
        """Changes the configs of a topic; returns the topic as it is then. With `replace`, configs that are not named
        are removed.

        All changes are made or none, on the configs of that moment: if two callers append at once, both count. When it
        returns, the change is in `image` and the topic's partitions here obey it.

        Raises: InvalidConfig, InvalidTopicName, InvalidTopicRequest, UnknownTopic, MetadataUnavailable.
        """
        ...

    async def alter_broker_configs(
        self, broker: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Changes the dynamic configs of one broker, by its id, or of all brokers, by CLUSTER_DEFAULT (KIP-226).

        The caller checks that there is such a broker. Raises: InvalidConfig, InvalidTopicRequest, MetadataUnavailable.
        """
        ...

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """The levels of features that this broker supports (KIP-584)."""
        ...

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Sets levels of features: all or none. If a feature is named twice, the last update counts.

        When it returns, the levels are in `image`. Raises: InvalidFeatureUpdate, MetadataUnavailable.
        """
        ...

    async def reassign(self, asked: Sequence[Reassignment], *, may_change_factor: bool = True) -> Refusals:
        """Moves partitions to other replicas; reassignments that are not refused are on their way then. If a partition
        is named twice, the last request counts. `may_change_factor`: see KIP-860. Refusals: UnknownPartition,
        InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress. Raises MetadataUnavailable."""
        ...

    async def elect_leaders(self, kind: ElectionType, partitions: Sequence[tuple[str, int]]) -> Refusals:
        """Elects leaders; when it returns, all elections that are not refused are in `image`. Refusals:
        UnknownPartition, ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable. Raises
        MetadataUnavailable."""
        ...

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregisters a broker; a running broker registers anew. Raises BrokerIdNotRegistered, MetadataUnavailable."""
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
    """The part of the cluster's metadata that is about its remote tier."""

    async def claim(self, url: str, *, is_used: bool) -> int:
        """Records where the tier is, and returns its owner generation: how often the cluster was restored from it.

        `is_used`: topics are in it, so that it cannot be anywhere else. Raises CannotStart.
        """
        ...

    async def pending(self) -> list[TierDeletion]:
        """The deleted topics whose segments are still to be deleted. Raises MetadataUnavailable."""
        ...

    async def done(self, deletion: TierDeletion) -> None:
        """Forget a deletion, because it is complete. Raises MetadataUnavailable."""
        ...


class Future(Protocol[T_co]):
    """A result on its way: pending, or settled from the beginning; settled once."""

    @property
    def is_settled(self) -> bool:
        """Whether there is a result."""

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when a pending future is settled; there can be one callback."""

    def result(self) -> T_co:
        """The result of a settled future. Raises CoordinatorError."""
