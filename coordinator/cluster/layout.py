"""The layout of the metadata store: who comes first makes it, and one of a broker alone becomes that of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import NO_CONTROLLER
from coordinator.cluster.ids import id_text, new_id
from coordinator.cluster.nodes import encode_controller_epoch
from coordinator.cluster.plain_nodes import decode_cluster, encode_cluster
from coordinator.errors import CannotStart
from coordinator.metadata import paths
from coordinator.metadata.commits import commit
from coordinator.metadata.store import BadVersion, Create, MetadataStore, NodeExists, NoNode, Operation, Put

if TYPE_CHECKING:
    from random import Random

PARENTS = (paths.MEMBERS, paths.BROKERS, paths.TOPICS, paths.PARTITIONS, paths.CHANGES, paths.TIER_DELETIONS)
UNFINISHED = "the metadata store has a part of a cluster only: an import, or a restoration, was not finished"


def first_nodes() -> list[Operation]:
    """What there is before anything else."""
    epoch = Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(NO_CONTROLLER, 0))
    return [*(Create(path, b"") for path in PARENTS), epoch]


async def cluster_id(store: MetadataStore, random: Random) -> str:
    """The cluster's id. Raises CannotStart for a layout that this version does not know, or one that was left half
    made, and what the store does."""
    await store.sync()
    is_taken = False
    while True:
        try:
            node = await store.get(paths.CLUSTER)
        except NoNode:
            if is_taken:
                raise CannotStart(UNFINISHED) from None
            made = Create(paths.CLUSTER, encode_cluster(id_text(new_id(random))))
            operations = [*first_nodes(), made]
        else:
            found, is_current = decode_cluster(paths.CLUSTER, node.value)
            if is_current:
                return found
            operations = [*await _missing_parents(store), Put(paths.CLUSTER, encode_cluster(found), node.version)]
        try:
            await commit(store, operations)
        except (NodeExists, BadVersion):
            is_taken = True
            await store.sync()  # another broker was first


async def _missing_parents(store: MetadataStore) -> list[Operation]:
    """Of a layout that knew one broker alone."""
    return [Create(path, b"") for path in PARENTS if not await store.exists(path)]
