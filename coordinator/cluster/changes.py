"""The change that a multi makes, from its operations. Pure; docs/formats/metadata.md has what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.cluster.nodes import Change, LoggedNode
from coordinator.metadata import paths
from coordinator.metadata.store import Create, Delete, Operation, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


OPERATOR: Final = -1  # the writer of a change that accepts a rollback: no running broker follows it


def change_of(operations: Iterable[Operation], writer: int, nonce: bytes) -> Change:
    """All that others have to know of the operations; `nonce` is drawn for this multi."""
    logged = [operation for operation in operations if paths.is_logged(operation.path)]
    deleted = tuple(operation.path for operation in logged if isinstance(operation, Delete))
    return Change(writer, nonce, tuple(_written(logged)), deleted)


def _written(operations: Iterable[Operation]) -> Iterator[LoggedNode]:
    """A parent below `/partitions` says nothing that anybody follows."""
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
    """Whether a node is one of those that a topic's partition states lie below."""
    return path.startswith(f"{paths.PARTITIONS}/") and path.count("/") == 2
