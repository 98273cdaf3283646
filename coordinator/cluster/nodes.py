"""The values of metadata nodes: between the API's value types and the JSON of docs/formats/metadata.md. Pure.

Unknown fields are ignored, an unknown format version is not: it means that a newer broker wrote the node, and this one
must not go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from coordinator.api import BrokerEndpoint, BrokerInfo, Extent, PartitionState, TierDeletion, TopicInfo
from coordinator.errors import CannotStart

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1

_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class ChangeKind(Enum):
    """What happened to a topic."""

    CREATED = "created"
    DELETED = "deleted"
    PARTITIONS = "partitions"
    CHANGED = "changed"


class _Version(msgspec.Struct):
    v: int


class _Node(msgspec.Struct, kw_only=True):
    v: int = FORMAT


class _Cluster(_Node, kw_only=True):
    cluster_id: str


class _Broker(_Node, kw_only=True):
    incarnation: _Id
    endpoints: list[tuple[str, str, int]]
    rack: str | None = None


class _Controller(_Node, kw_only=True):
    broker_id: int
    epoch: int


class _ControllerEpoch(_Node, kw_only=True):
    epoch: int


class _ProducerIds(_Node, kw_only=True):
    next_id: int


class _Topic(_Node, kw_only=True):
    topic_id: _Id
    partition_count: int
    configs: dict[str, str]


class _BrokerConfigs(_Node, kw_only=True):
    configs: dict[str, dict[str, str]]


class _Features(_Node, kw_only=True):
    levels: dict[str, int]


class _Tier(_Node, kw_only=True):
    store: str
    owner_generation: int


class _TierDeletion(_Node, kw_only=True):
    topic_id: _Id
    topic: str
    partition_count: int


class _TopicPartitions(_Node, kw_only=True):
    topic: str


class _Partition(_Node, kw_only=True):
    leader: int
    leader_epoch: int
    incarnation: _Id
    isr: list[int]
    active_base_offset: int
    log_start_offset: int
    extents: Annotated[list[tuple[int, list[int]]], msgspec.Meta(min_length=1)]


class _TopicChange(msgspec.Struct, kw_only=True):
    kind: ChangeKind
    topic: str
    topic_id: _Id
    partitions: list[int]


class _Change(_Node, kw_only=True):
    writer: _Id
    topics: list[_TopicChange]
    broker_configs: bool = False
    features: bool = False


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One topic's part of a change; `partitions` is for PARTITIONS only."""

    kind: ChangeKind
    topic: str
    topic_id: bytes
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What one batch changed, and the incarnation of the broker that wrote it."""

    writer: bytes
    topics: tuple[TopicChange, ...]
    broker_configs: bool = False
    features: bool = False


@dataclass(frozen=True, slots=True)
class TopicNode:
    """What a topic's own node says; its partitions' states lie elsewhere."""

    topic_id: bytes
    partition_count: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class TierNode:
    """Where the remote tier is, and how often the cluster was restored from it."""

    store: str
    owner_generation: int


def encode_cluster(cluster_id: str) -> bytes:
    """The value of `/cluster`."""
    return msgspec.json.encode(_Cluster(cluster_id=cluster_id))


def decode_cluster(path: str, value: bytes) -> str:
    """The cluster id."""
    return _decode(path, value, _CLUSTER).cluster_id


def encode_broker(broker: BrokerInfo) -> bytes:
    """The value of a registration."""
    endpoints = [(endpoint.listener, endpoint.host, endpoint.port) for endpoint in broker.endpoints]
    return msgspec.json.encode(_Broker(incarnation=broker.incarnation.hex(), endpoints=endpoints, rack=broker.rack))


def decode_broker(path: str, value: bytes) -> BrokerInfo:
    """A registration; the broker's id is the path's last part."""
    node = _decode(path, value, _BROKER)
    return BrokerInfo(
        broker_id=int(path.rpartition("/")[2]),
        endpoints=tuple(BrokerEndpoint(*endpoint) for endpoint in node.endpoints),
        rack=node.rack,
        incarnation=bytes.fromhex(node.incarnation),
    )


def encode_controller(broker_id: int, epoch: int) -> bytes:
    """The value of `/controller`."""
    return msgspec.json.encode(_Controller(broker_id=broker_id, epoch=epoch))


def decode_controller(path: str, value: bytes) -> tuple[int, int]:
    """The controller's broker id and epoch."""
    node = _decode(path, value, _CONTROLLER)
    return node.broker_id, node.epoch


def encode_controller_epoch(epoch: int) -> bytes:
    """The value of `/controller-epoch`."""
    return msgspec.json.encode(_ControllerEpoch(epoch=epoch))


def decode_controller_epoch(path: str, value: bytes) -> int:
    """The last controller epoch given out."""
    return _decode(path, value, _CONTROLLER_EPOCH).epoch


def encode_producer_ids(next_id: int) -> bytes:
    """The value of `/producer-ids`."""
    return msgspec.json.encode(_ProducerIds(next_id=next_id))


def decode_producer_ids(path: str, value: bytes) -> int:
    """The first producer id of no block yet."""
    return _decode(path, value, _PRODUCER_IDS).next_id


def encode_tier(tier: TierNode) -> bytes:
    """The value of `/tier`."""
    return msgspec.json.encode(_Tier(store=tier.store, owner_generation=tier.owner_generation))


def decode_tier(path: str, value: bytes) -> TierNode:
    found = _decode(path, value, _TIER)
    return TierNode(found.store, found.owner_generation)


def encode_tier_deletion(deletion: TierDeletion) -> bytes:
    """The value of a node below `/tier-deletions`."""
    left = _TierDeletion(
        topic_id=deletion.topic_id.hex(), topic=deletion.topic, partition_count=deletion.partition_count
    )
    return msgspec.json.encode(left)


def decode_tier_deletion(path: str, value: bytes) -> TierDeletion:
    found = _decode(path, value, _TIER_DELETION)
    return TierDeletion(bytes.fromhex(found.topic_id), found.topic, found.partition_count)


def encode_topic(topic: TopicInfo) -> bytes:
    """The value of a topic's own node."""
    return msgspec.json.encode(
        _Topic(topic_id=topic.topic_id.hex(), partition_count=len(topic.partitions), configs=dict(topic.configs))
    )


def decode_topic(path: str, value: bytes) -> TopicNode:
    """A topic's own node."""
    node = _decode(path, value, _TOPIC)
    return TopicNode(bytes.fromhex(node.topic_id), node.partition_count, node.configs)


def encode_broker_configs(configs: Mapping[str, Mapping[str, str]]) -> bytes:
    """The value of `/broker-configs`."""
    return msgspec.json.encode(_BrokerConfigs(configs={broker: dict(of_one) for broker, of_one in configs.items()}))


def decode_broker_configs(path: str, value: bytes) -> dict[str, dict[str, str]]:
    """What is set for each broker, and as the default of all."""
    return _decode(path, value, _BROKER_CONFIGS).configs


def encode_features(levels: Mapping[str, int]) -> bytes:
    """The value of `/features`."""
    return msgspec.json.encode(_Features(levels=dict(levels)))


def decode_features(path: str, value: bytes) -> dict[str, int]:
    """The levels of features, whether known or not."""
    return _decode(path, value, _FEATURES).levels


def encode_topic_partitions(topic: str) -> bytes:
    """The value of the parent of a topic's partition states."""
    return msgspec.json.encode(_TopicPartitions(topic=topic))


def encode_partition(state: PartitionState) -> bytes:
    """The value of a partition's node."""
    return msgspec.json.encode(
        _Partition(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            incarnation=state.incarnation.hex(),
            isr=list(state.isr),
            active_base_offset=state.active_base_offset,
            log_start_offset=state.log_start_offset,
            extents=[(extent.base_offset, list(extent.replicas)) for extent in state.extents],
        )
    )


def decode_partition(path: str, value: bytes) -> PartitionState:
    """A partition's state."""
    node = _decode(path, value, _PARTITION)
    extents = tuple(Extent(base_offset, tuple(replicas)) for base_offset, replicas in node.extents)
    return PartitionState(
        leader=node.leader,
        leader_epoch=node.leader_epoch,
        incarnation=bytes.fromhex(node.incarnation),
        isr=tuple(node.isr),
        replicas=extents[-1].replicas,
        active_base_offset=node.active_base_offset,
        log_start_offset=node.log_start_offset,
        extents=extents,
    )


def encode_change(change: Change) -> bytes:
    """The value of a change node."""
    topics = [
        _TopicChange(
            kind=topic.kind, topic=topic.topic, topic_id=topic.topic_id.hex(), partitions=list(topic.partitions)
        )
        for topic in change.topics
    ]
    return msgspec.json.encode(
        _Change(
            writer=change.writer.hex(),
            topics=topics,
            broker_configs=change.broker_configs,
            features=change.features,
        )
    )


def decode_change(path: str, value: bytes) -> Change:
    """A change node."""
    node = _decode(path, value, _CHANGE)
    return Change(
        bytes.fromhex(node.writer),
        tuple(
            TopicChange(topic.kind, topic.topic, bytes.fromhex(topic.topic_id), tuple(topic.partitions))
            for topic in node.topics
        ),
        node.broker_configs,
        node.features,
    )


_N = TypeVar("_N", bound=_Node)
_VERSION = msgspec.json.Decoder(_Version)
_CLUSTER = msgspec.json.Decoder(_Cluster)
_BROKER = msgspec.json.Decoder(_Broker)
_CONTROLLER = msgspec.json.Decoder(_Controller)
_CONTROLLER_EPOCH = msgspec.json.Decoder(_ControllerEpoch)
_PRODUCER_IDS = msgspec.json.Decoder(_ProducerIds)
_TOPIC = msgspec.json.Decoder(_Topic)
_TIER = msgspec.json.Decoder(_Tier)
_TIER_DELETION = msgspec.json.Decoder(_TierDeletion)
_BROKER_CONFIGS = msgspec.json.Decoder(_BrokerConfigs)
_FEATURES = msgspec.json.Decoder(_Features)
_PARTITION = msgspec.json.Decoder(_Partition)
_CHANGE = msgspec.json.Decoder(_Change)


def _decode(path: str, value: bytes, decoder: msgspec.json.Decoder[_N]) -> _N:
    """The version first: a node of another version may have other fields altogether."""
    try:
        version = _VERSION.decode(value).v
        if version != FORMAT:
            raise CannotStart(f"the metadata node {path} has the format {version}; this version knows {FORMAT} only")
        return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise CannotStart(f"the metadata node {path} is damaged: {error}") from error
