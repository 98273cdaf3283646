"""The remote tier in the cluster's metadata: its place, its owner generation, and the deleted topics with segments in
it.

Only segments of topics that a node here names are deleted from a tier. That the metadata do not know a topic is no
reason: a wiped store knows none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import TierDeletion
from coordinator.errors import CannotStart, MetadataUnavailable
from coordinator.metadata.unlogged_nodes import TierNode, decode_tier, decode_tier_deletion, encode_tier
from coordinator.metadata_store import paths
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import BadVersion, Create, Delete, NodeExists, NoNode, Put, StoreError

if TYPE_CHECKING:
    from coordinator.metadata_store.store import MetadataStore


class TierRegister:
    """Implements `coordinator.api.TierRegister`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def claim(self, url: str, *, is_used: bool) -> int:
        """See `coordinator.api.TierRegister`."""
        try:
            return await self._claimed(url, is_used=is_used)
        except (BadVersion, NodeExists):
            return await self._claimed(url, is_used=is_used)  # another broker was here meanwhile
        except StoreError as error:
            raise CannotStart(f"the metadata store did not answer: {error!r}") from error

    async def _claimed(self, url: str, *, is_used: bool) -> int:
        await self._store.sync()
        try:
            node = await self._store.get(paths.TIER)
        except NoNode:
            await commit(self._store, [Create(paths.TIER, encode_tier(TierNode(url, 0)))])
            return 0
        known = decode_tier(paths.TIER, node.value)
        if known.store == url:
            return known.owner_generation
        if is_used or await self.pending():
            raise CannotStart(f"tier.store is {url}, and the segments of this cluster are in {known.store}")
        moved = TierNode(url, known.owner_generation)
        await self._store.multi([Put(paths.TIER, encode_tier(moved), node.version)])
        return known.owner_generation

    async def pending(self) -> list[TierDeletion]:
        """See `coordinator.api.TierRegister`."""
        try:
            nodes = await self._store.read_children(paths.TIER_DELETIONS)
        except NoNode:
            return []
        except StoreError as error:
            raise MetadataUnavailable("The metadata store does not answer.") from error
        try:
            return [decode_tier_deletion(f"{paths.TIER_DELETIONS}/{name}", node.value) for name, node in nodes.items()]
        except CannotStart as error:  # of another version: this broker deletes nothing
            raise MetadataUnavailable(str(error)) from error

    async def done(self, deletion: TierDeletion) -> None:
        """See `coordinator.api.TierRegister`."""
        try:
            await commit(self._store, [Delete(paths.tier_deletion(deletion.topic_id))])
        except NoNode:
            return  # another controller has done it
        except StoreError as error:
            raise MetadataUnavailable("The metadata store does not answer.") from error
