"""The reads of a store that has the whole tree in memory: the embedded store and the fake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coordinator.metadata_store.wakes import children_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.metadata_store.store import Node, Wake
    from coordinator.metadata_store.tree import NodeTree
    from coordinator.metadata_store.wakes import Wakes


class TreeReads(Protocol):
    """Read methods of a `MetadataStore`. A subclass raises an error in `_enter` if they cannot be answered."""

    _tree: NodeTree
    _wakes: Wakes

    async def _enter(self) -> None: ...

    async def get(self, path: str) -> Node:
        """See `MetadataStore`."""
        await self._enter()
        return self._tree.get(path)

    async def exists(self, path: str, wake: Wake | None = None) -> bool:
        """See `MetadataStore`."""
        await self._enter()
        self._wakes.arm(path, wake)
        return self._tree.find(path) is not None

    async def children(self, path: str, wake: Wake | None = None) -> list[str]:
        """See `MetadataStore`."""
        await self._enter()
        names = self._tree.children(path)
        self._wakes.arm(children_of(path), wake)
        return names

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """See `MetadataStore`."""
        await self._enter()
        return [self._tree.children(path) if self._tree.find(path) is not None else [] for path in paths]

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """See `MetadataStore`."""
        await self._enter()
        return [self._tree.find(path) for path in paths]

    async def read_children(self, path: str) -> Mapping[str, Node]:
        """See `MetadataStore`."""
        await self._enter()
        return {name: self._tree.get(f"{path}/{name}") for name in self._tree.children(path)}
