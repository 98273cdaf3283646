"""The cluster's changes as one broker takes part in them: it follows what others wrote, and writes what it decided.

All that is decided is decided on the newest image: a multi creates the node of the next change, which nobody else can
then. Who finds it taken follows the chain and decides again. So a write whose outcome is unknown needs no looking up,
by anybody: it is in the chain, or it will never be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

import trio

from coordinator.cluster.changes import change_of
from coordinator.cluster.image import empty, folded
from coordinator.cluster.kept_changes import KeptChanges
from coordinator.cluster.loading import load, read_changes
from coordinator.cluster.nodes import decode_change, encode_change
from coordinator.metadata import paths
from coordinator.metadata.commits import commit
from coordinator.metadata.store import BadVersion, Check, Create, Delete, NodeExists, NoNode, NotEmpty, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from coordinator.api import ClusterImage
    from coordinator.cluster.nodes import Change
    from coordinator.metadata.store import MetadataStore

CONFLICTS = (BadVersion, NodeExists, NoNode, NotEmpty)  # what a multi meets when someone else wrote in between
NONCE_SIZE_BITS = 128


class Overtaken(Exception):
    """Somebody else's change came first: the image has it now, and what was decided is to be decided again."""


class ChangeLog:
    """Holds the newest image. Any method raises what the store does."""

    def __init__(self, store: MetadataStore, broker_id: int, random: Random) -> None:
        self._store = store
        self._broker_id = broker_id
        self._random = random
        self._kept = KeptChanges(paths.FIRST_CHANGE - 1)
        self._using = trio.Lock()
        self._waiting: WeakSet[trio.Event] = WeakSet()
        self.image = empty("")

    def wake_after(self, version: int, wake: trio.Event) -> None:
        """Sets it when the image is newer than that, at once if it is."""
        if self.image.version > version:
            wake.set()
        else:
            self._waiting.add(wake)

    async def load(self, cluster_id: str) -> None:
        """Reads everything."""
        async with self._using:
            await self._load(cluster_id)

    async def catch_up(self, wake: trio.Event | None = None) -> None:
        """Takes all changes that are there by now; `wake` is set when there may be another."""
        async with self._using:
            await self._catch_up(wake)

    async def commit(
        self, image: ClusterImage, fences: Sequence[Check], operations: Sequence[Operation]
    ) -> ClusterImage:
        """Makes one change of operations that were decided on this image; returns the image with it.

        `fences` are what gives the right to: whoever is overtaken looks whether that is still so. Raises Overtaken.
        """
        async with self._using:
            if image is not self.image:
                raise Overtaken
            number, nonce = image.version + 1, self._random.getrandbits(NONCE_SIZE_BITS).to_bytes(16, "big")
            change = change_of(operations, self._broker_id, nonce)
            value = encode_change(change)
            dropped = [Delete(paths.change(old)) for old in self._kept.dropped_by(len(value))]
            multi = [*fences, *operations, Create(paths.change(number), value), *dropped]
            try:
                await commit(self._store, multi)
            except CONFLICTS as conflict:
                await self._catch_up()
                if self.image is image:  # it is not what the nodes say
                    await self._load(image.cluster_id)
                raise Overtaken from conflict
            self._take(change, len(value))
            return self.image

    async def _catch_up(self, wake: trio.Event | None = None) -> None:
        """To wait for children costs the store one watch, to wait for the next number one for each that was missed."""
        before = self.image
        numbers = [int(name) for name in await self._store.children(paths.CHANGES, wake)]
        news = [number for number in numbers if number > before.version]
        values = await read_changes(self._store, news)
        if news and [*values] != [*range(before.version + 1, news[-1] + 1)]:  # some are no longer kept
            await self._load(before.cluster_id)
        else:
            for number, value in values.items():
                self._take(decode_change(paths.change(number), value), len(value))

    def _take(self, change: Change, size_bytes: int) -> None:
        self._kept.add(size_bytes)
        self._publish(folded(self.image, self.image.version + 1, change.nodes, change.deleted))

    async def _load(self, cluster_id: str) -> None:
        loaded = await load(self._store, cluster_id)
        self._kept = KeptChanges(loaded.image.version, loaded.kept_sizes_bytes)
        self._publish(loaded.image)

    def _publish(self, image: ClusterImage) -> None:
        self.image = image
        waiting, self._waiting = self._waiting, WeakSet()
        for wake in list(waiting):
            wake.set()
