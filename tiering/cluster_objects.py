"""The objects of a cluster besides segments, for a restore from the store alone: topics and committed offsets.

docs/formats/tier.md. The newest object of each kind counts. They are copies, which may lag behind: the truth is in the
metadata store and the logs, as long as the cluster exists.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from tiering.checked_json import FORMAT, checked, with_checksum
from tiering.errors import TierDamaged
from tiering.object_store import Content, ObjectMissing, StoreError
from tiering.parallel import keys_below

if TYPE_CHECKING:
    from tiering.object_store import ObjectStore

OFFSETS_KEPT = 3
_DIGEST_SIZE_BYTES = 16


class TopicCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, with the configs that were set for it. `topic_id`: 32 hex digits."""

    topic_id: str
    topic: str
    partition_count: int
    configs: dict[str, str]
    v: int = FORMAT


class CommittedCopy(msgspec.Struct, frozen=True, array_like=True):
    """An offset that a group has committed in a partition."""

    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetsCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The committed offsets of all groups of one broker, by group id, at time `at_ms`."""

    at_ms: int
    groups: dict[str, list[CommittedCopy]]
    v: int = FORMAT


class ClusterObjects:
    """The topics and committed offsets of a cluster in a store. All methods raise StoreError; reads TierDamaged and
    OtherVersion."""

    def __init__(self, store: ObjectStore, root: str, cluster_id: str) -> None:
        self._store = store
        self._topics = f"{root}{cluster_id}/topics/"
        self._offsets = f"{root}{cluster_id}/offsets/"
        self._known: dict[str, tuple[int, str]] | None = None  # by topic id: version and digest of the newest object
        self._tried: dict[str, int] = {}  # by topic id: the version of the last put, successful or not

    async def put_topic(self, topic: TopicCopy) -> bool:
        """Put a topic, unless the newest object has the same content; returns whether it was put."""
        known = self._known if self._known is not None else await self._list_topics()
        data = with_checksum(topic)
        digest = blake2b(data, digest_size=_DIGEST_SIZE_BYTES).hexdigest()
        version, before = known.get(topic.topic_id, (0, ""))
        if digest == before:
            return False
        following = max(version, self._tried.get(topic.topic_id, 0)) + 1
        self._tried[topic.topic_id] = following
        try:
            await self._store.put(self._topic_key(topic.topic_id, following, digest), Content.of(data))
            if before:
                await self._store.delete(self._topic_key(topic.topic_id, version, before))
        except StoreError:
            self._known = None  # the put may take effect now or later: its version is not used again
            raise
        known[topic.topic_id] = following, digest
        return True

    def forget_listing(self) -> None:
        """List the topics again before the next put: another broker may have written since."""
        self._known = None

    async def forget_topic(self, topic_id: bytes) -> None:
        """Delete the objects of a topic that was deleted."""
        for key in await keys_below(self._store, f"{self._topics}{topic_id.hex()}/"):
            await self._store.delete(key)
        self._tried.pop(topic_id.hex(), None)
        if self._known is not None:
            self._known.pop(topic_id.hex(), None)

    async def topics(self) -> list[TopicCopy]:
        """The newest copy of each topic."""
        found = []
        for topic_id, (version, digest) in (await self._list_topics()).items():
            key = self._topic_key(topic_id, version, digest)
            found.append(checked(await self._store.get(key), key, TopicCopy))
        return found

    async def put_offsets(self, broker_id: int, offsets: OffsetsCopy) -> None:
        """Put the committed offsets of a broker, and delete older ones, except a few."""
        prefix = f"{self._offsets}{broker_id:010d}/"
        keys = await keys_below(self._store, prefix)
        number = _number_of(keys[-1]) + 1 if keys else 0
        await self._store.put(f"{prefix}{number:020d}", Content.of(with_checksum(offsets)))
        for key in keys[: 1 - OFFSETS_KEPT]:
            await self._store.delete(key)

    async def offsets(self) -> list[OffsetsCopy]:
        """The newest committed offsets of each broker."""
        newest: dict[str, str] = {}
        for key in await keys_below(self._store, self._offsets):
            newest[key.rpartition("/")[0]] = key
        found = []
        for key in newest.values():
            try:
                found.append(checked(await self._store.get(key), key, OffsetsCopy))
            except ObjectMissing:
                continue  # there is a newer one by now
        return found

    async def _list_topics(self) -> dict[str, tuple[int, str]]:
        known: dict[str, tuple[int, str]] = {}
        for key in await keys_below(self._store, self._topics):
            topic_id, _, name = key.removeprefix(self._topics).partition("/")
            version, _, digest = name.partition("-")
            if not version.isascii() or not version.isdigit():
                raise TierDamaged(f"{key} is no topic")
            known[topic_id] = int(version), digest
        self._known = known
        return known

    def _topic_key(self, topic_id: str, version: int, digest: str) -> str:
        return f"{self._topics}{topic_id}/{version:010d}-{digest}"


def _number_of(key: str) -> int:
    """The number in the key of committed offsets. Raises TierDamaged."""
    digits = key.rpartition("/")[2]
    if not digits.isascii() or not digits.isdigit():
        raise TierDamaged(f"{key} holds no committed offsets")
    return int(digits)
