"""Reads the metadata store: all of it at a start, and one change after the other from then on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.cluster.image import empty, folded
from coordinator.cluster.nodes import LoggedNode, decode_change
from coordinator.metadata import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.api import ClusterImage
    from coordinator.cluster.nodes import Change
    from coordinator.metadata.store import MetadataStore


@dataclass(frozen=True, slots=True)
class Loaded:
    """The image, and the number of the oldest change that is kept."""

    image: ClusterImage
    oldest: int


async def load(store: MetadataStore, cluster_id: str) -> Loaded:
    """Reads the last number first, then all nodes, then the changes above that number, up to the newest.

    Nodes are read at different moments, but none of them later than the last change that is read: changes are laid over
    what was read, and only the outcome is looked at. When more changes went by than are kept, all is read again.
    """
    await store.sync()
    while True:
        first = (await _numbers(store))[-1]
        nodes = {node.path: node for node in await _read_all(store)}
        numbers = await _numbers(store)
        changes = await read_changes(store, [number for number in numbers if number > first])
        for change in changes:
            if change is None:
                break
            for path in change.deleted:
                nodes.pop(path, None)
            nodes.update((node.path, node) for node in change.nodes)
        else:
            if len(changes) == numbers[-1] - first:
                return Loaded(folded(empty(cluster_id), numbers[-1], nodes.values()), numbers[0])


async def _numbers(store: MetadataStore) -> list[int]:
    """Of the changes that are kept; that before the first one of all when there are none."""
    return [int(name) for name in await store.children(paths.CHANGES)] or [paths.FIRST_CHANGE - 1]


async def _read_all(store: MetadataStore) -> list[LoggedNode]:
    """All logged nodes that there are."""
    parents = [paths.partitions(bytes.fromhex(name)) for name in await store.children(paths.PARTITIONS)]
    names = await store.children_of_many(parents)
    wanted = [
        paths.CONTROLLER_EPOCH,
        paths.BROKER_CONFIGS,
        paths.FEATURES,
        *_below(paths.MEMBERS, await store.children(paths.MEMBERS)),
        *_below(paths.TOPICS, await store.children(paths.TOPICS)),
        *(path for parent, found in zip(parents, names, strict=True) for path in _below(parent, found)),
    ]
    found = zip(wanted, await store.read_many(wanted), strict=True)
    return [LoggedNode(path, node.version, node.value) for path, node in found if node is not None]


def _below(parent: str, names: Iterable[str]) -> Sequence[str]:
    return [f"{parent}/{name}" for name in names]


async def read_changes(store: MetadataStore, numbers: Sequence[int]) -> list[Change | None]:
    """These changes; None for one that is not there, or no longer."""
    found = [paths.change(number) for number in numbers]
    nodes = zip(found, await store.read_many(found), strict=True)
    return [None if node is None else decode_change(path, node.value) for path, node in nodes]
