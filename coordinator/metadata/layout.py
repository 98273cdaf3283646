"""The layout of the metadata store: the first broker makes it, and that of a broker alone becomes that of a cluster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
import trio

from coordinator.api import NO_CONTROLLER
from coordinator.errors import CannotStart
from coordinator.metadata.ids import id_text, new_id
from coordinator.metadata.nodes import encode_controller_epoch
from coordinator.metadata.unlogged_nodes import decode_cluster, encode_cluster
from coordinator.metadata_store import paths
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import (
    BadVersion,
    ConnectionLost,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Put,
    SessionLost,
)

if TYPE_CHECKING:
    from random import Random

    from coordinator.metadata.history import HistoryPosition

log = structlog.get_logger(__name__)

READ_AGAIN_S: Final = 10.0  # without a wake-up
NO_CLUSTER: Final = "the metadata store has no cluster"
PARENTS = (paths.MEMBERS, paths.BROKERS, paths.TOPICS, paths.PARTITIONS, paths.CHANGES, paths.TIER_DELETIONS)
UNACCEPTED: Final = "the acceptance of a rollback was not finished: run `kafkawire metadata accept-rollback` again"
UNFINISHED = "the metadata store has a part of a cluster only: an import, or a restoration, was not finished"


def first_nodes() -> list[Operation]:
    """The operations that create the nodes before any cluster."""
    epoch = Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(NO_CONTROLLER, 0))
    return [*(Create(path, b"") for path in PARENTS), epoch]


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """The cluster that this broker's log dirs are of; None: they are new. `waits`: whether another broker, or an
    operator, may put it into the store while this one waits."""

    cluster_id: str | None = None
    waits: bool = False
    followed: HistoryPosition | None = None  # the newest change that this broker has followed in an earlier process


NEW: Final = KnownCluster()


async def cluster_id(store: MetadataStore, random: Random, known: KnownCluster = KnownCluster()) -> str:
    """The cluster's id. Only a broker without a cluster makes one: another cluster over old log dirs would leave their
    data behind. Raises CannotStart for another cluster than the known one, and for a layout that this version does not
    know or that is half made; raises the errors of the store."""
    if known.cluster_id is not None:
        await _wait_for_cluster(store, known)
    found = await _cluster_id_in(store, random)
    if known.cluster_id not in (None, found):
        raise CannotStart(f"the log dirs belong to the cluster {known.cluster_id}, the metadata store has {found}")
    return found


async def _wait_for_cluster(store: MetadataStore, known: KnownCluster) -> None:
    """Return when the store has a cluster. Raises CannotStart if there is nothing to wait for."""
    is_logged, reason = False, NO_CLUSTER
    while True:
        wake = trio.Event()
        try:
            await store.sync()
            if await store.exists(paths.CLUSTER, wake):
                return
            reason = UNACCEPTED if await store.exists(paths.ACCEPTING) else NO_CLUSTER
        except SessionLost:
            with suppress(ConnectionLost):
                await store.renew()
        except ConnectionLost:
            pass
        if not known.waits:
            raise CannotStart(f"{reason}, and the log dirs belong to the cluster {known.cluster_id}")
        if not is_logged:
            is_logged = True
            log.error(f"{reason}: this broker waits for that of its log dirs", cluster_id=known.cluster_id)
        with trio.move_on_after(READ_AGAIN_S):
            await wake.wait()


async def _cluster_id_in(store: MetadataStore, random: Random) -> str:
    """The id of the cluster in the store, which is made if there is none."""
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
    """The operations that add the parents that the layout of a broker alone lacks."""
    return [Create(path, b"") for path in PARENTS if not await store.exists(path)]
