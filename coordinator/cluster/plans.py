"""What a controller's decision comes to: batches of operations on the metadata store, and the image they lead to. Pure.

`coordinator.runtime` fences the batches, commits them and publishes the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.metadata.store import Operation, size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.api import TopicInfo
    from coordinator.cluster.nodes import TopicChange

BATCH_OPERATIONS_MAX = 1_000
BATCH_SIZE_MAX_BYTES = 496 * 1024  # leaves room for the fence and a change node's frame below the store's limit


@dataclass(frozen=True, slots=True)
class Batch:
    """Operations of one multi; what it says of topics, configs and features a change node in it announces."""

    operations: tuple[Operation, ...]
    topics: tuple[TopicChange, ...] = ()
    broker_configs: bool = False
    features: bool = False

    @property
    def is_announced(self) -> bool:
        """Whether others are to follow."""
        return bool(self.topics) or self.broker_configs or self.features


@dataclass(frozen=True, slots=True)
class Plan:
    """Batches in their order. `cleaning` may fail: the next controller does it again."""

    batches: tuple[Batch, ...]
    cleaning: tuple[Batch, ...] = ()
    changed: tuple[TopicInfo, ...] = ()
    removed: tuple[TopicInfo, ...] = ()
    broker_configs: Mapping[str, Mapping[str, str]] | None = None  # as they will be, if they change
    features: Mapping[str, int] | None = None  # their levels, likewise


def split(operations: Iterable[Operation], announced_size_bytes: int = 0) -> list[tuple[Operation, ...]]:
    """Cuts into runs that fit into a multi together with a fence and a change node.

    `announced_size_bytes` is what each operation adds to the change node at most.
    """
    runs: list[list[Operation]] = []
    run_size_bytes = 0
    for operation in operations:
        added_bytes = size_bytes(operation) + announced_size_bytes
        if not runs or len(runs[-1]) == BATCH_OPERATIONS_MAX or run_size_bytes + added_bytes > BATCH_SIZE_MAX_BYTES:
            runs.append([])
            run_size_bytes = 0
        runs[-1].append(operation)
        run_size_bytes += added_bytes
    return [tuple(run) for run in runs]
