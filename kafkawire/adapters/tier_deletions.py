"""Deleted topics, and what the remote tier has of them: the metadata says which, from the moment they are deleted until
nothing of them is left.

Twice, with a pause as long as a request may be under way: what arrived meanwhile goes with the second time. A broker
that stops in between begins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from coordinator.errors import MetadataUnavailable
from tiering.errors import TierError
from tiering.names import Place
from tiering.object_store import StoreError
from tiering.problems import Problems
from tiering.sweeps import for_each
from tiering.topic_deletion import delete_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coordinator.api import ClusterImage, ClusterService, TierDeletion, TierRegister
    from tiering.cluster_objects import ClusterObjects
    from tiering.keeper import Identity
    from tiering.object_store import ObjectStore

PARTITIONS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class DeletionOptions:
    """`late_put_ms`: how long a request may be under way and still take effect."""

    broker_id: int
    interval_ms: int = 30_000
    late_put_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class DeletionWorld:
    """What it needs of the world outside."""

    now_ms: Callable[[], int]
    random: Random
    on_problem: Callable[[str], None]


class TierDeletions:
    """Of one broker: it deletes while it is the controller."""

    def __init__(
        self,
        store: ObjectStore,
        identity: Identity,
        copies: ClusterObjects,
        register: TierRegister,
        options: DeletionOptions,
        world: DeletionWorld,
    ) -> None:
        self._store = store
        self._identity = identity
        self._copies = copies
        self._register = register
        self._options = options
        self._world = world
        self._deleted_ms: dict[bytes, int] = {}  # by topic id, when it was so for the first time
        self._problems = Problems(world.on_problem)

    async def serve(self, cluster: ClusterService) -> None:
        """Until cancelled."""
        while True:
            image = cluster.image
            if image.controller_id == self._options.broker_id:
                await self.look()
            await self._pause(cluster, image)

    async def _pause(self, cluster: ClusterService, image: ClusterImage) -> None:
        with trio.move_on_after(self._options.interval_ms / 1000):
            while cluster.image.topics_by_id.keys() >= image.topics_by_id.keys():
                await cluster.wait_for_image_after(cluster.image.version)

    async def look(self) -> None:
        """Do what can be done by now."""
        try:
            for one in await self._register.pending():
                await self._advance(one)
        except (StoreError, TierError, MetadataUnavailable) as error:
            self._problems.note(f"deleted topics stay in the tier for now: {error}")
        else:
            self._problems.clear()

    async def _advance(self, deletion: TierDeletion) -> None:
        now_ms, deleted_ms = self._world.now_ms(), self._deleted_ms.get(deletion.topic_id)
        if deleted_ms is None:
            await self._delete(deletion)
            self._deleted_ms[deletion.topic_id] = self._world.now_ms()
        elif now_ms - deleted_ms >= self._options.late_put_ms:
            await self._delete(deletion)
            await self._register.done(deletion)
            del self._deleted_ms[deletion.topic_id]

    async def _delete(self, deletion: TierDeletion) -> None:
        """All partitions; raises the first of what went wrong."""
        delete = partial(self._delete_partition, deletion.topic_id)
        await for_each(range(deletion.partition_count), delete, PARTITIONS_AT_ONCE)
        await self._copies.forget_topic(deletion.topic_id)

    async def _delete_partition(self, topic_id: bytes, number: int) -> None:
        identity, world = self._identity, self._world
        place = Place(identity.root, identity.cluster_id, topic_id, number)
        new_nonce = partial(_nonce, world.random)
        await delete_partition(self._store, place, identity.owner_generation, new_nonce, world.now_ms)


def _nonce(random: Random) -> str:
    return random.randbytes(16).hex()
