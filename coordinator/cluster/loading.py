"""Reads the image from the metadata store: all of it at start, and what a change names afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coordinator.api import NO_CONTROLLER, BrokerInfo, ClusterImage, PartitionState, TopicInfo
from coordinator.cluster import features
from coordinator.cluster.image import with_broker_configs, with_features, with_members, with_partitions, with_topics
from coordinator.cluster.nodes import (
    Change,
    ChangeKind,
    TopicChange,
    TopicNode,
    decode_broker,
    decode_broker_configs,
    decode_change,
    decode_controller,
    decode_features,
    decode_partition,
    decode_topic,
)
from coordinator.errors import CannotStart
from coordinator.metadata import paths
from coordinator.metadata.store import MetadataStore, NoNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Loaded:
    """The image with what is needed to change it: the partition nodes' versions by path, the last change's number."""

    image: ClusterImage
    versions: Mapping[str, int]
    sequence: int


async def load(store: MetadataStore, old: ClusterImage) -> Loaded:
    """Reads everything. The number comes first: what changes meanwhile is read again when its change is taken."""
    await store.sync()
    sequence = await last_change(store)
    versions: dict[str, int] = {}
    topics: list[TopicInfo] = []
    for name, node in (await store.read_children(paths.TOPICS)).items():
        found = decode_topic(paths.topic(name), node.value)
        if (topic := await _load_topic(store, name, found, versions)) is not None:
            topics.append(topic)
    kept = {topic.topic_id for topic in topics}
    image = with_topics(old, topics, [topic for topic in old.topics.values() if topic.topic_id not in kept])
    image = with_broker_configs(image, (await read_broker_configs(store))[0])
    image = with_features(image, *await read_features(store))
    return Loaded(with_members(image, *await read_members(store)), versions, sequence)


async def left_overs(store: MetadataStore, image: ClusterImage) -> list[tuple[bytes, list[int]]]:
    """The ids that have partition states and no topic, with their partitions. For a controller that has just loaded."""
    found: list[tuple[bytes, list[int]]] = []
    for name in await store.children(paths.PARTITIONS):
        topic_id = bytes.fromhex(name)
        if topic_id not in image.topics_by_id:
            numbers = await store.children(paths.partitions(topic_id))
            found.append((topic_id, sorted(map(int, numbers))))
    return found


async def read_members(store: MetadataStore) -> tuple[dict[int, BrokerInfo], int]:
    """The live brokers and the controller's id."""
    nodes = await store.read_children(paths.BROKERS)
    brokers = [decode_broker(paths.broker(int(name)), node.value) for name, node in nodes.items()]
    try:
        controller = await store.get(paths.CONTROLLER)
    except NoNode:
        controller_id = NO_CONTROLLER
    else:
        controller_id, _ = decode_controller(paths.CONTROLLER, controller.value)
    return {broker.broker_id: broker for broker in brokers}, controller_id


async def read_broker_configs(store: MetadataStore) -> tuple[dict[str, dict[str, str]], int | None]:
    """What brokers are configured for at run time, and the version of its node; None: there is none yet."""
    try:
        node = await store.get(paths.BROKER_CONFIGS)
    except NoNode:
        return {}, None
    return decode_broker_configs(paths.BROKER_CONFIGS, node.value), node.version


async def read_features(store: MetadataStore) -> tuple[dict[str, int], int]:
    """The levels of the cluster's features and their epoch. Raises CannotStart for what this version has not."""
    try:
        node = await store.get(paths.FEATURES)
    except NoNode:
        return dict(features.DEFAULT_LEVELS), features.epoch_of(None)
    levels = decode_features(paths.FEATURES, node.value)
    features.check_supported(paths.FEATURES, levels)
    return levels, features.epoch_of(node.version)


async def last_change(store: MetadataStore) -> int:
    """The number of the newest change."""
    changes = await store.children(paths.CHANGES)
    return int(changes[-1]) if changes else paths.FIRST_CHANGE - 1


async def read_change(store: MetadataStore, sequence: int) -> Change:
    """One change. Raises NoNode when it is no longer kept."""
    path = paths.change(sequence)
    return decode_change(path, (await store.get(path)).value)


async def follow(store: MetadataStore, image: ClusterImage, change: Change) -> ClusterImage:
    """The image after a change, with what it names read again."""
    changed: list[TopicInfo] = []
    removed: list[TopicInfo] = []
    for topic in change.topics:
        known = image.topics_by_id.get(topic.topic_id)
        now = None if topic.kind is ChangeKind.DELETED else await _read_changed(store, topic, known)
        if now is not None:
            changed.append(now)
        elif known is not None:
            removed.append(known)
    if change.broker_configs:
        image = with_broker_configs(image, (await read_broker_configs(store))[0])
    if change.features:
        image = with_features(image, *await read_features(store))
    return with_topics(image, changed, removed)


async def _read_changed(store: MetadataStore, change: TopicChange, known: TopicInfo | None) -> TopicInfo | None:
    """The topic as it is now; None when it was deleted, or deleted and made again, since the change."""
    try:
        if change.kind is ChangeKind.PARTITIONS and known is not None:
            return with_partitions(known, await _read_states(store, change.topic_id, change.partitions))
        path = paths.topic(change.topic)
        found = decode_topic(path, (await store.get(path)).value)
        if found.topic_id != change.topic_id:
            return None
        if change.kind is ChangeKind.CHANGED and known is not None:
            numbers = range(len(known.partitions), found.partition_count)
            added = (await _read_states(store, change.topic_id, numbers)).values()
            return replace(known, partitions=(*known.partitions, *added), configs=found.configs)
    except NoNode:
        return None
    return await _read_topic(store, change.topic, found, {})


async def _read_states(store: MetadataStore, topic_id: bytes, numbers: Iterable[int]) -> dict[int, PartitionState]:
    """Raises NoNode."""
    states: dict[int, PartitionState] = {}
    for number in numbers:
        path = paths.partition(topic_id, number)
        states[number] = decode_partition(path, (await store.get(path)).value)
    return states


async def _load_topic(store: MetadataStore, name: str, found: TopicNode, versions: dict[str, int]) -> TopicInfo | None:
    """The topic; None when it was deleted while we read.

    A topic that lacks states otherwise is damage: its data must not be taken for left-overs.
    """
    while (topic := await _read_topic(store, name, found, versions)) is None:
        await store.sync()
        path = paths.topic(name)
        try:
            again = decode_topic(path, (await store.get(path)).value)
        except NoNode:
            return None
        if again.topic_id == found.topic_id:
            raise CannotStart(f"the metadata node {path} is damaged: states of its partitions are missing")
        found = again
    return topic


async def _read_topic(store: MetadataStore, name: str, found: TopicNode, versions: dict[str, int]) -> TopicInfo | None:
    """The topic with its partitions; None when it is being deleted while we read."""
    try:
        nodes = await store.read_children(paths.partitions(found.topic_id))
    except NoNode:
        return None
    states: list[PartitionState] = []
    for number in range(found.partition_count):
        node = nodes.get(str(number))
        if node is None:
            return None
        path = paths.partition(found.topic_id, number)
        states.append(decode_partition(path, node.value))
        versions[path] = node.version
    return TopicInfo(name, found.topic_id, tuple(states), found.configs)
