"""The change that a multi makes, from its operations. Pure; docs/formats/metadata.md has its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.metadata.nodes import Change, LoggedNode
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Delete, Operation, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


OPERATOR: Final = -1  # the writer of a change that accepts a rollback: no running broker follows it


def change_of(operations: Iterable[Operation], writer: int, nonce: bytes) -> Change:
    """The change that tells other brokers of the operations; `nonce` is drawn for this multi."""
    logged = [operation for operation in operations if paths.is_logged(operation.path)]
    deleted = tuple(operation.path for operation in logged if isinstance(operation, Delete))
    return Change(writer, nonce, tuple(_written(logged)), deleted)


def _written(operations: Iterable[Operation]) -> Iterator[LoggedNode]:
    """The nodes that the operations write, without parents below `/partitions`, which no broker follows."""
    for operation in operations:
        if isinstance(operation, Create | Put) and not is_parent(operation.path):
            version = 0 if isinstance(operation, Create) else operation.version + 1
            yield LoggedNode(operation.path, version, operation.value)


def deleted_topics(change: Change) -> set[bytes]:
    """The ids of topics whose deletion a change proves: it deletes a topic's own node together with states. States that
    go alone prove nothing: those of a topic whose node was lost are cleaned up, too (RULES D3)."""
    if not any(path.startswith(f"{paths.TOPICS}/") for path in change.deleted):
        return set()
    below = f"{paths.PARTITIONS}/"
    return {paths.partition_of(path)[0] for path in change.deleted if path.startswith(below) and not is_parent(path)}


def is_parent(path: str) -> bool:
    """Whether a node is the parent of a topic's partition states."""
    return path.startswith(f"{paths.PARTITIONS}/") and path.count("/") == 2
