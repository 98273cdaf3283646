"""Producer ids: each is given out once in the life of a cluster, by any of its brokers (KIP-98).

As in Kafka's RPCProducerIdManager a broker takes blocks of a thousand, here by compare-and-set of a metadata node, and
gives out their ids from memory; the rest of a stopped broker's block is never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from coordinator.errors import CannotStart, MetadataUnavailable
from coordinator.metadata.unlogged_nodes import decode_producer_ids, encode_producer_ids
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    NodeExists,
    NoNode,
    Put,
    StoreError,
)

if TYPE_CHECKING:
    from coordinator.metadata_store.store import MetadataStore

BLOCK_SIZE = 1000
ATTEMPTS_MAX = 10
PAUSE_S = 0.05
TAKE_TIMEOUT_S = 10.0  # as a request waits for a change of the metadata


@dataclass(slots=True)
class Block:
    """Ids from `next_id` up to `end`, not included."""

    next_id: int = 0
    end: int = 0

    def take(self) -> int:
        taken = self.next_id
        self.next_id += 1
        return taken


class ProducerIds:
    """Gives out ids; takes another block when the one it has is used up."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._block = Block()
        self._taking = trio.Lock()

    async def next_id(self) -> int:
        """An unused id. Raises MetadataUnavailable, at the latest after TAKE_TIMEOUT_S."""
        with trio.move_on_after(TAKE_TIMEOUT_S):
            async with self._taking:
                if self._block.next_id == self._block.end:
                    self._block = await self._take_block()
                return self._block.take()
        raise MetadataUnavailable("The metadata store did not give out producer ids in time.")

    async def _take_block(self) -> Block:
        """Take a block. A write whose outcome is not known may cost a block, and no more: the next try begins behind
        it."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._try_to_take()
            except (BadVersion, NodeExists, NoNode):
                continue
            except ConnectionLost:
                await trio.sleep(PAUSE_S)
            except StoreError:
                break
        raise MetadataUnavailable("No producer ids can be had from the metadata store.")

    async def _try_to_take(self) -> Block:
        """Try to take a block, the first one at 0. That needs a store with a cluster: in a wiped store, ids were given
        out before."""
        await self._store.sync()
        try:
            node = await self._store.get(paths.PRODUCER_IDS)
        except NoNode:
            cluster = Check(paths.CLUSTER, (await self._store.get(paths.CLUSTER)).version)
            self._check_unused(0)
            await self._store.multi([cluster, Create(paths.PRODUCER_IDS, encode_producer_ids(BLOCK_SIZE))])
            return Block(0, BLOCK_SIZE)
        try:
            first = decode_producer_ids(paths.PRODUCER_IDS, node.value)
        except CannotStart as error:  # of another version: this broker gives out no more ids
            raise MetadataUnavailable(str(error)) from error
        self._check_unused(first)
        await self._store.multi([Put(paths.PRODUCER_IDS, encode_producer_ids(first + BLOCK_SIZE), node.version)])
        return Block(first, first + BLOCK_SIZE)

    def _check_unused(self, first: int) -> None:
        """Refuse ids of this process's own blocks: the server lags behind, or the store was rolled back. Raises
        BadVersion."""
        if first < self._block.end:
            raise BadVersion(paths.PRODUCER_IDS)
