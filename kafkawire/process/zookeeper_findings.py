"""Problems of a broker with its ZooKeeper: the servers are asked, and nothing is left there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from coordinator.errors import CannotStart
from coordinator.metadata.unlogged_nodes import decode_cluster
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import MetadataStore, NoNode, StoreError
from kafkawire.adapters.metadata import zookeeper_settings
from kafkawire.process.doctor import DirFacts, Finding, Severity

if TYPE_CHECKING:
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings
    from kafkawire.config.broker_config import Config

Connect = Callable[["ZooKeeperSettings"], Awaitable[MetadataStore]]
SUBJECT = "zookeeper.connect"
NO_START = "a broker does not start with it"


async def connect_zookeeper(settings: ZooKeeperSettings) -> MetadataStore:
    """Connect to ZooKeeper. Raises CannotStart, and NoNode if there is no chroot."""
    from coordinator.metadata_store.zookeeper import open_zookeeper

    return await open_zookeeper(settings, makes_chroot=False)


async def examine_zookeeper(
    config: Config, dirs: Sequence[DirFacts], connect: Connect = connect_zookeeper
) -> list[Finding]:
    """Findings about ZooKeeper; none for a single broker."""
    if not config.is_in_cluster:
        return []
    try:
        store = await connect(zookeeper_settings(config))
        try:
            return [*await _cluster_findings(store, dirs), *await _same_id(store, config.node_id, dirs)]
        finally:
            await store.close()
    except NoNode:
        return [_no_cluster(config)]
    except CannotStart as error:
        return [Finding(Severity.PROBLEM, SUBJECT, str(error), NO_START)]
    except StoreError as error:
        return [Finding(Severity.PROBLEM, SUBJECT, f"the connection was lost again: {error!r}", NO_START)]


def _no_cluster(config: Config) -> Finding:
    text = f"there is no cluster at {config.zookeeper_connect} yet: the first broker makes it"
    return Finding(Severity.NOTE, SUBJECT, text)


async def _cluster_findings(store: MetadataStore, dirs: Sequence[DirFacts]) -> list[Finding]:
    """Findings about the cluster id. Raises NoNode, CannotStart, StoreError."""
    if await store.exists(paths.IMPORT):
        text = "metadata were being put in, which was not finished"
        return [Finding(Severity.PROBLEM, SUBJECT, text, "begin kafkawire metadata import again, with the same file")]
    cluster_id, _ = decode_cluster(paths.CLUSTER, (await store.get(paths.CLUSTER)).value)
    others = sorted({one.owner[0] for one in dirs if one.owner is not None} - {cluster_id})
    text = f"it has cluster {cluster_id}, and log dirs are of cluster {', '.join(others)}"
    return [Finding(Severity.PROBLEM, SUBJECT, text, "set another chroot, or log.dirs")] if others else []


async def _same_id(store: MetadataStore, broker_id: int, dirs: Sequence[DirFacts]) -> list[Finding]:
    """A warning if a broker with the same id is registered that does not use these directories."""
    if any(one.is_in_use for one in dirs) or not await store.exists(paths.broker(broker_id)):
        return []
    text = f"a broker {broker_id} is registered, and it has other log dirs, or was not stopped in order just now"
    return [Finding(Severity.WARNING, SUBJECT, text, "set broker.id, or wait for its session to end")]
