"""The change log as one broker takes part in it: it follows the changes of other brokers, and writes its own.

All decisions are made on the newest image: a multi creates the node of the next change, which no other multi can create
then. A broker that finds the number taken follows the chain and decides again. So a write whose outcome is unknown
needs no search: it is in the chain, or it never will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import trio

from coordinator.errors import CannotStart, MetadataRolledBack
from coordinator.metadata.change_retention import ChangeRetention
from coordinator.metadata.changes import OPERATOR, change_of
from coordinator.metadata.history import HistoryPosition, contradiction, digest_of
from coordinator.metadata.image import empty, folded
from coordinator.metadata.loading import load, number_of, read_changes
from coordinator.metadata.nodes import decode_change, encode_change
from coordinator.metadata.unlogged_nodes import decode_cluster
from coordinator.metadata_store import paths
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import BadVersion, Check, Create, Delete, NodeExists, NoNode, NotEmpty, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from coordinator.api import ClusterImage
    from coordinator.metadata.loading import Loaded
    from coordinator.metadata.nodes import Change
    from coordinator.metadata_store.store import MetadataStore

CONFLICTS = (BadVersion, NodeExists, NoNode, NotEmpty)  # errors of a multi when another broker wrote in between
NONCE_SIZE_BITS = 128
ROLLED_BACK = "the metadata store was rolled back"
ACCEPTED: Final = "the rollback of the metadata store was accepted: stop and start this broker"
ADVICE: Final = "restore newer data, or see `kafkawire metadata accept-rollback --help`"
CONTRADICTED_MAX: Final = 10  # looks: a leader that was deposed and does not know it may show an older store
READ_AGAIN_S: Final = 0.5


class Overtaken(Exception):
    """The change of another broker came first: the image has it now, and the decision is to be made again."""


def _ignore(_old: ClusterImage, _new: ClusterImage) -> None: ...


class ChangeLog:
    """Holds the newest image. Any method raises the errors of the store. `on_image`: called with the image before and
    each new one."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        random: Random,
        on_image: Callable[[ClusterImage, ClusterImage], None] = _ignore,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._random = random
        self._on_image = on_image
        self._retention = ChangeRetention(paths.FIRST_CHANGE - 1)
        self._using = trio.Lock()
        self._waiting: WeakSet[trio.Event] = WeakSet()
        self._deleted: dict[bytes, int] = {}  # topics by id, and the number of the image since which that is known
        self._newest: bytes | None = None  # the value of the change that the image ends with
        self.image = empty("")

    @property
    def deleted_topics(self) -> Collection[bytes]:
        """The ids of topics that a change has deleted, until `forget_deleted`."""
        return self._deleted.keys()

    def forget_deleted(self, version: int) -> None:
        """Forget deleted topics up to that version, as the host has followed its image."""
        self._deleted = {topic_id: known_at for topic_id, known_at in self._deleted.items() if known_at > version}

    def wake_after(self, version: int, wake: trio.Event) -> None:
        """Set `wake` when the image is newer than that version, at once if it is."""
        if self.image.version > version:
            wake.set()
        else:
            self._waiting.add(wake)

    @property
    def followed(self) -> HistoryPosition:
        """The newest change that this broker has followed, to be remembered over a restart."""
        image, history = self.image, self.image.history
        return HistoryPosition(history.generation, history.history_id, image.version, digest_of(self._newest))

    async def load(self, cluster_id: str, known: HistoryPosition | None = None) -> None:
        """Read everything, at a start. `known`: the change that the process before has followed. Raises
        MetadataRolledBack."""
        for attempt in range(CONTRADICTED_MAX):
            if attempt:
                await trio.sleep(READ_AGAIN_S)
            async with self._using:
                loaded = await load(self._store, cluster_id)
                why = None if known is None else await self._contradiction(known, loaded.image)
                if why is None:
                    self._take_all(loaded)
                    return
        raise MetadataRolledBack(f"{ROLLED_BACK}: {why}; {ADVICE}")

    async def _contradiction(self, known: HistoryPosition, image: ClusterImage) -> str | None:
        kept = await read_changes(self._store, [known.change])
        return contradiction(known, image.history, image.version, digest_of(kept.get(known.change)))

    async def catch_up(self, wake: trio.Event | None = None) -> None:
        """Take all changes that are there by now; `wake` is set when there may be another."""
        async with self._using:
            await self._catch_up(wake)

    async def commit(
        self, image: ClusterImage, fences: Sequence[Check], operations: Sequence[Operation]
    ) -> ClusterImage:
        """Make one change of operations that were decided on this image; return the image with it.

        `fences`: checks of the right to write. After Overtaken, the caller looks whether it still has that right.
        Raises Overtaken.
        """
        async with self._using:
            if image is not self.image:
                raise Overtaken
            number, nonce = image.version + 1, self._random.getrandbits(NONCE_SIZE_BITS).to_bytes(16, "big")
            change = change_of(operations, self._broker_id, nonce)
            value = encode_change(change)
            dropped = [Delete(paths.change(old)) for old in self._retention.dropped_by(len(value))]
            # No change over a gap: in a store that was rolled back the change before this one is not there.
            before = [Check(paths.change(image.version), 0)] if image.version >= paths.FIRST_CHANGE else []
            multi = [*fences, *before, *operations, Create(paths.change(number), value), *dropped]
            try:
                await commit(self._store, multi)
            except CONFLICTS as conflict:
                await self._catch_up()
                if self.image is image:  # the image does not match the nodes
                    await self._load(image.cluster_id)
                raise Overtaken from conflict
            self._take(change, value)
            return self.image

    async def _catch_up(self, wake: trio.Event | None = None) -> None:
        """Take all changes that are there. A wait for children costs the store one watch; a wait for the next number,
        one for each change that was missed.

        The change that the image ends with is read again: if it is another one, the store was rolled back.
        """
        before = self.image
        numbers = await self._numbers(wake)
        news = [number for number in numbers if number > before.version]
        values = await read_changes(self._store, [before.version, *news] if before.version in numbers else news)
        if values.pop(before.version, self._newest) != self._newest:
            raise MetadataRolledBack(
                f"{ROLLED_BACK}: change {before.version} differs from the change that this broker has applied"
            )
        if news and [*values] != [*range(before.version + 1, news[-1] + 1)]:  # some are no longer kept
            await self._load(before.cluster_id)
        else:
            for number, value in values.items():
                change = decode_change(paths.change(number), value)
                if change.writer == OPERATOR:
                    raise MetadataRolledBack(ACCEPTED)
                self._take(change, value)

    async def _numbers(self, wake: trio.Event | None) -> list[int]:
        """The numbers of the changes that are kept. A server that lags behind shows the newest after a sync; a store
        that was rolled back does not. Raises MetadataRolledBack."""
        for is_synced in (False, True):
            if is_synced:
                await self._store.sync()
            numbers = [number_of(name) for name in await self._store.children(paths.CHANGES, wake)]
            newest = max(numbers, default=paths.FIRST_CHANGE - 1)
            if newest >= self.image.version:
                return numbers
        raise self._rolled_back_to(newest)

    def _rolled_back_to(self, newest: int) -> MetadataRolledBack:
        return MetadataRolledBack(f"{ROLLED_BACK}: its newest change is {newest}, not {self.image.version}")

    def _take(self, change: Change, value: bytes) -> None:
        image = folded(self.image, self.image.version + 1, change.nodes, change.deleted)
        if change.deleted:
            gone = self.image.topics_by_id.keys() - image.topics_by_id.keys()
            self._deleted |= dict.fromkeys(gone, image.version)
        self._retention.add(len(value))
        self._newest = value
        self._publish(image)

    async def _load(self, cluster_id: str) -> None:
        """Read everything again. If topics are missing and no change has deleted them, they must not be taken for
        deleted ones: their data would be deleted. Raises CannotStart."""
        node = await self._store.get(paths.CLUSTER)
        found, _ = decode_cluster(paths.CLUSTER, node.value)
        if found != cluster_id:
            raise MetadataRolledBack(f"the metadata store holds the cluster {found}, this broker is of {cluster_id}")
        loaded = await load(self._store, cluster_id)
        if loaded.image.history != self.image.history:
            raise MetadataRolledBack(ACCEPTED)
        if loaded.image.version < self.image.version:
            raise self._rolled_back_to(loaded.image.version)
        if loaded.image.version == self.image.version:
            for lost in sorted(_paths(self.image) - _paths(loaded.image)):
                raise CannotStart(f"the metadata node {lost} is missing, and no change has deleted it")
        self._take_all(loaded)

    def _take_all(self, loaded: Loaded) -> None:
        self._retention = ChangeRetention(loaded.image.version, loaded.kept_sizes_bytes)
        self._deleted |= dict.fromkeys(loaded.deleted, loaded.image.version)
        self._newest = loaded.newest
        self._publish(loaded.image)

    def _publish(self, image: ClusterImage) -> None:
        before, self.image = self.image, image
        waiting, self._waiting = self._waiting, WeakSet()
        for wake in list(waiting):
            wake.set()
        self._on_image(before, image)


def _paths(image: ClusterImage) -> set[str]:
    """The nodes that are deleted by a change alone, or never."""
    return {*image.singles, *map(paths.topic, image.topics)}
