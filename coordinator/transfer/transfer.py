"""Export and import of a cluster's metadata: out of one store, such as a broker's own, and into that of a cluster.

Values stay as they are, byte for byte: the ids of the cluster and its topics, by which log dirs are known again; epochs
of leaders, brokers and the controller, so that the next ones are greater; producer ids that were given out; the owner
of the remote tier. Nodes that live with a session are left out, and changes are, too: their numbers begin anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coordinator.errors import TransferRefused
from coordinator.metadata.changes import is_parent
from coordinator.metadata.history import FIRST, History
from coordinator.metadata.history_nodes import decode_history, encode_history
from coordinator.metadata.image import empty, folded
from coordinator.metadata.layout import PARENTS
from coordinator.metadata.nodes import LoggedNode
from coordinator.metadata.plans import BATCH_OPERATIONS_MAX, first_batch
from coordinator.metadata.unlogged_nodes import decode_cluster, decode_import, encode_import
from coordinator.metadata_store import paths
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import Create, Delete, NodeExists, NoNode, Operation, Put
from coordinator.transfer.export_format import Export, ExportedNode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from coordinator.api import ClusterImage
    from coordinator.metadata_store.store import MetadataStore

SESSION_PATHS: Final = (paths.BROKERS, paths.CONTROLLER)
ZOOKEEPER_PATH: Final = "/zookeeper"  # at the root of its tree
RAISES_MAX: Final = BATCH_OPERATIONS_MAX // 2


async def export_metadata(store: MetadataStore) -> Export:
    """Export everything, if no broker runs on the store. Raises TransferRefused, CannotStart, and the errors of the
    store."""
    await store.sync()
    try:
        cluster_id, _ = decode_cluster(paths.CLUSTER, (await store.get(paths.CLUSTER)).value)
    except NoNode:
        raise TransferRefused("the metadata store has no cluster") from None
    await _refuse_running(store)
    before = await store.children_of_many([paths.CHANGES])
    found = await _all_paths(store, to_leave=(*SESSION_PATHS, paths.CHANGES))
    nodes = zip(found, await store.read_many(found), strict=True)
    export = Export(cluster_id, [ExportedNode(path, node.version, node.value) for path, node in nodes if node])
    await _refuse_running(store)
    if await store.children_of_many([paths.CHANGES]) != before:
        raise TransferRefused("the metadata changed meanwhile")
    image_of(export)
    return export


async def _refuse_running(store: MetadataStore) -> None:
    (running,) = await store.children_of_many([paths.BROKERS])
    if running:
        raise TransferRefused(f"stop the brokers first, and wait for their sessions to end: {', '.join(running)}")


async def _all_paths(store: MetadataStore, to_leave: Collection[str]) -> list[str]:
    """All paths, sorted, parents first, without the children of `to_leave`."""
    found, level = list[str](), [""]
    while level:
        names = await store.children_of_many(level)
        below = [f"{parent}/{name}" for parent, children in zip(level, names, strict=True) for name in children]
        found += below
        level = [path for path in below if path not in to_leave and path != ZOOKEEPER_PATH]
    return sorted(path for path in found if path not in (ZOOKEEPER_PATH, paths.CONTROLLER))


def image_of(export: Export) -> ClusterImage:
    """The image that a broker will make of it. Raises CannotStart for nodes that this version cannot read."""
    logged = [
        LoggedNode(node.path, node.version, node.value)
        for node in export.nodes
        if node.value and paths.is_logged(node.path) and not is_parent(node.path)
    ]
    return folded(empty(export.cluster_id), 0, logged)


async def import_metadata(store: MetadataStore, export: Export, digest: str) -> ClusterImage:
    """Import into a store that is empty, or has an unfinished import of the same file. The node that makes it a cluster
    comes last: until then no broker starts on it. Return the image of the import.

    Raises: TransferRefused, CannotStart, and the errors of the store.
    """
    image = image_of(export)
    await store.sync()
    await _begin(store, digest)
    known = {*await _all_paths(store, to_leave=())}
    last = {paths.CLUSTER, paths.FEATURES, paths.HISTORY}
    operations: Sequence[Operation] = [
        Create(node.path, node.value) for node in export.nodes if node.path not in known and node.path not in last
    ]
    while batch := first_batch(operations):
        await _write(store, batch)
        operations = operations[len(batch) :]
    last_nodes = [
        one for node in export.nodes if node.path in last - {paths.HISTORY} for one in _with_its_version(node)
    ]
    new_history = Create(paths.HISTORY, encode_history(_next_history(export, digest)))
    await _write(store, [Delete(paths.IMPORT), new_history, *last_nodes])
    return image


def _next_history(export: Export, digest: str) -> History:
    """The history of the import. Its changes begin with 1 again: to brokers that remember greater numbers that is no
    rollback."""
    values = [node.value for node in export.nodes if node.path == paths.HISTORY]
    known = decode_history(paths.HISTORY, values[0]) if values else FIRST
    return replace(known, generation=known.generation + 1, history_id=digest[:32], first_change=0)


async def _begin(store: MetadataStore, digest: str) -> None:
    """Mark the store, so that no broker makes another cluster of it meanwhile."""
    try:
        found = decode_import(paths.IMPORT, (await store.get(paths.IMPORT)).value)
    except NoNode:
        names = [name for name in await store.children("") if f"/{name}" != ZOOKEEPER_PATH]
        if names:
            there = "a cluster" if paths.CLUSTER[1:] in names else f"other nodes: {', '.join(names)}"
            raise TransferRefused(f"the metadata store has {there}; an import needs one that is empty") from None
        first = [*(Create(path, b"") for path in PARENTS), Create(paths.IMPORT, encode_import(digest))]
        await _write(store, first)
    else:
        if found != digest:
            raise TransferRefused("the metadata store has an unfinished import of another file")


async def _write(store: MetadataStore, operations: Sequence[Operation]) -> None:
    try:
        await commit(store, operations)
    except (NodeExists, NoNode) as error:
        raise TransferRefused(f"another process writes to the metadata store: {error!r}") from error


def _with_its_version(node: ExportedNode) -> Iterable[Operation]:
    """The operations that give a node its old version. Clients that live on know the features' epoch, which is the
    version, and take no smaller one."""
    raises = min(node.version, RAISES_MAX) if node.path == paths.FEATURES else 0
    return [Create(node.path, node.value), *(Put(node.path, node.value, version) for version in range(raises))]
