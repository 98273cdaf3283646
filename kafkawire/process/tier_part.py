"""A broker's part of a remote tier, opened by a command instead of the broker."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import StoreRefused
from engine.files.io_workers import Workers
from engine.log_dirs.layout import identity_of
from kafkawire.adapters.tier import store_workers
from tiering.cluster_objects import ClusterObjects
from tiering.inventory.inventory import Part, clusters, holdings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkawire.config.broker_config import Config
    from kafkawire.deps import Deps
    from tiering.inventory.inventory import TopicHolding
    from tiering.object_store import ObjectStore


class TierUnknown(Exception):
    """The configuration does not determine the part; the text is the line for the operator."""


def open_store(config: Config, deps: Deps) -> ObjectStore:
    """Open the object store. Raises TierUnknown."""
    if config.tier_store is None:
        raise TierUnknown("tier.store does not say where the remote tier is")
    return deps.open_object_store(config, Workers(deps.pool, store_workers(config.tier_copiers)), deps.random)


async def open_part(config: Config, deps: Deps, cluster_id: str | None) -> Part:
    """Open the part of a cluster: the given one, that of the log dirs, or the only one.

    Raises TierUnknown, and the errors of a store.
    """
    store = open_store(config, deps)
    assert config.tier_store is not None
    root = config.tier_store.root
    return Part(store, root, cluster_id or cluster_of(config, deps) or await _only(store, root))


def cluster_of(config: Config, deps: Deps) -> str | None:
    """The cluster id in the log dirs; None if they have none."""
    for path in config.log_dirs:
        with suppress(StoreRefused, OSError):
            return identity_of(deps.filesystem, str(path.absolute())).cluster_id
    return None


async def _only(store: ObjectStore, root: str) -> str:
    found = await clusters(store, root)
    if len(found) != 1:
        raise TierUnknown(f"say which cluster is meant (--cluster-id); there are: {', '.join(found) or 'none'}")
    return found[0]


async def survey(part: Part, on_progress: Callable[[str], None]) -> Sequence[TopicHolding]:
    """All topics that are not deleted. Raises errors of the store, TierDamaged and OtherVersion."""
    topics = []
    for copy in sorted(
        await ClusterObjects(part.store, part.root, part.cluster_id).topics(), key=lambda one: one.topic
    ):
        on_progress(f"looking at {copy.topic}: {copy.partition_count} partitions")
        found = await holdings_of(part, copy)
        if found is not None:
            topics.append(found)
    return topics
