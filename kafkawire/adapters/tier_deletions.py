"""Deletion of deleted topics from the remote tier. The metadata list each such topic until none of its objects is left.

Each topic is deleted twice, with a pause as long as a request may be under way: the second deletion removes the objects
that arrived meanwhile. A broker that stops in between begins again.

Each topic is tried by itself, with a back-off of its own: a topic that the tier cannot delete delays no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from coordinator.errors import MetadataUnavailable
from tiering.errors import TierError
from tiering.names import Place
from tiering.object_store import StoreError, StoreUnavailable
from tiering.parallel import for_each
from tiering.problems import Problems
from tiering.topic_deletion import delete_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coordinator.api import ClusterImage, ClusterService, TierDeletion, TierRegister
    from tiering.cluster_objects import ClusterObjects
    from tiering.object_store import ObjectStore
    from tiering.upload.uploader import Identity

TOPICS_AT_ONCE = 4  # a topic whose requests run into their time-outs leaves three others going
PARTITIONS_AT_ONCE = 8  # of one topic
BACKOFF_MAX_MS = 600_000
STORE_AWAY = "deleted topics stay in the tier for now: {}"
TOPIC_FAILED = "deleted topic {} stays in the tier for now, and is tried again: {}"


@dataclass(frozen=True, slots=True)
class DeletionOptions:
    """Options of deletions. `late_put_ms`: how long a request may be under way and still take effect."""

    broker_id: int
    interval_ms: int = 30_000
    late_put_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class DeletionDeps:
    """Dependencies of deletions."""

    now_ms: Callable[[], int]
    random: Random
    on_problem: Callable[[str], None]


@dataclass(slots=True)
class _Progress:
    """The progress of a topic's deletion. `deleted_ms`: when all of it was deleted for the first time."""

    deleted_ms: int | None = None
    failures: int = 0  # since the last success
    next_try_ms: int = 0
    reason: str = ""  # of the last failure


class TierDeletions:
    """Deletions of one broker, which deletes while it is the controller."""

    def __init__(
        self,
        store: ObjectStore,
        identity: Identity,
        copies: ClusterObjects,
        register: TierRegister,
        options: DeletionOptions,
        deps: DeletionDeps,
    ) -> None:
        self._store = store
        self._identity = identity
        self._copies = copies
        self._register = register
        self._options = options
        self._deps = deps
        self._topics: dict[bytes, _Progress] = {}  # by topic id, while the deletion is pending
        self._metadata_problems = Problems(deps.on_problem)
        self._store_problems = Problems(deps.on_problem)
        self._is_away = False
        self.errors = 0

    async def serve(self, cluster: ClusterService) -> None:
        """Delete until cancelled."""
        while True:
            image = cluster.image
            if image.controller_id == self._options.broker_id:
                await self.try_due()
            else:
                self._topics.clear()
            await self._pause(cluster, image)

    async def _pause(self, cluster: ClusterService, image: ClusterImage) -> None:
        with trio.move_on_after(self._options.interval_ms / 1000):
            while cluster.image.topics_by_id.keys() >= image.topics_by_id.keys():
                await cluster.wait_for_image_after(cluster.image.version)

    @property
    def failing(self) -> int:
        """Count of deleted topics whose last try failed."""
        return sum(one.failures > 0 for one in self._topics.values())

    async def try_due(self) -> None:
        """Try the deletions that are due."""
        try:
            pending = await self._register.pending()
        except MetadataUnavailable as error:
            self._metadata_problems.note(STORE_AWAY.format(error))
            return
        self._metadata_problems.clear()
        self._topics = {one.topic_id: self._topics.get(one.topic_id) or _Progress() for one in pending}
        now_ms = self._deps.now_ms()
        due = [one for one in pending if self._topics[one.topic_id].next_try_ms <= now_ms]
        self._is_away = False
        await for_each(due, self._try, TOPICS_AT_ONCE)
        if due and not self._is_away:
            self._store_problems.clear()

    async def _try(self, deletion: TierDeletion) -> None:
        one = self._topics[deletion.topic_id]
        try:
            await self._advance(deletion, one)
        except (StoreUnavailable, MetadataUnavailable) as error:  # concerns all topics: one line is enough
            self._failed(one)
            self._is_away = True
            self._store_problems.note(STORE_AWAY.format(error))
        except (StoreError, TierError) as error:
            self._failed(one)
            self._report_failure(deletion, one, str(error))
        else:
            one.failures, one.reason = 0, ""

    def _failed(self, one: _Progress) -> None:
        self.errors += 1
        one.failures += 1
        backoff_ms = min(self._options.interval_ms << min(one.failures - 1, 10), BACKOFF_MAX_MS)
        one.next_try_ms = self._deps.now_ms() + backoff_ms

    def _report_failure(self, deletion: TierDeletion, one: _Progress, reason: str) -> None:
        """Report a failure, once per change of reason."""
        if reason != one.reason:
            one.reason = reason
            self._deps.on_problem(TOPIC_FAILED.format(f"{deletion.topic} ({deletion.topic_id.hex()})", reason))

    async def _advance(self, deletion: TierDeletion, one: _Progress) -> None:
        if one.deleted_ms is None:
            await self._delete(deletion)
            one.deleted_ms = self._deps.now_ms()
        elif self._deps.now_ms() - one.deleted_ms >= self._options.late_put_ms:
            await self._delete(deletion)
            await self._register.done(deletion)
            self._topics.pop(deletion.topic_id, None)

    async def _delete(self, deletion: TierDeletion) -> None:
        """Delete all partitions and the copy of the topic. Raises the first error."""
        delete = partial(self._delete_partition, deletion.topic_id)
        await for_each(range(deletion.partition_count), delete, PARTITIONS_AT_ONCE)
        await self._copies.forget_topic(deletion.topic_id)

    async def _delete_partition(self, topic_id: bytes, number: int) -> None:
        identity, deps = self._identity, self._deps
        place = Place(identity.root, identity.cluster_id, topic_id, number)
        new_nonce = partial(_nonce, deps.random)
        await delete_partition(self._store, place, identity.owner_generation, new_nonce, deps.now_ms)


def _nonce(random: Random) -> str:
    return random.randbytes(16).hex()
