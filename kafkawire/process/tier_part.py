"""A broker's part of a remote tier, opened by somebody who is not the broker."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import StoreRefused
from engine.files.io_workers import Lanes
from engine.log_dirs.layout import identity_of
from kafkawire.adapters.tier import store_lanes
from tiering.cluster_objects import ClusterObjects
from tiering.survey import Part, clusters, holdings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkawire.config.broker_config import Config
    from kafkawire.surroundings import Surroundings
    from tiering.object_store import ObjectStore
    from tiering.survey import TopicHolding


class TierUnknown(Exception):
    """The configuration does not say which part is meant; its text is the one line for the operator."""


def open_store(config: Config, world: Surroundings) -> ObjectStore:
    """Raises TierUnknown."""
    if config.tier_store is None:
        raise TierUnknown("tier.store does not say where the remote tier is")
    return world.open_object_store(config, Lanes(world.pool, store_lanes(config.tier_copiers)), world.random)


async def open_part(config: Config, world: Surroundings, cluster_id: str | None) -> Part:
    """Of that cluster; None: the one that the log dirs belong to, or the only one that there is. Raises TierUnknown,
    and what a store does."""
    store = open_store(config, world)
    assert config.tier_store is not None
    root = config.tier_store.root
    return Part(store, root, cluster_id or cluster_of(config, world) or await _only(store, root))


def cluster_of(config: Config, world: Surroundings) -> str | None:
    """Which one the log dirs belong to; None: they do not say."""
    for path in config.log_dirs:
        with suppress(StoreRefused, OSError):
            return identity_of(world.filesystem, str(path.absolute())).cluster_id
    return None


async def _only(store: ObjectStore, root: str) -> str:
    found = await clusters(store, root)
    if len(found) != 1:
        raise TierUnknown(f"say which cluster is meant (--cluster-id); there are: {', '.join(found) or 'none'}")
    return found[0]


async def survey(part: Part, tell: Callable[[str], None]) -> Sequence[TopicHolding]:
    """All topics that were not deleted. Raises what a store does, TierDamaged and OtherVersion."""
    topics = []
    for copy in sorted(
        await ClusterObjects(part.store, part.root, part.cluster_id).topics(), key=lambda one: one.topic
    ):
        tell(f"looking at {copy.topic}: {copy.partition_count} partitions")
        found = await holdings_of(part, copy)
        if found is not None:
            topics.append(found)
    return topics
