"""The metadata of a cluster that is made anew from its remote tier, on one broker, which leads all of it.

The node that makes it a cluster comes last: until then no broker starts with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.api import Extent, PartitionState, TopicInfo
from coordinator.errors import CannotStart
from coordinator.metadata.history import FIRST, History
from coordinator.metadata.history_nodes import encode_history
from coordinator.metadata.image import empty
from coordinator.metadata.layout import first_nodes
from coordinator.metadata.plans import first_batch
from coordinator.metadata.unlogged_nodes import TierNode, encode_cluster, encode_producer_ids, encode_tier
from coordinator.metadata_store import paths
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import Create, NoNode, StoreError
from coordinator.requests import topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.metadata_store.store import MetadataStore


class RestoredTopic(NamedTuple):
    """A topic to restore. `leader_epochs` of its partitions, in order: the next leader's are greater."""

    name: str
    topic_id: bytes
    leader_epochs: Sequence[int]
    configs: Mapping[str, str]


class RestoredCluster(NamedTuple):
    """A cluster to restore. `tier`: its source, and the new owner generation; `next_producer_id`: no producer has this
    id, or one above it. `history`: the one that begins, if the log dirs remember an earlier one."""

    cluster_id: str
    tier: TierNode
    next_producer_id: int
    topics: Sequence[RestoredTopic]
    history: History = FIRST


async def write_cluster(store: MetadataStore, broker_id: int, cluster: RestoredCluster) -> None:
    """Write the cluster into an empty store. Raises CannotStart."""
    try:
        await refuse_used(store)
        await commit(store, first_nodes())
        for topic in cluster.topics:
            await _write_topic(store, _topic(topic, broker_id))
        last = [
            Create(paths.TIER, encode_tier(cluster.tier)),
            Create(paths.PRODUCER_IDS, encode_producer_ids(cluster.next_producer_id)),
            *([] if cluster.history == FIRST else [Create(paths.HISTORY, encode_history(cluster.history))]),
            Create(paths.CLUSTER, encode_cluster(cluster.cluster_id)),
        ]
        await commit(store, last)
    except StoreError as error:
        raise CannotStart(f"the metadata store refused the restored metadata: {error!r}") from error


async def _write_topic(store: MetadataStore, topic: TopicInfo) -> None:
    """Write the nodes of a topic. No change is written, as no broker follows yet."""
    operations = topics.creation(empty(""), topic).operations
    while batch := first_batch(operations):
        await commit(store, batch)
        operations = operations[len(batch) :]


async def refuse_used(store: MetadataStore) -> None:
    """Raise CannotStart if the store is not empty. Raises the errors of the store."""
    for path in (paths.CLUSTER, paths.TOPICS):
        try:
            await store.get(path)
        except NoNode:
            continue
        raise CannotStart("the metadata store has a cluster, or the rest of an earlier attempt")


def _topic(topic: RestoredTopic, broker_id: int) -> TopicInfo:
    replicas = (broker_id,)
    states = [
        PartitionState(broker_id, epoch, replicas, replicas, extents=(Extent(0, replicas),))
        for epoch in topic.leader_epochs
    ]
    return TopicInfo(topic.name, topic.topic_id, tuple(states), topic.configs)
