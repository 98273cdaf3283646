"""Reads the metadata store: all of it at a start, and one change after the other from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.cluster.image import empty, folded
from coordinator.cluster.nodes import LoggedNode, decode_change
from coordinator.metadata import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.api import ClusterImage
    from coordinator.metadata.store import MetadataStore


class Loaded(NamedTuple):
    """The image, and the sizes of the changes that are kept, up to the image's own."""

    image: ClusterImage
    kept_sizes_bytes: Sequence[int]


async def load(store: MetadataStore, cluster_id: str) -> Loaded:
    """Reads the last number first, then all nodes, then the changes above that number, up to the newest.

    Nodes are read at different moments, but none of them later than the last change that is read: changes are laid over
    what was read, and only the outcome is looked at. When more changes went by than are kept, all is read again.
    """
    await store.sync()
    while True:
        first = (await _numbers(store))[-1]
        nodes = {node.path: node for node in await _read_all(store)}
        kept = await _read_kept(store)
        newest = max(kept, default=first)
        newer = [number for number in kept if number > first]
        if len(newer) < newest - first:
            continue
        for number in newer:
            change = decode_change(paths.change(number), kept[number])
            for path in change.deleted:
                nodes.pop(path, None)
            nodes.update((node.path, node) for node in change.nodes)
        image = folded(empty(cluster_id), newest, nodes.values())
        return Loaded(image, [len(value) for value in kept.values()])


async def _numbers(store: MetadataStore) -> list[int]:
    """Of the changes that are kept; that before the first one of all when there are none."""
    return [int(name) for name in await store.children(paths.CHANGES)] or [paths.FIRST_CHANGE - 1]


async def _read_kept(store: MetadataStore) -> dict[int, bytes]:
    """The changes that are kept, all at one moment: what a writer takes away meanwhile is none of them, and what it
    writes is. Who knew of others than there are would not know what its own next change has to take away."""
    found: dict[int, bytes] = {}
    while True:
        numbers = [number for number in await _numbers(store) if number >= paths.FIRST_CHANGE]
        found |= await read_changes(store, [number for number in numbers if number not in found])
        if all(number in found for number in numbers):
            return {number: found[number] for number in numbers}


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


async def read_changes(store: MetadataStore, numbers: Sequence[int]) -> dict[int, bytes]:
    """The values of these change nodes, without those that are not there, or no longer."""
    found = zip(numbers, await store.read_many([paths.change(number) for number in numbers]), strict=True)
    return {number: node.value for number, node in found if node is not None}
