"""Reading of the metadata store: all of it at a start, and one change after the other from then on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from coordinator.errors import CannotStart
from coordinator.metadata.changes import deleted_topics
from coordinator.metadata.history import FIRST, History
from coordinator.metadata.history_nodes import decode_history
from coordinator.metadata.image import empty, folded
from coordinator.metadata.nodes import LoggedNode, decode_change, is_of_earlier_format
from coordinator.metadata_store import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.api import ClusterImage
    from coordinator.metadata_store.store import MetadataStore


LOADS_MAX = 100  # more changes than are kept went by during each: no cluster writes so fast


class Loaded(NamedTuple):
    """The image, and the sizes of the changes that are kept, up to the image's own, whose value is `newest`. `deleted`:
    the ids of topics that one of them deletes."""

    image: ClusterImage
    kept_sizes_bytes: Sequence[int]
    newest: bytes | None
    deleted: frozenset[bytes] = frozenset()


async def load(store: MetadataStore, cluster_id: str) -> Loaded:
    """Read the last number first, then all nodes, then the changes above that number, up to the newest.

    Nodes are read at different moments, but none of them later than the last change that is read: changes are laid over
    the nodes, and only the outcome is used. When more changes went by than are kept, all is read again.

    Raises CannotStart.
    """
    await store.sync()
    for _ in range(LOADS_MAX):
        history = await read_history(store)
        first = (await _numbers(store))[-1]
        nodes = {node.path: node for node in await _read_all(store)}
        kept = await _read_kept(store)
        newest = max(kept, default=first)
        newer = [number for number in kept if number > first]
        # A change of an earlier format is in the nodes: that version's metadata were taken over as a whole.
        changes = {
            number: decode_change(paths.change(number), value)
            for number, value in kept.items()
            if number > first or not is_of_earlier_format(paths.change(number), value)
        }
        if len(newer) < newest - first:
            continue
        for change in (changes[number] for number in newer):
            for path in change.deleted:
                nodes.pop(path, None)
            nodes.update((node.path, node) for node in change.nodes)
        image = folded(empty(cluster_id), newest, nodes.values())
        if paths.CONTROLLER_EPOCH not in image.singles:
            raise CannotStart(f"the metadata node {paths.CONTROLLER_EPOCH} is missing")
        deleted = frozenset[bytes]().union(*map(deleted_topics, changes.values()))
        sizes = [len(value) for value in kept.values()]
        return Loaded(replace(image, history=history), sizes, kept.get(newest), deleted)
    raise CannotStart(
        f"the metadata node {paths.CHANGES} is damaged: some of the changes {first + 1} to {newest} are missing"
    )


async def read_history(store: MetadataStore) -> History:
    """The history that the store's changes belong to. Raises CannotStart."""
    [node] = await store.read_many([paths.HISTORY])
    return FIRST if node is None else decode_history(paths.HISTORY, node.value)


async def _numbers(store: MetadataStore) -> list[int]:
    """The numbers of the changes that are kept; without any, the number before the first change. Raises CannotStart."""
    return [number_of(name) for name in await store.children(paths.CHANGES)] or [paths.FIRST_CHANGE - 1]


def number_of(name: str) -> int:
    """The number of a change from the name of its node. Raises CannotStart."""
    if not (name.isascii() and name.isdecimal()):
        raise CannotStart(
            f"the metadata node {paths.CHANGES}/{name} is damaged: its name is not the number of a change"
        )
    return int(name)


def _topic_id_of(name: str) -> bytes:
    try:
        return bytes.fromhex(name)
    except ValueError:
        raise CannotStart(
            f"the metadata node {paths.PARTITIONS}/{name} is damaged: its name is not a topic id"
        ) from None


async def _read_kept(store: MetadataStore) -> dict[int, bytes]:
    """The changes that are kept, all at one moment: without changes that a writer deletes meanwhile, and with those
    that it writes. A broker that knew of others would not know which changes its own next one has to delete."""
    found: dict[int, bytes] = {}
    while True:
        numbers = [number for number in await _numbers(store) if number >= paths.FIRST_CHANGE]
        found |= await read_changes(store, [number for number in numbers if number not in found])
        if all(number in found for number in numbers):
            return {number: found[number] for number in numbers}


async def _read_all(store: MetadataStore) -> list[LoggedNode]:
    """All logged nodes that there are."""
    parents = [paths.partitions(_topic_id_of(name)) for name in await store.children(paths.PARTITIONS)]
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
    """The values of these change nodes, without nodes that do not exist, or no longer."""
    found = zip(numbers, await store.read_many([paths.change(number) for number in numbers]), strict=True)
    return {number: node.value for number, node in found if node is not None}
