"""The values of nodes that no change repeats: they are read when needed. Pure; docs/formats/metadata.md has their
form."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from coordinator.api import TierDeletion
from coordinator.metadata.node_format import Id, decode, encode, format_of, version_of


class _Cluster(msgspec.Struct, tag_field="v", tag=2, kw_only=True):
    cluster_id: str


class _LoneCluster(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    cluster_id: str


class _Alive(msgspec.Struct, tag_field="v", tag=2, kw_only=True):
    incarnation: Id


class _Controller(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    broker_id: int
    epoch: int


class _ProducerIds(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    next_id: int


class _Tier(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    store: str
    owner_generation: int


class _TierDeletion(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    topic_id: Id
    topic: str
    partition_count: int


class _Import(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    sha256: str


class _TopicPartitions(msgspec.Struct, tag_field="v", tag=1, kw_only=True):
    topic: str


@dataclass(frozen=True, slots=True)
class TierNode:
    """The place of the remote tier, and how often the cluster was restored from it."""

    store: str
    owner_generation: int


def encode_cluster(cluster_id: str) -> bytes:
    """The value of `/cluster`."""
    return encode(_Cluster(cluster_id=cluster_id))


def decode_cluster(path: str, value: bytes) -> tuple[str, bool]:
    """The cluster id, and whether the layout is this version's or still that of one broker alone."""
    if version_of(path, value) == format_of(_LoneCluster):
        return decode(path, value, _LONE_CLUSTER).cluster_id, False
    return decode(path, value, _CLUSTER).cluster_id, True


def encode_alive(incarnation: bytes) -> bytes:
    """The value of a broker's node below `/brokers`."""
    return encode(_Alive(incarnation=incarnation.hex()))


def encode_controller(broker_id: int, epoch: int) -> bytes:
    """The value of `/controller`."""
    return encode(_Controller(broker_id=broker_id, epoch=epoch))


def decode_controller(path: str, value: bytes) -> tuple[int, int]:
    """The controller's broker id and epoch."""
    node = decode(path, value, _CONTROLLER)
    return node.broker_id, node.epoch


def encode_producer_ids(next_id: int) -> bytes:
    """The value of `/producer-ids`."""
    return encode(_ProducerIds(next_id=next_id))


def decode_producer_ids(path: str, value: bytes) -> int:
    """The first producer id that is in no block yet."""
    return decode(path, value, _PRODUCER_IDS).next_id


def encode_tier(tier: TierNode) -> bytes:
    """The value of `/tier`."""
    return encode(_Tier(store=tier.store, owner_generation=tier.owner_generation))


def decode_tier(path: str, value: bytes) -> TierNode:
    found = decode(path, value, _TIER)
    return TierNode(found.store, found.owner_generation)


def encode_tier_deletion(deletion: TierDeletion) -> bytes:
    """The value of a node below `/tier-deletions`."""
    node = _TierDeletion(
        topic_id=deletion.topic_id.hex(), topic=deletion.topic, partition_count=deletion.partition_count
    )
    return encode(node)


def decode_tier_deletion(path: str, value: bytes) -> TierDeletion:
    found = decode(path, value, _TIER_DELETION)
    return TierDeletion(bytes.fromhex(found.topic_id), found.topic, found.partition_count)


def encode_import(digest: str) -> bytes:
    """The value of `/import`."""
    return encode(_Import(sha256=digest))


def decode_import(path: str, value: bytes) -> str:
    """The digest of the file."""
    return decode(path, value, _IMPORT).sha256


def encode_topic_partitions(topic: str) -> bytes:
    """The value of the parent of a topic's partition states."""
    return encode(_TopicPartitions(topic=topic))


_CLUSTER = msgspec.json.Decoder(_Cluster)
_LONE_CLUSTER = msgspec.json.Decoder(_LoneCluster)
_CONTROLLER = msgspec.json.Decoder(_Controller)
_PRODUCER_IDS = msgspec.json.Decoder(_ProducerIds)
_TIER = msgspec.json.Decoder(_Tier)
_IMPORT = msgspec.json.Decoder(_Import)
_TIER_DELETION = msgspec.json.Decoder(_TierDeletion)
