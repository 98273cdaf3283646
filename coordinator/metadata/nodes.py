"""The values of logged nodes, and of changes: from the API's value types to the JSON of docs/formats/metadata.md, and
back. Pure. Fields that this version does not know come back as `extra`, and are written again with the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from coordinator.api import (
    NO_EPOCH,
    NO_LEADER,
    BrokerEndpoint,
    BrokerInfo,
    BrokerState,
    Extent,
    PartitionState,
    TopicInfo,
)
from coordinator.metadata.node_format import Id, decode, encode, format_of, unknown_fields, version_of
from coordinator.metadata_store import paths

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Member(msgspec.Struct, tag_field="v", tag=1, kw_only=True, omit_defaults=True):
    epoch: int
    incarnation: Id
    state: BrokerState
    endpoints: list[tuple[str, str, int]]
    rack: str | None
    log_dirs: list[str]
    lost_log_dirs: list[str] = []
    process_epoch: int = NO_EPOCH


class _ControllerEpoch(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    epoch: int
    broker_id: int = NO_LEADER


class _Topic(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    topic_id: Id
    partition_count: int
    configs: dict[str, str]


class _BrokerConfigs(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    configs: dict[str, dict[str, str]]


class _Features(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    levels: dict[str, int]


class _Partition(msgspec.Struct, tag_field="v", tag=1, kw_only=True, omit_defaults=True):
    leader: int
    leader_epoch: int
    incarnation: Id
    isr: list[int]
    active_base_offset: int
    log_start_offset: int
    extents: Annotated[list[tuple[int, list[int]]], msgspec.Meta(min_length=1)]
    elr: list[int] = []
    marks: list[tuple[int, int, int]] = []
    offline: list[int] = []
    adding: list[int] = []
    removing: list[int] = []
    last_known_leader: int = NO_LEADER
    unclean_since: int = NO_EPOCH
    processes: list[tuple[int, int]] = []
    recount: bool = False


class _Change(msgspec.Struct, tag_field="v", tag=2, kw_only=True):
    writer: int
    nonce: Id
    nodes: list[tuple[str, int, msgspec.Raw]]
    deleted: list[str]


@dataclass(frozen=True, slots=True)
class LoggedNode:
    """A node as a change has left it."""

    path: str
    version: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one multi, the id of the broker that wrote it, and the random number by which that broker finds it
    again."""

    writer: int
    nonce: bytes
    nodes: tuple[LoggedNode, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicNode:
    """The content of a topic's own node; its partitions' states lie elsewhere."""

    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    extra: bytes = b""


def encode_member(broker: BrokerInfo) -> bytes:
    """The value of a broker's node below `/members`."""
    member = _Member(
        epoch=broker.epoch,
        incarnation=broker.incarnation.hex(),
        state=broker.state,
        endpoints=[(endpoint.listener, endpoint.host, endpoint.port) for endpoint in broker.endpoints],
        rack=broker.rack,
        log_dirs=list(broker.log_dirs),
        lost_log_dirs=list(broker.lost_log_dirs),
        process_epoch=broker.process_epoch,
    )
    return encode(member, broker.extra)


def decode_member(path: str, version: int, value: bytes) -> BrokerInfo:
    """A broker; its id is the path's last part."""
    node = decode(path, value, _MEMBER)
    return BrokerInfo(
        broker_id=int(path.rpartition("/")[2]),
        endpoints=tuple(BrokerEndpoint(*endpoint) for endpoint in node.endpoints),
        rack=node.rack,
        incarnation=bytes.fromhex(node.incarnation),
        epoch=node.epoch,
        state=node.state,
        log_dirs=tuple(node.log_dirs),
        lost_log_dirs=tuple(node.lost_log_dirs),
        process_epoch=node.process_epoch,
        version=version,
        extra=unknown_fields(value, node),
    )


def encode_controller_epoch(broker_id: int, epoch: int, extra: bytes = b"") -> bytes:
    """The value of `/controller-epoch`."""
    return encode(_ControllerEpoch(epoch=epoch, broker_id=broker_id), extra)


def decode_controller_epoch(path: str, value: bytes) -> tuple[int, int]:
    """The broker that has the last controller epoch, and that epoch."""
    node = decode(path, value, _CONTROLLER_EPOCH)
    return node.broker_id, node.epoch


def encode_topic(topic: TopicInfo) -> bytes:
    """The value of a topic's own node."""
    node = _Topic(topic_id=topic.topic_id.hex(), partition_count=len(topic.partitions), configs=dict(topic.configs))
    return encode(node, topic.extra)


def decode_topic(path: str, value: bytes) -> TopicNode:
    """A topic's own node."""
    node = decode(path, value, _TOPIC)
    return TopicNode(bytes.fromhex(node.topic_id), node.partition_count, node.configs, unknown_fields(value, node))


def encode_broker_configs(configs: Mapping[str, Mapping[str, str]], extra: bytes = b"") -> bytes:
    """The value of `/broker-configs`."""
    return encode(_BrokerConfigs(configs={broker: dict(of_one) for broker, of_one in configs.items()}), extra)


def decode_broker_configs(path: str, value: bytes) -> dict[str, dict[str, str]]:
    """The configs that are set for each broker, and as the default of all."""
    return decode(path, value, _BROKER_CONFIGS).configs


def encode_features(levels: Mapping[str, int], extra: bytes = b"") -> bytes:
    """The value of `/features`."""
    return encode(_Features(levels=dict(levels)), extra)


def decode_features(path: str, value: bytes) -> dict[str, int]:
    """The levels of features, whether known or not."""
    return decode(path, value, _FEATURES).levels


def encode_partition(state: PartitionState) -> bytes:
    """The value of a partition's node."""
    node = _Partition(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        incarnation=state.incarnation.hex(),
        isr=list(state.isr),
        active_base_offset=state.active_base_offset,
        log_start_offset=state.log_start_offset,
        extents=[(extent.base_offset, list(extent.replicas)) for extent in state.extents],
        elr=list(state.elr),
        marks=list(state.suspect_replicas),
        offline=list(state.offline),
        adding=list(state.adding),
        removing=list(state.removing),
        last_known_leader=state.last_known_leader,
        unclean_since=state.unclean_since,
        processes=list(state.processes),
        recount=state.recount,
    )
    return encode(node, state.extra)


def decode_partition(path: str, version: int, value: bytes) -> PartitionState:
    """A partition's state."""
    node = decode(path, value, _PARTITION)
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
        elr=tuple(node.elr),
        suspect_replicas=tuple(node.marks),
        offline=tuple(node.offline),
        adding=tuple(node.adding),
        removing=tuple(node.removing),
        last_known_leader=node.last_known_leader,
        unclean_since=node.unclean_since,
        processes=tuple(node.processes),
        recount=node.recount,
        version=version,
        extra=unknown_fields(value, node),
    )


def encode_change(change: Change) -> bytes:
    """The value of a change node."""
    return msgspec.json.encode(
        _Change(
            writer=change.writer,
            nonce=change.nonce.hex(),
            nodes=[(node.path, node.version, msgspec.Raw(node.value)) for node in change.nodes],
            deleted=list(change.deleted),
        )
    )


def decode_change(path: str, value: bytes) -> Change:
    """A change node."""
    node = decode(path, value, _CHANGE)
    nodes = tuple(LoggedNode(path, version, bytes(raw)) for path, version, raw in node.nodes)
    return Change(node.writer, bytes.fromhex(node.nonce), nodes, tuple(node.deleted))


def is_of_earlier_format(path: str, value: bytes) -> bool:
    """Whether a change node was written by a version before this format of changes. Raises CannotStart."""
    return version_of(path, value) < int(format_of(_Change))


def extra_of(path: str, value: bytes) -> bytes:
    """The fields of a single node that this version does not know, as JSON."""
    return unknown_fields(value, decode(path, value, _SINGLES[path]))


_MEMBER = msgspec.json.Decoder(_Member)
_CONTROLLER_EPOCH = msgspec.json.Decoder(_ControllerEpoch)
_TOPIC = msgspec.json.Decoder(_Topic)
_BROKER_CONFIGS = msgspec.json.Decoder(_BrokerConfigs)
_FEATURES = msgspec.json.Decoder(_Features)
_PARTITION = msgspec.json.Decoder(_Partition)
_CHANGE = msgspec.json.Decoder(_Change)

_SINGLES: dict[str, msgspec.json.Decoder[Any]] = {
    paths.CONTROLLER_EPOCH: _CONTROLLER_EPOCH,
    paths.BROKER_CONFIGS: _BROKER_CONFIGS,
    paths.FEATURES: _FEATURES,
}
