"""The plan of a decision: operations on the metadata store, in their order, and the topic that results. Pure.

If a multi cannot hold all operations, several are made. Each leads to another image, on which the rest is decided anew:
a plan leaves out changes that are there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from coordinator.errors import CoordinatorError
from coordinator.metadata.nodes import encode_partition
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Operation, Put, size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coordinator.api import ClusterImage, PartitionState, Refusals, TopicInfo

T = TypeVar("T")

BATCH_OPERATIONS_MAX = 1_000
TOGETHER_MAX = 50  # states of partitions that one multi holds, however large they are
BATCH_SIZE_MAX_BYTES = 496 * 1024  # leaves room for fences and a change node's frame below the store's limit


@dataclass(frozen=True, slots=True)
class Plan:
    """The operations of a decision. `topic`: the topic it is about, as it will be, or as it was when it is deleted.
    `refused`: of requests that are carried out together, the error of each."""

    operations: Sequence[Operation]
    topic: TopicInfo | None = None
    refused: Sequence[CoordinatorError | None] = ()


def together(image: ClusterImage, orders: Sequence[T], decide: Callable[[ClusterImage, T], Operation | None]) -> Plan:
    """A plan for requests that do not depend on each other. Of two about one node the last counts."""
    operations: dict[str, Operation] = {}
    refused: Refusals = []
    for order in orders:
        try:
            operation = decide(image, order)
        except CoordinatorError as error:
            refused.append(error)
            continue
        refused.append(None)
        if operation is not None:
            operations[operation.path] = operation
    return Plan([*operations.values()], refused=refused)


def first_batch(operations: Sequence[Operation]) -> Sequence[Operation]:
    """The first of the operations, as many as fit into one multi. Each counts twice: a change node repeats it."""
    total_bytes = 0
    for count, operation in enumerate(operations):
        total_bytes += 2 * size_bytes(operation)
        if count == BATCH_OPERATIONS_MAX or (count and total_bytes > BATCH_SIZE_MAX_BYTES):
            return operations[:count]
    return operations


def write_partition(topic_id: bytes, number: int, state: PartitionState) -> Put:
    """Replace the state of a partition that has the version of this one."""
    return Put(paths.partition(topic_id, number), encode_partition(state), state.version)


def write_single(image: ClusterImage, path: str, value: bytes) -> Operation:
    """Write a single node, or create it."""
    known = image.singles.get(path)
    return Create(path, value) if known is None else Put(path, value, known.version)
